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

/// Why a text is not a part of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not the English name of a day. Numbers are refused: some systems call Monday 1, others 0 or 2.
    #[error("“{0}” is not a day of the week; write its English name, such as monday or mon")]
    Weekday(String),
    /// Not a time of day to the minute.
    #[error("“{0}” is not a time of day from 00:00 to 23:59, written HH:MM, such as 08:00")]
    Time(String),
}

/// Parses the English name of a day, whole or its first three letters, in any case.
pub fn parse_weekday(text: &str) -> Result<Weekday, ScheduleError> {
    text.trim().parse().map_err(|_| ScheduleError::Weekday(shortened(text)))
}

/// Parses `08:00` on the 24-hour clock. A database's `time` column prints
/// seconds too; they are accepted where they are zero.
pub fn parse_time(text: &str) -> Result<NaiveTime, ScheduleError> {
    let mut parts = text.trim().splitn(3, ':');
    let mut number = |digits: std::ops::RangeInclusive<usize>| {
        let part = parts.next()?;
        let plain = digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if plain { part.parse().ok() } else { None }
    };
    let (hour, minute) = (number(1..=2), number(2..=2));
    let whole_minute = parts.next().is_none_or(|seconds| matches!(seconds, "00" | "00.000" | "00.000000"));
    hour.zip(minute)
        .filter(|_| whole_minute)
        .and_then(|(hour, minute)| NaiveTime::from_hms_opt(hour, minute, 0))
        .ok_or_else(|| ScheduleError::Time(shortened(text)))
}

/// What an error quotes of a text that somebody else wrote.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_parsed_by_name_and_numbers_are_refused() {
        for text in ["monday", "Monday", "MON", " mon "] {
            assert_eq!(parse_weekday(text), Ok(Weekday::Mon), "{text}");
        }
        assert_eq!(parse_weekday("thu"), Ok(Weekday::Thu));
        assert_eq!(parse_weekday("sunday"), Ok(Weekday::Sun));
        for text in ["", "1", "0", "mo", "montag", "mondays", "monday 08:00"] {
            assert_eq!(parse_weekday(text), Err(ScheduleError::Weekday(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn times_are_parsed_to_the_minute() {
        let at = |hour, minute| Ok(NaiveTime::from_hms_opt(hour, minute, 0).unwrap());
        assert_eq!(parse_time("08:00"), at(8, 0));
        assert_eq!(parse_time(" 8:00 "), at(8, 0));
        assert_eq!(parse_time("00:00"), at(0, 0));
        assert_eq!(parse_time("23:59"), at(23, 59));
        assert_eq!(parse_time("08:30:00"), at(8, 30));
        for text in [
            "",
            "8",
            "08",
            ":00",
            "08:",
            "08:0",
            "008:00",
            "24:00",
            "08:60",
            "-8:00",
            "+8:00",
            "8:00 am",
            "08.00",
            "0800",
            "08:00:01",
            "08:00:",
            "08:00:00+00",
            "08:00:00:00",
            "٠٨:٠٠",
        ] {
            assert_eq!(parse_time(text), Err(ScheduleError::Time(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_error_quotes_the_start_of_a_long_text_only() {
        let error = parse_weekday(&"x".repeat(1_000)).unwrap_err();
        assert!(error.to_string().len() < 150, "{error}");
    }
}
