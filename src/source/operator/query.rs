//! A query of the operator's, taken apart, and what is bound to it.

use chrono::{DateTime, SecondsFormat, Utc};

use super::super::{Question, SourceError};
use super::param::{Named as _, Param};
use super::scan::{Dialect, Scanned, scan};

/// One of the operator's queries.
#[derive(Debug, Clone)]
pub(super) struct Query {
    name: String,
    scanned: Scanned<Param>,
}

impl Query {
    /// The recipients query, which has no parameters: it is asked for everybody, and for some orgs.
    pub fn recipients(sql: &str, dialect: Dialect) -> Result<Self, SourceError> {
        let query = Self::parse("the recipients query".to_owned(), sql, dialect)?;
        match query.scanned.params().first() {
            None => Ok(query),
            Some(param) => Err(SourceError::Shape {
                query: query.name,
                problem: format!(
                    "it uses :{}; parameters are for sections, and digestd asks for orgs itself",
                    param.name()
                ),
            }),
        }
    }

    /// A section's query.
    pub fn section(name: &str, sql: &str, dialect: Dialect) -> Result<Self, SourceError> {
        let query = Self::parse(format!("the query of section “{name}”"), sql, dialect)?;
        match query.scanned.cut_at() {
            None => Ok(query),
            // Whoever stands behind the cut would get a digest that says too little and looks whole.
            Some(line) => Err(SourceError::Shape {
                query: query.name,
                problem: format!(
                    "line {line}: a LIMIT or OFFSET cuts the answer for many orgs together; the section's limit = … cuts \
                     each org's, and a subquery in parentheses may have its own"
                ),
            }),
        }
    }

    fn parse(name: String, sql: &str, dialect: Dialect) -> Result<Self, SourceError> {
        match scan(sql, dialect) {
            Ok(scanned) => Ok(Self { name, scanned }),
            Err(source) => Err(SourceError::Sql { query: name, source }),
        }
    }

    /// For messages: “the recipients query”.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// The text of a query that has no parameter, such as the recipients'.
    pub fn plain(&self) -> String {
        self.scanned.spelt(|param| format!(":{}", param.name()))
    }

    /// The text with each parameter spelt by its number, and the parameters in the order of their numbers.
    pub fn numbered(&self, spell: impl Fn(Param, usize) -> String) -> (String, Vec<Param>) {
        let params = self.scanned.params();
        let number = |param| 1 + params.iter().position(|p| *p == param).unwrap_or_default();
        (self.scanned.spelt(|param| spell(param, number(param))), params)
    }
}

/// What stands for the parameters.
#[derive(Debug, Clone)]
pub(super) struct Values {
    /// The orgs of the batch.
    pub orgs: Vec<String>,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    previous_from: DateTime<Utc>,
    week_key: String,
}

/// One value, as the databases are given it.
#[derive(Debug, Clone)]
pub(super) enum Bound {
    Orgs,
    Instant(DateTime<Utc>),
    Text(String),
}

impl Values {
    /// The values of a question.
    pub fn of(question: &Question<'_>) -> Self {
        Self {
            orgs: question.orgs.iter().map(|org| org.as_str().to_owned()).collect(),
            from: question.period.start,
            to: question.period.end,
            previous_from: question.period.previous().start,
            week_key: question.key.to_string(),
        }
    }

    /// No org and no time: for checking a query.
    pub fn none() -> Self {
        let epoch = DateTime::UNIX_EPOCH;
        Self {
            orgs: Vec::new(),
            from: epoch,
            to: epoch,
            previous_from: epoch,
            week_key: "1970-W01".to_owned(),
        }
    }

    /// What a parameter stands for.
    pub fn bound(&self, param: Param) -> Bound {
        match param {
            Param::OrgIds => Bound::Orgs,
            Param::From | Param::PreviousTo => Bound::Instant(self.from),
            Param::To => Bound::Instant(self.to),
            Param::PreviousFrom => Bound::Instant(self.previous_from),
            Param::WeekKey => Bound::Text(self.week_key.clone()),
        }
    }
}

/// An instant as SQLite's own functions write it: `2026-06-29 00:00:00`, in UTC.
pub(super) fn sqlite_instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true).replace('T', " ").replace('Z', "")
}
