//! A database restored from a backup of before Monday, while Redis lives on.

use crate::support::fleet::{PATIENCE, config, migrate, relay};
use crate::support::process::{Launch, Signal};
use crate::support::redis::Redis;
use crate::support::world::{Counts, World};

const ORGS: usize = 30;

both_databases! {
    // A backup from before the send holds orgs and no sends: every slot of it looks open.
    async fn nobody_is_mailed_twice_by_a_restored_database(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, ORGS).await;
        let backup = database.copy().await;
        let (relay, redis) = (relay().await, Redis::start().await);
        let guard = format!("[guard]\nbackend = \"redis\"\non_unavailable = \"closed\"\nurl = \"{}\"\n", redis.url());
        let start = |database: &crate::support::backend::TestDatabase| {
            let text = config(database, &relay) + &guard;
            Launch::new(database.folder(), "replica", &["run"]).config(&text).start()
        };

        let mut replica = start(&database);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        replica.signal(Signal::Terminate);
        assert!(replica.exit(PATIENCE).await.success());

        let mut replica = start(&backup);
        let counts: Counts = world.settled(&backup, PATIENCE).await;
        assert_eq!(counts.messages("accepted"), 0, "{counts:?}");
        let expected = i64::try_from(world.expected.len()).expect("a count");
        assert_eq!(counts.messages("suppressed"), expected, "{counts:?}");
        assert_eq!(relay.accepted().len(), world.expected.len(), "a second mail left");
        replica.signal(Signal::Terminate);
        assert!(replica.exit(PATIENCE).await.success());
    }
}
