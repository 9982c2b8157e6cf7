//! When an org's digest is due, and which days it is about.

use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc, Weekday};

use super::excerpt::excerpt;
use super::week::WeekKey;
use super::zone::Zone;

/// A weekly moment in a zone: “Monday 08:00 Europe/Berlin”.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    text.trim().parse().map_err(|_| ScheduleError::Weekday(excerpt(text)))
}

/// Parses `08:00` on the 24-hour clock. A database's `time` column prints
/// seconds too; they are accepted where they are zero.
pub fn parse_time(text: &str) -> Result<NaiveTime, ScheduleError> {
    let mut parts = text.trim().splitn(3, ':');
    let mut number = |digits: RangeInclusive<usize>| {
        let part = parts.next()?;
        let plain = digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if plain { part.parse().ok() } else { None }
    };
    let (hour, minute) = (number(1..=2), number(2..=2));
    let whole_minute = parts.next().is_none_or(|seconds| matches!(seconds, "00" | "00.000" | "00.000000"));
    hour.zip(minute)
        .filter(|_| whole_minute)
        .and_then(|(hour, minute)| NaiveTime::from_hms_opt(hour, minute, 0))
        .ok_or_else(|| ScheduleError::Time(excerpt(text)))
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
        // Where clocks go back over the week's first midnight, next week's slot can open and the
        // old week come once more.
        [this_week.next(), this_week]
            .map(|week| self.slot_in(week))
            .into_iter()
            .find(|slot| slot.at <= now)
            .unwrap_or_else(|| self.slot_in(this_week.previous()))
    }

    /// The slots after `now`, in order, without end.
    pub fn upcoming(&self, now: DateTime<Utc>) -> impl Iterator<Item = Slot> + '_ {
        let mut week = self.latest_slot(now).week;
        std::iter::repeat_with(move || {
            week = week.next();
            self.slot_in(week)
        })
    }

    /// A slot as the clocks of the zone show it.
    pub fn local_slot(&self, slot: Slot) -> LocalSlot {
        let offset = self.zone.offset_seconds(slot.at);
        let previous = self.zone.offset_seconds(self.slot_in(slot.week.previous()).at);
        let local = self.zone.local(slot.at);
        let moved = local != slot.week.date(self.weekday).and_time(self.time);
        LocalSlot { slot, local, offset_seconds: offset, change_seconds: offset - previous, moved }
    }
}

/// A slot as the clocks of its zone show it, for people who check a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSlot {
    /// The slot.
    pub slot: Slot,
    /// The local date and time at which it opens.
    pub local: NaiveDateTime,
    /// The offset from UTC at that moment, in seconds, east positive.
    pub offset_seconds: i32,
    /// How far the clocks were put forward since the week before, in seconds; negative for back.
    pub change_seconds: i32,
    /// Whether the clocks skip the scheduled time, so that the slot opens at the first moment after it.
    pub moved: bool,
}

impl Slot {
    /// Whether the slot is open: `at <= now < at + catch_up`.
    pub fn is_open(&self, now: DateTime<Utc>, catch_up: TimeDelta) -> bool {
        self.at <= now && now < self.at + catch_up
    }
}

/// When a local moment of a week comes, whatever the zone: from the easternmost offset (+14) to the
/// westernmost (−12). A moment that clocks skip or repeat stays within.
pub fn everywhere(week: WeekKey, weekday: Weekday, time: NaiveTime) -> RangeInclusive<DateTime<Utc>> {
    let named = week.date(weekday).and_time(time).and_utc();
    named - TimeDelta::hours(14)..=named + TimeDelta::hours(12)
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

    fn schedule(zone: &str, weekday: Weekday, time: &str) -> WeeklySchedule {
        WeeklySchedule { weekday, time: parse_time(time).unwrap(), zone: Zone::parse(zone).unwrap() }
    }

    #[test]
    fn coming_slots_follow_each_other_week_by_week_and_start_after_now() {
        let berlin = schedule("Europe/Berlin", Weekday::Mon, "08:00");
        let now = "2026-03-16T07:00:00Z".parse().unwrap();
        let coming: Vec<String> =
            berlin.upcoming(now).take(3).map(|slot| format!("{} {}", slot.week, slot.at)).collect();
        assert_eq!(
            coming,
            [
                "2026-W13 2026-03-23 07:00:00 UTC",
                "2026-W14 2026-03-30 06:00:00 UTC",
                "2026-W15 2026-04-06 06:00:00 UTC"
            ]
        );
    }

    #[test]
    fn a_slot_shows_changes_of_the_clocks_and_skipped_times() {
        let early = schedule("Europe/Berlin", Weekday::Sun, "02:30");
        let shown: Vec<_> = early
            .upcoming("2026-03-16T00:00:00Z".parse().unwrap())
            .take(3)
            .map(|slot| early.local_slot(slot))
            .map(|slot| (slot.local.to_string(), slot.offset_seconds, slot.change_seconds, slot.moved))
            .collect();
        assert_eq!(
            shown,
            [
                ("2026-03-22 02:30:00".to_owned(), 3_600, 0, false),
                ("2026-03-29 03:00:00".to_owned(), 7_200, 3_600, true),
                ("2026-04-05 02:30:00".to_owned(), 7_200, 0, false),
            ]
        );
    }

    // No zone has changed its clocks over the midnight between two weeks so far; one day one will.
    #[test]
    fn a_change_over_the_midnight_between_two_weeks_confuses_nobody() {
        // Forward on Sunday 29 March at 23:30, back on Monday 28 September at 00:30.
        let zone = Zone::invented("AAA-1BBB-2,M3.5.0/23:30,M9.4.1/0:30");
        for (weekday, time) in [(Weekday::Sun, "23:45"), (Weekday::Mon, "00:15"), (Weekday::Mon, "00:00")] {
            let schedule = WeeklySchedule { weekday, time: parse_time(time).unwrap(), zone: zone.clone() };
            let first = WeekKey::parse("2026-W01").unwrap();
            let slots: Vec<Slot> = std::iter::successors(Some(first), |week| Some(week.next()))
                .take(53)
                .map(|week| schedule.slot_in(week))
                .collect();
            assert!(slots.is_sorted_by(|a, b| a.at < b.at));
            let mut now = slots[0].at;
            while now < slots[52].at {
                let greatest = slots.iter().rfind(|slot| slot.at <= now).copied();
                assert_eq!(Some(schedule.latest_slot(now)), greatest, "{weekday} {time} at {now}");
                now += TimeDelta::minutes(15);
            }
        }
    }

    #[test]
    fn the_seven_days_before_the_slot_end_with_the_day_before_it() {
        let thursday = schedule("Asia/Kathmandu", Weekday::Thu, "18:00");
        let period = PeriodKind::TrailingSevenDays.of(&thursday, WeekKey::parse("2026-W28").unwrap());
        assert_eq!(
            (period.first.to_string(), period.last.to_string()),
            ("2026-07-02".into(), "2026-07-08".into())
        );
        assert_eq!(period.end, "2026-07-08T18:15:00Z".parse::<DateTime<Utc>>().unwrap());
        assert_eq!(period.previous().end, period.start);
    }

    #[test]
    fn a_period_has_the_week_of_its_first_day_and_may_lie_within_a_month() {
        for (first, week, within) in [
            ("2026-06-22", "2026-W26", true),
            ("2026-06-24", "2026-W26", true),
            ("2026-06-25", "2026-W26", false),
            ("2026-12-28", "2026-W53", false),
        ] {
            let period = Period::seven_days(Zone::utc(), first.parse().unwrap());
            assert_eq!(
                (period.week().to_string().as_str(), period.within_one_month()),
                (week, within),
                "{first}"
            );
        }
    }
}
