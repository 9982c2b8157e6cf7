//! How much of the database the unsubscribe page may use.
//!
//! Only requests whose token has been found good come this far, so a flood of guesses costs hashes
//! and no queries. The limits are for one process and all visitors together: mailbox providers
//! click for many people from few addresses, so a limit per address would hit the wrong ones.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Requests a second, over time. A day of it is more than eight million.
const PER_SECOND: f64 = 100.0;
/// Requests at once, after a quiet time.
const BURST: f64 = 500.0;
/// Requests that use the database at the same time: delivery needs its connections more.
const AT_ONCE: usize = 3;

/// The gate before the database.
#[derive(Debug)]
pub(super) struct Gate {
    bucket: Mutex<Bucket>,
    free: Semaphore,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    filled_at: Instant,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            bucket: Mutex::new(Bucket { left: BURST, filled_at: Instant::now() }),
            free: Semaphore::new(AT_ONCE),
        }
    }

    /// Whether one more request may come in.
    pub(super) fn admit(&self) -> bool {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
    }

    /// Waits for one's turn at the database. `None` never comes: nobody closes the gate.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.free.acquire().await.ok()
    }

    /// When a refused visitor may come again.
    pub(super) const fn retry_after() -> Duration {
        Duration::from_secs(30)
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.left = (self.left + since * PER_SECOND).min(BURST);
        self.filled_at = now;
        let admitted = self.left >= 1.0;
        if admitted {
            self.left -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_in_and_then_only_the_steady_rate() {
        let gate = Gate::new();
        let admitted = |n: usize| (0..n).filter(|_| gate.admit()).count();
        assert_eq!(admitted(1000), 500);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(admitted(1000), 100);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(admitted(1000), 500);
    }
}
