//! From rows of the recipients query to orgs, candidates and recipients.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde_json::{Map, Value};

use super::super::{Member, Question};
use super::database::{OrgRow, Row};
use crate::domain::address::Address;
use crate::domain::candidate::Candidate;
use crate::domain::digest::{BrokenAddress, Recipient};
use crate::domain::ids::{OrgId, UserId};
use crate::domain::schedule::{WeeklySchedule, parse_time, parse_weekday};
use crate::domain::zone::{Zone, ZoneError};

/// The longest part of a broken address that is kept, in characters.
const BROKEN_CHARS: usize = 100;
/// Unix times from here on are in milliseconds: as seconds they would be in the year 5138.
const MILLIS_FROM: i64 = 100_000_000_000;

/// One org of a batch.
#[derive(Debug)]
pub(super) struct Org {
    pub name: String,
    pub zone: Result<Zone, ZoneError>,
    pub recipients: Vec<Recipient>,
}

/// Groups the rows of a batch by org. Rows without a usable org or user are left out, and so is
/// whoever opted in after the slot. The first of a user's rows holds.
pub(super) fn orgs(rows: Vec<Row>, question: &Question<'_>, default: &Zone) -> BTreeMap<OrgId, Org> {
    let mut orgs: BTreeMap<OrgId, Org> = BTreeMap::new();
    let mut seen: BTreeSet<(OrgId, UserId)> = BTreeSet::new();
    for row in rows {
        let Some((id, user)) = ids(&row) else { continue };
        let org = orgs.entry(id.clone()).or_insert_with(|| Org {
            name: text(&row.columns, "org_name").unwrap_or_else(|| id.as_str().to_owned()),
            zone: zone(text(&row.columns, "timezone").as_deref(), default),
            recipients: Vec::new(),
        });
        let opted_in = text(&row.columns, "opted_in_at").and_then(|at| instant(&at));
        if opted_in.is_none_or(|at| at <= question.slot_at) && seen.insert((id, user.clone())) {
            org.recipients.push(Recipient { opted_in_at: opted_in, ..recipient(user, &row.columns) });
        }
    }
    orgs
}

/// What the orgs are called. The first row of each holds.
pub(super) fn names(rows: &[Row]) -> BTreeMap<OrgId, String> {
    let mut names = BTreeMap::new();
    for row in rows {
        let org = row.org.as_deref().and_then(|org| OrgId::parse(org).ok());
        if let (Some(org), Some(name)) = (org, text(&row.columns, "org_name")) {
            names.entry(org).or_insert(name);
        }
    }
    names
}

/// Who is named by the rows.
pub(super) fn members(rows: &[Row]) -> BTreeSet<Member> {
    let member = |row: &Row| {
        let (org, user) = ids(row)?;
        let email = text(&row.columns, "email").unwrap_or_default();
        let address = Address::parse(&email).ok().map(|address| address.normal().to_owned());
        Some(Member { org, user, address })
    };
    rows.iter().filter_map(member).collect()
}

/// The recipients named by the rows of one org. The first of a user's rows holds.
pub(super) fn recipients(rows: &[Row]) -> Vec<Recipient> {
    let mut seen = BTreeSet::new();
    let named = rows.iter().filter_map(|row| Some((ids(row)?.1, row)));
    named
        .filter(|(user, _)| seen.insert(user.clone()))
        .map(|(user, row)| Recipient {
            opted_in_at: text(&row.columns, "opted_in_at").and_then(|at| instant(&at)),
            ..recipient(user, &row.columns)
        })
        .collect()
}

fn ids(row: &Row) -> Option<(OrgId, UserId)> {
    let org = OrgId::parse(row.org.as_deref()?).ok()?;
    let user = UserId::parse(row.user.as_deref()?).ok()?;
    Some((org, user))
}

fn recipient(user: UserId, columns: &Map<String, Value>) -> Recipient {
    let email = text(columns, "email").unwrap_or_default();
    let address = Address::parse(&email).map_err(|error| BrokenAddress {
        raw: email.trim().to_lowercase().chars().take(BROKEN_CHARS).collect(),
        error,
    });
    Recipient {
        user,
        address,
        name: text(columns, "name"),
        locale: text(columns, "locale"),
        opted_in_at: None,
    }
}

/// Why a row makes nobody a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    UnusableUser,
    BrokenAddress,
    Duplicate,
}

/// What is wrong with a row, given the users and addresses of the rows before.
pub(super) fn trouble(row: &Row, seen: &mut BTreeSet<(OrgId, String)>) -> Option<Trouble> {
    let Some((org, user)) = ids(row) else { return Some(Trouble::UnusableUser) };
    let Ok(address) = recipient(user.clone(), &row.columns).address else {
        return Some(Trouble::BrokenAddress);
    };
    // An address begins with no blank, so the two kinds cannot meet.
    let new_user = seen.insert((org.clone(), format!(" {user}")));
    let new_address = seen.insert((org, address.normal().to_owned()));
    (!new_user || !new_address).then_some(Trouble::Duplicate)
}

/// A candidate, and whether its own weekday or time could not be read. `None`: the id is not one.
pub(super) fn candidate(row: OrgRow, default: &WeeklySchedule) -> Option<(Candidate, bool)> {
    let org = OrgId::parse(row.org.as_deref()?).ok()?;
    let weekday = own(row.weekday).map(|text| parse_weekday(&text));
    let time = own(row.time).map(|text| parse_time(&text));
    let odd = matches!(weekday, Some(Err(_))) || matches!(time, Some(Err(_)));
    // The digest still comes once a week.
    let weekday = weekday.and_then(Result::ok).unwrap_or(default.weekday);
    let time = time.and_then(Result::ok).unwrap_or(default.time);
    let schedule =
        zone(own(row.timezone).as_deref(), &default.zone).map(|zone| WeeklySchedule { weekday, time, zone });
    let created_at = row.created.and_then(|at| instant(&at));
    let opted_in_at = row.opted_in.and_then(|at| instant(&at));
    Some((Candidate { org, schedule, created_at, opted_in_at }, odd))
}

fn zone(own: Option<&str>, default: &Zone) -> Result<Zone, ZoneError> {
    own.map_or_else(|| Ok(default.clone()), Zone::parse)
}

/// A column as text; an empty one counts as none.
fn text(columns: &Map<String, Value>, name: &str) -> Option<String> {
    own(match columns.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    })
}

fn own(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// An instant as databases write it. Without an offset it is in UTC; a date is its first moment; a
/// number is a Unix time in seconds or milliseconds.
fn instant(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        let millis = number.abs() >= MILLIS_FROM;
        return if millis {
            DateTime::from_timestamp_millis(number)
        } else {
            DateTime::from_timestamp(number, 0)
        };
    }
    let with_offset = ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"];
    if let Some(at) = with_offset.iter().find_map(|format| DateTime::parse_from_str(text, format).ok()) {
        return Some(at.to_utc());
    }
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at.to_utc());
    }
    let plain = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let local = plain.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let date = || text.parse::<NaiveDate>().ok().map(|date| date.and_time(NaiveTime::MIN));
    local.or_else(date).map(|at| at.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_as_databases_write_them() {
        let expected = "2026-06-29T10:00:00Z".parse().unwrap();
        for text in [
            "2026-06-29T10:00:00+00:00",
            "2026-06-29T12:00:00.000+02:00",
            "2026-06-29T10:00:00Z",
            "2026-06-29 12:00:00+02",
            "2026-06-29T10:00:00",
            "2026-06-29 10:00:00.0",
            "2026-06-29 10:00",
            "1782727200",
            "1782727200000",
        ] {
            assert_eq!(instant(text), Some(expected), "{text}");
        }
        assert_eq!(instant("2026-06-29"), "2026-06-29T00:00:00Z".parse().ok());
        assert_eq!(instant("yesterday"), None);
    }

    #[test]
    fn an_org_has_the_configured_schedule_wherever_it_has_none_of_its_own() {
        let default = WeeklySchedule {
            weekday: chrono::Weekday::Mon,
            time: NaiveTime::from_hms_opt(8, 0, 0).unwrap(),
            zone: Zone::parse("Europe/Berlin").unwrap(),
        };
        let row = |timezone: &str, weekday: &str, time: &str| OrgRow {
            org: Some("7".to_owned()),
            timezone: Some(timezone.to_owned()),
            weekday: Some(weekday.to_owned()),
            time: Some(time.to_owned()),
            ..OrgRow::default()
        };
        let (candidate, odd) = super::candidate(row("", " ", "07:30:00"), &default).unwrap();
        let expected = WeeklySchedule { time: NaiveTime::from_hms_opt(7, 30, 0).unwrap(), ..default.clone() };
        assert_eq!((candidate.schedule, odd), (Ok(expected), false));
        let (candidate, odd) = super::candidate(row("Mars/Base", "2", "25:00"), &default).unwrap();
        assert!(candidate.schedule.is_err() && odd);
        let (candidate, odd) = super::candidate(row("asia/tokyo", "2", "25:00"), &default).unwrap();
        assert_eq!(candidate.schedule.unwrap().zone.name(), "Asia/Tokyo");
        assert!(odd);
        assert!(super::candidate(OrgRow::default(), &default).is_none());
    }
}
