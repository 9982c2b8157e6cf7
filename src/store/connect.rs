//! Opening the database.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::line::Line;
use super::{Postgres, Sqlite, Store, StoreError};
use crate::clock::Clock;

/// How long an SQLite statement waits for another process's write. Writes are short, so this is
/// only reached by a process that was frozen in the middle of one.
const SQLITE_BUSY: Duration = Duration::from_secs(10);
/// How long a statement waits for a free connection before it counts as a failure.
const ACQUIRE: Duration = Duration::from_secs(10);
/// How long a single try to connect may take.
const TRY_CONNECT: Duration = Duration::from_secs(5);
/// How long a transaction of ours may stand still, in milliseconds. None waits for anything but the database.
const IDLE_IN_TRANSACTION: &str = "15000";
/// What PostgreSQL is told when a connection begins. A replica that is frozen inside a transaction must not
/// hold its rows against the others. And a plan made while a table was empty would read all of it for as long
/// as the connection lives, though an hour later it holds a week's sends: every statement of ours has its
/// index, and none is worth a compiler.
const SESSION: [(&str, &str); 3] =
    [("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION), ("enable_seqscan", "off"), ("jit", "off")];
/// How long a connection may have been idle without being asked whether it still works.
const FRESH: Duration = Duration::from_secs(5);
/// SQLite readers; the file has one writer whatever we ask for.
const SQLITE_READERS: u32 = 4;
/// The size that an idle WAL file is cut back to, in bytes.
const SQLITE_WAL_BYTES: &str = "67108864";

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

impl fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
        })
    }
}

/// What is needed to open the database.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Where it is.
    pub target: Target,
    /// Connections of this process to PostgreSQL.
    pub pool: u32,
    /// The PostgreSQL schema of ours: an identifier, checked by the configuration.
    pub schema: String,
    /// Whether a pooler in transaction mode stands between: no named prepared statements then.
    pub pgbouncer: bool,
    /// The clock that decides.
    pub clock: Clock,
}

/// Where the database is.
#[derive(Debug, Clone)]
pub enum Target {
    /// A `postgres://` URL; it may hold a password.
    Postgres(SecretString),
    /// A file.
    Sqlite(PathBuf),
}

impl Store {
    /// Opens the database without touching the network yet: connections are made as they are needed.
    pub fn open(options: &ConnectOptions) -> Result<Self, StoreError> {
        match &options.target {
            Target::Postgres(url) => open_postgres(url, options),
            Target::Sqlite(path) => Ok(open_sqlite(path, options)),
        }
    }

    /// Opens one connection beside the pool and closes it again. The pool would only say that it has
    /// waited long enough; this says what went wrong.
    pub async fn try_connect(&self) -> Result<(), StoreError> {
        let tried = async {
            match self {
                Self::Postgres(inner) => inner.pool.connect_options().connect().await?.close().await,
                Self::Sqlite(inner) => inner.write.connect_options().connect().await?.close().await,
            }
        };
        let late = || Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(TRY_CONNECT, tried).await.unwrap_or_else(|_| late()).map_err(StoreError::Connect)
    }
}

/// The release of the SQLite library inside this program.
pub async fn sqlite_version() -> Result<String, StoreError> {
    let doing = "asking SQLite for its version";
    let options = SqliteConnectOptions::new().in_memory(true);
    let mut connection = options.connect().await.map_err(StoreError::doing(doing))?;
    sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut connection)
        .await
        .map_err(StoreError::doing(doing))
}

fn open_postgres(url: &SecretString, options: &ConnectOptions) -> Result<Store, StoreError> {
    let mut connect = PgConnectOptions::from_str(url.expose_secret())
        .map_err(StoreError::doing("reading the database URL"))?
        .application_name("digestd")
        .disable_statement_logging();
    if !options.pgbouncer {
        // A pooler refuses options at the start. There the server's own settings have to do it, and plans are
        // made anew for each statement, because none has a name.
        connect = connect.options(SESSION);
    }
    if options.pgbouncer {
        // What a pooler cannot carry from one server connection to the next: named statements, and
        // start-up parameters that it does not know.
        connect = connect.statement_cache_capacity(0).extra_float_digits(None);
    }
    let pool = PgPoolOptions::new()
        .max_connections(options.pool)
        .acquire_timeout(ACQUIRE)
        // A question before each statement would be half of all round trips.
        .test_before_acquire(false)
        .before_acquire(|connection, known| {
            Box::pin(async move {
                if known.idle_for > FRESH {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(connect);
    Ok(Store::Postgres(Postgres {
        pool,
        schema: options.schema.as_str().into(),
        pooler: options.pgbouncer,
        clock: options.clock.clone(),
        line: Line::default(),
    }))
}

fn open_sqlite(path: &std::path::Path, options: &ConnectOptions) -> Store {
    let base = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(SQLITE_BUSY)
        .foreign_keys(true)
        // The mark before a body leaves must survive a power cut, so commits are synced.
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", SQLITE_WAL_BYTES)
        .disable_statement_logging();
    let write = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE.max(SQLITE_BUSY) * 2)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(base.clone().create_if_missing(true));
    let read = SqlitePoolOptions::new()
        .max_connections(SQLITE_READERS)
        .acquire_timeout(ACQUIRE)
        .connect_lazy_with(base.pragma("query_only", "1"));
    Store::Sqlite(Sqlite { write, read, clock: options.clock.clone(), line: Line::default() })
}
