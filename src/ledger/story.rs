//! The story of one org's digest: what `explain` answers.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::words::time;

/// What became of one org's digest of one week, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The org.
    pub org: String,
    /// Its name, where the source tells it.
    pub name: Option<String>,
    /// The week.
    pub week: String,
    /// When this was asked.
    pub now: DateTime<Utc>,
    /// The answer in one sentence.
    pub outcome: String,
    /// When the digest is due; nothing for an org that nobody knows.
    pub slot: Option<SlotStory>,
    /// The week's send, then resends about the same days.
    pub sends: Vec<SendStory>,
    /// Admins who get nothing, and why.
    pub left_out: Vec<LeftOut>,
    /// What happens next.
    pub next: Vec<String>,
}

/// When a digest is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotStory {
    /// On the org's own clocks.
    pub local: String,
    /// When the slot opens.
    pub at: DateTime<Utc>,
    /// When its window ends.
    pub closes_at: DateTime<Utc>,
}

/// One send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SendStory {
    /// The week, or `manual-` and a time.
    pub key: String,
    /// The state.
    pub state: &'static str,
    /// Why it ended without messages.
    pub reason: Option<&'static str>,
    /// What happened, in the order of time.
    pub events: Vec<Event>,
    /// Whom it goes to.
    pub recipients: Vec<RecipientStory>,
}

/// Something that happened at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When.
    pub at: DateTime<Utc>,
    /// What, in words.
    pub what: String,
}

/// One recipient of a send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecipientStory {
    /// The message's row, for `digestd queue show`.
    pub message: i64,
    /// The admin.
    pub user: String,
    /// The normalised address.
    pub address: String,
    /// The state.
    pub state: &'static str,
    /// Why it ended without an acceptance.
    pub reason: Option<&'static str>,
    /// The state in words, with what happens next if anything does.
    pub outcome: String,
    /// Hand-overs that did not end in an acceptance, and operators' acts.
    pub attempts: Vec<Event>,
}

/// An admin who gets nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The admin, where there is one.
    pub user: Option<String>,
    /// The address.
    pub address: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        writeln!(f, "Org {}{name}, week {}", self.org, self.week)?;
        writeln!(f, "{}", self.outcome)?;
        if let Some(slot) = &self.slot {
            writeln!(f, "\nSlot")?;
            writeln!(f, "  {}", slot.local)?;
            writeln!(f, "  open from {} to {} UTC", time(slot.at), time(slot.closes_at))?;
        }
        for send in &self.sends {
            write!(f, "{send}")?;
        }
        if !self.left_out.is_empty() {
            writeln!(f, "\nLeft out")?;
            for one in &self.left_out {
                let user = one.user.as_ref().map(|user| format!(" ({user})")).unwrap_or_default();
                writeln!(f, "  {}{user}: {}", one.address, one.why)?;
            }
        }
        writeln!(f, "\nNext")?;
        self.next.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl fmt::Display for SendStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resend = if self.key.starts_with("manual-") {
            format!(" to the resend {}", self.key)
        } else {
            String::new()
        };
        writeln!(f, "\nWhat happened{resend} (UTC)")?;
        for event in &self.events {
            writeln!(f, "  {}  {}", time(event.at), event.what)?;
        }
        if self.recipients.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nRecipients")?;
        for recipient in &self.recipients {
            writeln!(f, "  {} ({}): {}", recipient.address, recipient.user, recipient.outcome)?;
            for attempt in &recipient.attempts {
                writeln!(f, "    {}  {}", time(attempt.at), attempt.what)?;
            }
        }
        Ok(())
    }
}
