//! The operator's database on PostgreSQL: the server makes JSON of each row, so that every type arrives.

use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

use futures_util::TryStreamExt;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions};
use sqlx::{Arguments as _, AssertSqlSafe, ConnectOptions as _, Connection as _, PgPool, Transaction};

use super::super::SourceError;
use super::database::{ACQUIRE, Cut, Failure, Learnt, OrgColumns, OrgRow, Row};
use super::json;
use super::param::Param;
use super::query::{Bound, Query, Values};

/// What we wait past a statement's timeout, for an answer that is on its way, before we give the network up.
const GRACE: Duration = Duration::from_secs(5);

/// How long a connection is waited for before we look whether the server is there.
const DOUBT: Duration = Duration::from_secs(2);
/// How long that look may take.
const TRY_CONNECT: Duration = Duration::from_secs(5);

/// Connections that read.
#[derive(Debug, Clone)]
pub(super) struct Postgres {
    pool: PgPool,
}

type Tx = Transaction<'static, sqlx::Postgres>;
type RawRow = (Option<String>, Option<String>, Option<i64>, String);

impl Postgres {
    /// Opens a pool without touching the network.
    pub fn open(url: &SecretString, pool: u32) -> Result<Self, SourceError> {
        let options = PgConnectOptions::from_str(url.expose_secret()).map_err(|_| SourceError::Url)?;
        // Named statements would not work behind a pooler in transaction mode, and these are rare.
        let options = options
            .application_name("digestd-source")
            .statement_cache_capacity(0)
            .disable_statement_logging();
        let pool =
            PgPoolOptions::new().max_connections(pool).acquire_timeout(ACQUIRE).connect_lazy_with(options);
        Ok(Self { pool })
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub async fn columns(
        &self,
        query: &Query,
        id_type: &str,
        limit: Duration,
    ) -> Result<Vec<String>, Failure> {
        let (sql, params) = query.numbered(|param, n| spell(param, n, id_type));
        // A row of nothing but NULL has the names, whatever the types. It is asked for by running the
        // query, because rights are not looked at before.
        let sql = format!(
            "SELECT json_object_keys(row_to_json(named))
             FROM (
                 SELECT digestd_row.*
                 FROM (SELECT 1) AS one
                 LEFT JOIN (SELECT * FROM (\n{sql}\n) AS query LIMIT 0) AS digestd_row ON TRUE
             ) AS named"
        );
        within(limit, async {
            let mut tx = self.begin(limit).await?;
            let arguments = arguments(&params, &Values::none())?;
            let names = sqlx::query_scalar_with(AssertSqlSafe(sql), arguments).fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(names)
        })
        .await
    }

    /// The type's name, fit for a cast.
    pub async fn id_type(&self, recipients: &Query, limit: Duration) -> Result<String, Failure> {
        let sql = recipients.plain();
        // A subquery that gives no row is NULL, of the column's type.
        let sql = format!("SELECT pg_typeof((SELECT r.org_id FROM (\n{sql}\n) AS r LIMIT 0))::text");
        within(limit, async {
            let mut tx = self.begin(limit).await?;
            let name: String = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut *tx).await?;
            tx.commit().await?;
            // In a cast, these words alone mean one character and one bit.
            Ok(match name.as_str() {
                "character" => "bpchar".to_owned(),
                "bit" => "varbit".to_owned(),
                _ => name,
            })
        })
        .await
    }

    pub async fn recipients(
        &self,
        query: &Query,
        learnt: &Learnt,
        orgs: &[String],
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let sql = query.plain();
        // Compared in the column's own type, so that the application's index serves.
        let sql = format!(
            "SELECT digestd_row.org_id::text, digestd_row.user_id::text, NULL::bigint, row_to_json(digestd_row)::text
             FROM (\n{sql}\n) AS digestd_row
             WHERE digestd_row.org_id = ANY($1::text[]::{}[])",
            learnt.id_type
        );
        within(limit, async {
            let mut tx = self.begin(limit).await?;
            let rows: Vec<RawRow> = sqlx::query_as(AssertSqlSafe(sql)).bind(orgs).fetch_all(&mut *tx).await?;
            tx.commit().await?;
            rows.into_iter().map(row).collect()
        })
        .await
    }

    pub async fn orgs(
        &self,
        query: &Query,
        learnt: &Learnt,
        orgs: &[String],
        limit: Duration,
    ) -> Result<Vec<OrgRow>, Failure> {
        let only = format!("digestd_row.org_id = ANY($1::text[]::{}[])", learnt.id_type);
        let sql = orgs_sql(query, learnt, &only);
        within(limit, async {
            let mut tx = self.begin(limit).await?;
            let found = sqlx::query_as(AssertSqlSafe(sql)).bind(orgs).fetch_all(&mut *tx).await;
            let found: Vec<OrgColumns> = match found {
                // What is no number is no org, where the ids are numbers.
                Err(error) if is_not_of_the_type(&error) => Vec::new(),
                found => found?,
            };
            tx.rollback().await?;
            Ok(found.into_iter().map(OrgRow::from).collect())
        })
        .await
    }

    /// Every org, one after another: the list is made by one run of the query.
    pub async fn each_org(
        &self,
        query: &Query,
        learnt: &Learnt,
        limit: Duration,
        mut each: impl FnMut(OrgRow) + Send,
    ) -> Result<(), Failure> {
        let sql = orgs_sql(query, learnt, "digestd_row.org_id IS NOT NULL");
        within(limit, async {
            let mut tx = self.begin(limit).await?;
            {
                let mut rows = sqlx::query_as::<_, OrgColumns>(AssertSqlSafe(sql)).fetch(&mut *tx);
                while let Some(found) = rows.try_next().await? {
                    each(OrgRow::from(found));
                }
            }
            tx.rollback().await?;
            Ok(())
        })
        .await
    }

    pub async fn section(
        &self,
        query: &Query,
        learnt: &Learnt,
        values: &Values,
        cut: Cut,
        limit: Duration,
        mut each: impl FnMut(Row) -> ControlFlow<()> + Send,
    ) -> Result<(), Failure> {
        let (sql, params) = query.numbered(|param, n| spell(param, n, &learnt.id_type));
        let sql = section_sql(&sql, cut);
        within(limit, async {
            let mut tx = self.begin(limit).await?;
            {
                let arguments = arguments(&params, values)?;
                let mut rows =
                    sqlx::query_as_with::<_, RawRow, _>(AssertSqlSafe(sql), arguments).fetch(&mut *tx);
                while let Some(raw) = rows.try_next().await? {
                    if each(row(raw)?).is_break() {
                        break;
                    }
                }
            }
            // Nothing was written; a rollback also ends what was not read to its end.
            tx.rollback().await?;
            Ok(())
        })
        .await
    }

    /// A transaction that can only read, and whose statements end in time. One round trip.
    async fn begin(&self, limit: Duration) -> Result<Tx, sqlx::Error> {
        let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {}", limit.as_millis().max(1));
        let mut opening = Box::pin(self.pool.begin_with(AssertSqlSafe(begin)));
        if let Ok(opened) = tokio::time::timeout(DOUBT, &mut opening).await {
            return opened;
        }
        // A pool waits as long for a server that is away as for a connection that is in use, and does not say which.
        match Box::pin(self.try_connect()).await {
            Err(away @ sqlx::Error::Io(_)) => Err(away),
            _ => opening.await,
        }
    }

    /// Opens one connection beside the pool and closes it again.
    async fn try_connect(&self) -> Result<(), sqlx::Error> {
        let tried = async { self.pool.connect_options().connect().await?.close().await };
        let late = || Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(TRY_CONNECT, tried).await.unwrap_or_else(|_| late())
    }
}

/// Ends what the server's own timeout did not end.
async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(ACQUIRE + limit + GRACE, asked).await.unwrap_or(Err(Failure::TimedOut))
}

/// Whether a text could not become a value of a type: not its form (22P02), or out of its range (22003).
fn is_not_of_the_type(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("22P02" | "22003"))
}

/// Each parameter with its type, so that a query may use it anywhere.
fn spell(param: Param, n: usize, id_type: &str) -> String {
    match param {
        Param::OrgIds => format!("(${n}::text[]::{id_type}[])"),
        Param::WeekKey => format!("(${n}::text)"),
        Param::From | Param::To | Param::PreviousFrom | Param::PreviousTo => format!("(${n}::timestamptz)"),
    }
}

/// Numbers the rows of each org in the query's order, drops those past the limit, and makes JSON of the rest.
fn section_sql(sql: &str, Cut { limit, personal }: Cut) -> String {
    let (user, group) = if personal {
        ("(digestd_row).user_id::text", "(digestd_row).org_id, (digestd_row).user_id")
    } else {
        ("NULL::text", "(digestd_row).org_id")
    };
    format!(
        "SELECT org, usr, total, row_to_json(digestd_row)::text
         FROM (
             SELECT
                 digestd_row,
                 (digestd_row).org_id::text AS org,
                 {user} AS usr,
                 nth,
                 row_number() OVER (PARTITION BY {group} ORDER BY nth) AS place,
                 count(*) OVER (PARTITION BY {group}) AS total
             FROM (
                 SELECT digestd_row, row_number() OVER () AS nth
                 FROM (\n{sql}\n) AS digestd_row
             ) AS numbered
         ) AS placed
         WHERE place <= {limit}
         ORDER BY nth"
    )
}

/// One row for each org, sorted by id. Where rows of an org disagree, the least value holds.
fn orgs_sql(query: &Query, learnt: &Learnt, only: &str) -> String {
    let sql = query.plain();
    let if_there = |column: &str, value: String| {
        if learnt.columns.has(column) { value } else { "NULL::text".to_owned() }
    };
    let least = |column: &str| if_there(column, format!("min(digestd_row.\"{column}\"::text)"));
    // As JSON writes it: `T` between date and time whatever the session's style.
    let first = |column: &str| format!("to_json(min(digestd_row.\"{column}\")) #>> '{{}}'");
    let created = if_there("org_created_at", first("org_created_at"));
    // If it is not known of one admin, then that one may have been there all the time.
    let known =
        format!("CASE WHEN count(*) = count(digestd_row.opted_in_at) THEN {} END", first("opted_in_at"));
    let opted_in = if_there("opted_in_at", known);
    let (timezone, weekday, time) = (least("timezone"), least("weekday"), least("time"));
    format!(
        "SELECT
             digestd_row.org_id::text AS org,
             {timezone} AS timezone,
             {weekday} AS weekday,
             {time} AS time,
             {created} AS created,
             {opted_in} AS opted_in
         FROM (\n{sql}\n) AS digestd_row
         WHERE {only}
         GROUP BY digestd_row.org_id
         ORDER BY digestd_row.org_id::text COLLATE \"C\""
    )
}

fn row((org, user, total, object): RawRow) -> Result<Row, Failure> {
    let columns = json::columns(&object).map_err(|error| Failure::Unreadable(error.to_string()))?;
    Ok(Row { org, user, total: total.and_then(|n| u64::try_from(n).ok()), columns })
}

fn arguments(params: &[Param], values: &Values) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for param in params {
        match values.bound(*param) {
            Bound::Orgs => arguments.add(values.orgs.clone()),
            Bound::Instant(at) => arguments.add(at),
            Bound::Text(text) => arguments.add(text),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
