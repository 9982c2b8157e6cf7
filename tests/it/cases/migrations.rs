//! Migrations with several replicas: a holder that hangs, a failure that hides, schemas of other releases.

use std::time::Duration;

use digestd::clock::Clock;
use digestd::store::migrate::{MigrateMode, known_version};
use digestd::store::{ErrorClass, StoreError};
use sqlx::{Connection, PgConnection};

use crate::support::backend::{Kind, TestDatabase};
use crate::support::engine::Rows;
use crate::support::fixtures::{monday, open};
use crate::support::world::{execute, numbers};

/// What keeps others from migrating, as a process does that was stopped in the middle of it.
enum Holder {
    Session(PgConnection),
    File(std::fs::File),
}

async fn hold(database: &TestDatabase) -> Holder {
    match database.kind {
        Kind::Postgres => {
            let mut session = PgConnection::connect(&database.url).await.expect("a connection");
            sqlx::raw_sql("BEGIN; SELECT pg_advisory_xact_lock(28263390475678820)")
                .execute(&mut session)
                .await
                .expect("the lock");
            Holder::Session(session)
        }
        Kind::Sqlite => {
            let path = database.folder().join("digestd.db.lock");
            let file = std::fs::File::create(path).expect("the lock file");
            file.lock().expect("the lock");
            Holder::File(file)
        }
    }
}

both_databases! {
    /// Workers waited without a limit for a lock whose holder hung, and nobody could see who that was.
    async fn a_holder_that_hangs_is_named_and_waited_for_no_longer_than_the_limit(database: TestDatabase) {
        let holder = hold(&database).await;
        let store = open(&database, Clock::manual(monday()));
        let error = store.migrate_within(Duration::from_millis(400)).await.expect_err("the lock is taken");
        assert_eq!(error.class(), ErrorClass::Transient);
        let StoreError::MigrationLock { holder: named, .. } = &error else { panic!("{error:?}") };
        match holder {
            Holder::Session(mut session) => {
                let pid: i32 =
                    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut session).await.expect("its pid");
                assert!(named.contains(&pid.to_string()), "{named}");
                session.close().await.expect("a clean good-bye");
            }
            Holder::File(file) => drop(file),
        }
        // The lock goes with its holder.
        store.migrate_within(Duration::from_secs(10)).await.expect("a fresh schema");
    }

    /// The unlock ran inside a transaction that had failed: the real error was hidden and the lock kept.
    async fn a_migration_that_fails_tells_its_own_error_and_lets_the_next_boot_through(database: TestDatabase) {
        let prepare = match database.kind {
            Kind::Postgres => "CREATE SCHEMA digestd; CREATE TABLE digestd.outbox (x INT);",
            Kind::Sqlite => "CREATE TABLE outbox (x INT);",
        };
        if database.kind == Kind::Sqlite {
            // The file must be there for the statement.
            std::fs::File::create(database.folder().join("digestd.db")).expect("an empty file");
        }
        execute(&database, prepare.to_owned()).await;
        let store = open(&database, Clock::manual(monday()));
        for _ in 0..2 {
            let error = store.migrate_within(Duration::from_secs(5)).await.expect_err("the table is there");
            let source = std::error::Error::source(&error).expect("a cause").to_string();
            assert!(source.contains("outbox") && source.contains("already exists"), "{error}: {source}");
            assert_eq!(error.class(), ErrorClass::Permanent);
            // All of it or nothing.
            assert_eq!(store.schema_version().await.expect("a version"), 0);
        }
        Rows::new(&database).statement("DROP TABLE {}outbox").write(&database).await;
        let other = open(&database, Clock::manual(monday()));
        let report = other.migrate_within(Duration::from_secs(5)).await.expect("a good boot");
        assert_eq!(report.version, known_version());
    }

    /// An older release that met a newer schema went on, and wrote what the newer one could not read.
    async fn a_schema_of_a_newer_release_is_refused_in_both_modes(database: TestDatabase) {
        let store = open(&database, Clock::manual(monday()));
        store.migrate(MigrateMode::Auto).await.expect("a fresh schema");
        Rows::new(&database)
            .statement("INSERT INTO {}migrations (version, name) VALUES (999, '0999_of_tomorrow')")
            .write(&database)
            .await;
        for mode in [MigrateMode::Auto, MigrateMode::Check] {
            let error = store.migrate(mode).await.expect_err("too new");
            assert!(matches!(error, StoreError::NewerSchema { found: 999, .. }), "{error:?}");
            assert_eq!(error.class(), ErrorClass::Permanent);
        }
        let count = numbers(&database, "SELECT 'migrations', COUNT(*) FROM {}migrations").await;
        assert_eq!(count[0].1, known_version() + 1);
    }

    /// `check` changes nothing: it refuses what is missing and takes what is complete.
    async fn a_check_of_the_schema_creates_nothing(database: TestDatabase) {
        let store = open(&database, Clock::manual(monday()));
        for _ in 0..2 {
            let error = store.migrate(MigrateMode::Check).await.expect_err("an empty database");
            assert!(matches!(error, StoreError::OlderSchema { .. }), "{error:?}");
        }
        store.migrate(MigrateMode::Auto).await.expect("a fresh schema");
        let report = store.migrate(MigrateMode::Check).await.expect("a current schema");
        assert!(report.applied.is_empty());
        assert_eq!(report.version, known_version());
    }
}
