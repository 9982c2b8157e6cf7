//! The schema and its versions.
//!
//! Our own runner rather than sqlx's, for three reasons: sqlx takes no lock on SQLite, so half of
//! several processes that boot together die; on PostgreSQL it takes a session lock, which a pooler
//! in transaction mode breaks and which waits without limit; and it knows no schema name.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;

use super::dialect::{Dialect, expand};
use super::{Postgres, Sqlite, Store, StoreError, uncancelled};

/// One step of the schema, in both dialects.
struct Migration {
    version: i64,
    name: &'static str,
    postgres: &'static str,
    sqlite: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            postgres: include_str!(concat!("../../migrations/postgres/", $name, ".sql")),
            sqlite: include_str!(concat!("../../migrations/sqlite/", $name, ".sql")),
        }
    };
}

/// Every migration, oldest first. Never edited after a release.
const MIGRATIONS: [Migration; 1] = [migration!(1, "0001_spine")];

/// How long a replica waits for another one's migration before it gives up.
const LOCK_LIMIT: Duration = Duration::from_mins(5);
/// How long one try for the lock takes before a line is logged.
const LOCK_TRY: Duration = Duration::from_secs(5);
/// The advisory lock's key: the letters `digestd` read as a number.
const ADVISORY_KEY: i64 = 0x0064_6967_6573_7464;

/// What to do about a schema that is not current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrateMode {
    /// Apply what is missing.
    Auto,
    /// Refuse to start; an operator runs `digestd migrate`.
    Check,
}

/// What a run has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateReport {
    /// The migrations applied by this run, by name.
    pub applied: Vec<&'static str>,
    /// The version that the schema has now.
    pub version: i64,
}

/// The newest version that this release knows.
pub fn known_version() -> i64 {
    MIGRATIONS.last().map_or(0, |newest| newest.version)
}

impl Store {
    /// Brings the schema up to date, or checks that it is. Safe to call from many processes at once.
    pub async fn migrate(&self, mode: MigrateMode) -> Result<MigrateReport, StoreError> {
        match mode {
            MigrateMode::Auto => self.migrate_within(LOCK_LIMIT).await,
            MigrateMode::Check => self.check_schema().await,
        }
    }

    /// Brings the schema up to date, waiting at most `limit` for another process that is at it.
    pub async fn migrate_within(&self, limit: Duration) -> Result<MigrateReport, StoreError> {
        match self.clone() {
            Self::Postgres(db) => uncancelled(async move { migrate_postgres(&db, limit).await }).await,
            Self::Sqlite(db) => uncancelled(async move { migrate_sqlite(&db, limit).await }).await,
        }
    }

    /// The SQL of every migration, as it would run here.
    pub fn migration_script(&self) -> String {
        let text = |migration: &Migration| match self {
            Self::Postgres(inner) => expand(migration.postgres, Dialect::Postgres(&inner.schema)),
            Self::Sqlite(_) => migration.sqlite.to_owned(),
        };
        let scripts: Vec<String> =
            MIGRATIONS.iter().map(|m| format!("-- {}\n{}\n", m.name, text(m).trim_end())).collect();
        scripts.concat()
    }

    /// The newest version applied; 0 where there is no schema yet.
    pub async fn schema_version(&self) -> Result<i64, StoreError> {
        let doing = "reading the schema's version";
        let (question, name) = match self {
            Self::Postgres(inner) => {
                ("SELECT to_regclass($1) IS NOT NULL", format!("\"{}\".migrations", inner.schema))
            }
            Self::Sqlite(_) => {
                ("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = $1)", "migrations".to_owned())
            }
        };
        let exists: bool =
            super::run!(self, write, db => sqlx::query_scalar(question).bind(name.as_str()).fetch_one(db).await)
                .map_err(StoreError::doing(doing))?;
        if !exists {
            return Ok(0);
        }
        super::run!(self, write, db => {
            sqlx::query_scalar(self.sql("SELECT COALESCE(MAX(version), 0) FROM digestd.migrations")).fetch_one(db).await
        })
        .map_err(StoreError::doing(doing))
    }

    async fn check_schema(&self) -> Result<MigrateReport, StoreError> {
        let version = self.schema_version().await?;
        refuse_newer(version)?;
        let missing = MIGRATIONS.iter().filter(|m| m.version > version).count();
        if missing > 0 {
            return Err(StoreError::OlderSchema { missing });
        }
        Ok(MigrateReport { applied: Vec::new(), version })
    }
}

fn refuse_newer(found: i64) -> Result<(), StoreError> {
    let known = known_version();
    if found > known { Err(StoreError::NewerSchema { found, known }) } else { Ok(()) }
}

/// All that is missing, in one transaction that holds an advisory lock of its own: the lock cannot
/// outlive it, whatever pooler stands between.
async fn migrate_postgres(postgres: &Postgres, limit: Duration) -> Result<MigrateReport, StoreError> {
    let doing = StoreError::doing;
    let mut tx = postgres.begin().await.map_err(doing("starting a migration"))?;
    take_advisory_lock(&mut tx, limit).await?;
    let schema = &postgres.schema;
    let prepare = format!(
        "CREATE SCHEMA IF NOT EXISTS \"{schema}\";
         CREATE TABLE IF NOT EXISTS \"{schema}\".migrations (
             version BIGINT PRIMARY KEY,
             name TEXT NOT NULL,
             applied_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
         )"
    );
    // A role without the right to create must still be able to boot on a schema that is complete.
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(format!("\"{schema}\".migrations"))
        .fetch_one(&mut *tx)
        .await
        .map_err(doing("looking for the schema"))?;
    if !exists {
        sqlx::raw_sql(AssertSqlSafe(prepare))
            .execute(&mut *tx)
            .await
            .map_err(doing("creating the schema"))?;
    }
    let dialect = Dialect::Postgres(schema);
    let version: i64 = sqlx::query_scalar(AssertSqlSafe(expand(NEWEST, dialect)))
        .fetch_one(&mut *tx)
        .await
        .map_err(doing("reading the schema's version"))?;
    refuse_newer(version)?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS.iter().filter(|m| m.version > version) {
        let text = expand(migration.postgres, dialect);
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await.map_err(doing("applying a migration"))?;
        sqlx::query(AssertSqlSafe(expand(REMEMBER, dialect)))
            .bind(migration.version)
            .bind(migration.name)
            .execute(&mut *tx)
            .await
            .map_err(doing("recording a migration"))?;
        applied.push(migration.name);
    }
    tx.commit().await.map_err(doing("committing a migration"))?;
    Ok(MigrateReport { applied, version: known_version() })
}

const NEWEST: &str = "SELECT COALESCE(MAX(version), 0) FROM digestd.migrations";
const REMEMBER: &str = "INSERT INTO digestd.migrations (version, name) VALUES ($1, $2)";

async fn take_advisory_lock(tx: &mut super::pooler::PgTx, limit: Duration) -> Result<(), StoreError> {
    const HOLDER: &str = "
        SELECT string_agg(pid::text, ', ')
        FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND ((classid::bigint << 32) | objid::bigint) = $1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let doing = StoreError::doing;
    let started = Instant::now();
    loop {
        let got: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(ADVISORY_KEY)
            .fetch_one(&mut **tx)
            .await
            .map_err(doing("taking the migration lock"))?;
        if got {
            return Ok(());
        }
        let waited = started.elapsed();
        let holder: Option<String> = sqlx::query_scalar(HOLDER)
            .bind(ADVISORY_KEY)
            .fetch_one(&mut **tx)
            .await
            .map_err(doing("asking who holds the migration lock"))?;
        let holder = holder.map(|pid| format!(" (backend {pid})")).unwrap_or_default();
        if waited >= limit {
            return Err(StoreError::MigrationLock { waited_secs: waited.as_secs(), holder });
        }
        if waited >= LOCK_TRY {
            tracing::info!(holder, "waiting for another replica's migration");
        }
        tokio::time::sleep(Duration::from_millis(100).max(waited / 10).min(LOCK_TRY)).await;
    }
}

/// An operating-system lock on a file beside the database; it ends with the process that holds it.
async fn migrate_sqlite(sqlite: &Sqlite, limit: Duration) -> Result<MigrateReport, StoreError> {
    let lock = lock_beside(sqlite, limit).await?;
    let result = apply_sqlite(sqlite).await;
    drop(lock);
    result
}

async fn lock_beside(sqlite: &Sqlite, limit: Duration) -> Result<File, StoreError> {
    let mut path = sqlite.write.connect_options().get_filename().as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let failed = |source| StoreError::Lock { path: path.display().to_string(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if started.elapsed() < limit => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                let waited_secs = started.elapsed().as_secs();
                return Err(StoreError::MigrationLock { waited_secs, holder: String::new() });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
}

async fn apply_sqlite(sqlite: &Sqlite) -> Result<MigrateReport, StoreError> {
    let doing = StoreError::doing;
    // The switch to WAL needs the file for itself and does not wait, so it is made under the lock.
    sqlx::query("PRAGMA journal_mode = WAL")
        .execute(&sqlite.write)
        .await
        .map_err(doing("switching the database file to write-ahead logging"))?;
    let mut tx = sqlite.write.begin_with("BEGIN IMMEDIATE").await.map_err(doing("starting a migration"))?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS migrations (
             version INTEGER PRIMARY KEY,
             name TEXT NOT NULL,
             applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
         )",
    )
    .execute(&mut *tx)
    .await
    .map_err(doing("creating the schema"))?;
    let version: i64 = sqlx::query_scalar(AssertSqlSafe(expand(NEWEST, Dialect::Sqlite)))
        .fetch_one(&mut *tx)
        .await
        .map_err(doing("reading the schema's version"))?;
    refuse_newer(version)?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS.iter().filter(|m| m.version > version) {
        sqlx::raw_sql(migration.sqlite).execute(&mut *tx).await.map_err(doing("applying a migration"))?;
        sqlx::query(AssertSqlSafe(expand(REMEMBER, Dialect::Sqlite)))
            .bind(migration.version)
            .bind(migration.name)
            .execute(&mut *tx)
            .await
            .map_err(doing("recording a migration"))?;
        applied.push(migration.name);
    }
    tx.commit().await.map_err(doing("committing a migration"))?;
    Ok(MigrateReport { applied, version: known_version() })
}
