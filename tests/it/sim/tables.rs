//! The tables, read past the code under test.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgPool, PgRow};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, FromRow};

use crate::support::backend::{Kind, TestDatabase};

/// A send as it stands in the table, times in milliseconds.
pub type SendRow = (i64, String, String, String, Option<String>, i64, String, String, i64, i64, Option<i64>);
/// A message as it stands in the table.
pub type MessageRow = (i64, String, String, String, Option<i64>, i64, Option<i64>);

/// A pool of its own on the database of the test.
pub enum Tables {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Tables {
    pub async fn open(database: &TestDatabase) -> Self {
        match database.kind {
            Kind::Postgres => Self::Postgres(PgPool::connect(&database.url).await.expect("a connection")),
            Kind::Sqlite => Self::Sqlite(SqlitePool::connect(&database.url).await.expect("a connection")),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Postgres(_) => Kind::Postgres,
            Self::Sqlite(_) => Kind::Sqlite,
        }
    }

    /// A moment, to be compared with a column.
    pub fn instant(&self, at: DateTime<Utc>) -> String {
        match self.kind() {
            Kind::Postgres => format!("TIMESTAMPTZ '{}'", at.to_rfc3339()),
            Kind::Sqlite => at.timestamp_millis().to_string(),
        }
    }

    /// A column of times, in milliseconds.
    fn millis(&self, column: &str) -> String {
        match self.kind() {
            Kind::Postgres => format!("CAST(EXTRACT(EPOCH FROM {column}) * 1000 AS BIGINT)"),
            Kind::Sqlite => column.to_owned(),
        }
    }

    async fn rows<T>(&self, query: &str) -> Vec<T>
    where
        T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
    {
        let prefix = if self.kind() == Kind::Postgres { "digestd." } else { "" };
        let mut query = query.to_owned();
        for table in ["sends", "outbox"] {
            query = query.replace(&format!("{{{table}}}"), &format!("{prefix}{table}"));
        }
        match self {
            Self::Postgres(pool) => sqlx::query_as(AssertSqlSafe(query)).fetch_all(pool).await,
            Self::Sqlite(pool) => sqlx::query_as(AssertSqlSafe(query)).fetch_all(pool).await,
        }
        .expect("a query of ours")
    }

    pub async fn count(&self, query: &str) -> i64 {
        let rows: Vec<(i64,)> = self.rows(query).await;
        rows.first().expect("one row").0
    }

    pub async fn keys_since(&self, since: DateTime<Utc>) -> BTreeSet<(String, String)> {
        let query = format!("SELECT org_id, week_key FROM {{sends}} WHERE slot_at > {}", self.instant(since));
        self.rows(&query).await.into_iter().collect()
    }

    pub async fn sends_since(&self, since: DateTime<Utc>) -> Vec<SendRow> {
        let query = format!(
            "SELECT id, org_id, week_key, state, reason, {}, timezone, period_first, {}, {}, {}
             FROM {{sends}} WHERE slot_at > {} ORDER BY id",
            self.millis("slot_at"),
            self.millis("period_start"),
            self.millis("period_end"),
            self.millis("settled_at"),
            self.instant(since)
        );
        self.rows(&query).await
    }

    pub async fn messages_since(&self, since: DateTime<Utc>) -> Vec<MessageRow> {
        let query = format!(
            "SELECT o.send_id, o.address, o.uid, o.state, {}, {}, {}
             FROM {{outbox}} AS o JOIN {{sends}} AS s ON s.id = o.send_id
             WHERE s.slot_at > {} ORDER BY o.id",
            self.millis("o.settled_at"),
            self.millis("o.expires_at"),
            self.millis("o.lease_until"),
            self.instant(since)
        );
        self.rows(&query).await
    }

    pub async fn by_state(&self, table: &str) -> Vec<(String, i64)> {
        self.rows(&format!("SELECT state, COUNT(*) FROM {{{table}}} GROUP BY state")).await
    }

    pub async fn sends_by_week(&self) -> Vec<(String, String, i64)> {
        self.rows("SELECT week_key, state, COUNT(*) FROM {sends} GROUP BY week_key, state").await
    }

    /// Sends that were claimed and have come to their end, by state and reason.
    pub async fn worked(&self) -> Vec<(String, Option<String>, i64)> {
        let query = "SELECT state, reason, COUNT(*) FROM {sends}
             WHERE state NOT IN ('claimed', 'missed') GROUP BY state, reason";
        self.rows(query).await
    }
}
