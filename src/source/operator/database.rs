//! The operator's database, whichever it is: what is asked of it, and what its errors mean.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::{Map, Value};

use super::super::SourceError;
use super::postgres::Postgres;
use super::query::{Query, Values};
use super::shape::Columns;
use super::sqlite::Sqlite;
use crate::config::DatabaseUrl;
use crate::store::is_transient;

/// How long a query waits for a free connection.
pub(super) const ACQUIRE: Duration = Duration::from_secs(30);

/// A pool of connections that only read.
#[derive(Debug, Clone)]
pub(super) enum Database {
    Postgres(Postgres),
    Sqlite(Sqlite),
}

/// What has been learnt of the recipients query from the database.
#[derive(Debug, Clone)]
pub(super) struct Learnt {
    /// Which columns there are.
    pub columns: Columns,
    /// The type of `org_id`: its name on PostgreSQL, the storage class on SQLite.
    pub id_type: String,
}

/// One row of the recipients query or of a section.
#[derive(Debug)]
pub(super) struct Row {
    /// `org_id` as text.
    pub org: Option<String>,
    /// `user_id` as text, where there is one.
    pub user: Option<String>,
    /// How many rows its org (and user) has in all, where the database has counted them.
    pub total: Option<u64>,
    /// All columns.
    pub columns: Map<String, Value>,
}

/// One org of the recipients query, all as text.
#[derive(Debug, Clone, Default)]
pub(super) struct OrgRow {
    pub org: Option<String>,
    pub timezone: Option<String>,
    pub weekday: Option<String>,
    pub time: Option<String>,
    pub created: Option<String>,
    pub opted_in: Option<String>,
}

/// An [`OrgRow`] in the order of its fields.
pub(super) type OrgColumns =
    (Option<String>, Option<String>, Option<String>, Option<String>, Option<String>, Option<String>);

impl From<OrgColumns> for OrgRow {
    fn from((org, timezone, weekday, time, created, opted_in): OrgColumns) -> Self {
        Self { org, timezone, weekday, time, created, opted_in }
    }
}

/// What a section's rows are cut to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Rows for each org, or for each of its users.
    pub limit: u32,
    /// Whether each user has rows of their own.
    pub personal: bool,
}

/// A query that did not succeed, before it is known which.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlx(sqlx::Error),
    TimedOut,
    /// A row that was not JSON: a bug of ours.
    Unreadable(String),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        // Cancelled by the statement's timeout on PostgreSQL, interrupted by ours on SQLite.
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if matches!(code.as_deref(), Some("57014" | "9")) { Self::TimedOut } else { Self::Sqlx(error) }
    }
}

impl Failure {
    /// The error to tell.
    pub fn of(self, query: &Query, limit: Duration) -> SourceError {
        self.named(query.name(), limit)
    }

    /// The same of a statement that is no [`Query`].
    pub fn named(self, query: String, limit: Duration) -> SourceError {
        match self {
            Self::TimedOut => SourceError::TimedOut { query, limit },
            Self::Unreadable(problem) => SourceError::Query { query, problem, transient: false },
            Self::Sqlx(error) => {
                SourceError::Query { query, transient: is_transient(&error), problem: told(&error) }
            }
        }
    }
}

/// A database's message, without the data that some of them quote: it goes to logs and to the ledger.
fn told(error: &sqlx::Error) -> String {
    let Some(error) = error.as_database_error() else { return error.to_string() };
    let code = error.code().unwrap_or_default();
    // Access rules and names (42), resources (53), interventions (57), a division by zero; and SQLite's
    // messages, which quote names only.
    let quotes_none = ["42", "53", "57", "22012"].iter().any(|class| code.starts_with(class));
    if quotes_none || code.len() < 5 {
        return error.message().to_owned();
    }
    format!("SQLSTATE {code}; the database's own log tells more")
}

impl Database {
    pub fn open(url: &DatabaseUrl, pool: u32) -> Result<Self, SourceError> {
        Ok(match url {
            DatabaseUrl::Postgres(url) => Self::Postgres(Postgres::open(url, pool)?),
            DatabaseUrl::Sqlite(path) => Self::Sqlite(Sqlite::open(path, pool)),
        })
    }

    /// The names of a query's columns. Also shows whether we may read what it reads.
    pub async fn columns(
        &self,
        query: &Query,
        id_type: &str,
        limit: Duration,
    ) -> Result<Vec<String>, SourceError> {
        let asked = match self {
            Self::Postgres(inner) => inner.columns(query, id_type, limit).await,
            Self::Sqlite(inner) => inner.columns(query, limit).await,
        };
        asked.map_err(|failure| failure.of(query, limit))
    }

    /// The type of `org_id`. `None`: SQLite has no row yet to tell by.
    pub async fn id_type(&self, recipients: &Query, limit: Duration) -> Result<Option<String>, SourceError> {
        let asked = match self {
            Self::Postgres(inner) => inner.id_type(recipients, limit).await.map(Some),
            Self::Sqlite(inner) => inner.id_type(recipients, limit).await,
        };
        asked.map_err(|failure| failure.of(recipients, limit))
    }

    /// The rows of the recipients query that belong to some orgs.
    pub async fn recipients(
        &self,
        query: &Query,
        learnt: &Learnt,
        orgs: &[String],
        limit: Duration,
    ) -> Result<Vec<Row>, SourceError> {
        let asked = match self {
            Self::Postgres(inner) => inner.recipients(query, learnt, orgs, limit).await,
            Self::Sqlite(inner) => inner.recipients(query, learnt, orgs, limit).await,
        };
        asked.map_err(|failure| failure.of(query, limit))
    }

    /// The recipients query's orgs that are asked for, each once.
    pub async fn orgs(
        &self,
        query: &Query,
        learnt: &Learnt,
        orgs: &[String],
        limit: Duration,
    ) -> Result<Vec<OrgRow>, SourceError> {
        let asked = match self {
            Self::Postgres(inner) => inner.orgs(query, learnt, orgs, limit).await,
            Self::Sqlite(inner) => inner.orgs(query, learnt, orgs, limit).await,
        };
        asked.map_err(|failure| failure.of(query, limit))
    }

    /// Every org of the recipients query, each once, in the order of the ids.
    pub async fn each_org(
        &self,
        query: &Query,
        learnt: &Learnt,
        limit: Duration,
        each: impl FnMut(OrgRow) + Send,
    ) -> Result<(), SourceError> {
        let asked = match self {
            Self::Postgres(inner) => inner.each_org(query, learnt, limit, each).await,
            Self::Sqlite(inner) => inner.each_org(query, learnt, limit, each).await,
        };
        asked.map_err(|failure| failure.of(query, limit))
    }

    /// A section's rows, one after another, in the query's order, until `each` has seen enough.
    pub async fn section(
        &self,
        query: &Query,
        learnt: &Learnt,
        values: &Values,
        cut: Cut,
        limit: Duration,
        each: impl FnMut(Row) -> ControlFlow<()> + Send,
    ) -> Result<(), SourceError> {
        let asked = match self {
            Self::Postgres(inner) => inner.section(query, learnt, values, cut, limit, each).await,
            Self::Sqlite(inner) => inner.section(query, learnt, values, limit, each).await,
        };
        asked.map_err(|failure| failure.of(query, limit))
    }

    pub async fn close(&self) {
        match self {
            Self::Postgres(inner) => inner.close().await,
            Self::Sqlite(inner) => inner.close().await,
        }
    }
}
