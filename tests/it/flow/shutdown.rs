//! Stopping: what was begun is finished, what was not is given back, and it takes no longer than allowed.

use std::time::{Duration, Instant};

use crate::support::backend::TestDatabase;
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, migrate, relay, replica, replica_with};
use crate::support::process::Signal;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{Counts, World, number};

const UNDER_WAY: &str = "SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('leased', 'sending')";

async fn accepted(database: &TestDatabase) -> usize {
    usize::try_from(Counts::read(database).await.messages("accepted")).expect("a count")
}

both_databases! {
    /// A mail whose acceptance was not written down before the end was sent again after the restart.
    async fn a_stop_right_after_the_relays_answer_records_it_and_gives_the_rest_back(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 20).await;
        let relay = relay().await;
        let mut stopped = replica(&database, &relay, "stopped", None);
        relay.wait(PATIENCE, "an acceptance", |relay| !relay.accepted().is_empty()).await;
        stopped.signal(Signal::Terminate);
        let status = stopped.exit(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{}", stopped.log());
        assert_eq!(accepted(&database).await, relay.accepted().len());
        assert_eq!(number(&database, UNDER_WAY).await, 0, "everything was given back");
        assert!(!stopped.log().contains("WARN"), "{}", stopped.log());

        // Claims of the stopped replica may have to expire first.
        let _next = replica(&database, &relay, "next", None);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
    }

    async fn a_stop_waits_for_a_slow_answer(database: TestDatabase) {
        migrate(&database).await;
        let _world = World::fill(&database, 20).await;
        let slow = [Act::Delay(Duration::from_millis(1500)), Act::Normal];
        let relay = SmtpServer::start(Script::new().offer("PIPELINING").always(At::Dot, slow)).await;
        let mut stopped = replica(&database, &relay, "stopped", None);
        relay.wait(PATIENCE, "bodies", |relay| relay.accepted().len() >= 4).await;
        stopped.signal(Signal::Terminate);
        assert_eq!(stopped.exit(PATIENCE).await.code(), Some(0), "{}", stopped.log());
        assert_eq!(accepted(&database).await, relay.accepted().len());
        assert_eq!(number(&database, UNDER_WAY).await, 0);
    }

    async fn a_second_signal_ends_the_wait_and_the_marker_tells_what_was_under_way(database: TestDatabase) {
        migrate(&database).await;
        let _world = World::fill(&database, 20).await;
        let script = Script::new().offer("PIPELINING").always(At::Dot, [Act::Accept, Act::Hang]);
        let relay = SmtpServer::start(script).await;
        let mut stopped = replica_with(&database, &relay, "stopped", &[("DIGESTD__RELAY__TIMEOUTS__REPLY", "10m")]);
        relay.wait(PATIENCE, "bodies on all connections", |relay| relay.accepted().len() == 4).await;
        stopped.signal(Signal::Terminate);
        stopped.logged("finishing what was begun", PATIENCE).await;
        assert!(stopped.ended().is_none());
        let asked_at = Instant::now();
        stopped.signal(Signal::Terminate);
        assert_eq!(stopped.exit(PATIENCE).await.code(), Some(0), "{}", stopped.log());
        assert!(asked_at.elapsed() < Duration::from_secs(10), "{:?}", asked_at.elapsed());
        let counts = Counts::read(&database).await;
        assert_eq!((counts.messages("sending"), counts.messages("leased")), (4, 0), "{counts:?}");
    }

    /// The markers of bodies that had not begun were left behind, and their messages waited for a person.
    async fn a_second_signal_takes_back_the_markers_of_bodies_that_had_not_begun(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 20).await;
        let script = Script::new().offer("PIPELINING").always(At::Rcpt, [Act::Hang]);
        let relay = SmtpServer::start(script).await;
        let patient = [("DIGESTD__RELAY__TIMEOUTS__ENVELOPE", "1m"), ("DIGESTD__DELIVERY__LEASE", "3m")];
        let mut stopped = replica_with(&database, &relay, "stopped", &patient);
        eventually("markers of all connections", PATIENCE, async || {
            (Counts::read(&database).await.messages("sending") == 4).then_some(())
        })
        .await;
        stopped.signal(Signal::Terminate);
        stopped.logged("finishing what was begun", PATIENCE).await;
        stopped.signal(Signal::Terminate);
        assert_eq!(stopped.exit(PATIENCE).await.code(), Some(0), "{}", stopped.log());
        assert_eq!(number(&database, UNDER_WAY).await, 0, "everything was given back");

        relay.rescript(Script::new().offer("PIPELINING"));
        let _next = replica(&database, &relay, "next", None);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
    }
}
