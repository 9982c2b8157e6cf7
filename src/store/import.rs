//! Filling the built-in directory from files: all rows of a file, or none.

use serde::Serialize;
use sqlx::types::Json;
use sqlx::{Sqlite, Transaction};

use super::pooler::PgTx;
use super::{Store, StoreError, uncancelled};

/// A table of the built-in directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportTable {
    /// The organisations.
    Orgs,
    /// Their admins.
    Admins,
    /// What happened in them.
    Activity,
}

/// One row to write: column names to values in their normal form, instants as milliseconds.
///
/// A column that is absent keeps what stands in the table; one that is null is cleared. Made by
/// `source::import`, which has parsed every value.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct ImportRow(pub serde_json::Map<String, serde_json::Value>);

/// How many rows of a file were what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ImportCount {
    /// Rows whose id was not there before.
    pub new: u64,
    /// Rows that differed from what was there.
    pub changed: u64,
    /// Rows that said what was there already.
    pub unchanged: u64,
}

/// One file's transaction. Dropped without a commit, it leaves nothing.
#[derive(Debug)]
pub struct Import {
    store: Store,
    transaction: Either,
    count: ImportCount,
}

#[derive(Debug)]
enum Either {
    Postgres(PgTx),
    Sqlite(Transaction<'static, Sqlite>),
}

/// Rows of the chunk whose org is not in the directory, by their place in the chunk.
const UNKNOWN_ORGS: &str = "
    SELECT CAST(u.value->>'place' AS BIGINT)
    FROM {each}($1) AS u
    LEFT JOIN digestd.orgs AS o ON o.id = u.value->>'org'
    WHERE o.id IS NULL
    ORDER BY 1";

/// The insert comes first and the update second: a row that somebody else inserts at the same
/// moment is waited for by the insert and seen by the update.
const INSERT_ORGS: &str = "
    INSERT INTO digestd.orgs (id, name, timezone, weekday, local_time, locale, active, created_at)
    SELECT
        u.value->>'id',
        u.value->>'name',
        u.value->>'timezone',
        u.value->>'weekday',
        u.value->>'time',
        u.value->>'locale',
        COALESCE(CAST(u.value->>'active' AS BOOLEAN), TRUE),
        {epoch} + CAST(u.value->>'created_at' AS BIGINT){ms}
    FROM {each}($1) AS u
    WHERE TRUE
    ORDER BY 1
    ON CONFLICT (id) DO NOTHING";

/// `->` is null only where the key is absent, `->>` also where its value is null.
const UPDATE_ORGS: &str = "
    UPDATE digestd.orgs AS t
    SET name = n.name,
        timezone = n.timezone,
        weekday = n.weekday,
        local_time = n.local_time,
        locale = n.locale,
        active = n.active,
        created_at = n.created_at
    FROM (
        SELECT
            o.id,
            u.value->>'name' AS name,
            u.value->>'timezone' AS timezone,
            CASE WHEN u.value->'weekday' IS NULL THEN o.weekday ELSE u.value->>'weekday' END AS weekday,
            CASE WHEN u.value->'time' IS NULL THEN o.local_time ELSE u.value->>'time' END AS local_time,
            CASE WHEN u.value->'locale' IS NULL THEN o.locale ELSE u.value->>'locale' END AS locale,
            COALESCE(CAST(u.value->>'active' AS BOOLEAN), o.active) AS active,
            CASE
                WHEN u.value->'created_at' IS NULL THEN o.created_at
                ELSE {epoch} + CAST(u.value->>'created_at' AS BIGINT){ms}
            END AS created_at
        FROM digestd.orgs AS o
        JOIN {each}($1) AS u ON o.id = u.value->>'id'
    ) AS n
    WHERE t.id = n.id
      AND (t.name, t.timezone, t.weekday, t.local_time, t.locale, t.active, t.created_at)
          IS DISTINCT FROM
          (n.name, n.timezone, n.weekday, n.local_time, n.locale, n.active, n.created_at)";

const INSERT_ADMINS: &str = "
    INSERT INTO digestd.admins (id, org_id, email, name, locale, weekly_digest, active, opted_in_at)
    SELECT
        u.value->>'id',
        u.value->>'org_id',
        u.value->>'email',
        u.value->>'name',
        u.value->>'locale',
        COALESCE(CAST(u.value->>'weekly_digest' AS BOOLEAN), TRUE),
        COALESCE(CAST(u.value->>'active' AS BOOLEAN), TRUE),
        {epoch} + CAST(u.value->>'opted_in_at' AS BIGINT){ms}
    FROM {each}($1) AS u
    WHERE TRUE
    ORDER BY 1
    ON CONFLICT (id) DO NOTHING";

const UPDATE_ADMINS: &str = "
    UPDATE digestd.admins AS t
    SET org_id = n.org_id,
        email = n.email,
        name = n.name,
        locale = n.locale,
        weekly_digest = n.weekly_digest,
        active = n.active,
        opted_in_at = n.opted_in_at
    FROM (
        SELECT
            a.id,
            u.value->>'org_id' AS org_id,
            u.value->>'email' AS email,
            CASE WHEN u.value->'name' IS NULL THEN a.name ELSE u.value->>'name' END AS name,
            CASE WHEN u.value->'locale' IS NULL THEN a.locale ELSE u.value->>'locale' END AS locale,
            COALESCE(CAST(u.value->>'weekly_digest' AS BOOLEAN), a.weekly_digest) AS weekly_digest,
            COALESCE(CAST(u.value->>'active' AS BOOLEAN), a.active) AS active,
            CASE
                WHEN u.value->'opted_in_at' IS NULL THEN a.opted_in_at
                ELSE {epoch} + CAST(u.value->>'opted_in_at' AS BIGINT){ms}
            END AS opted_in_at
        FROM digestd.admins AS a
        JOIN {each}($1) AS u ON a.id = u.value->>'id'
    ) AS n
    WHERE t.id = n.id
      AND (t.org_id, t.email, t.name, t.locale, t.weekly_digest, t.active, t.opted_in_at)
          IS DISTINCT FROM
          (n.org_id, n.email, n.name, n.locale, n.weekly_digest, n.active, n.opted_in_at)";

const INSERT_ACTIVITY: &str = "
    INSERT INTO digestd.activity (id, org_id, kind, title, occurred_at, admin_id, url, actor, value)
    SELECT
        u.value->>'id',
        u.value->>'org_id',
        u.value->>'kind',
        u.value->>'title',
        {epoch} + CAST(u.value->>'occurred_at' AS BIGINT){ms},
        u.value->>'admin_id',
        u.value->>'url',
        u.value->>'actor',
        CAST(u.value->>'value' AS DOUBLE PRECISION)
    FROM {each}($1) AS u
    WHERE TRUE
    ORDER BY 1
    ON CONFLICT (id) DO NOTHING";

const UPDATE_ACTIVITY: &str = "
    UPDATE digestd.activity AS t
    SET org_id = n.org_id,
        kind = n.kind,
        title = n.title,
        occurred_at = n.occurred_at,
        admin_id = n.admin_id,
        url = n.url,
        actor = n.actor,
        value = n.value
    FROM (
        SELECT
            a.id,
            u.value->>'org_id' AS org_id,
            u.value->>'kind' AS kind,
            u.value->>'title' AS title,
            {epoch} + CAST(u.value->>'occurred_at' AS BIGINT){ms} AS occurred_at,
            CASE WHEN u.value->'admin_id' IS NULL THEN a.admin_id ELSE u.value->>'admin_id' END AS admin_id,
            CASE WHEN u.value->'url' IS NULL THEN a.url ELSE u.value->>'url' END AS url,
            CASE WHEN u.value->'actor' IS NULL THEN a.actor ELSE u.value->>'actor' END AS actor,
            CASE
                WHEN u.value->'value' IS NULL THEN a.value
                ELSE CAST(u.value->>'value' AS DOUBLE PRECISION)
            END AS value
        FROM digestd.activity AS a
        JOIN {each}($1) AS u ON a.id = u.value->>'id'
    ) AS n
    WHERE t.id = n.id
      AND (t.org_id, t.kind, t.title, t.occurred_at, t.admin_id, t.url, t.actor, t.value)
          IS DISTINCT FROM
          (n.org_id, n.kind, n.title, n.occurred_at, n.admin_id, n.url, n.actor, n.value)";

/// Evaluates one expression with the connection of whichever transaction is live.
macro_rules! inside {
    ($import:expr, $db:ident => $body:expr) => {
        match &mut $import.transaction {
            Either::Postgres(tx) => {
                let $db = &mut **tx;
                $body
            }
            Either::Sqlite(tx) => {
                let $db = &mut **tx;
                $body
            }
        }
    };
}

impl Store {
    /// Starts the transaction of one file. On SQLite it holds the one writer until its end.
    pub async fn begin_import(&self) -> Result<Import, StoreError> {
        let store = self.clone();
        let transaction = uncancelled(async move {
            Ok(match &store {
                Store::Postgres(inner) => Either::Postgres(inner.begin().await?),
                Store::Sqlite(inner) => Either::Sqlite(inner.write.begin_with("BEGIN IMMEDIATE").await?),
            })
        })
        .await
        .map_err(StoreError::doing("starting an import"))?;
        Ok(Import { store: self.clone(), transaction, count: ImportCount::default() })
    }
}

impl Import {
    /// The places of the orgs in `orgs` that the directory does not have.
    pub async fn unknown_orgs(&mut self, orgs: &[&str]) -> Result<Vec<usize>, StoreError> {
        #[derive(Serialize)]
        struct Named<'a> {
            place: usize,
            org: &'a str,
        }
        let named: Vec<Named<'_>> =
            orgs.iter().enumerate().map(|(place, org)| Named { place, org }).collect();
        let sql = self.store.sql(UNKNOWN_ORGS);
        let places: Vec<i64> = inside!(self, db => {
            sqlx::query_scalar(sql).bind(Json(&named)).fetch_all(db).await
        })
        .map_err(StoreError::doing("looking up the orgs of an import"))?;
        Ok(places.into_iter().filter_map(|place| usize::try_from(place).ok()).collect())
    }

    /// Inserts and updates rows. No id may stand in `rows` twice.
    pub async fn write(&mut self, table: ImportTable, rows: &[ImportRow]) -> Result<(), StoreError> {
        let (insert, update) = match table {
            ImportTable::Orgs => (INSERT_ORGS, UPDATE_ORGS),
            ImportTable::Admins => (INSERT_ADMINS, UPDATE_ADMINS),
            ImportTable::Activity => (INSERT_ACTIVITY, UPDATE_ACTIVITY),
        };
        let new = self.execute(insert, rows).await?;
        let changed = self.execute(update, rows).await?;
        let all = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        self.count.new += new;
        self.count.changed += changed;
        self.count.unchanged += all.saturating_sub(new + changed);
        Ok(())
    }

    /// Makes the file's rows visible, all at once.
    pub async fn commit(self) -> Result<ImportCount, StoreError> {
        let count = self.count;
        let transaction = self.transaction;
        uncancelled(async move {
            match transaction {
                Either::Postgres(tx) => tx.commit().await,
                Either::Sqlite(tx) => tx.commit().await,
            }
        })
        .await
        .map_err(StoreError::doing("committing an import"))?;
        Ok(count)
    }

    async fn execute(&mut self, text: &'static str, rows: &[ImportRow]) -> Result<u64, StoreError> {
        let sql = self.store.sql(text);
        inside!(self, db => {
            sqlx::query(sql).bind(Json(rows)).execute(db).await.map(|done| done.rows_affected())
        })
        .map_err(StoreError::doing("writing imported rows"))
    }
}
