//! Replicas that share one relay: its refusals, its limits, its connections.

use std::time::Duration;

use crate::support::backend::TestDatabase;
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, migrate, relay, replica_with, stop};
use crate::support::process::Process;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{World, number};

const LOGIN: [(&str, &str); 3] = [
    ("DIGESTD__RELAY__USERNAME", "digest"),
    ("DIGESTD__RELAY__PASSWORD", "right"),
    ("DIGESTD__RELAY__PROBE_INTERVAL", "1s"),
];

fn with_login() -> Script {
    Script::new().offer("PIPELINING").login("digest", "right")
}

fn three(database: &TestDatabase, relay: &SmtpServer, changes: &[(&str, &str)]) -> Vec<Process> {
    (0..3).map(|n| replica_with(database, relay, &format!("replica-{n}"), changes)).collect()
}

/// Tries to log in so far, and openings of the breaker so far.
async fn tries(database: &TestDatabase, relay: &SmtpServer) -> (i64, i64) {
    let openings = number(database, "SELECT COALESCE(MAX(openings), 0) FROM digestd.relays").await;
    let logins = relay.commands().iter().filter(|line| *line == "AUTH").count();
    (i64::try_from(logins).expect("a count"), openings)
}

both_databases! {
    /// A relay whose login is flaky made senders fail whole queues, or hammer it from every worker.
    async fn a_relay_that_refuses_the_login_is_tried_once_per_interval_by_all_replicas_together(
        database: TestDatabase
    ) {
        migrate(&database).await;
        let world = World::fill(&database, 40).await;
        let relay = SmtpServer::start(with_login().always(At::Auth, [Act::reply("535 5.7.8 not now")])).await;
        let mut replicas = three(&database, &relay, &LOGIN);
        // Every replica has heard of it by the third opening: 1 s and 2 s lie between.
        let begun = eventually("three openings", PATIENCE, async || {
            Some(tries(&database, &relay).await).filter(|(_, openings)| *openings >= 3)
        })
        .await;
        let ended = eventually("three more probes", PATIENCE, async || {
            Some(tries(&database, &relay).await).filter(|(_, openings)| *openings >= begun.1 + 3)
        })
        .await;
        let (logins, openings) = (ended.0 - begun.0, ended.1 - begun.1);
        // The last probe's login may be seen before its opening is.
        assert!((openings..=openings + 1).contains(&logins), "{logins} logins for {openings} probes");
        let charged = number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await;
        let failed = number(&database, "SELECT COUNT(*) FROM digestd.outbox WHERE state = 'failed'").await;
        assert_eq!((charged, failed), (0, 0));

        relay.rescript(with_login());
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        stop(&mut replicas).await;
        let said: usize =
            replicas.iter().map(|replica| replica.log().matches("the relay does not work").count()).sum();
        assert_eq!(said, 1, "an error once per outage");
    }

    /// Some relays end every connection after a number of messages. That is no failure of theirs.
    async fn a_relay_that_ends_connections_after_ten_messages_is_just_connected_to_again(
        database: TestDatabase
    ) {
        migrate(&database).await;
        let world = World::fill(&database, 60).await;
        let relay = SmtpServer::start(Script::new().offer("PIPELINING").per_connection(10)).await;
        let mut replicas = three(&database, &relay, &[]);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        assert_eq!(number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await, 0);
        stop(&mut replicas).await;
        for replica in &replicas {
            assert!(!replica.log().contains("does not work"), "{}", replica.log());
        }
    }

    async fn the_replicas_together_never_hold_more_connections_than_all_may(database: TestDatabase) {
        migrate(&database).await;
        let mut world = World::fill(&database, 20).await;
        let relay = relay().await;
        let changes = [("DIGESTD__RELAY__CONNECTIONS", "2"), ("DIGESTD__RELAY__CONNECTIONS_TOTAL", "2")];
        let mut replicas = vec![replica_with(&database, &relay, "first", &changes)];
        relay.wait(PATIENCE, "the first replica delivers", |relay| relay.accepted().len() > 5).await;
        // Two more come while it delivers; a replica without a share must not sit on leases either.
        for name in ["second", "third"] {
            replicas.push(replica_with(&database, &relay, name, &changes));
        }
        for replica in &mut replicas {
            replica.logged("digestd is running", PATIENCE).await;
        }
        world.grow(&database, 40).await;
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        assert!(relay.most_open() <= 2, "{} connections at once", relay.most_open());
        stop(&mut replicas).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pace_below_one_a_second_still_sends() {
    // The bucket held one second's worth, which was never a whole message.
    let database = TestDatabase::sqlite();
    migrate(&database).await;
    let world = World::fill(&database, 1).await;
    let relay = relay().await;
    let changes = [("DIGESTD__RELAY__PACE", "30/min")];
    let mut replicas = [replica_with(&database, &relay, "slow", &changes)];
    let counts = world.settled(&database, Duration::from_mins(1)).await;
    assert_eq!(world.check(&counts, &relay), 0);
    // An idle replica's looks into the outbox used the day's quota up.
    let used = number(&database, "SELECT MAX(day_used) FROM digestd.relays").await;
    assert!((1..=2).contains(&used), "{used} of the day's quota for one message");
    stop(&mut replicas).await;
}
