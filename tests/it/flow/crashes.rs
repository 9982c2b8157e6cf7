//! One replica dies at each crash point in turn; the others complete the week.

use crate::support::backend::TestDatabase;
use crate::support::fleet::{PATIENCE, migrate, relay, replica};
use crate::support::world::World;

/// Enough for all replicas to have work when one dies.
const ORGS: usize = 60;
/// `relay.connections` of a test replica: as many messages a dead one may leave uncertain.
const CONNECTIONS: usize = 4;

/// Lets one replica die at `point` beside two that live.
async fn survive(database: TestDatabase, point: &str, may_be_uncertain: bool) {
    migrate(&database).await;
    let world = World::fill(&database, ORGS).await;
    let relay = relay().await;
    let mut doomed = replica(&database, &relay, "doomed", Some(point));
    // It dies by its own work, so it must have some before the others take all of it.
    let ended = doomed.exit(PATIENCE).await;
    assert!(!ended.success(), "died at {point}: {ended:?}");
    let others = [replica(&database, &relay, "left-1", None), replica(&database, &relay, "left-2", None)];
    let counts = world.settled(&database, PATIENCE).await;
    let uncertain = world.check(&counts, &relay);
    assert!(
        uncertain <= if may_be_uncertain { CONNECTIONS } else { 0 },
        "{uncertain} uncertain after {point}"
    );
    for other in &others {
        // What is uncertain is somebody's task and says so; nothing else may.
        let log = other.log();
        assert!(!log.contains("ERROR"), "{log}");
    }
}

both_databases! {
    async fn a_replica_dies_after_its_claim(database: TestDatabase) {
        survive(database, "after_claim", false).await;
    }

    async fn a_replica_dies_before_its_enqueue_is_committed(database: TestDatabase) {
        survive(database, "before_enqueue_commit", false).await;
    }

    async fn a_replica_dies_after_its_enqueue(database: TestDatabase) {
        survive(database, "after_enqueue", false).await;
    }

    async fn a_replica_dies_after_its_lease(database: TestDatabase) {
        survive(database, "after_lease", false).await;
    }

    async fn a_replica_dies_after_its_marker(database: TestDatabase) {
        survive(database, "after_marker", true).await;
    }

    async fn a_replica_dies_after_the_relays_reply(database: TestDatabase) {
        survive(database, "after_reply", true).await;
    }
}
