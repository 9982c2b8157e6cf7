//! A digest sent once more because a person asks for it: on the command line, or in the browser.

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::address::Address;
use crate::domain::digest::Recipient;
use crate::domain::ids::{OrgId, SendId};
use crate::domain::schedule::Period;
use crate::domain::week::SendKey;
use crate::source::{Gathered, Question, Source, SourceError};
use crate::store::manual::ManualSend;
use crate::store::{Store, StoreError};

/// How long a send is tried that a person has asked for; whoever asks wants it now, not next week.
pub const GIVE_UP: TimeDelta = TimeDelta::days(1);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Resend {
    /// Whose digest.
    pub org: OrgId,
    /// The days that it is about.
    pub period: Period,
    /// When it was asked for, to the millisecond: its own key.
    pub asked_at: DateTime<Utc>,
    /// The only address that it may reach.
    pub only: Option<Address>,
}

impl Resend {
    /// Whether it would reach anybody: a slip of the pen must not end as a digest that nobody gets.
    pub async fn reaches_somebody(&self, source: &Source) -> Result<bool, SourceError> {
        let question = Question {
            orgs: std::slice::from_ref(&self.org),
            key: SendKey::manual(self.asked_at),
            slot_at: self.asked_at,
            period: &self.period,
        };
        let Some(Gathered::Digest(input)) = source.gather(&question).await?.remove(&self.org) else {
            return Ok(false);
        };
        let meant = |recipient: &Recipient| match (&recipient.address, &self.only) {
            (Ok(address), Some(only)) => address.normal() == only.normal(),
            (Ok(_), None) => true,
            (Err(_), _) => false,
        };
        Ok(input.recipients.iter().any(meant))
    }

    /// Asks for it. `None`: the same org's digest was asked for in the same millisecond, most likely by the
    /// same form sent twice.
    pub async fn ask(&self, store: &Store) -> Result<Option<(SendId, SendKey)>, StoreError> {
        let send = ManualSend {
            org: self.org.clone(),
            asked_at: self.asked_at,
            period: self.period.clone(),
            only: self.only.clone(),
            give_up: GIVE_UP,
        };
        store.insert_manual(&send).await
    }
}
