//! Sends and claims: who renders which org's digest, and how that ended.

use std::fmt;

use chrono::{DateTime, Utc};

use super::address::Address;
use super::ids::{Epoch, OrgId, SendId};
use super::schedule::{Period, Slot};
use super::week::SendKey;

/// An org whose slot is open, made by [`super::due`] only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueOrg {
    /// Whose digest.
    pub org: OrgId,
    /// The open slot.
    pub slot: Slot,
    /// The days that the digest is about.
    pub period: Period,
}

/// A won send, held under a lease. Made by the store only and consumed by the
/// write that ends it, so that one claim cannot end twice.
#[derive(Debug)]
pub struct Claim {
    /// The row.
    pub send: SendId,
    /// The fence that every write under this claim names.
    pub epoch: Epoch,
    /// Whose digest.
    pub org: OrgId,
    /// The unique key within the org.
    pub key: SendKey,
    /// When the slot opened; for a resend, when it was asked for.
    pub slot_at: DateTime<Utc>,
    /// The days that the digest is about, frozen when the send was made.
    pub period: Period,
    /// For a resend to one admin: the only address it may reach.
    pub only: Option<Address>,
    /// How often this org's own gathering has started.
    pub attempts: u32,
    /// How the claim was won.
    pub origin: ClaimOrigin,
}

/// How a claim was won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOrigin {
    /// By inserting the row.
    Inserted,
    /// By taking over an expired claim; worked one org at a time.
    TakenOver,
}

/// The states of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendState {
    /// Held under a lease; gathering and rendering.
    Claimed,
    /// All messages are in the outbox.
    Enqueued,
    /// Nothing to send, with a reason.
    Skipped,
    /// Given up, with a reason.
    Failed,
    /// The window passed without a claim.
    Missed,
}

impl SendState {
    /// Every state, in the order of a send's life.
    pub const ALL: [Self; 5] = [Self::Claimed, Self::Enqueued, Self::Skipped, Self::Failed, Self::Missed];

    /// The name in the database, in metrics and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Enqueued => "enqueued",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Missed => "missed",
        }
    }

    /// Parses the name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for SendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a send ended without messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendReason {
    /// Skipped: nothing happened in the period.
    EmptyWeek,
    /// Skipped: nobody in the org is opted in, active and addressable.
    NoRecipients,
    /// Skipped: the org was deactivated between the sweep and the gathering.
    OrgGone,
    /// Failed: the org's zone is not an IANA name.
    BadTimezone,
    /// Failed: the data could not be gathered within the attempts.
    GatherFailed,
    /// Failed: the digest could not be rendered within the attempts.
    RenderFailed,
    /// Failed or missed: the time for this digest has passed.
    TooLate,
}

impl SendReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::EmptyWeek,
        Self::NoRecipients,
        Self::OrgGone,
        Self::BadTimezone,
        Self::GatherFailed,
        Self::RenderFailed,
        Self::TooLate,
    ];

    /// The name in the database, in metrics and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EmptyWeek => "empty_week",
            Self::NoRecipients => "no_recipients",
            Self::OrgGone => "org_gone",
            Self::BadTimezone => "bad_timezone",
            Self::GatherFailed => "gather_failed",
            Self::RenderFailed => "render_failed",
            Self::TooLate => "too_late",
        }
    }

    /// Parses the name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for SendReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_states_and_reasons_are_read_back_as_they_were_written() {
        for state in SendState::ALL {
            assert_eq!(SendState::parse(state.as_str()), Some(state));
            assert_eq!(state.to_string(), state.as_str());
        }
        for reason in SendReason::ALL {
            assert_eq!(SendReason::parse(reason.as_str()), Some(reason));
            assert_eq!(reason.to_string(), reason.as_str());
        }
        for text in ["", "Claimed", "sent"] {
            assert_eq!((SendState::parse(text), SendReason::parse(text)), (None, None), "{text}");
        }
    }
}
