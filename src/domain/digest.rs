//! What stands in a digest: data only, between gathering and rendering.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::address::{Address, AddressError};
use super::ids::{OrgId, UserId};
use super::schedule::Period;
use super::week::SendKey;

/// Everything that one org's digest is made of.
#[derive(Debug, Clone)]
pub struct DigestInput {
    /// Whose digest.
    pub org: OrgId,
    /// The org's name, as the application wrote it: untrusted text.
    pub org_name: String,
    /// The unique key of the send.
    pub key: SendKey,
    /// The days that the digest is about.
    pub period: Period,
    /// The sections in the order of the mail.
    pub sections: Vec<Section>,
    /// Who gets it.
    pub recipients: Vec<Recipient>,
}

impl DigestInput {
    /// Whether it is known that nothing happened for anybody: every figure zero, no rows, nothing left out.
    pub fn is_empty(&self) -> bool {
        self.sections.iter().all(Section::is_empty)
    }

    /// Whether some section tells each admin something else.
    pub fn is_personal(&self) -> bool {
        self.sections.iter().any(|section| matches!(section.body, SectionBody::PersonalRows(_)))
    }
}

/// One admin of the org, as the recipients query or the directory gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The admin.
    pub user: UserId,
    /// The address, or why it is none. A broken one gets a final row and stops nobody.
    pub address: Result<Address, BrokenAddress>,
    /// The admin's name: untrusted text.
    pub name: Option<String>,
    /// A BCP 47 language tag, such as `de` or `pt-BR`.
    pub locale: Option<String>,
    /// Since when the application has it that the admin wants the digest, if it says.
    pub opted_in_at: Option<DateTime<Utc>>,
}

/// An address that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenAddress {
    /// What the application gave, shortened; personal data.
    pub raw: String,
    /// What is wrong with it.
    pub error: AddressError,
}

/// A titled part of the digest.
#[derive(Debug, Clone)]
pub struct Section {
    /// The configured name.
    pub name: String,
    /// The heading.
    pub title: String,
    /// What stands below it.
    pub body: SectionBody,
}

/// What stands in a section.
#[derive(Debug, Clone)]
pub enum SectionBody {
    /// Numbers with a label, compared to the previous period.
    Figures(Figures),
    /// A list of rows for everybody.
    Rows(Rows),
    /// A list of rows per admin; whoever is not named sees none.
    PersonalRows(BTreeMap<UserId, Rows>),
    /// The query failed and the section is configured to be left out with a note.
    Omitted,
}

/// Figures, cut to their limit.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// The figures shown, in the query's order.
    pub shown: Vec<Figure>,
    /// How many there are in all; the mail says “and N more”.
    pub total: u64,
}

impl From<Vec<Figure>> for Figures {
    /// All of them are shown.
    fn from(shown: Vec<Figure>) -> Self {
        Self { total: shown.len() as u64, shown }
    }
}

/// A number with a label.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What is counted: untrusted text.
    pub label: String,
    /// The period's value.
    pub value: Amount,
    /// The previous period's value; `None` where it is not known, which is not zero.
    pub previous: Option<Amount>,
}

/// A number as the database wrote it, without loss, and near enough to compute with.
#[derive(Debug, Clone, PartialEq)]
pub struct Amount {
    text: String,
    value: f64,
}

/// The text is not a finite number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a finite number")]
pub struct AmountError;

impl Amount {
    /// Parses a decimal number such as `1204` or `-0.75`.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let value: f64 = text.trim().parse().map_err(|_| AmountError)?;
        if !value.is_finite() {
            return Err(AmountError);
        }
        Ok(Self { text: text.trim().to_owned(), value })
    }

    /// A count.
    pub fn count(n: u64) -> Self {
        // Counts beyond 2^53 lose their last digits in comparisons only; the text is exact.
        #[expect(clippy::cast_precision_loss, reason = "used for ratios; the text keeps every digit")]
        let value = n as f64;
        Self { text: n.to_string(), value }
    }

    /// Every digit that the database gave.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number, for ratios and bars.
    pub fn value(&self) -> f64 {
        self.value
    }
}

/// A list, cut to its limit.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// The rows shown, in the query's order.
    pub shown: Vec<Row>,
    /// How many there are in all; the mail says “and N more”.
    pub total: u64,
}

/// One row: column names to JSON values, all untrusted.
///
/// The templates know `title`, `url`, `detail`, `when` and `actor`; any other column is
/// there for templates of the operator's own.
pub type Row = serde_json::Map<String, serde_json::Value>;

impl Section {
    /// Whether the section certainly has nothing to tell anybody. What was cut off or left out was not looked at.
    pub fn is_empty(&self) -> bool {
        match &self.body {
            SectionBody::Figures(Figures { shown, total }) => {
                shown.len() as u64 == *total && shown.iter().all(|figure| figure.value.value() == 0.0)
            }
            SectionBody::Rows(rows) => rows.total == 0,
            SectionBody::PersonalRows(by_user) => by_user.values().all(|rows| rows.total == 0),
            SectionBody::Omitted => false,
        }
    }
}

/// One recipient's digest in words, before it becomes a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The subject, one line, not escaped for HTML.
    pub subject: String,
    /// The text part, lines ended by `\n`.
    pub text: String,
    /// The HTML part, lines ended by `\n`.
    pub html: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::week::WeekKey;
    use crate::domain::zone::Zone;

    #[test]
    fn a_number_keeps_every_digit_and_is_near_enough_to_compute_with() {
        for (text, kept, value) in [
            ("1204", "1204", 1_204.0),
            (" -0.750 ", "-0.750", -0.75),
            ("9007199254740993", "9007199254740993", 9_007_199_254_740_992.0),
        ] {
            let amount = Amount::parse(text).unwrap();
            assert_eq!((amount.text(), amount.value().total_cmp(&value)), (kept, std::cmp::Ordering::Equal));
        }
        assert_eq!(Amount::count(1_204), Amount::parse("1204").unwrap());
        for text in ["", "many", "1,204", "inf", "-inf", "NaN", "1e999"] {
            assert_eq!(Amount::parse(text), Err(AmountError), "{text}");
        }
    }

    fn rows(total: u64) -> Rows {
        Rows { shown: Vec::new(), total }
    }

    fn digest(bodies: Vec<SectionBody>) -> DigestInput {
        let section = |body| Section { name: "s".to_owned(), title: "S".to_owned(), body };
        let week = WeekKey::parse("2026-W28").unwrap();
        DigestInput {
            org: OrgId::parse("acme").unwrap(),
            org_name: "Acme".to_owned(),
            key: SendKey::Week(week),
            period: Period::seven_days(Zone::utc(), week.previous().monday()),
            sections: bodies.into_iter().map(section).collect(),
            recipients: Vec::new(),
        }
    }

    #[test]
    fn a_digest_is_empty_where_it_is_known_that_nothing_happened_for_anybody() {
        let figure = |n: &u64| Figure {
            label: "n".to_owned(),
            value: Amount::count(*n),
            previous: Some(Amount::count(9)),
        };
        let figures = |values: &[u64]| Figures::from(values.iter().map(figure).collect::<Vec<_>>());
        let personal = |totals: &[u64]| {
            let users = ('a'..).map(|name| UserId::lenient(&name.to_string()));
            SectionBody::PersonalRows(users.zip(totals.iter().map(|n| rows(*n))).collect())
        };
        let nothing =
            || vec![SectionBody::Figures(figures(&[0, 0])), SectionBody::Rows(rows(0)), personal(&[0, 0])];
        assert!(digest(Vec::new()).is_empty());
        assert!(digest(nothing()).is_empty());
        for something in [
            SectionBody::Figures(figures(&[0, 1])),
            SectionBody::Figures(Figures { total: 3, ..figures(&[0, 0]) }),
            SectionBody::Rows(rows(1)),
            personal(&[0, 1]),
            SectionBody::Omitted,
        ] {
            let mut bodies = nothing();
            bodies.push(something);
            assert!(!digest(bodies.clone()).is_empty(), "{bodies:?}");
        }
    }

    #[test]
    fn a_digest_is_personal_where_one_section_is() {
        let everybodys = || SectionBody::Rows(rows(1));
        assert!(!digest(vec![everybodys(), SectionBody::Omitted]).is_personal());
        assert!(digest(vec![everybodys(), SectionBody::PersonalRows(BTreeMap::new())]).is_personal());
    }
}
