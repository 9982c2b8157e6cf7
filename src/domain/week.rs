//! ISO 8601 weeks and the keys that make a digest unique.

use std::fmt;

use chrono::{DateTime, Datelike, Days, NaiveDate, Utc, Weekday};

use super::excerpt::excerpt;

/// An ISO week, written `2026-W28`: the ISO week-numbering year and the week.
///
/// Never the calendar year: 2025-12-29 lies in `2026-W01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeekKey {
    year: i32,
    week: u32,
}

/// Why a text is not a week key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("“{0}” is not an ISO week such as 2026-W28")]
pub struct WeekKeyError(String);

impl WeekKey {
    /// The week that a local date lies in.
    pub fn of(date: NaiveDate) -> Self {
        let week = date.iso_week();
        Self { year: week.year(), week: week.week() }
    }

    /// Parses `2026-W28`: four digits, `-W`, two digits; the week must exist.
    pub fn parse(text: &str) -> Result<Self, WeekKeyError> {
        let refused = || WeekKeyError(excerpt(text));
        let digits = |part: &str, len: usize| {
            (part.len() == len && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.to_owned())
        };
        let (year, week) = text.split_once("-W").ok_or_else(refused)?;
        let year = digits(year, 4).and_then(|y| y.parse().ok()).ok_or_else(refused)?;
        let week = digits(week, 2).and_then(|w| w.parse().ok()).ok_or_else(refused)?;
        NaiveDate::from_isoywd_opt(year, week, Weekday::Mon).ok_or_else(refused)?;
        Ok(Self { year, week })
    }

    /// The date of a weekday in this week.
    pub fn date(self, weekday: Weekday) -> NaiveDate {
        // A key is only made from a date or checked by `parse`, so its week exists; the
        // fallback is met at the far end of the calendar only.
        NaiveDate::from_isoywd_opt(self.year, self.week, weekday).unwrap_or(NaiveDate::MAX)
    }

    /// The week's Monday.
    pub fn monday(self) -> NaiveDate {
        self.date(Weekday::Mon)
    }

    /// The week after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self::of(self.monday() + Days::new(7))
    }

    /// The week before this one.
    #[must_use]
    pub fn previous(self) -> Self {
        Self::of(self.monday() - Days::new(7))
    }
}

impl fmt::Display for WeekKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-W{:02}", self.year, self.week)
    }
}

/// What makes a send unique within its org: a week, or the moment of a forced resend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendKey {
    /// The scheduled digest of a week, written `2026-W28`.
    Week(WeekKey),
    /// A resend asked for by a person, written `manual-` and the UTC time in milliseconds.
    /// Made by [`SendKey::manual`], so that the key read back equals the key written.
    Manual(DateTime<Utc>),
}

impl SendKey {
    /// Parses either form.
    pub fn parse(text: &str) -> Result<Self, WeekKeyError> {
        let Some(millis) = text.strip_prefix("manual-") else {
            return WeekKey::parse(text).map(Self::Week);
        };
        millis
            .parse()
            .ok()
            .and_then(DateTime::from_timestamp_millis)
            .map(Self::Manual)
            // One key has one spelling: no plus sign, no leading zeros.
            .filter(|key| key.to_string() == text)
            .ok_or_else(|| WeekKeyError(excerpt(text)))
    }

    /// The key of a resend asked for at a moment, cut to the milliseconds that the key is written with.
    pub fn manual(at: DateTime<Utc>) -> Self {
        Self::Manual(DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at))
    }
}

impl fmt::Display for SendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Week(week) => week.fmt(f),
            Self::Manual(at) => write!(f, "manual-{}", at.timestamp_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(year: i32, month: u32, day: u32) -> NaiveDate {
        NaiveDate::from_ymd_opt(year, month, day).unwrap()
    }

    #[test]
    fn every_week_from_1970_to_2100_round_trips_from_key_to_days_and_back() {
        let mut week = WeekKey::parse("1970-W01").unwrap();
        let mut monday = date(1969, 12, 29);
        let mut long_years = 0;
        while monday <= date(2100, 12, 31) {
            let key = week.to_string();
            assert_eq!(key.len(), 8, "{key}");
            assert_eq!(WeekKey::parse(&key), Ok(week));
            // Week by week, in plain steps of seven days: none missing, none twice.
            assert_eq!(week.monday(), monday, "{key}");
            for (n, day) in monday.iter_days().take(7).enumerate() {
                assert_eq!(WeekKey::of(day), week, "{day}");
                assert_eq!(week.date(Weekday::try_from(u8::try_from(n).unwrap()).unwrap()), day);
            }
            assert_eq!((week.next().previous(), week < week.next()), (week, true), "{key}");
            assert!(key < week.next().to_string(), "keys sort as text: {key}");
            long_years += i32::from(key.ends_with("W53"));
            week = week.next();
            monday = monday + Days::new(7);
        }
        // Years of 53 weeks from 1970 on: 1970, 1976, 1981 … 2093, 2099.
        assert_eq!(long_years, 24);
    }

    // Calendar year joined with ISO week gave 2025-W01 to days at both ends of 2025
    // (ProgressPlanner, progress-planner#738). These are the days that show it.
    #[test]
    fn the_days_around_new_year_lie_in_the_week_that_iso_8601_says() {
        for (day, key) in [
            (date(2024, 12, 29), "2024-W52"),
            (date(2024, 12, 30), "2025-W01"),
            (date(2025, 1, 1), "2025-W01"),
            (date(2025, 12, 29), "2026-W01"),
            (date(2026, 12, 27), "2026-W52"),
            (date(2026, 12, 28), "2026-W53"),
            (date(2027, 1, 3), "2026-W53"),
            (date(2027, 1, 4), "2027-W01"),
            (date(2012, 1, 1), "2011-W52"),
            (date(2012, 1, 2), "2012-W01"),
        ] {
            assert_eq!(WeekKey::of(day).to_string(), key, "{day}");
        }
    }

    #[test]
    fn only_the_one_spelling_of_an_existing_week_is_a_key() {
        for text in [
            "",
            "2026",
            "2026-28",
            "2026W28",
            "2026-w28",
            "2026-W1",
            "2026-W001",
            "2026-W00",
            "2026-W54",
            "2025-W53",
            "26-W28",
            "02026-W28",
            "+026-W28",
            "2026-W+1",
            " 2026-W28",
            "2026-W28 ",
            "2026-W28-1",
            "٢٠٢٦-W28",
        ] {
            assert_eq!(WeekKey::parse(text), Err(WeekKeyError(text.to_owned())), "{text}");
        }
        assert!(WeekKey::parse("2026-W53").is_ok());
    }

    #[test]
    fn a_send_key_read_back_equals_the_key_written() {
        let asked = DateTime::from_timestamp(1_780_000_000, 123_456_789).unwrap();
        for key in [SendKey::Week(WeekKey::of(date(2026, 7, 6))), SendKey::manual(asked)] {
            assert_eq!(SendKey::parse(&key.to_string()), Ok(key));
        }
        assert_eq!(SendKey::manual(asked).to_string(), "manual-1780000000123");
        for text in [
            "manual-",
            "manual-+5",
            "manual-05",
            "manual-x",
            "manual-99999999999999999999",
            "manual-2026-W28",
        ] {
            assert!(SendKey::parse(text).is_err(), "{text}");
        }
    }
}
