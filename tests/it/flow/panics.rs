//! Panics: nobody plans for them, and none may leave half a replica behind.

use crate::support::fleet::{PATIENCE, migrate, relay, replica, replica_with, stop};
use crate::support::world::World;

both_databases! {
    /// All markers and results are written by one task. A replica without it would look alive, hold leases and
    /// deliver nothing.
    async fn a_replica_whose_journal_panics_ends_and_another_goes_on(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 12).await;
        let relay = relay().await;
        let mut broken = replica(&database, &relay, "broken", Some("panic:journal"));
        let status = broken.exit(PATIENCE).await;
        let log = broken.log();
        assert_eq!(status.code(), Some(70), "{log}");
        assert!(log.contains("a part of this replica has panicked"), "{log}");
        assert!(log.contains("error: the journal has panicked"), "{log}");
        assert!(relay.accepted().is_empty(), "no body leaves without a marker");

        let _next = replica(&database, &relay, "next", None);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
    }

    /// The panic went nowhere, and its replica had one connection less from then on: here, none.
    async fn a_connection_that_panics_is_replaced_and_its_message_is_tried_again(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 12).await;
        let relay = relay().await;
        let changes = [("DIGESTD_FAULT", "panic:after_marker"), ("DIGESTD__RELAY__CONNECTIONS", "1")];
        let mut replicas = [replica_with(&database, &relay, "only", &changes)];
        let counts = world.settled(&database, PATIENCE).await;
        // Nothing had left, and the panic itself has said so.
        assert_eq!(world.check(&counts, &relay), 0);
        stop(&mut replicas).await;
        let log = replicas[0].log();
        let said = log.lines().filter(|line| line.contains("ERROR") && line.contains("another takes its place"));
        assert_eq!(said.count(), 1, "{log}");
    }
}
