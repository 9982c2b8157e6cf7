//! The whole job through a real `PgBouncer` in transaction mode.

use crate::support::backend::TestDatabase;
use crate::support::fleet::{PATIENCE, relay, replica_with, stop};
use crate::support::pooler::Pooler;
use crate::support::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_job_runs_through_a_pooler_in_transaction_mode() {
    let database = TestDatabase::postgres().await;
    let pooler = Pooler::start(&database.url, database.folder()).await;
    let relay = relay().await;
    let changes = [("DIGESTD__DATABASE__URL", pooler.url.as_str()), ("DIGESTD__DATABASE__PGBOUNCER", "true")];
    // They migrate the empty database through the pooler, too.
    let mut replicas: Vec<_> =
        (0..2).map(|n| replica_with(&database, &relay, &format!("replica-{n}"), &changes)).collect();
    for replica in &mut replicas {
        replica.logged("digestd is running", PATIENCE).await;
    }
    let world = World::fill(&database, 100).await;
    let counts = world.settled(&database, PATIENCE).await;
    assert_eq!(world.check(&counts, &relay), 0);
    stop(&mut replicas).await;
    for replica in &replicas {
        let log = replica.log();
        assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    }
}
