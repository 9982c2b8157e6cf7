//! Closing weeks: whoever was owed a digest and has no send by then was missed.
//!
//! Decided per week and by state, not per slot and by moment: it can be broken off and done again at
//! any time, by any replica, also after an outage that was longer than the window.

use std::collections::HashMap;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use tokio_util::sync::CancellationToken;

use super::election::Election;
use super::{Cleanup, CleanupError, PAGE};
use crate::domain::candidate::Candidate;
use crate::domain::due::owed;
use crate::domain::schedule::{Slot, WeeklySchedule, everywhere};
use crate::domain::send::{DueOrg, SendState};
use crate::domain::week::{SendKey, WeekKey};
use crate::progress::Pulse;

/// Weeks looked through after a long outage. Older ones are closed without a look: nobody asks after
/// two months who did not get which digest while the installation was off.
const WEEKS_BACK: usize = 8;

/// What closing weeks has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closed {
    /// Weeks that this replica has closed.
    pub weeks: Vec<WeekKey>,
    /// Sends that it has written down as missed.
    pub missed: usize,
}

/// The instants of a week's slots, as stored or as computed where nobody stored them.
type Instants = HashMap<WeeklySchedule, DateTime<Utc>>;

impl Cleanup {
    /// Closes every week in which no zone's window can still be open, the oldest first.
    pub async fn close_weeks(
        &self,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<Closed, CleanupError> {
        let now = self.store.now().await?;
        let first = match self.store.last_closed_week().await? {
            Some(week) => week.next(),
            // A zone west of Greenwich may be a week behind at that moment.
            None => WeekKey::of(self.rules.not_before.unwrap_or(now).date_naive()).previous(),
        };
        let weeks = past(first, now, self.rules.catch_up);
        let unseen = weeks.len().saturating_sub(WEEKS_BACK);
        let mut closed = Closed::default();
        for (place, week) in weeks.into_iter().enumerate() {
            if place < unseen {
                tracing::warn!(send.week_key = %week, "a week long past is closed without a look");
            } else if !self.miss(week, now, &mut closed, election, pulse, stop).await? {
                break;
            }
            if self.store.close_week(week).await? {
                self.tell(week).await?;
                closed.weeks.push(week);
            }
        }
        Ok(closed)
    }

    /// Writes down whoever was missed in a week. False: not finished; the week stays open.
    async fn miss(
        &self,
        week: WeekKey,
        now: DateTime<Utc>,
        closed: &mut Closed,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<bool, CleanupError> {
        let mut instants = Instants::new();
        let mut candidates = self.source.candidates(None).await?;
        loop {
            if stop.is_cancelled() || !election.stand().await? {
                return Ok(false);
            }
            let Some(page) = candidates.next_page(PAGE).await? else { return Ok(true) };
            let owed = self.owed_in(week, &page, &mut instants).await?;
            // Stored by a release with other zone rules, a window may end later than all zones' should.
            if owed.iter().any(|due| due.slot.at + self.rules.catch_up > now) {
                return Ok(false);
            }
            let without = self.store.without_send(owed).await?;
            if !without.is_empty() {
                let missed = self.store.record_missed(&without, self.rules.catch_up).await?;
                self.metrics.missed(missed.len());
                closed.missed += missed.len();
            }
            pulse.touch();
        }
    }

    /// What a page of orgs should have got in a week.
    async fn owed_in(
        &self,
        week: WeekKey,
        page: &[Candidate],
        instants: &mut Instants,
    ) -> Result<Vec<DueOrg>, CleanupError> {
        let schedules: Vec<WeeklySchedule> =
            page.iter().map(|candidate| candidate.schedule_or(&self.fallback)).collect();
        let mut unknown: Vec<(WeeklySchedule, Slot)> = Vec::new();
        for schedule in &schedules {
            if !instants.contains_key(schedule) {
                let slot = schedule.slot_in(week);
                instants.insert(schedule.clone(), slot.at);
                unknown.push((schedule.clone(), slot));
            }
        }
        if !unknown.is_empty() {
            let stored = self.store.stored_slots(&unknown).await?;
            instants.extend(unknown.into_iter().map(|(schedule, _)| schedule).zip(stored));
        }
        let owed_to = |(candidate, schedule): (&Candidate, &WeeklySchedule)| {
            let at = instants.get(schedule).copied()?;
            owed(candidate, schedule, Slot { week, at }, &self.rules).ok()
        };
        Ok(page.iter().zip(&schedules).filter_map(owed_to).collect())
    }

    /// One line for a closed week. Missed digests are somebody's to look into.
    async fn tell(&self, week: WeekKey) -> Result<(), CleanupError> {
        let sends = self.store.week_sends(SendKey::Week(week)).await?;
        let count =
            |state| sends.iter().filter(|tally| tally.state == state).map(|tally| tally.count).sum::<u64>();
        let missed = count(SendState::Missed);
        if missed > 0 {
            tracing::error!(send.week_key = %week, sends.missed = missed, "orgs got no digest for this week");
        }
        tracing::info!(
            send.week_key = %week,
            sends.enqueued = count(SendState::Enqueued),
            sends.skipped = count(SendState::Skipped),
            sends.failed = count(SendState::Failed),
            sends.missed = missed,
            "a week is closed"
        );
        Ok(())
    }
}

/// The weeks from `first` on in which no window can still be open, whatever an org's zone, day and time.
fn past(first: WeekKey, now: DateTime<Utc>, catch_up: TimeDelta) -> Vec<WeekKey> {
    let last_minute = NaiveTime::from_hms_opt(23, 59, 0).unwrap_or(NaiveTime::MIN);
    std::iter::successors(Some(first), |week| Some(week.next()))
        .take_while(|week| *everywhere(*week, Weekday::Sun, last_minute).end() + catch_up <= now)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_is_past_when_the_last_minute_of_the_westernmost_sunday_has_closed() {
        let week = |text| WeekKey::parse(text).unwrap();
        let weeks = |now: &str| past(week("2026-W27"), now.parse().unwrap(), TimeDelta::hours(36));
        // Sunday 2026-07-05 23:59 at −12 is Monday 11:59 in UTC; 36 hours later the window ends.
        assert_eq!(weeks("2026-07-07T23:58:59Z"), []);
        assert_eq!(weeks("2026-07-07T23:59:00Z"), [week("2026-W27")]);
        assert_eq!(weeks("2026-07-21T23:59:00Z"), ["2026-W27", "2026-W28", "2026-W29"].map(week));
    }
}
