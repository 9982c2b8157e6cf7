//! What the integration tests share: databases ([`backend`]), real processes ([`process`]), a
//! relay that misbehaves by script ([`smtp_server`]), and patience with a deadline ([`eventually`]).

#[macro_use]
pub mod backend;

pub mod certs;
pub mod engine;
pub mod fixtures;
pub mod fleet;
pub mod process;
pub mod redis;
pub mod replica;
pub mod smtp_server;
pub mod web;
pub mod world;

use std::time::{Duration, Instant};

/// How often [`eventually`] looks. Short against any deadline, long against a look at a database.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks again and again until there is something to see; panics with `what` at the deadline.
///
/// This is the tests' only way to wait: for an observable fact, never for a while.
pub async fn eventually<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not seen within {within:?}: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The size of a test: `short` as a rule, `long` under `scripts/test-long`, which sets `DIGESTD_LONG=1`.
pub fn scale(short: usize, long: usize) -> usize {
    if variable("DIGESTD_LONG").is_some_and(|value| value == "1") { long } else { short }
}

/// One variable of the environment; an empty one counts as absent.
#[expect(
    clippy::disallowed_methods,
    reason = "the tests' own settings come from the environment, read here alone"
)]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

mod tests {
    use super::{eventually, scale, variable};
    use std::time::Duration;

    #[tokio::test]
    #[should_panic(expected = "not seen within 60ms: a fact that never comes")]
    async fn waiting_ends_at_its_deadline() {
        eventually("a fact that never comes", Duration::from_millis(60), async || None::<()>).await;
    }

    #[test]
    fn a_test_is_short_unless_the_long_run_is_asked_for() {
        let long = variable("DIGESTD_LONG").as_deref() == Some("1");
        assert_eq!(scale(1, 2), if long { 2 } else { 1 });
    }
}
