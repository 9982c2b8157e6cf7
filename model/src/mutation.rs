//! The protocol with one rule left out, to see that the rule is needed and that the properties see it.

/// What is left out, or done in the wrong order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// `enqueue` asks for the state, not for the epoch.
    NoEpochInFence,
    /// `mark_messages` asks for the token, not for the state.
    NoStateInFence,
    /// The body leaves without a marker.
    NoMarker,
    /// The fingerprint is taken before the marker.
    GuardBeforeMarker,
    /// A fingerprint is given back whoever holds it.
    GuardGivenBackByNonOwner,
    /// `delete_sends` does not wait for the end of the week.
    RetentionInsideHorizon,
    /// `claim` does not ask whether the window is open.
    ClaimWithoutWindow,
    /// `record_missed` does not ask whether the week is closed already.
    MissedWithoutWeek,
    /// `mark_swept` before every candidate was claimed.
    SweptBeforeComplete,
    /// An opt-out is a condition of the marker, so that it reads as superseded.
    OptOutInWhere,
    /// `sweep_messages` raises the token.
    SweepRaisesToken,
    /// A connection sets its next marker before its last result is recorded.
    NextMarkerBeforeResult,
    /// A claim cannot be taken over.
    ClaimIsALatch,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::NoEpochInFence,
        Self::NoStateInFence,
        Self::NoMarker,
        Self::GuardBeforeMarker,
        Self::GuardGivenBackByNonOwner,
        Self::RetentionInsideHorizon,
        Self::ClaimWithoutWindow,
        Self::MissedWithoutWeek,
        Self::SweptBeforeComplete,
        Self::OptOutInWhere,
        Self::SweepRaisesToken,
        Self::NextMarkerBeforeResult,
        Self::ClaimIsALatch,
    ];
}
