//! ISO 8601 weeks and the keys that make a digest unique.

use std::fmt;

use chrono::{DateTime, Datelike, Days, NaiveDate, Utc, Weekday};

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
        let refused = || WeekKeyError(text.chars().take(40).collect());
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
            .ok_or_else(|| WeekKeyError(text.chars().take(40).collect()))
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
