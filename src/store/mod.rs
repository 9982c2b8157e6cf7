//! Every row, and the only SQL of ours.
//!
//! One body and one SQL text per operation serve both databases. What differs:
//!
//! | | PostgreSQL | SQLite |
//! |---|---|---|
//! | names | `"schema".table` | `table` |
//! | times | `TIMESTAMPTZ` | integer milliseconds |
//! | bulk input | `jsonb_array_elements` | `json_each` |
//! | row locks | `FOR UPDATE [SKIP LOCKED]` | none: one writer |
//! | transactions | `BEGIN` | `BEGIN IMMEDIATE` on the one writing connection |
//! | bodies of a batch | arrays | one statement each |
//! | migration lock | advisory, in the transaction | a lock file beside the database |
//!
//! The first six are spelt in [`dialect`], the last in [`migrate`].

pub mod audit;
pub mod connect;
mod dialect;
pub mod directory;
mod ends;
pub mod enqueue;
mod error;
pub mod guard;
pub mod import;
pub mod leases;
pub mod ledger;
pub mod line;
pub mod manual;
pub mod migrate;
pub mod opt_outs;
pub mod outbox;
pub mod overview;
mod pooler;
pub mod queue;
pub mod relays;
pub mod repair;
pub mod replicas;
pub mod results;
pub mod retention;
pub mod sends;
pub mod slots;
pub mod stats;
pub mod suppressions;
pub mod take_over;
pub mod uncertain;
pub mod weeks;
pub mod write_backs;

pub use connect::{ConnectOptions, DatabaseKind};
pub(crate) use error::is_transient;
pub use error::{ErrorClass, StoreError};

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use crate::clock::Clock;
use dialect::{At, Dialect};
use line::Line;

/// The database, whichever it is. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Store {
    /// Many hosts.
    Postgres(Postgres),
    /// One host; several processes may share the file.
    Sqlite(Sqlite),
}

/// A PostgreSQL database.
#[derive(Debug, Clone)]
pub struct Postgres {
    pool: PgPool,
    schema: Arc<str>,
    /// Whether a pooler in transaction mode stands between.
    pooler: bool,
    clock: Clock,
    line: Line,
}

/// An SQLite file: one connection that writes, several that only read.
#[derive(Debug, Clone)]
pub struct Sqlite {
    write: SqlitePool,
    read: SqlitePool,
    clock: Clock,
    line: Line,
}

/// Where in the source a request comes from.
macro_rules! here {
    () => {
        concat!(file!(), ":", line!())
    };
}

/// Evaluates one expression with the pool of whichever database is live.
macro_rules! run {
    ($store:expr, $side:ident, $db:ident => $body:expr) => {
        match $store {
            // See the module `pooler`.
            $crate::store::Store::Postgres(inner) if inner.pooler => {
                // Boxed, so that the rare case does not make every caller's future large.
                Box::pin(async {
                    let mut tx = inner.begin().await?;
                    let $db = &mut *tx;
                    let value = $body?;
                    tx.commit().await?;
                    Ok::<_, sqlx::Error>(value)
                })
                .await
            }
            $crate::store::Store::Postgres(inner) => match inner.line.ask($crate::store::here!()) {
                Ok(request) => {
                    let $db = &inner.pool;
                    request.answered($body)
                }
                Err(error) => Err(error),
            },
            $crate::store::Store::Sqlite(inner) => match inner.line.ask($crate::store::here!()) {
                Ok(request) => {
                    let $db = &inner.$side;
                    request.answered($body)
                }
                Err(error) => Err(error),
            },
        }
    };
}

/// Runs a block in one writing transaction: commits what ends `Ok`, rolls back what does not.
/// A failed statement always ends the block, because `COMMIT` after one reports success.
macro_rules! transact {
    ($store:expr, $tx:ident => $body:block) => {
        match $store {
            $crate::store::Store::Postgres(inner) => {
                let request = inner.line.ask($crate::store::here!())?;
                let mut $tx = inner.begin().await?;
                request.answered($crate::store::transact!(@finish $tx, $body))
            }
            $crate::store::Store::Sqlite(inner) => {
                let request = inner.line.ask($crate::store::here!())?;
                let mut $tx = inner.write.begin_with("BEGIN IMMEDIATE").await?;
                request.answered($crate::store::transact!(@finish $tx, $body))
            }
        }
    };
    (@finish $tx:ident, $body:block) => {{
        let outcome: Result<_, sqlx::Error> = async { $body }.await;
        match outcome {
            Ok(value) => $tx.commit().await.map(|()| value),
            Err(error) => {
                // The first error is the one to tell; a failed rollback ends with the connection.
                let _ = $tx.rollback().await;
                Err(error)
            }
        }
    }};
}

pub(in crate::store) use {here, run, transact};

/// The only row of a statement that writes, read to its end. `fetch_optional` stops at the row: SQLite then
/// commits behind it, and what comes of that, a full disk or a busy file, is never heard.
fn only<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}

impl Store {
    /// The clock that decides.
    pub fn clock(&self) -> &Clock {
        match self {
            Self::Postgres(inner) => &inner.clock,
            Self::Sqlite(inner) => &inner.clock,
        }
    }

    /// The line to it, which a test may let fail.
    #[cfg(feature = "faults")]
    pub fn line(&self) -> &Line {
        match self {
            Self::Postgres(inner) => &inner.line,
            Self::Sqlite(inner) => &inner.line,
        }
    }

    /// Which database this is.
    pub fn kind(&self) -> DatabaseKind {
        match self {
            Self::Postgres(_) => DatabaseKind::Postgres,
            Self::Sqlite(_) => DatabaseKind::Sqlite,
        }
    }

    /// The deciding now: the given one, else the database's.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        const NOW: &str = "SELECT {now}";
        let at: At = run!(self, read, db => {
            sqlx::query_scalar(self.sql(NOW)).bind(self.given()).fetch_one(db).await
        })
        .map_err(StoreError::doing("reading the time"))?;
        Ok(at.0)
    }

    /// Closes every connection, after the statements under way.
    pub async fn close(&self) {
        match self {
            Self::Postgres(inner) => inner.pool.close().await,
            Self::Sqlite(inner) => {
                inner.read.close().await;
                inner.write.close().await;
            }
        }
    }

    /// The text of a statement in this database's dialect.
    fn sql(&self, text: &'static str) -> AssertSqlSafe<String> {
        // Safe: the text is a constant of ours, and the only thing put into it at run time is
        // the schema's name, which the configuration has checked to be an identifier.
        AssertSqlSafe(match self {
            Self::Postgres(inner) => dialect::expand(text, Dialect::Postgres(&inner.schema)),
            Self::Sqlite(_) => dialect::expand(text, Dialect::Sqlite),
        })
    }

    /// What `$1` is in every statement that speaks of `{now}`.
    fn given(&self) -> Option<At> {
        self.clock().given().map(At)
    }
}

/// Runs a future to its end even if the caller is dropped: a `BEGIN` that is cancelled half-way
/// would hand a connection with an open transaction back to the pool.
async fn uncancelled<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(future).await {
        Ok(value) => value,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
