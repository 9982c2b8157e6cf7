//! A replica is frozen in the middle of a hand-over, past its lease, and thawed.

use crate::support::backend::{Kind, TestDatabase};
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, migrate, relay, replica, replica_with};
use crate::support::process::Signal;
use crate::support::world::{World, number, writable};

const ORGS: usize = 12;

/// Freezes a replica at `point` until all that it held belongs to others, then lets it go on.
async fn thaw(mut database: TestDatabase, point: &str, marked: bool) {
    // A process that is frozen inside a write holds an SQLite file against everybody: nothing to see then.
    while !thawed(&database, point, marked).await {
        assert_eq!(database.kind, Kind::Sqlite, "nobody holds a server against others");
        database = TestDatabase::sqlite();
    }
}

/// False: the frozen replica held the whole file.
async fn thawed(database: &TestDatabase, point: &str, marked: bool) -> bool {
    migrate(database).await;
    let world = World::fill(database, ORGS).await;
    let relay = relay().await;
    let frozen = replica_with(database, &relay, "frozen", &[("DIGESTD_FAULT", &format!("freeze:{point}"))]);
    let held = "SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('leased', 'sending')";
    let stands = format!("/proc/{}/stat", frozen.id());
    eventually("the replica stands still", PATIENCE, async || {
        let stat = std::fs::read_to_string(&stands).ok()?;
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')).then_some(())
    })
    .await;
    if database.kind == Kind::Sqlite && !writable(database).await {
        return false;
    }
    assert!(number(database, held).await > 0, "it holds something");
    let mut other = replica(database, &relay, "other", None);
    other.logged("digestd is running", PATIENCE).await;
    let uncertain = "SELECT COUNT(*) FROM digestd.outbox WHERE state = 'uncertain'";
    let settled = "SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('accepted', 'uncertain')";
    eventually("what it held is settled by the other", PATIENCE, async || {
        let all = i64::try_from(world.expected.len()).expect("a count");
        (number(database, settled).await == all).then_some(())
    })
    .await;
    assert_eq!(number(database, uncertain).await > 0, marked, "only a marker makes a message uncertain");

    frozen.signal(Signal::Thaw);
    // What it knows after all, that it was accepted or that nothing left, counts.
    let counts = eventually("nothing is uncertain any more", PATIENCE, async || {
        let counts = world.settled(database, PATIENCE).await;
        (counts.messages("uncertain") == 0).then_some(counts)
    })
    .await;
    assert_eq!(world.check(&counts, &relay), 0);
    assert_eq!(relay.accepted().len(), world.expected.len());
    true
}

both_databases! {
    async fn a_replica_frozen_after_its_lease_sends_nothing_of_it(database: TestDatabase) {
        thaw(database, "after_lease", false).await;
    }

    async fn a_replica_frozen_at_its_marker_takes_it_back(database: TestDatabase) {
        thaw(database, "after_marker", true).await;
    }

    /// The last moment: the lease was looked at, and the next thing is the first byte.
    async fn a_replica_frozen_before_the_body_is_the_only_one_to_send_it(database: TestDatabase) {
        thaw(database, "before_body", true).await;
    }

    async fn a_replica_frozen_before_it_records_an_answer_records_it_late(database: TestDatabase) {
        thaw(database, "after_reply", true).await;
    }
}
