//! Replicas are killed at random moments under load, and replaced.

use std::time::Duration;

use crate::support::fleet::{PATIENCE, migrate, replica_with, stop};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::World;
use crate::support::{Chance, scale, seed};

/// `relay.connections` of a test replica: as many messages a dead one may leave uncertain.
const CONNECTIONS: usize = 4;
/// Orgs that become due between two kills.
const WAVE: usize = 8;

both_databases! {
    /// A deploy killed a worker in the middle of a batch, and the broker gave the batch out again.
    async fn nobody_gets_two_and_nobody_none_however_often_replicas_are_killed(database: TestDatabase) {
        let mut chance = Chance(seed());
        migrate(&database).await;
        let mut world = World::fill(&database, WAVE).await;
        // Slow enough for every kill to hit something under way.
        let slow = [Act::Delay(Duration::from_millis(5)), Act::Normal];
        let relay = SmtpServer::start(Script::new().offer("PIPELINING").always(At::Dot, slow)).await;
        // New orgs are found by the re-sweep, so it is as frequent as the tick.
        let changes = [("DIGESTD__TICK__RESWEEP", "1s")];
        let start = |n: usize| replica_with(&database, &relay, &format!("replica-{n}"), &changes);
        let mut replicas: Vec<_> = (0..3).map(start).collect();
        let kills = scale(20, 200);
        for kill in 0..kills {
            world.grow(&database, WAVE).await;
            // The moment is what chance decides; no fact could stand for it.
            tokio::time::sleep(Duration::from_millis(chance.below(900))).await;
            let place = usize::try_from(chance.below(3)).expect("a place");
            replicas[place].kill();
            replicas[place] = start(3 + kill);
        }
        let counts = world.settled(&database, PATIENCE * 2).await;
        let uncertain = world.check(&counts, &relay);
        assert!(uncertain <= CONNECTIONS * kills, "{uncertain} uncertain after {kills} kills");
        eprintln!("{} messages, {kills} kills, {uncertain} uncertain", world.expected.len());
        stop(&mut replicas).await;
    }
}
