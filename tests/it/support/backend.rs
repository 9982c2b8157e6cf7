//! A fresh database for every test, of both kinds.
//!
//! ```ignore
//! both_databases! {
//!     async fn a_lost_race_claims_nothing(database: TestDatabase) { … }
//! }
//! ```
//!
//! makes the tests `a_lost_race_claims_nothing::sqlite` and `a_lost_race_claims_nothing::postgres`.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use super::{eventually, variable};

/// Where the PostgreSQL server for tests is; `scripts/test` starts one and sets this.
const SERVER: &str = "DIGESTD_TEST_POSTGRES_URL";

/// A server lets go of connections a moment after they were closed.
const COPY: Duration = Duration::from_secs(20);

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One file of its own.
    Sqlite,
    /// A database of its own on the server for tests.
    Postgres,
}

/// An empty database that no other test sees. It goes away with this value, unless the test failed.
#[derive(Debug)]
pub struct TestDatabase {
    /// `sqlite:/path/digestd.db` or `postgres://…/name`, as `database.url` takes it.
    pub url: String,
    /// Which of the two it is.
    pub kind: Kind,
    /// A folder for the test's files: the SQLite database, configurations, logs, mails.
    folder: Option<TempDir>,
}

impl TestDatabase {
    /// A file that does not exist yet, in a folder that does.
    pub fn sqlite() -> Self {
        let folder = folder();
        let url = format!("sqlite:{}", folder.path().join("digestd.db").display());
        Self { url, kind: Kind::Sqlite, folder: Some(folder) }
    }

    /// A database made just now on the server for tests. A missing server is a failure, never a skip.
    pub async fn postgres() -> Self {
        let server = server_url();
        let name = format!("digestd_test_{}", Uuid::new_v4().simple());
        execute(&server, &format!("CREATE DATABASE {name}")).await;
        Self { url: with_database(&server, &name), kind: Kind::Postgres, folder: Some(folder()) }
    }

    /// A copy as it stands, as a backup would have it. Whoever is connected must be about to leave.
    pub async fn copy(&self) -> Self {
        if self.kind == Kind::Postgres {
            let server = server_url();
            let name = format!("digestd_test_{}", Uuid::new_v4().simple());
            let statement = format!("CREATE DATABASE {name} TEMPLATE {}", database_name(&self.url));
            eventually("nobody is connected any more", COPY, async || {
                let mut connection = PgConnection::connect(&server).await.ok()?;
                connection.execute(sqlx::AssertSqlSafe(statement.clone())).await.ok()
            })
            .await;
            return Self { url: with_database(&server, &name), kind: Kind::Postgres, folder: Some(folder()) };
        }
        let copy = Self::sqlite();
        for name in ["digestd.db", "digestd.db-wal"] {
            let from = self.folder().join(name);
            if from.exists() {
                fs::copy(from, copy.folder().join(name)).expect("a copy");
            }
        }
        copy
    }

    /// The test's own folder.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("the folder is there until the drop").path()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if thread::panicking() {
            let kept = self.folder.take().map(TempDir::keep);
            eprintln!("kept for a look: {} and {}", self.url, kept.unwrap_or_default().display());
            return;
        }
        if self.kind == Kind::Postgres {
            drop_database(self.url.clone());
        }
    }
}

/// Drops on a thread with a runtime of its own, because a destructor can't await on the test's.
fn drop_database(url: String) {
    let dropped = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let name = database_name(&url);
        // FORCE, because a test may end with its pools still open.
        runtime.block_on(execute(&server_url(), &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")));
    });
    // The cluster is thrown away as a whole: a database left behind harms nobody.
    drop(dropped.join());
}

async fn execute(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url)
        .await
        .unwrap_or_else(|error| panic!("the server in {SERVER} must answer: {error}"));
    connection
        .execute(sqlx::AssertSqlSafe(statement.to_owned()))
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
    connection.close().await.expect("a clean good-bye");
}

fn server_url() -> String {
    variable(SERVER).unwrap_or_else(|| {
        panic!("{SERVER} is not set. Run scripts/test, which starts a PostgreSQL server, or scripts/with-postgres COMMAND.")
    })
}

/// The same server and options, another database.
fn with_database(server: &str, name: &str) -> String {
    let (path, query) = server.split_once('?').map_or((server, None), |(path, query)| (path, Some(query)));
    let (start, _) = path.rsplit_once('/').expect("a URL has a slash");
    query.map_or_else(|| format!("{start}/{name}"), |query| format!("{start}/{name}?{query}"))
}

fn database_name(url: &str) -> &str {
    let path = url.split_once('?').map_or(url, |(path, _)| path);
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("digestd-test-").tempdir().expect("a temporary folder")
}

/// Turns each function into two tests, one on SQLite and one on PostgreSQL.
macro_rules! both_databases {
    ($($(#[$attribute:meta])* async fn $name:ident($database:ident: TestDatabase) $body:block)+) => {$(
        async fn $name($database: $crate::support::backend::TestDatabase) $body

        // The module has the function's name: the two live in different namespaces.
        mod $name {
            $(#[$attribute])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name($crate::support::backend::TestDatabase::sqlite()).await;
            }

            $(#[$attribute])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name($crate::support::backend::TestDatabase::postgres().await).await;
            }
        }
    )+};
}

mod tests {
    use super::{Kind, database_name, with_database};
    use sqlx::{Connection, SqliteConnection};

    both_databases! {
        async fn a_fresh_database_is_empty_and_answers(database: TestDatabase) {
            let tables: i64 = match database.kind {
                Kind::Sqlite => {
                    let url = format!("{}?mode=rwc", database.url);
                    let mut connection = SqliteConnection::connect(&url).await.expect("a new file");
                    sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(&mut connection).await
                }
                Kind::Postgres => {
                    let mut connection = sqlx::PgConnection::connect(&database.url).await.expect("a new database");
                    sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
                        .fetch_one(&mut connection)
                        .await
                }
            }
            .expect("the catalogue");
            assert_eq!(tables, 0);
            assert!(database.folder().is_dir());
        }
    }

    #[test]
    fn another_database_keeps_the_server_and_its_options() {
        let url = with_database("postgres://u:p@127.0.0.1:5433/postgres?sslmode=disable", "other");
        assert_eq!(url, "postgres://u:p@127.0.0.1:5433/other?sslmode=disable");
        assert_eq!(database_name(&url), "other");
        assert_eq!(with_database("postgres://127.0.0.1/postgres", "x"), "postgres://127.0.0.1/x");
    }
}
