//! The dead-man signal: orgs past their slot that have no settled send yet.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use tokio_util::sync::CancellationToken;

use super::election::Election;
use super::{Cleanup, CleanupError, PAGE};
use crate::domain::candidate::Candidate;
use crate::domain::due::owed;
use crate::domain::schedule::Slot;
use crate::domain::send::DueOrg;
use crate::progress::Pulse;
use crate::store::slots::OpenSlot;

/// Orgs past their slot without a settled send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// All of them.
    pub orgs: usize,
    /// Those whose slot opened longer ago than the alarm's limit.
    pub late: usize,
    /// The oldest slot among them.
    pub oldest: Option<DateTime<Utc>>,
}

impl Unsettled {
    fn add(&mut self, slot_at: DateTime<Utc>, now: DateTime<Utc>, alarm: TimeDelta) {
        self.orgs += 1;
        self.late += usize::from(now >= slot_at + alarm);
        self.oldest = Some(self.oldest.map_or(slot_at, |oldest| oldest.min(slot_at)));
    }
}

/// Slots that nobody has swept, by zone, weekday and time as stored.
type Unswept = HashMap<(String, String, String), Vec<Slot>>;

impl Cleanup {
    /// Counts eligible minus settled, sets the gauge, and raises the alarm in the log. `None`: broken off.
    ///
    /// Sends that are claimed are counted from their index. Orgs without any send are looked for only in
    /// the zones of slots that nobody has swept, so that an installation at rest reads no orgs for this.
    pub async fn count_unsettled(
        &self,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<Option<Unsettled>, CleanupError> {
        let now = self.store.now().await?;
        let (orgs, late, oldest) = self.store.unsettled_claims(self.late_alarm).await?;
        let mut unsettled = Unsettled { orgs, late, oldest };
        let slots = self.store.unswept_slots().await?;
        if !slots.is_empty() {
            let mut zones: Vec<String> = slots.iter().map(|slot| slot.timezone.clone()).collect();
            zones.sort();
            zones.dedup();
            let unswept = by_schedule(slots);
            let mut candidates = self.source.candidates(Some(&zones)).await?;
            while let Some(page) = candidates.next_page(PAGE).await? {
                if stop.is_cancelled() || !election.stand().await? {
                    return Ok(None);
                }
                let due: Vec<DueOrg> =
                    page.iter().filter_map(|candidate| self.owed_of(candidate, &unswept)).collect();
                for due in self.store.without_send(due).await? {
                    unsettled.add(due.slot.at, now, self.late_alarm);
                }
                pulse.touch();
            }
        }
        self.metrics.set_unsettled_orgs(unsettled.orgs);
        if let (true, Some(oldest)) = (unsettled.late > 0, unsettled.oldest) {
            tracing::error!(
                orgs.late = unsettled.late,
                orgs.unsettled = unsettled.orgs,
                slot.oldest = %oldest,
                "orgs are long past their slot and have no digest yet"
            );
        }
        Ok(Some(unsettled))
    }

    /// The newest slot, among those that nobody has swept, of which an org is owed a digest.
    fn owed_of(&self, candidate: &Candidate, unswept: &Unswept) -> Option<DueOrg> {
        let schedule = candidate.schedule_or(&self.fallback);
        let key = (
            schedule.zone.name().to_owned(),
            schedule.weekday.to_string(),
            schedule.time.format("%H:%M").to_string(),
        );
        let slots = unswept.get(&key)?;
        slots.iter().rev().find_map(|slot| owed(candidate, &schedule, *slot, &self.rules).ok())
    }
}

fn by_schedule(slots: Vec<OpenSlot>) -> Unswept {
    let mut unswept = Unswept::new();
    for slot in slots {
        let key = (slot.timezone, slot.weekday, slot.local_time);
        unswept.entry(key).or_default().push(Slot { week: slot.week, at: slot.at });
    }
    unswept
}
