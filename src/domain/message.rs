//! Messages: one recipient's mail in the outbox, and how its hand-over ends.

use std::fmt;
use std::time::Instant;

use chrono::TimeDelta;
use sha2::{Digest, Sha256};

use super::address::Address;
use super::fingerprint::{Fingerprint, hex};
use super::ids::{GuardOwner, MessageId, OrgId, Token, UserId};
use super::week::SendKey;

/// The states of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageState {
    /// Waiting for its turn.
    Pending,
    /// Owned by a replica, nothing of it has left yet.
    Leased,
    /// The marker is set: its body may be leaving now.
    Sending,
    /// The relay answered 2xx to the body.
    Accepted,
    /// Given up, with a reason.
    Failed,
    /// The body left and no usable answer came: may or may not have been accepted.
    Uncertain,
    /// Kept back on purpose, with a reason.
    Suppressed,
    /// Its time passed before the relay took it.
    Expired,
    /// Taken back by an operator.
    Cancelled,
}

impl MessageState {
    /// Every state, in the order of a message's life.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Leased,
        Self::Sending,
        Self::Accepted,
        Self::Failed,
        Self::Uncertain,
        Self::Suppressed,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The name in the database, in metrics and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Sending => "sending",
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
            Self::Suppressed => "suppressed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing more happens by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Accepted | Self::Failed | Self::Suppressed | Self::Expired | Self::Cancelled)
    }
}

impl fmt::Display for MessageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a message ended without being accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageReason {
    /// Suppressed: the admin unsubscribed.
    OptedOut,
    /// Suppressed: the address bounced before.
    Suppressed,
    /// Suppressed: the guard knows this digest for this address already.
    Duplicate,
    /// Suppressed: no longer an active, opted-in admin of the org.
    NotAMember,
    /// Failed: the address cannot be parsed.
    BadAddress,
    /// Failed: this recipient's mail could not be rendered.
    RenderFailed,
    /// Failed: the relay refused it for good.
    Refused,
    /// Failed: the attempts are used up.
    TooManyAttempts,
    /// Failed: its row or its bytes cannot be read.
    Corrupt,
    /// Expired: older than the age limit.
    TooOld,
    /// Cancelled: by an operator.
    Operator,
}

impl MessageReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::OptedOut,
        Self::Suppressed,
        Self::Duplicate,
        Self::NotAMember,
        Self::BadAddress,
        Self::RenderFailed,
        Self::Refused,
        Self::TooManyAttempts,
        Self::Corrupt,
        Self::TooOld,
        Self::Operator,
    ];

    /// The name in the database, in metrics and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OptedOut => "opted_out",
            Self::Suppressed => "suppressed",
            Self::Duplicate => "duplicate",
            Self::NotAMember => "not_a_member",
            Self::BadAddress => "bad_address",
            Self::RenderFailed => "render_failed",
            Self::Refused => "refused",
            Self::TooManyAttempts => "too_many_attempts",
            Self::Corrupt => "corrupt",
            Self::TooOld => "too_old",
            Self::Operator => "operator",
        }
    }

    /// Parses the name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for MessageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message's name outside the database: `X-Digestd-Id`, the left part of `Message-ID`
/// and the name of an .eml file. Derived from org, key and address, so that it is the
/// same whoever renders, and tells nothing about them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageUid(String);

impl MessageUid {
    /// Derives the name. 128 bits of SHA-256 over the three, separated by NUL, in hex.
    pub fn derive(org: &OrgId, key: SendKey, address: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [org.as_str(), &key.to_string(), address] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let bytes = hash.finalize();
        Self(hex(&bytes[..16]))
    }

    /// Takes a name from the database.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One recipient's part of a send, ready to be enqueued.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The admin.
    pub user: UserId,
    /// The org's name as the message has it.
    pub org_name: String,
    /// The unique key within the send: the normalised address, or the raw text of a broken one.
    pub address: String,
    /// The name outside the database.
    pub uid: MessageUid,
    /// What to do with it.
    pub content: DraftContent,
}

impl Draft {
    /// The bytes that it will hold in the outbox.
    pub fn size(&self) -> usize {
        match &self.content {
            DraftContent::Message { bytes, .. } => bytes.len(),
            DraftContent::Final(..) => 0,
        }
    }
}

/// What a draft holds.
#[derive(Debug, Clone)]
pub enum DraftContent {
    /// A whole RFC 5322 message, to be delivered.
    Message {
        /// The envelope recipient.
        to: Address,
        /// What the guard remembers.
        fingerprint: Fingerprint,
        /// The final bytes.
        bytes: Vec<u8>,
    },
    /// A final row from the start: a broken address, an opt-out, a failed rendering.
    Final(MessageState, MessageReason),
}

/// A message owned by this replica for a while. Made by the store only; not `Clone`.
#[derive(Debug)]
pub struct Leased {
    /// The row.
    pub id: MessageId,
    /// The fence that every write under this lease names.
    pub token: Token,
    /// The name outside the database.
    pub uid: MessageUid,
    /// Whose digest it is; for membership checks and logs.
    pub org: OrgId,
    /// The admin.
    pub user: UserId,
    /// Their address in its normal form.
    pub address: String,
    /// The envelope recipient: the admin, or whoever gets all mail of a test installation.
    pub to: Address,
    /// What the guard remembers.
    pub fingerprint: Fingerprint,
    /// Attempts charged so far.
    pub attempts: u32,
    /// Whether a person or the policy has asked for this hand-over again: overrides the guard.
    pub resend: bool,
    /// Whether failures of the address are on record: an acceptance ends their row.
    pub failed_before: bool,
    /// The final bytes.
    pub bytes: Vec<u8>,
    /// Local trust ends here, counted from before the lease was asked for.
    pub trusted_until: Instant,
}

impl Leased {
    /// What fences a write under this lease.
    pub fn fence(&self) -> Fence {
        Fence { id: self.id, token: self.token }
    }
}

/// What fences a write under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The row.
    pub id: MessageId,
    /// The token that the row must still have.
    pub token: Token,
}

/// What becomes of a message after one hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Taken by the relay.
    Accepted,
    /// Certainly not taken; try again.
    Retry {
        /// How long to wait.
        after: TimeDelta,
        /// Whether this try counts against the attempts.
        charge: bool,
    },
    /// Certainly not taken, and not to be tried again.
    Failed(MessageReason),
    /// Kept back: never handed over.
    Suppressed(MessageReason),
    /// May or may not have been taken.
    Uncertain,
}

impl Disposition {
    /// The state that it leads to.
    pub const fn state(&self) -> MessageState {
        match self {
            Self::Accepted => MessageState::Accepted,
            Self::Retry { .. } => MessageState::Pending,
            Self::Failed(_) => MessageState::Failed,
            Self::Suppressed(_) => MessageState::Suppressed,
            Self::Uncertain => MessageState::Uncertain,
        }
    }
}

/// The end of one hand-over, to be recorded under its fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The lease that it belongs to.
    pub fence: Fence,
    /// What becomes of the message.
    pub disposition: Disposition,
    /// The phase reached, such as `rcpt`; for the ledger.
    pub phase: &'static str,
    /// The relay's answer or the error, sanitised and cut; for the ledger, never for logs.
    pub note: String,
    /// Under what name the guard was asked, if it may have been.
    pub guard: Option<GuardOwner>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_states_and_reasons_are_read_back_as_they_were_written() {
        for state in MessageState::ALL {
            assert_eq!(MessageState::parse(state.as_str()), Some(state));
            assert_eq!(state.to_string(), state.as_str());
        }
        for reason in MessageReason::ALL {
            assert_eq!(MessageReason::parse(reason.as_str()), Some(reason));
            assert_eq!(reason.to_string(), reason.as_str());
        }
        for text in ["", "Pending", "sent"] {
            assert_eq!((MessageState::parse(text), MessageReason::parse(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn what_may_still_move_by_itself_or_needs_a_decision_is_not_final() {
        use MessageState::{Leased, Pending, Sending, Uncertain};
        let open: Vec<MessageState> =
            MessageState::ALL.into_iter().filter(|state| !state.is_final()).collect();
        assert_eq!(open, [Pending, Leased, Sending, Uncertain]);
    }

    #[test]
    fn a_message_s_name_is_32_digits_and_the_same_whoever_derives_it() {
        let derive = |org, key, address| {
            MessageUid::derive(&OrgId::parse(org).unwrap(), SendKey::parse(key).unwrap(), address)
        };
        let uid = derive("acme", "2026-W28", "ann@x.io");
        assert_eq!(uid, derive("acme", "2026-W28", "ann@x.io"));
        assert_eq!(uid, MessageUid::from_stored(uid.to_string()));
        assert_eq!(uid.to_string(), uid.as_str());
        assert!(uid.as_str().len() == 32 && uid.as_str().bytes().all(|b| b.is_ascii_hexdigit()), "{uid}");
        for (org, key, address) in [
            ("acm", "2026-W28", "ann@x.io"),
            ("acme", "2026-W29", "ann@x.io"),
            ("acme", "2026-W28", "bob@x.io"),
        ] {
            assert_ne!(uid, derive(org, key, address));
        }
    }

    #[test]
    fn a_draft_is_as_large_as_its_bytes_and_a_final_row_holds_none() {
        let draft = |content| Draft {
            user: UserId::lenient("ann"),
            org_name: "Acme".to_owned(),
            address: "ann@x.io".to_owned(),
            uid: MessageUid::from_stored("0".repeat(32)),
            content,
        };
        let message = DraftContent::Message {
            to: Address::parse("ann@x.io").unwrap(),
            fingerprint: Fingerprint::derive("ann@x.io", "weekly", "acme 2026-W28"),
            bytes: b"Subject: x\r\n".to_vec(),
        };
        let opted_out = DraftContent::Final(MessageState::Suppressed, MessageReason::OptedOut);
        assert_eq!((draft(message).size(), draft(opted_out).size()), (12, 0));
    }
}
