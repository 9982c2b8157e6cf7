//! Writing people's choices back to the application, by the operator's own statement and role.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{
    Arguments as _, AssertSqlSafe, ConnectOptions as _, Executor as _, PgPool, SqlSafeStr as _, SqlitePool,
};
use tokio::sync::OnceCell;

use super::super::SourceError;
use super::database::Failure;
use super::param::ChoiceParam;
use super::query::sqlite_instant;
use super::scan::{Dialect, Scanned, scan};
use crate::config::DatabaseUrl;
use crate::domain::address::Address;
use crate::domain::ids::{OrgId, UserId};

/// How messages call the statement.
const STATEMENT: &str = "opt_out.sql";
/// How long one choice may take to be written.
const LIMIT: Duration = Duration::from_secs(10);
/// One choice is written after another; a second connection is for whoever checks meanwhile.
const POOL: u32 = 2;
/// How long a connection is waited for: what cannot be written now is written later.
const ACQUIRE: Duration = Duration::from_secs(3);
/// The statement's name while its parameters' types are asked for.
const PREPARED: &str = "digestd_opt_out";

/// The operator's statement and where it is run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WriteBack(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    statement: Scanned<ChoiceParam>,
    database: Database,
}

#[derive(Debug)]
enum Database {
    /// With the types of the ids, once they are known.
    Postgres(PgPool, OnceCell<IdTypes>),
    Sqlite(SqlitePool),
}

/// The types that the statement wants, fit for a cast: an application's ids are numbers, UUIDs or texts.
#[derive(Debug, Clone)]
struct IdTypes {
    org: String,
    user: String,
}

/// What somebody wants.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Whose digest.
    pub org: &'a OrgId,
    /// Who has chosen.
    pub user: &'a UserId,
    /// Their address.
    pub address: &'a Address,
    /// Whether they want none any more.
    pub opted_out: bool,
    /// When they said so.
    pub at: DateTime<Utc>,
}

impl WriteBack {
    /// Reads the statement and opens a pool, without touching the network.
    pub fn open(url: &DatabaseUrl, sql: &str) -> Result<Self, SourceError> {
        let dialect = match url {
            DatabaseUrl::Postgres(_) => Dialect::Postgres,
            DatabaseUrl::Sqlite(_) => Dialect::Sqlite,
        };
        let statement =
            scan(sql, dialect).map_err(|source| SourceError::Sql { query: STATEMENT.to_owned(), source })?;
        let database = match url {
            DatabaseUrl::Postgres(url) => Database::Postgres(postgres(url)?, OnceCell::new()),
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path).busy_timeout(LIMIT);
                let pool = SqlitePoolOptions::new().max_connections(POOL).acquire_timeout(ACQUIRE);
                Database::Sqlite(pool.connect_lazy_with(options.disable_statement_logging()))
            }
        };
        Ok(Self(Arc::new(Inner { statement, database })))
    }

    /// Whether the statement can tell a re-subscription from an opt-out. One that cannot is run for
    /// opt-outs only.
    pub fn knows_both_ways(&self) -> bool {
        self.0.statement.params().contains(&ChoiceParam::OptedOut)
    }

    /// Whether the database answers and understands the statement. Nothing is written.
    pub async fn check(&self) -> Result<(), SourceError> {
        within(async {
            match &self.0.database {
                Database::Postgres(pool, types) => self.id_types(pool, types).await.map(drop),
                Database::Sqlite(pool) => {
                    let sql = AssertSqlSafe(self.spelt(|_, n| format!("?{n}"))).into_sql_str();
                    let mut connection = pool.acquire().await?;
                    (&mut *connection).prepare(sql).await?;
                    Ok(())
                }
            }
        })
        .await
    }

    /// Writes one choice. May be repeated: a statement that sets what is wanted sets it again.
    pub async fn write(&self, choice: &Choice<'_>) -> Result<(), SourceError> {
        if !choice.opted_out && !self.knows_both_ways() {
            return Ok(());
        }
        within(async {
            match &self.0.database {
                Database::Postgres(pool, types) => self.write_postgres(pool, types, choice).await,
                Database::Sqlite(pool) => self.write_sqlite(pool, choice).await,
            }
        })
        .await
    }

    /// Closes every connection.
    pub async fn close(&self) {
        match &self.0.database {
            Database::Postgres(pool, _) => pool.close().await,
            Database::Sqlite(pool) => pool.close().await,
        }
    }

    async fn write_postgres(
        &self,
        pool: &PgPool,
        types: &OnceCell<IdTypes>,
        choice: &Choice<'_>,
    ) -> Result<(), Failure> {
        let types = self.id_types(pool, types).await?;
        let sql = self.spelt(|param, n| match param {
            ChoiceParam::OrgId => format!("(${n}::text::{})", types.org),
            ChoiceParam::UserId => format!("(${n}::text::{})", types.user),
            other => typed(other, n),
        });
        let mut arguments = PgArguments::default();
        for param in self.0.statement.params() {
            match param {
                ChoiceParam::OrgId => arguments.add(choice.org.as_str()),
                ChoiceParam::UserId => arguments.add(choice.user.as_str()),
                ChoiceParam::Email => arguments.add(choice.address.normal()),
                ChoiceParam::OptedOut => arguments.add(choice.opted_out),
                ChoiceParam::At => arguments.add(choice.at),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        let mut tx = pool.begin_with(begin()).await?;
        sqlx::query_with(AssertSqlSafe(sql), arguments).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn write_sqlite(&self, pool: &SqlitePool, choice: &Choice<'_>) -> Result<(), Failure> {
        let mut arguments = SqliteArguments::default();
        for param in self.0.statement.params() {
            match param {
                ChoiceParam::OrgId => arguments.add(choice.org.as_str()),
                ChoiceParam::UserId => arguments.add(choice.user.as_str()),
                ChoiceParam::Email => arguments.add(choice.address.normal()),
                ChoiceParam::OptedOut => arguments.add(choice.opted_out),
                ChoiceParam::At => arguments.add(sqlite_instant(choice.at)),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        let sql = AssertSqlSafe(self.spelt(|_, n| format!("?{n}")));
        sqlx::query_with(sql, arguments).persistent(false).execute(pool).await?;
        Ok(())
    }

    /// What the server takes the ids for, judged by where they stand in the statement.
    async fn id_types(&self, pool: &PgPool, known: &OnceCell<IdTypes>) -> Result<IdTypes, Failure> {
        let asked = known.get_or_try_init(|| async {
            let sql = self.spelt(|param, n| match param {
                ChoiceParam::OrgId | ChoiceParam::UserId => format!("${n}"),
                other => typed(other, n),
            });
            let types = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = $1";
            let mut tx = pool.begin_with(begin()).await?;
            sqlx::raw_sql(AssertSqlSafe(format!("PREPARE {PREPARED} AS {sql}"))).execute(&mut *tx).await?;
            let found: Vec<String> = sqlx::query_scalar(types).bind(PREPARED).fetch_one(&mut *tx).await?;
            // A prepared statement outlives its transaction.
            sqlx::raw_sql(AssertSqlSafe(format!("DEALLOCATE {PREPARED}"))).execute(&mut *tx).await?;
            tx.rollback().await?;
            let params = self.0.statement.params();
            let of = |param| {
                let at = params.iter().position(|known| *known == param);
                at.and_then(|at| found.get(at)).cloned().unwrap_or_else(|| "text".to_owned())
            };
            Ok::<_, Failure>(IdTypes { org: of(ChoiceParam::OrgId), user: of(ChoiceParam::UserId) })
        });
        asked.await.cloned()
    }

    /// The statement with its parameters numbered in the order of [`Named::ALL`](super::param::Named::ALL).
    fn spelt(&self, spell: impl Fn(ChoiceParam, usize) -> String) -> String {
        let params = self.0.statement.params();
        let number = |param| 1 + params.iter().position(|known| *known == param).unwrap_or_default();
        self.0.statement.spelt(|param| spell(param, number(param)))
    }
}

fn postgres(url: &SecretString) -> Result<PgPool, SourceError> {
    let options = PgConnectOptions::from_str(url.expose_secret()).map_err(|_| SourceError::Url)?;
    let options =
        options.application_name("digestd-opt-out").statement_cache_capacity(0).disable_statement_logging();
    Ok(PgPoolOptions::new().max_connections(POOL).acquire_timeout(ACQUIRE).connect_lazy_with(options))
}

/// A transaction whose statements end in time. One round trip.
fn begin() -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("BEGIN; SET LOCAL statement_timeout = {}", LIMIT.as_millis()))
}

/// The parameters whose types are ours to say.
fn typed(param: ChoiceParam, n: usize) -> String {
    match param {
        ChoiceParam::OptedOut => format!("(${n}::bool)"),
        ChoiceParam::At => format!("(${n}::timestamptz)"),
        ChoiceParam::OrgId | ChoiceParam::UserId | ChoiceParam::Email => format!("(${n}::text)"),
    }
}

/// Ends what the database itself did not end.
async fn within<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, SourceError> {
    let limit = ACQUIRE + LIMIT;
    let ended = tokio::time::timeout(limit, asked).await.unwrap_or(Err(Failure::TimedOut));
    ended.map_err(|failure| failure.named(STATEMENT.to_owned(), limit))
}
