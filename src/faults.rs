//! Crash points for the tests. With the feature `faults` off, which every release build has off,
//! they are nothing.

/// Where a process may be told to die.
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
    /// The relay has answered, nothing is recorded.
    AfterReply,
}

/// Dies here, at once and without clean-up, if `DIGESTD_FAULT` names this point.
#[cfg(feature = "faults")]
#[expect(clippy::disallowed_methods, reason = "a test's switch, absent from release builds")]
pub fn point(point: Point) {
    let name = match point {
        Point::AfterClaim => "after_claim",
        Point::BeforeEnqueueCommit => "before_enqueue_commit",
        Point::AfterEnqueue => "after_enqueue",
        Point::AfterLease => "after_lease",
        Point::AfterMarker => "after_marker",
        Point::AfterReply => "after_reply",
    };
    if std::env::var("DIGESTD_FAULT").is_ok_and(|wanted| wanted == name) {
        std::process::abort();
    }
}

/// Nothing.
#[cfg(not(feature = "faults"))]
#[inline]
pub fn point(_: Point) {}
