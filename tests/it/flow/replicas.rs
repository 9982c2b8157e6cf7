//! Three replicas, one digest per admin.

use crate::support::fleet::{PATIENCE, migrate, relay, replica};
use crate::support::process::Signal;
use crate::support::world::World;

/// Orgs of the whole job.
const ORGS: usize = 300;

both_databases! {
    /// Digests came once per running back end. Here three race, and every admin gets one.
    async fn three_replicas_send_every_admin_one_digest(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, ORGS).await;
        let relay = relay().await;
        let mut replicas: Vec<_> =
            (0..3).map(|n| replica(&database, &relay, &format!("replica-{n}"), None)).collect();
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        for replica in &mut replicas {
            replica.signal(Signal::Terminate);
        }
        for replica in &mut replicas {
            assert!(replica.exit(PATIENCE).await.success(), "{}", replica.log());
            let log = replica.log();
            assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
        }
    }
}
