//! From the text of a value to its type, strictly: nothing is rounded, cast or guessed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{NaiveTime, TimeDelta, Weekday};
use secrecy::SecretString;

use super::kind::Kind;
use super::url::{http_url, is_host};
use crate::domain::address::Address;
use crate::domain::schedule::{self, PeriodKind};
use crate::domain::zone::Zone;
use crate::render::{Accent, Http, SafeUrl};

/// The words of `digest.period`.
pub const PERIODS: &[&str] = &["previous_week", "trailing_7_days"];

/// A type that a value of the configuration can have.
pub trait Setting: Sized {
    /// Parses a value of the given kind. The error says more than
    /// [`Kind::expected`] does, where there is more to say, and never holds the value.
    fn parse(text: &str, kind: Kind) -> Result<Self, Option<String>>;
}

/// An address with an optional name, as in a `From` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailbox {
    /// The display name.
    pub name: Option<String>,
    /// The address.
    pub address: Address,
}

/// A number of messages per time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How many messages.
    pub messages: u32,
    /// In how long.
    pub per: Duration,
}

impl Pace {
    /// Messages per second.
    pub fn per_second(self) -> f64 {
        f64::from(self.messages) / self.per.as_secs_f64()
    }
}

impl Setting for bool {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        text.parse().map_err(|_| None)
    }
}

impl Setting for u32 {
    fn parse(text: &str, kind: Kind) -> Result<Self, Option<String>> {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number: Self = plain.then(|| text.parse().ok()).flatten().ok_or(None)?;
        match kind {
            Kind::Int(min, max) if !(min..=max).contains(&number) => Err(None),
            _ => Ok(number),
        }
    }
}

impl Setting for String {
    fn parse(text: &str, kind: Kind) -> Result<Self, Option<String>> {
        let good = match kind {
            Kind::Sql => !text.trim().is_empty(),
            Kind::Lines => !text.trim().is_empty() && !text.chars().any(|c| c.is_control() && c != '\n'),
            Kind::Name => is_name(text),
            Kind::Locale => is_language_tag(text),
            Kind::Host => is_host(text),
            Kind::HttpUrl => return http_url(text),
            _ => !text.trim().is_empty() && !text.chars().any(char::is_control),
        };
        if good { Ok(text.to_owned()) } else { Err(None) }
    }
}

impl Setting for PathBuf {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        if text.trim().is_empty() || text.contains('\0') { Err(None) } else { Ok(Self::from(text)) }
    }
}

impl Setting for SecretString {
    fn parse(text: &str, kind: Kind) -> Result<Self, Option<String>> {
        let schemes: &[&str] =
            if matches!(kind, Kind::RedisUrl) { &["redis://", "rediss://"] } else { &[""] };
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or(None)?;
        if rest.trim().is_empty() { Err(None) } else { Ok(text.into()) }
    }
}

impl Setting for Duration {
    fn parse(text: &str, kind: Kind) -> Result<Self, Option<String>> {
        let wanted = milliseconds(text).ok_or(None)?;
        let within = |min, max| milliseconds(min) <= Some(wanted) && Some(wanted) <= milliseconds(max);
        match kind {
            Kind::Duration(min, max) if !within(min, max) => Err(None),
            _ => Ok(Self::from_millis(wanted)),
        }
    }
}

impl Setting for TimeDelta {
    fn parse(text: &str, kind: Kind) -> Result<Self, Option<String>> {
        Self::from_std(Duration::parse(text, kind)?).map_err(|_| None)
    }
}

impl Setting for Vec<TimeDelta> {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        let second = Kind::Duration("1s", "144h");
        let waits: Self =
            text.split(',').map(|part| TimeDelta::parse(part.trim(), second)).collect::<Result<_, _>>()?;
        if waits.is_empty() { Err(None) } else { Ok(waits) }
    }
}

impl Setting for Weekday {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        schedule::parse_weekday(text).map_err(|_| None)
    }
}

impl Setting for NaiveTime {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        schedule::parse_time(text).map_err(|_| None)
    }
}

impl Setting for Zone {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        Self::parse(text).map_err(|error| error.nearest().map(|name| format!("did you mean {name}?")))
    }
}

impl Setting for PeriodKind {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        match text {
            "previous_week" => Ok(Self::PreviousWeek),
            "trailing_7_days" => Ok(Self::TrailingSevenDays),
            _ => Err(None),
        }
    }
}

impl Setting for Accent {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        Self::parse(text).map_err(|error| Some(error.to_string()))
    }
}

impl Setting for SafeUrl {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        let https = text.starts_with("https://").then(|| Self::parse(text, Http::Refused).ok());
        https.flatten().ok_or(None)
    }
}

impl Setting for Address {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        Self::parse(text).map_err(|error| Some(error.to_string()))
    }
}

impl Setting for Mailbox {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        let address = |text| Address::parse(text).map_err(|error| Some(error.to_string()));
        if text.chars().any(char::is_control) {
            return Err(None);
        }
        let Some(bare) = text.trim().strip_suffix('>') else {
            return Ok(Self { name: None, address: address(text)? });
        };
        let (name, bare) = bare.rsplit_once('<').ok_or(None)?;
        let name = name.trim().trim_matches('"').trim();
        Ok(Self { name: (!name.is_empty()).then(|| name.to_owned()), address: address(bare)? })
    }
}

impl Setting for SocketAddr {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        text.parse().map_err(|_| None)
    }
}

impl Setting for Pace {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        let (messages, unit) = text.split_once('/').ok_or(None)?;
        let messages = u32::parse(messages.trim(), Kind::Int(1, 1_000_000))?;
        let per = match unit.trim() {
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            _ => return Err(None),
        };
        Ok(Self { messages, per: Duration::from_secs(per) })
    }
}

/// A duration such as `90s`, `1h30m` or `250ms`, in milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let unit = &after[..after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len())];
        let scale = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(scale)?)?;
        rest = after[unit.len()..].trim_start();
    }
    Some(total)
}

fn is_name(text: &str) -> bool {
    let letters = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    letters && (1..=60).contains(&text.len()) && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_language_tag(text: &str) -> bool {
    let part = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    let primary = text.split('-').next().unwrap_or_default();
    text.split('-').all(part) && (2..=3).contains(&primary.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units_and_nothing_else() {
        let ms = |text| milliseconds(text);
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("90s"), Some(90_000));
        assert_eq!(ms("1h30m"), Some(5_400_000));
        assert_eq!(ms("1h 30m"), Some(5_400_000));
        assert_eq!(ms("30d"), Some(2_592_000_000));
        for refused in ["", "5", "5 s", "-5s", "1.5h", "5sec", "5é", "s", "99999999999999999999d", "5µs"] {
            assert_eq!(ms(refused), None, "{refused}");
        }
    }

    #[test]
    fn numbers_are_digits_within_their_bounds() {
        let parse = |text| u32::parse(text, Kind::Int(1, 50)).ok();
        assert_eq!(parse("7"), Some(7));
        for refused in ["", "0", "51", "+7", "7.0", " 7", "1e1", "true", "99999999999"] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_mailbox_is_an_address_with_or_without_a_name() {
        let parse =
            |text| Mailbox::parse(text, Kind::Mailbox).ok().map(|m| (m.name, m.address.normal().to_owned()));
        assert_eq!(parse("a@x.io"), Some((None, "a@x.io".into())));
        assert_eq!(parse("Ada, Ltd <a@x.io>"), Some((Some("Ada, Ltd".into()), "a@x.io".into())));
        assert_eq!(parse("\"Ada\" <a@x.io>"), Some((Some("Ada".into()), "a@x.io".into())));
        for refused in ["", "Ada", "Ada <a@x.io", "Ada a@x.io>", "A\nBcc: b@x.io <a@x.io>"] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }
}
