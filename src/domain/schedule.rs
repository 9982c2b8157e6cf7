//! When an org's digest is due, and which days it is about.

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, TimeDelta, Utc, Weekday};

use super::week::WeekKey;
use super::zone::Zone;

/// A weekly moment in a zone: “Monday 08:00 Europe/Berlin”.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeeklySchedule {
    /// The day of the week.
    pub weekday: Weekday,
    /// The local time, to the minute.
    pub time: NaiveTime,
    /// The zone in which both are meant.
    pub zone: Zone,
}

/// One scheduled moment: a week, and the instant that the schedule has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The ISO week of the slot's local date.
    pub week: WeekKey,
    /// When the slot opens.
    pub at: DateTime<Utc>,
}

impl WeeklySchedule {
    /// The slot that lies in a week. There is exactly one in each.
    pub fn slot_in(&self, week: WeekKey) -> Slot {
        Slot { week, at: self.zone.resolve(week.date(self.weekday).and_time(self.time)) }
    }

    /// The newest slot that has opened at `now`.
    pub fn latest_slot(&self, now: DateTime<Utc>) -> Slot {
        let this_week = WeekKey::of(self.zone.local(now).date());
        let slot = self.slot_in(this_week.next());
        let mut slot = if slot.at <= now { slot } else { self.slot_in(this_week) };
        if slot.at > now {
            slot = self.slot_in(slot.week.previous());
        }
        slot
    }

    /// The slots after `now`, in order, without end.
    pub fn upcoming(&self, now: DateTime<Utc>) -> impl Iterator<Item = Slot> + '_ {
        let mut week = self.latest_slot(now).week;
        std::iter::repeat_with(move || {
            week = week.next();
            self.slot_in(week)
        })
    }
}

impl Slot {
    /// Whether the slot is open: `at <= now < at + catch_up`.
    pub fn is_open(&self, now: DateTime<Utc>, catch_up: TimeDelta) -> bool {
        self.at <= now && now < self.at + catch_up
    }
}

/// The days that a digest is about: half-open, `[start, end)`, in the org's zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    /// The zone in which the days are meant.
    pub zone: Zone,
    /// The first local date included.
    pub first: NaiveDate,
    /// The last local date included; texts print this one, never the end.
    pub last: NaiveDate,
    /// The first instant included.
    pub start: DateTime<Utc>,
    /// The first instant not included any more.
    pub end: DateTime<Utc>,
}

/// Which days a digest is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeriodKind {
    /// The ISO week before the slot's week.
    #[default]
    PreviousWeek,
    /// The seven days before the slot's date.
    TrailingSevenDays,
}

impl PeriodKind {
    /// The period of a slot's digest. Depends on the slot only, never on now.
    pub fn of(self, schedule: &WeeklySchedule, week: WeekKey) -> Period {
        let first = match self {
            Self::PreviousWeek => week.previous().monday(),
            Self::TrailingSevenDays => week.date(schedule.weekday) - Days::new(7),
        };
        Period::seven_days(schedule.zone.clone(), first)
    }
}

impl Period {
    /// Seven local days from `first` on.
    pub fn seven_days(zone: Zone, first: NaiveDate) -> Self {
        let last = first + Days::new(6);
        let (start, end) = (zone.start_of_day(first), zone.start_of_day(last + Days::new(1)));
        Self { zone, first, last, start, end }
    }

    /// The seven days before this period, for comparisons.
    #[must_use]
    pub fn previous(&self) -> Self {
        Self::seven_days(self.zone.clone(), self.first - Days::new(7))
    }

    /// The ISO week of the first day.
    pub fn week(&self) -> WeekKey {
        WeekKey::of(self.first)
    }

    /// Whether first and last day lie in the same calendar month.
    pub fn within_one_month(&self) -> bool {
        (self.first.year(), self.first.month()) == (self.last.year(), self.last.month())
    }
}
