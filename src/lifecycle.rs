//! Signals, stopping in two steps, and exit codes.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// After the hard stop, how long tasks get to drop what they hold. Connections to a
/// database close in it; nothing new is begun.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// How the process ends: the codes of `sysexits.h`, and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well, or a stop that was asked for.
    Ok = 0,
    /// The command worked and found something wrong: `check`, `audit`, `healthcheck`.
    ProblemFound = 1,
    /// Wrong arguments.
    Usage = 64,
    /// Input data that cannot be used: `import`.
    Data = 65,
    /// A server is not there: the database stayed away longer than `database.start_timeout`.
    Unavailable = 69,
    /// A fault of ours.
    Internal = 70,
    /// The configuration cannot be used.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The two steps of stopping. A clone is another handle to the same stop.
///
/// Soft: begin nothing new, finish or give back what was begun. Hard: drop it; leases and
/// markers tell the other replicas what is left. The hard token is also cancelled by
/// whoever gives up waiting, so a task need only watch the two.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Cancelled at the first signal.
    pub soft: CancellationToken,
    /// Cancelled when the grace is over, or at the second signal.
    pub hard: CancellationToken,
}

impl Shutdown {
    /// Two tokens that nothing has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for both steps: the soft one now, the hard one once `grace` is over or at the next
    /// signal. Returns when the hard one is due.
    pub async fn stop(&self, grace: Duration, next_signal: impl Future<Output = ()>) {
        self.soft.cancel();
        tokio::select! {
            () = tokio::time::sleep(grace) => tracing::warn!("the grace is over; stopping at once"),
            () = next_signal => tracing::warn!("a second signal came; stopping at once"),
            () = self.hard.cancelled() => {}
        }
        self.hard.cancel();
    }

    /// Watches SIGTERM and SIGINT from now on, in a task of its own.
    pub fn listen(&self, grace: Duration) -> std::io::Result<()> {
        let mut signals = Signals::install()?;
        let shutdown = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = signals.next() => tracing::info!("a signal came; finishing what was begun"),
                () = shutdown.soft.cancelled() => {}
            }
            shutdown.stop(grace, signals.next()).await;
        });
        Ok(())
    }
}

/// The parts of a replica. One that panics ends them all: half a replica looks alive and leaves work undone,
/// while an orchestrator starts a whole one again.
#[derive(Debug)]
pub struct Parts {
    tracker: TaskTracker,
    soft: CancellationToken,
    panicked: Arc<OnceLock<&'static str>>,
}

impl Parts {
    /// None yet.
    pub fn new(shutdown: &Shutdown) -> Self {
        Self { tracker: TaskTracker::new(), soft: shutdown.soft.clone(), panicked: Arc::default() }
    }

    /// Starts a part.
    pub fn spawn(&self, part: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.watch(part, tokio::spawn(work));
    }

    /// Watches a part that runs already.
    pub fn watch(&self, part: &'static str, task: JoinHandle<()>) {
        let (soft, panicked) = (self.soft.clone(), Arc::clone(&self.panicked));
        self.tracker.spawn(async move {
            if let Err(error) = task.await {
                tracing::error!(part, %error, "a part of this replica has panicked; the replica ends");
                // Only the first is told.
                let _ = panicked.set(part);
                soft.cancel();
            }
        });
    }

    /// All that are still running.
    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// The first part that has panicked, if any has.
    pub fn panicked(&self) -> Option<&'static str> {
        self.panicked.get().copied()
    }
}

/// Waits until all tasks have ended, at the latest a moment after the hard stop.
///
/// Returns whether they did. The tracker is closed; the soft stop is asked for if nobody has.
pub async fn finish(tracker: &TaskTracker, shutdown: &Shutdown) -> bool {
    shutdown.soft.cancel();
    tracker.close();
    let ended = tokio::select! {
        () = tracker.wait() => true,
        () = shutdown.hard.cancelled() => tokio::time::timeout(LAST_MOMENT, tracker.wait()).await.is_ok(),
    };
    if !ended {
        tracing::warn!(
            tasks = tracker.len(),
            "tasks were still running at the end; their leases will expire"
        );
    }
    shutdown.hard.cancel();
    ended
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(25);

    #[tokio::test(start_paused = true)]
    async fn the_hard_stop_comes_when_the_grace_is_over() {
        let shutdown = Shutdown::new();
        let begun = tokio::time::Instant::now();
        shutdown.stop(GRACE, std::future::pending()).await;
        assert_eq!(begun.elapsed().as_secs(), GRACE.as_secs());
        assert!(shutdown.soft.is_cancelled() && shutdown.hard.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_grace() {
        let shutdown = Shutdown::new();
        let begun = tokio::time::Instant::now();
        shutdown.stop(GRACE, std::future::ready(())).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(shutdown.hard.is_cancelled());
    }

    #[tokio::test]
    async fn the_first_sigterm_is_soft_and_the_next_is_hard() {
        let shutdown = Shutdown::new();
        shutdown.listen(Duration::from_hours(1)).unwrap();
        let terminate =
            || std::process::Command::new("sh").args(["-c", "kill -TERM $PPID"]).status().unwrap();
        terminate();
        shutdown.soft.cancelled().await;
        assert!(!shutdown.hard.is_cancelled());
        terminate();
        shutdown.hard.cancelled().await;
    }

    #[tokio::test]
    async fn a_part_that_panics_ends_the_others_and_is_told() {
        let shutdown = Shutdown::new();
        let parts = Parts::new(&shutdown);
        parts.spawn("the other", shutdown.soft.clone().cancelled_owned());
        assert_eq!(parts.panicked(), None);
        parts.spawn("the one", async { panic!("as the test wants") });
        assert!(finish(parts.tracker(), &shutdown).await);
        assert_eq!(parts.panicked(), Some("the one"));
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_end_in_the_grace_are_waited_for() {
        let (shutdown, tracker) = (Shutdown::new(), TaskTracker::new());
        let soft = shutdown.soft.clone();
        tracker.spawn(async move {
            soft.cancelled().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
        assert!(finish(&tracker, &shutdown).await);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_hang_are_left_a_moment_after_the_hard_stop() {
        let (shutdown, tracker) = (Shutdown::new(), TaskTracker::new());
        tracker.spawn(std::future::pending::<()>());
        let begun = tokio::time::Instant::now();
        let (ended, ()) =
            tokio::join!(finish(&tracker, &shutdown), shutdown.stop(GRACE, std::future::pending()));
        assert!(!ended);
        assert_eq!(begun.elapsed(), GRACE + LAST_MOMENT);
    }
}
