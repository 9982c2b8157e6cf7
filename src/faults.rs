//! Crash and freeze points for the tests. With the feature `faults` off, which every release build has off,
//! they are nothing.

/// Where a process may be told to die or to freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A batch is claimed, nothing gathered.
    AfterClaim,
    /// Messages are inserted, the transaction is not committed.
    BeforeEnqueueCommit,
    /// The enqueue is committed.
    AfterEnqueue,
    /// Messages are leased, nothing has left.
    AfterLease,
    /// The marker is committed, the body has not left.
    AfterMarker,
    /// Envelope, marker and guard agree, and the time was looked at: the body is about to leave.
    BeforeBody,
    /// The relay has answered, nothing is recorded.
    AfterReply,
    /// Markers and results are about to be written.
    Journal,
}

/// Stops here if `DIGESTD_FAULT` names this point: `after_marker` dies at once and without clean-up,
/// `freeze:after_marker` stands still at its first arrival, until somebody lets it go on, and
/// `panic:after_marker` panics at its first arrival.
#[cfg(feature = "faults")]
#[expect(clippy::disallowed_methods, reason = "a test's switch, absent from release builds")]
pub fn point(point: Point) {
    let name = match point {
        Point::AfterClaim => "after_claim",
        Point::BeforeEnqueueCommit => "before_enqueue_commit",
        Point::AfterEnqueue => "after_enqueue",
        Point::AfterLease => "after_lease",
        Point::AfterMarker => "after_marker",
        Point::BeforeBody => "before_body",
        Point::AfterReply => "after_reply",
        Point::Journal => "journal",
    };
    let Ok(wanted) = std::env::var("DIGESTD_FAULT") else { return };
    if wanted == name {
        std::process::abort();
    }
    if wanted.strip_prefix("freeze:") == Some(name) && is_first() {
        // By the shell's `kill`: the crate forbids the unsafe call that a signal needs. Some thread has to run
        // for the signal to be heard; this one waits for the shell, and that until it surely was.
        let _ = std::process::Command::new("sh").args(["-c", "kill -s STOP $PPID; sleep 1"]).status();
    }
    assert!(wanted.strip_prefix("panic:") != Some(name) || !is_first(), "a test asked for this panic");
}

/// Whether no thread has come this far before.
#[cfg(feature = "faults")]
fn is_first() -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ARRIVED: AtomicBool = AtomicBool::new(false);
    !ARRIVED.swap(true, Ordering::SeqCst)
}

/// Nothing.
#[cfg(not(feature = "faults"))]
#[inline]
pub fn point(_: Point) {}
