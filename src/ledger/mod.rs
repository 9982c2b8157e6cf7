//! The ledger: what became of each org's digest, and whether everybody is accounted for.
//!
//! Reads only. The answers are values that serialise to JSON and print as text, for the command line and
//! for HTTP alike.

pub mod audit;
pub mod explain;
mod facts;
pub mod plan;
mod recipients;
pub mod story;
pub mod whom;
pub(crate) mod words;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::{DateTime, Utc};

use crate::domain::candidate::Candidate;
use crate::domain::due::{DueRules, Younger, owed};
use crate::domain::schedule::{Slot, WeeklySchedule};
use crate::domain::send::DueOrg;
use crate::domain::week::WeekKey;
use crate::source::{Source, SourceError};
use crate::store::{Store, StoreError};

/// What the ledger is read from.
#[derive(Debug)]
pub struct Ledger {
    /// All rows.
    pub store: Store,
    /// Who is owed digests.
    pub source: Source,
    /// Which slots belong to an org.
    pub rules: DueRules,
    /// The configured schedule, for orgs whose own zone is none.
    pub fallback: WeeklySchedule,
    /// The relay's name in the database.
    pub relay: String,
    /// How often an org's digest is tried before its send is failed.
    pub max_attempts: u32,
}

/// What could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// All rows.
    #[error("the ledger could not be read")]
    Store(#[from] StoreError),
    /// Who is owed digests.
    #[error("the source failed")]
    Source(#[from] SourceError),
}

/// Candidates per page.
const PAGE: u32 = 500;

/// A candidate of a page with its slot in a week, and what it is owed in it.
struct Placed<'a> {
    candidate: &'a Candidate,
    schedule: WeeklySchedule,
    slot: Slot,
    owed: Result<DueOrg, Younger>,
}

impl Ledger {
    /// Places a page of candidates in a week, by the instants as stored.
    async fn place<'a>(
        &self,
        page: &'a [Candidate],
        week_of: impl Fn(&WeeklySchedule) -> WeekKey,
        instants: &mut HashMap<(WeeklySchedule, WeekKey), DateTime<Utc>>,
    ) -> Result<Vec<Placed<'a>>, LedgerError> {
        let mut unknown = Vec::new();
        let mut slots = Vec::new();
        for candidate in page {
            let schedule = candidate.schedule_or(&self.fallback);
            let slot = schedule.slot_in(week_of(&schedule));
            if let Entry::Vacant(place) = instants.entry((schedule.clone(), slot.week)) {
                place.insert(slot.at);
                unknown.push((schedule.clone(), slot));
            }
            slots.push((candidate, schedule, slot));
        }
        if !unknown.is_empty() {
            let stored = self.store.stored_slots(&unknown).await?;
            for ((schedule, slot), at) in unknown.into_iter().zip(stored) {
                instants.insert((schedule, slot.week), at);
            }
        }
        let placed = slots.into_iter().map(|(candidate, schedule, slot)| {
            let at = instants.get(&(schedule.clone(), slot.week)).copied().unwrap_or(slot.at);
            let slot = Slot { at, ..slot };
            let owed = owed(candidate, &schedule, slot, &self.rules);
            Placed { candidate, schedule, slot, owed }
        });
        Ok(placed.collect())
    }
}
