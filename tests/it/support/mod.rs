//! What the integration tests share: databases ([`backend`]), real processes ([`process`]), a
//! relay that misbehaves by script ([`smtp_server`]), and patience with a deadline ([`eventually`]).

#[macro_use]
pub mod backend;

pub mod browser;
pub mod certs;
pub mod counters;
pub mod engine;
pub mod fixtures;
pub mod fleet;
pub mod pooler;
pub mod postfix;
pub mod process;
pub mod proxy;
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

/// The seed of a test's chance: `DIGESTD_SEED`, or a new one. Printed, so that a failure can be run again.
pub fn seed() -> u64 {
    let given = variable("DIGESTD_SEED").map(|text| text.parse().expect("DIGESTD_SEED is a number"));
    let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    eprintln!("DIGESTD_SEED={seed}");
    seed
}

/// Chance that can be repeated (`SplitMix64`).
#[derive(Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
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
