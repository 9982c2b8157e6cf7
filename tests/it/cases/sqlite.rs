//! The one file: readers that stay, storms of writes, a writer that holds the file for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::ids::ReplicaId;
use digestd::store::replicas::Heartbeat;
use sqlx::{Connection, SqliteConnection};

use crate::support::backend::TestDatabase;
use crate::support::engine::{Engine, Rows, mails};
use crate::support::fixtures::{monday, store};
use crate::support::scale;

fn wal_bytes(database: &TestDatabase) -> u64 {
    std::fs::metadata(database.folder().join("digestd.db-wal")).map_or(0, |file| file.len())
}

/// The write-ahead log grew to gigabytes while a reader was held, and stayed so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_shrinks_once_a_long_reader_is_gone() {
    let database = TestDatabase::sqlite();
    let store = store(&database).await;
    let mut reader = SqliteConnection::connect(&database.url).await.expect("a reader");
    sqlx::raw_sql("BEGIN; SELECT COUNT(*) FROM orgs").execute(&mut reader).await.expect("a snapshot");
    let mut beat = Heartbeat {
        replica: ReplicaId::random(),
        host: "x".repeat(60_000),
        version: "1",
        clock_offset: TimeDelta::zero(),
        connections: 1,
    };
    // Each of these writes sixteen pages anew.
    for _ in 0..scale(2_000, 10_000) {
        beat.replica = ReplicaId::random();
        store.heartbeat(&beat).await.expect("a write");
        store.goodbye(beat.replica).await.expect("a write");
    }
    let held = wal_bytes(&database);
    assert!(held > 80_000_000, "the reader holds the log: {held}");
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.expect("the end of the snapshot");
    // The first of these brings the log into the file, the second begins it anew.
    for _ in 0..2 {
        beat.replica = ReplicaId::random();
        store.heartbeat(&beat).await.expect("a write");
    }
    let after = wal_bytes(&database);
    assert!(after <= 67_108_864, "{held} bytes became {after}");
}

/// A queue that polls made the application's own writes fail as busy, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_writes_beside_a_polling_replica_makes_neither_fail() {
    let database = TestDatabase::sqlite();
    let store = store(&database).await;
    let mut rows = Rows::new(&database);
    for n in 0..60 {
        rows.simple(&format!("org-{n}"), monday() - TimeDelta::days(2));
    }
    rows.write(&database).await;
    let stop = Arc::new(AtomicBool::new(false));
    let storms: Vec<_> = (0..3)
        .map(|app| {
            let (url, stop) = (database.url.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut connection = SqliteConnection::connect(&url).await.expect("a connection");
                let mut writes = 0_u64;
                while !stop.load(Ordering::SeqCst) {
                    let text = format!(
                        "INSERT INTO orgs (id, name, timezone) VALUES ('storm-{app}-{writes}', 'Storm', 'Europe/Paris')"
                    );
                    sqlx::query(sqlx::AssertSqlSafe(text)).execute(&mut connection).await.expect("the application's write");
                    writes += 1;
                }
                writes
            })
        })
        .collect();
    let engine = Engine::new(&database, &store).await;
    let report = engine.sweep().await;
    assert_eq!(report.enqueued, 60, "{report:?}");
    engine.deliver(&database).await;
    for _ in 0..200 {
        engine.look().await;
        engine.rescue().await;
    }
    stop.store(true, Ordering::SeqCst);
    for storm in storms {
        assert!(storm.await.expect("no write failed") > 0);
    }
    assert_eq!(mails(&database).len(), 60);
}

/// Another process holds the writer for longer than a statement waits. The tick fails, nothing is lost, and
/// the next one does the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_holds_the_file_for_long_only_delays() {
    let database = TestDatabase::sqlite();
    let store = store(&database).await;
    let mut rows = Rows::new(&database);
    for n in 0..10 {
        rows.simple(&format!("org-{n}"), monday() - TimeDelta::days(2));
    }
    rows.write(&database).await;
    let engine = Engine::new(&database, &store).await;
    let mut import = SqliteConnection::connect(&database.url).await.expect("a connection");
    sqlx::raw_sql("BEGIN IMMEDIATE; INSERT INTO orgs (id, name, timezone) VALUES ('z', 'Z', 'UTC')")
        .execute(&mut import)
        .await
        .expect("the writer");
    let pulse = digestd::progress::Progress::new().watch("test", Duration::from_mins(1));
    let stop = tokio_util::sync::CancellationToken::new();
    let error = engine
        .tick
        .sweep(digestd::tick::sweep::Scope::Everything, &pulse, &stop)
        .await
        .expect_err("the file is held for longer than a statement waits");
    let digestd::tick::TickError::Store(error) = error else { panic!("{error:?}") };
    assert_eq!(error.class(), digestd::store::ErrorClass::Transient, "{error:?}");
    sqlx::raw_sql("COMMIT").execute(&mut import).await.expect("the end of the import");
    assert_eq!(engine.sweep().await.enqueued, 10);
    engine.deliver(&database).await;
    assert_eq!(mails(&database).len(), 10);
}
