//! Which loops still move: each touches its pulse, `/healthz` looks at all of them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The pulses of a process. Cheap to clone; clones share the pulses.
#[derive(Debug, Clone)]
pub struct Progress {
    started: Instant,
    pulses: Arc<Mutex<Vec<Pulse>>>,
}

/// One loop's pulse, which the loop touches whenever it has made progress.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Beat>);

#[derive(Debug)]
struct Beat {
    name: &'static str,
    allowance: Duration,
    started: Instant,
    /// Milliseconds from `started` to the last touch.
    touched: AtomicU64,
}

/// How a loop is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopHealth {
    /// The loop.
    pub name: &'static str,
    /// How long ago it last made progress.
    pub idle: Duration,
    /// How long it may take.
    pub allowance: Duration,
}

impl Progress {
    /// No loops yet.
    pub fn new() -> Self {
        Self { started: Instant::now(), pulses: Arc::default() }
    }

    /// Watches a loop from now on. `allowance` is the longest time between two touches of a loop
    /// that is well: a few times its interval, and longer than its longest step. A loop that has
    /// ended counts as stalled.
    pub fn watch(&self, name: &'static str, allowance: Duration) -> Pulse {
        let pulse =
            Pulse(Arc::new(Beat { name, allowance, started: self.started, touched: AtomicU64::new(0) }));
        pulse.touch();
        self.pulses.lock().unwrap_or_else(PoisonError::into_inner).push(pulse.clone());
        pulse
    }

    /// How long ago this was made, with the process as a rule.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Every loop, in the order in which they were started.
    pub fn report(&self) -> Vec<LoopHealth> {
        self.pulses.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Pulse::health).collect()
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Pulse {
    /// Says that the loop has made progress.
    pub fn touch(&self) {
        let now = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.touched.fetch_max(now, Ordering::Relaxed);
    }

    fn health(&self) -> LoopHealth {
        let touched = Duration::from_millis(self.0.touched.load(Ordering::Relaxed));
        let idle = self.0.started.elapsed().saturating_sub(touched);
        LoopHealth { name: self.0.name, idle, allowance: self.0.allowance }
    }
}

impl LoopHealth {
    /// Whether the loop has taken longer than it may.
    pub fn is_stalled(&self) -> bool {
        self.idle > self.allowance
    }
}

impl fmt::Display for LoopHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_stalled() { "stalled" } else { "moving" };
        let (idle, allowance) = (self.idle.as_secs(), self.allowance.as_secs());
        write!(f, "{}: {word}, last progress {idle} s ago, {allowance} s allowed", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_not_touched_within_its_allowance_is_stalled() {
        let progress = Progress::new();
        let tick = progress.watch("tick", Duration::from_mins(1));
        let _ended = progress.watch("sweep", Duration::from_secs(10));
        let stalled = || {
            let report = progress.report();
            report.iter().filter(|l| l.is_stalled()).map(|l| l.name).collect::<Vec<_>>()
        };
        assert_eq!(stalled(), [""; 0]);
        tokio::time::advance(Duration::from_secs(59)).await;
        tick.touch();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(stalled(), ["sweep"]);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(stalled(), ["tick", "sweep"]);
        tick.touch();
        assert_eq!(stalled(), ["sweep"]);
        assert_eq!(progress.report()[0].to_string(), "tick: moving, last progress 0 s ago, 60 s allowed");
    }
}
