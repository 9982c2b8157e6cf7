//! A sweep: every candidate is read, and every org that is due is claimed by somebody.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::{Tick, TickError, TickReport};
use crate::domain::candidate::Candidate;
use crate::domain::due::{Due, due_for};
use crate::domain::ids::{ClaimId, ReplicaId};
use crate::domain::schedule::{Slot, WeeklySchedule};
use crate::domain::send::{Claim, DueOrg};
use crate::domain::week::WeekKey;
use crate::faults::{self, Point};
use crate::metrics::ClaimResult;
use crate::progress::Pulse;
use crate::store::slots::OpenSlot;

/// How much a sweep reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only the zones that have an open slot nobody has swept yet. Where there is none, the tick is
    /// one cheap look.
    OpenSlots,
    /// Every candidate: finds new schedules, and orgs that became eligible inside their window.
    Everything,
}

/// The instants of slots as the database has them: replicas of different versions may know different
/// zone rules, and the first to store an instant decides.
type StoredSlots = HashMap<(WeeklySchedule, WeekKey), DateTime<Utc>>;

/// Candidates per page.
pub const PAGE: u32 = 1000;
/// Pages that are held at once: some megabytes. The more there are, the more seldom two replicas meet.
pub const WINDOW: usize = 32;
/// Batches under way at once: while the application is asked about one, another is rendered and enqueued. Each
/// holds its orgs' data.
const BATCHES_AT_ONCE: usize = 2;

impl Tick {
    /// One sweep, until its end or until told to stop. Slots are remembered as swept only if every
    /// candidate was read and every batch of claims was answered.
    pub async fn sweep(
        &self,
        scope: Scope,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<TickReport, TickError> {
        let open = self.store.open_slots(self.rules.catch_up).await?;
        if scope == Scope::OpenSlots && open.is_empty() {
            return Ok(TickReport::default());
        }
        let now = self.store.now().await?;
        let zones: Option<Vec<String>> = (scope == Scope::OpenSlots).then(|| zones_of(&open));
        let mut report = TickReport::default();
        let mut stored = StoredSlots::new();
        let mut candidates = self.source.candidates(zones.as_deref()).await?;
        let mut complete = false;
        while !complete {
            let mut pages = Vec::new();
            while pages.len() < WINDOW && !complete {
                match candidates.next_page(PAGE).await? {
                    Some(page) => pages.push(page),
                    None => complete = true,
                }
                pulse.touch();
            }
            self.visit(pages, now, &mut stored, &mut report, pulse, stop).await?;
            if stop.is_cancelled() {
                return Ok(report);
            }
        }
        self.store.mark_swept(&open).await?;
        self.metrics.slots_swept(open.len());
        Ok(report)
    }

    /// Works through a window of pages, batch by batch in this replica's own order. What fails lets those that
    /// are under way come to their end, and no other begin.
    async fn visit(
        &self,
        pages: Vec<Vec<Candidate>>,
        now: DateTime<Utc>,
        stored: &mut StoredSlots,
        report: &mut TickReport,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), TickError> {
        let mut batches: Vec<Vec<DueOrg>> = Vec::new();
        for page in pages {
            report.candidates += page.len() as u64;
            batches.extend(self.due_batches(&page, now, stored).await?);
        }
        let order = visiting_order(batches.len(), self.terms.replica);
        let ordered: Vec<Vec<DueOrg>> =
            order.into_iter().map(|place| std::mem::take(&mut batches[place])).collect();
        let halt = CancellationToken::new();
        let begun = ordered.into_iter().take_while(|_| !stop.is_cancelled() && !halt.is_cancelled());
        let mut working = stream::iter(begun)
            .map(|batch| self.claim_and_work(batch, pulse, stop))
            .buffer_unordered(BATCHES_AT_ONCE);
        let mut failure = None;
        while let Some(worked) = working.next().await {
            match worked {
                Ok(of_batch) => report.add(of_batch),
                Err(error) => {
                    halt.cancel();
                    failure.get_or_insert(error);
                }
            }
            pulse.touch();
        }
        failure.map_or(Ok(()), Err)
    }

    /// The orgs of a page that are due, in batches for claiming.
    async fn due_batches(
        &self,
        page: &[Candidate],
        now: DateTime<Utc>,
        stored: &mut StoredSlots,
    ) -> Result<Vec<Vec<DueOrg>>, TickError> {
        self.remember_slots(page, now, stored).await?;
        let due: Vec<DueOrg> =
            page.iter().filter_map(|candidate| self.due_org(candidate, now, stored)).collect();
        Ok(due.chunks(self.limits.claim_batch.max(1) as usize).map(<[DueOrg]>::to_vec).collect())
    }

    /// Remembers the newest and the next slot of every schedule not seen in this sweep, and keeps the
    /// instants as stored.
    async fn remember_slots(
        &self,
        page: &[Candidate],
        now: DateTime<Utc>,
        stored: &mut StoredSlots,
    ) -> Result<(), TickError> {
        let mut slots: Vec<(WeeklySchedule, Slot)> = Vec::new();
        for schedule in page.iter().filter_map(|candidate| candidate.schedule.as_ref().ok()) {
            let latest = schedule.latest_slot(now);
            if stored.contains_key(&(schedule.clone(), latest.week)) {
                continue;
            }
            for slot in [latest, schedule.slot_in(latest.week.next())] {
                stored.insert((schedule.clone(), slot.week), slot.at);
                slots.push((schedule.clone(), slot));
            }
        }
        if slots.is_empty() {
            return Ok(());
        }
        let instants = self.store.remember_slots(&slots).await?;
        for ((schedule, slot), at) in slots.into_iter().zip(instants) {
            stored.insert((schedule, slot.week), at);
        }
        Ok(())
    }

    fn due_org(&self, candidate: &Candidate, now: DateTime<Utc>, stored: &StoredSlots) -> Option<DueOrg> {
        let schedule = candidate.schedule_or(&self.fallback);
        let computed = schedule.latest_slot(now);
        let as_stored = |slot: Slot| Slot {
            at: stored.get(&(schedule.clone(), slot.week)).copied().unwrap_or(slot.at),
            ..slot
        };
        let next = as_stored(schedule.slot_in(computed.week.next()));
        let slot = if next.at <= now { next } else { as_stored(computed) };
        let candidate = Candidate { schedule: Ok(schedule), ..candidate.clone() };
        match due_for(&candidate, slot, now, &self.rules) {
            Due::Yes(due) => Some(due),
            Due::NotOpen | Due::TooNew { .. } | Due::BadZone => None,
        }
    }

    async fn claim_and_work(
        &self,
        batch: Vec<DueOrg>,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<TickReport, TickError> {
        // Looked at just before the claim: another replica may have come by meanwhile.
        let due = self.store.without_send(batch).await?;
        if due.is_empty() {
            return Ok(TickReport::default());
        }
        let id = ClaimId::random();
        let claims: Vec<Claim> = match self.store.claim(&due, id, self.terms).await {
            Ok(claims) => claims,
            // The answer may be lost and the claims ours: the same statement with the same identity tells.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a claim's answer was lost; asking again"
                );
                self.store.claim(&due, id, self.terms).await?
            }
        };
        faults::point(Point::AfterClaim);
        let lost = due.len() - claims.len();
        self.metrics.claims(ClaimResult::Won, claims.len());
        self.metrics.claims(ClaimResult::Lost, lost);
        let mut report = TickReport { won: claims.len() as u64, lost: lost as u64, ..TickReport::default() };
        report.add(self.work(claims, pulse, stop).await);
        Ok(report)
    }
}

/// The order in which a replica visits the batches of a window. Each has a shuffle of its own, so that
/// replicas share the work instead of racing for the same batch: two that began at different places and
/// went on in turn would run side by side from where one has caught up with the other.
pub fn visiting_order(batches: usize, replica: ReplicaId) -> Vec<usize> {
    let (high, low) = replica.0.as_u64_pair();
    let rank = |place: usize| {
        // Two multiplications by large odd numbers mix well enough for a shuffle.
        let mixed = (high ^ low).wrapping_add(place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 16
    };
    let mut order: Vec<usize> = (0..batches).collect();
    order.sort_by_key(|place| rank(*place));
    order
}

fn zones_of(open: &[OpenSlot]) -> Vec<String> {
    let mut zones: Vec<String> = open.iter().map(|slot| slot.timezone.clone()).collect();
    zones.sort();
    zones.dedup();
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_visits_every_batch_in_an_order_of_its_own() {
        let replicas: Vec<ReplicaId> = (0..20).map(|_| ReplicaId::random()).collect();
        let mut orders: Vec<Vec<usize>> = replicas.iter().map(|r| visiting_order(100, *r)).collect();
        for order in &orders {
            let mut places = order.clone();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..100));
        }
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), replicas.len());
        assert_eq!(visiting_order(0, replicas[0]), Vec::<usize>::new());
    }
}
