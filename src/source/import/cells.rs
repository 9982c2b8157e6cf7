//! What may stand in a cell: every value is parsed into its normal form.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::Fault;
use crate::domain::address::Address;
use crate::domain::ids::OrgId;
use crate::domain::schedule::{parse_time, parse_weekday};
use crate::domain::zone::Zone;

/// The longest text of one cell in bytes: a title, not a document.
const MAX_TEXT_BYTES: usize = 4_000;

/// What the cells of a column hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An id of the application.
    Id,
    /// Words.
    Text,
    /// An IANA zone.
    Zone,
    /// The English name of a day.
    Weekday,
    /// `HH:MM`.
    Time,
    /// A BCP 47 tag.
    Locale,
    /// Yes or no.
    Bool,
    /// A moment, with its offset from UTC.
    Instant,
    /// A mail address.
    Address,
    /// A finite number.
    Number,
    /// A web address.
    Url,
}

/// One cell as the file has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// An empty cell of CSV, or JSON's null.
    Empty,
    /// Text, trimmed.
    Text(String),
    /// A JSON number, digit by digit.
    Number(String),
    /// A JSON truth value.
    Bool(bool),
    /// A JSON array or object, which no column takes.
    Nested,
}

/// Parses a cell that is not empty into the form in which the store takes it, or says what is wrong.
pub(super) fn parse(kind: Kind, cell: &Cell) -> Result<Value, Fault> {
    let text = match (kind, cell) {
        (Kind::Bool, Cell::Bool(value)) => return Ok(json!(value)),
        (Kind::Number, Cell::Number(text)) | (_, Cell::Text(text)) => text.as_str(),
        (Kind::Id, Cell::Number(text)) if text.bytes().all(|b| b.is_ascii_digit()) => text.as_str(),
        _ => return Err(format!("must be {}", expected(kind)).into()),
    };
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("is longer than {MAX_TEXT_BYTES} bytes").into());
    }
    if kind == Kind::Zone {
        return Zone::parse(text).map(|zone| json!(zone.name())).map_err(Fault::Zone);
    }
    normal(kind, text).map_err(Fault::Text)
}

fn normal(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Kind::Id => OrgId::parse(text).map(|id| json!(id.as_str())).map_err(|e| e.to_string()),
        Kind::Weekday => parse_weekday(text).map(|day| json!(day.to_string())).map_err(|e| e.to_string()),
        Kind::Time => {
            parse_time(text).map(|time| json!(time.format("%H:%M").to_string())).map_err(|e| e.to_string())
        }
        Kind::Locale => locale(text),
        Kind::Bool => truth(text),
        Kind::Instant => instant(text).map(|at| json!(at.timestamp_millis())),
        // The message never quotes the address: terminals and their logs are shared.
        Kind::Address => Address::parse(text).map(|a| json!(a.mailbox())).map_err(|e| e.to_string()),
        Kind::Number => number(text),
        Kind::Url => url(text),
        Kind::Text | Kind::Zone => words(text),
    }
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::Number => "a number",
        Kind::Id => "a text or a whole number",
        _ => "a text",
    }
}

fn words(text: &str) -> Result<Value, String> {
    match text.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        Some(control) => Err(format!("holds the control character {control:?}")),
        None => Ok(json!(text)),
    }
}

fn locale(text: &str) -> Result<Value, String> {
    let subtag =
        |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    let tag = text.replace('_', "-");
    let language = tag.split('-').next().unwrap_or_default();
    if (2..=3).contains(&language.len()) && tag.split('-').all(subtag) {
        return Ok(json!(tag));
    }
    Err(format!("“{}” is not a language tag such as de or pt-BR", shortened(text)))
}

/// The words that databases write for a truth value into CSV.
fn truth(text: &str) -> Result<Value, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => Ok(json!(true)),
        "false" | "f" | "0" => Ok(json!(false)),
        _ => Err(format!("“{}” is neither true nor false", shortened(text))),
    }
}

/// RFC 3339, always with an offset: a moment without one is a guess.
fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(at.to_utc());
    }
    let zoned = DateTime::parse_from_rfc3339(&format!("{text}Z"))
        .or_else(|_| DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z")));
    Err(match zoned {
        Ok(at) => format!(
            "“{}” lacks its offset from UTC; write {} if it is meant in UTC",
            shortened(text),
            at.format("%Y-%m-%dT%H:%M:%SZ")
        ),
        Err(_) => format!("“{}” is not a time such as 2026-07-06T08:00:00+02:00", shortened(text)),
    })
}

fn number(text: &str) -> Result<Value, String> {
    text.parse::<f64>()
        .ok()
        .filter(|value| value.is_finite())
        .map(|value| json!(value))
        .ok_or_else(|| format!("“{}” is not a number such as 12 or 0.5", shortened(text)))
}

/// A link that a mail can hold: nothing relative, nothing that runs.
fn url(text: &str) -> Result<Value, String> {
    let lower = text.to_ascii_lowercase();
    let web = ["https://", "http://"]
        .iter()
        .any(|scheme| lower.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    if web && !text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Ok(json!(text));
    }
    Err("is not a whole web address; it must start with https:// or http:// and hold no blanks".to_owned())
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: Kind, text: &str) -> Result<Value, String> {
        parse(kind, &Cell::Text(text.to_owned())).map_err(|fault| fault.to_string())
    }

    #[test]
    fn values_are_stored_in_their_normal_form() {
        assert_eq!(text(Kind::Zone, "europe/berlin"), Ok(json!("Europe/Berlin")));
        assert_eq!(text(Kind::Weekday, "monday"), Ok(json!("Mon")));
        assert_eq!(text(Kind::Time, "8:00"), Ok(json!("08:00")));
        assert_eq!(text(Kind::Locale, "pt_BR"), Ok(json!("pt-BR")));
        assert_eq!(text(Kind::Address, "Ann@Bücher.example"), Ok(json!("Ann@xn--bcher-kva.example")));
        assert_eq!(text(Kind::Instant, "2026-07-06T08:00:00+02:00"), Ok(json!(1_783_317_600_000_i64)));
        assert_eq!(text(Kind::Number, "-0.5"), Ok(json!(-0.5)));
        assert_eq!(parse(Kind::Id, &Cell::Number("42".to_owned())), Ok(json!("42")));
        for (word, value) in
            [("true", true), ("T", true), ("1", true), ("FALSE", false), ("f", false), ("0", false)]
        {
            assert_eq!(text(Kind::Bool, word), Ok(json!(value)), "{word}");
        }
    }

    #[track_caller]
    fn refused(kind: Kind, cell: &str, message: &str) {
        assert_eq!(text(kind, cell), Err(message.to_owned()));
    }

    #[test]
    fn what_is_refused_is_refused_with_what_would_be_right() {
        refused(
            Kind::Zone,
            "Europe/Berln",
            "“Europe/Berln” is not an IANA time zone; did you mean Europe/Berlin?",
        );
        refused(
            Kind::Instant,
            "2026-07-06 08:00:00",
            "“2026-07-06 08:00:00” lacks its offset from UTC; write 2026-07-06T08:00:00Z if it is meant in UTC",
        );
        refused(
            Kind::Instant,
            "2026-07-06",
            "“2026-07-06” lacks its offset from UTC; write 2026-07-06T00:00:00Z if it is meant in UTC",
        );
        refused(Kind::Instant, "yesterday", "“yesterday” is not a time such as 2026-07-06T08:00:00+02:00");
        refused(Kind::Bool, "maybe", "“maybe” is neither true nor false");
        refused(Kind::Number, "NaN", "“NaN” is not a number such as 12 or 0.5");
        refused(Kind::Number, "1,5", "“1,5” is not a number such as 12 or 0.5");
        refused(Kind::Locale, "German", "“German” is not a language tag such as de or pt-BR");
        refused(Kind::Text, "a\0b", "holds the control character '\\0'");
        refused(Kind::Address, "nobody@localhost", "the part after the @ is not a full domain name");
        for link in ["javascript:alert(1)", "/issues/3", "https://", "https://x.io/a b"] {
            assert!(text(Kind::Url, link).is_err(), "{link}");
        }
    }

    #[test]
    fn json_values_are_not_coerced() {
        assert_eq!(
            parse(Kind::Bool, &Cell::Number("1".to_owned())).map_err(|fault| fault.to_string()),
            Err("must be true or false".to_owned())
        );
        assert_eq!(
            parse(Kind::Id, &Cell::Number("1.5".to_owned())).map_err(|fault| fault.to_string()),
            Err("must be a text or a whole number".to_owned())
        );
        assert_eq!(
            parse(Kind::Text, &Cell::Bool(true)).map_err(|fault| fault.to_string()),
            Err("must be a text".to_owned())
        );
        assert_eq!(
            parse(Kind::Number, &Cell::Nested).map_err(|fault| fault.to_string()),
            Err("must be a number".to_owned())
        );
    }
}
