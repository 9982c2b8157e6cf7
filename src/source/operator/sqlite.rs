//! The operator's database on SQLite: values have types of their own there, whatever the column says.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use serde_json::{Map, Value};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Executor as _, Row as _,
    SqlSafeStr as _, SqlitePool, Statement as _, TypeInfo as _, ValueRef as _,
};

use super::database::{ACQUIRE, Failure, Learnt, OrgColumns, OrgRow, Row};
use super::json;
use super::param::Param;
use super::query::{Bound, Query, Values, sqlite_instant};

/// How long a statement waits for somebody else's write.
const BUSY: Duration = Duration::from_secs(10);
/// How many of its instructions SQLite does between two looks at the deadline: some tens of microseconds.
const OPS: i32 = 1000;
/// What SQLite calls whole numbers.
const INTEGER: &str = "integer";

/// Connections that read.
#[derive(Debug, Clone)]
pub(super) struct Sqlite {
    pool: SqlitePool,
    id_type: Arc<OnceLock<String>>,
}

type Connection = PoolConnection<sqlx::Sqlite>;

impl Sqlite {
    /// Opens a pool without touching the file.
    pub fn open(path: &Path, pool: u32) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY)
            .pragma("query_only", "1")
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new()
            .max_connections(pool)
            .acquire_timeout(ACQUIRE)
            .connect_lazy_with(options);
        Self { pool, id_type: Arc::default() }
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub async fn columns(&self, query: &Query, limit: Duration) -> Result<Vec<String>, Failure> {
        let (sql, _) = query.numbered(spell);
        let mut connection = self.connection(limit).await?;
        let sql = AssertSqlSafe(wrapped(&sql)).into_sql_str();
        let statement = (&mut *connection).prepare(sql).await?;
        Ok(statement.columns().iter().map(|column| column.name().to_owned()).collect())
    }

    /// The storage class of the ids, once there is a row to tell it by.
    pub async fn id_type(&self, recipients: &Query, limit: Duration) -> Result<Option<String>, Failure> {
        if let Some(known) = self.id_type.get() {
            return Ok(Some(known.clone()));
        }
        let (sql, _) = recipients.numbered(spell);
        let sql = format!("SELECT typeof(r.org_id) FROM (\n{sql}\n) AS r WHERE r.org_id IS NOT NULL LIMIT 1");
        let mut connection = self.connection(limit).await?;
        let found: Option<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_optional(&mut *connection).await?;
        Ok(found.map(|found| self.id_type.get_or_init(|| found).clone()))
    }

    pub async fn recipients(
        &self,
        query: &Query,
        learnt: &Learnt,
        orgs: &[String],
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let (sql, _) = query.numbered(spell);
        let sql = format!("{} WHERE digestd_row.org_id IN ({})", wrapped(&sql), spell(Param::OrgIds, 1));
        let mut connection = self.connection(limit).await?;
        let rows = sqlx::query(AssertSqlSafe(sql))
            .persistent(false)
            .bind(ids(orgs, &learnt.id_type))
            .fetch_all(&mut *connection)
            .await?;
        rows.iter().map(row).collect()
    }

    /// Some orgs, sorted by id.
    pub async fn orgs(
        &self,
        query: &Query,
        learnt: &Learnt,
        orgs: &[String],
        limit: Duration,
    ) -> Result<Vec<OrgRow>, Failure> {
        let sql = orgs_sql(query, learnt, true);
        let mut connection = self.connection(limit).await?;
        let statement = sqlx::query_as(AssertSqlSafe(sql)).persistent(false);
        let found: Vec<OrgColumns> =
            statement.bind(ids(orgs, &learnt.id_type)).fetch_all(&mut *connection).await?;
        Ok(found.into_iter().map(OrgRow::from).collect())
    }

    /// Every org, one after another, sorted by id.
    pub async fn each_org(
        &self,
        query: &Query,
        learnt: &Learnt,
        limit: Duration,
        mut each: impl FnMut(OrgRow) + Send,
    ) -> Result<(), Failure> {
        let sql = orgs_sql(query, learnt, false);
        let mut connection = self.connection(limit).await?;
        let statement = sqlx::query_as::<_, OrgColumns>(AssertSqlSafe(sql)).persistent(false);
        let mut rows = statement.fetch(&mut *connection);
        while let Some(found) = rows.try_next().await? {
            each(OrgRow::from(found));
        }
        Ok(())
    }

    pub async fn section(
        &self,
        query: &Query,
        learnt: &Learnt,
        values: &Values,
        limit: Duration,
        mut each: impl FnMut(Row) -> ControlFlow<()> + Send,
    ) -> Result<(), Failure> {
        let (sql, params) = query.numbered(spell);
        let mut arguments = SqliteArguments::default();
        for param in params {
            match values.bound(param) {
                Bound::Orgs => arguments.add(ids(&values.orgs, &learnt.id_type)),
                Bound::Instant(at) => arguments.add(sqlite_instant(at)),
                Bound::Text(text) => arguments.add(text),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        let mut connection = self.connection(limit).await?;
        let statement = sqlx::query_with(AssertSqlSafe(wrapped(&sql)), arguments).persistent(false);
        let mut rows = statement.fetch(&mut *connection);
        while let Some(found) = rows.try_next().await? {
            if each(row(&found)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// A connection whose statements are interrupted when the time is up.
    async fn connection(&self, limit: Duration) -> Result<Connection, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let deadline = Instant::now() + limit;
        connection.lock_handle().await?.set_progress_handler(OPS, move || Instant::now() < deadline);
        Ok(connection)
    }
}

/// As a subquery, so that it can be nothing but a query.
fn wrapped(sql: &str) -> String {
    format!("SELECT * FROM (\n{sql}\n) AS digestd_row")
}

/// `org_id IN (:org_ids)`: SQLite has no arrays, but a subquery can give the members of a JSON list.
fn spell(param: Param, n: usize) -> String {
    if param == Param::OrgIds { format!("SELECT value FROM json_each(?{n})") } else { format!("?{n}") }
}

/// The ids as a JSON list of the type that the application's have, as `12` and `'12'` are not the same.
fn ids(orgs: &[String], id_type: &str) -> String {
    let id = |text: &String| {
        if id_type == INTEGER { json::number(text) } else { Value::from(text.as_str()) }
    };
    orgs.iter().map(id).collect::<Value>().to_string()
}

fn orgs_sql(query: &Query, learnt: &Learnt, some: bool) -> String {
    let (sql, _) = query.numbered(spell);
    let least = |column: &str| {
        let there = learnt.columns.has(column);
        if there { format!("CAST(min(digestd_row.\"{column}\") AS TEXT)") } else { "NULL".to_owned() }
    };
    // If it is not known of one admin, then that one may have been there all the time.
    let opted_in = if learnt.columns.has("opted_in_at") {
        format!("CASE WHEN count(*) = count(digestd_row.opted_in_at) THEN {} END", least("opted_in_at"))
    } else {
        "NULL".to_owned()
    };
    let only = if some {
        format!("digestd_row.org_id IN ({})", spell(Param::OrgIds, 1))
    } else {
        "digestd_row.org_id IS NOT NULL".to_owned()
    };
    let (timezone, weekday, time) = (least("timezone"), least("weekday"), least("time"));
    let created = least("org_created_at");
    format!(
        "SELECT
             CAST(digestd_row.org_id AS TEXT) AS org,
             {timezone} AS timezone,
             {weekday} AS weekday,
             {time} AS time,
             {created} AS created,
             {opted_in} AS opted_in
         FROM (\n{sql}\n) AS digestd_row
         WHERE {only}
         GROUP BY 1
         ORDER BY 1"
    )
}

fn row(found: &SqliteRow) -> Result<Row, Failure> {
    let mut columns = Map::new();
    for column in found.columns() {
        columns.insert(column.name().to_owned(), value(found, column.ordinal())?);
    }
    let id = |name: &str| columns.get(name).and_then(text);
    Ok(Row { org: id("org_id"), user: id("user_id"), total: None, columns })
}

/// A value by its storage class.
fn value(row: &SqliteRow, index: usize) -> Result<Value, sqlx::Error> {
    let raw = row.try_get_raw(index)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    Ok(match raw.type_info().name() {
        "INTEGER" => Value::from(row.try_get_unchecked::<i64, _>(index)?),
        // With its digits as text, as every number with a fraction.
        "REAL" => Value::from(row.try_get_unchecked::<f64, _>(index)?.to_string()),
        "BLOB" => {
            let bytes: Vec<u8> = row.try_get_unchecked(index)?;
            Value::from(bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")))
        }
        _ => Value::from(row.try_get_unchecked::<String, _>(index)?),
    })
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
