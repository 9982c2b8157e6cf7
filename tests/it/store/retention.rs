//! Retention: nothing inside its horizon goes, and nothing goes under an old term.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::ids::ReplicaId;
use digestd::domain::message::{Disposition, Finished, MessageReason};
use digestd::domain::week::WeekKey;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::leases::{LEADER, Leadership, LeadershipTerms};
use digestd::store::replicas::Heartbeat;
use digestd::store::retention::{Leftover, Walk};

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{claim_id, draft, due_orgs, instant, lease_terms, monday, store, terms};
use crate::support::world::{count, execute};

const TERMS: LeadershipTerms =
    LeadershipTerms { ttl: Duration::from_hours(1), margin: Duration::from_secs(10) };
const WEEK: TimeDelta = TimeDelta::days(7);

async fn lead(store: &Store) -> Leadership {
    let lease = store.acquire_lease(LEADER, ReplicaId::random(), TERMS).await.expect("no error");
    lease.expect("nobody else leads")
}

/// A store with one send of four messages, all handed over at [`monday`]: two accepted, one refused after
/// an attempt, one uncertain.
async fn with_results(database: &TestDatabase) -> Store {
    let store = store(database).await;
    let me = ReplicaId::random();
    let claim = store.claim(&due_orgs(1, monday()), claim_id(), terms(me)).await.expect("a claim").remove(0);
    let drafts = (0..4).map(|n| draft(&claim, &format!("admin-{n}@example.org"))).collect();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    let leased = store.lease_messages(4, lease_terms(me)).await.expect("leases").messages;
    let dispositions = [
        Disposition::Accepted,
        Disposition::Accepted,
        Disposition::Failed(MessageReason::Refused),
        Disposition::Uncertain,
    ];
    let results: Vec<Finished> = leased
        .iter()
        .zip(dispositions)
        .map(|(lease, disposition)| Finished {
            fence: lease.fence(),
            disposition,
            phase: "dot",
            note: "a reply".to_owned(),
            guard: None,
        })
        .collect();
    assert_eq!(store.record_results(&results, me).await.expect("recorded").len(), 4);
    store
}

async fn close_w28(store: &Store) {
    assert!(store.close_week(WeekKey::parse("2026-W28").expect("a week")).await.expect("no error"));
}

both_databases! {
    async fn bodies_go_when_their_message_has_been_final_for_long_enough(database: TestDatabase) {
        let store = with_results(&database).await;
        store.clock().set(monday() + WEEK - TimeDelta::milliseconds(1));
        let lease = lead(&store).await;
        let walk = store.delete_bodies(WEEK, 0, 100, &lease).await.expect("a walk");
        assert_eq!((walk.deleted, walk.finished), (0, true));
        store.clock().advance(TimeDelta::milliseconds(1));
        let walk = store.delete_bodies(WEEK, 0, 100, &lease).await.expect("a walk");
        assert_eq!((walk.deleted, walk.finished), (3, true));
        // The uncertain one keeps its bytes for whoever decides about it.
        assert_eq!(count(&database, "bodies", "TRUE").await, 1);
    }

    async fn a_walk_goes_on_page_by_page_to_its_end(database: TestDatabase) {
        let store = with_results(&database).await;
        store.clock().set(monday() + WEEK);
        let lease = lead(&store).await;
        let mut walk = Walk { last: 0, deleted: 0, finished: false };
        let mut pages = Vec::new();
        while !walk.finished {
            walk = store.delete_bodies(WEEK, walk.last, 3, &lease).await.expect("a walk");
            pages.push(walk.deleted);
        }
        assert_eq!(pages, [3, 0]);
    }

    async fn attempts_go_when_they_are_old_unless_their_message_is_not_settled(database: TestDatabase) {
        let store = with_results(&database).await;
        assert_eq!(count(&database, "attempts", "TRUE").await, 2);
        let lease = lead(&store).await;
        assert_eq!(store.delete_attempts(WEEK, 0, 100, &lease).await.expect("a walk").deleted, 0);
        store.clock().set(monday() + WEEK);
        let lease = lead(&store).await;
        assert_eq!(store.delete_attempts(WEEK, 0, 100, &lease).await.expect("a walk").deleted, 1);
        assert_eq!(count(&database, "attempts", "outcome = 'uncertain'").await, 1);
    }

    async fn a_send_goes_only_when_closed_settled_old_and_all_its_messages_are_final(database: TestDatabase) {
        let store = with_results(&database).await;
        let keep = TimeDelta::days(35);
        store.clock().set(monday() + keep - TimeDelta::milliseconds(1));
        let lease = lead(&store).await;
        close_w28(&store).await;
        let nothing = (0, 0);
        let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
        execute(&database, format!("UPDATE {prefix}outbox SET state = 'cancelled' WHERE state = 'uncertain';")).await;
        assert_eq!(store.delete_sends(keep, 10, &lease).await.expect("no error"), nothing, "too young");
        store.clock().advance(TimeDelta::milliseconds(1));

        execute(&database, format!("UPDATE {prefix}outbox SET state = 'uncertain' WHERE state = 'cancelled';")).await;
        assert_eq!(store.delete_sends(keep, 10, &lease).await.expect("no error"), nothing, "uncertain");
        execute(&database, format!("UPDATE {prefix}outbox SET state = 'cancelled' WHERE state = 'uncertain';")).await;

        execute(&database, format!("UPDATE {prefix}weeks SET closed_at = NULL;")).await;
        assert_eq!(store.delete_sends(keep, 10, &lease).await.expect("no error"), nothing, "not closed");
        close_w28(&store).await;

        execute(&database, format!("UPDATE {prefix}sends SET state = 'claimed';")).await;
        assert_eq!(store.delete_sends(keep, 10, &lease).await.expect("no error"), nothing, "claimed");
        execute(&database, format!("UPDATE {prefix}sends SET state = 'enqueued';")).await;

        assert_eq!(count(&database, "outbox", "TRUE").await, 4, "nothing has gone so far");
        assert_eq!(store.delete_sends(keep, 10, &lease).await.expect("deleted"), (1, 4));
        for table in ["sends", "outbox", "bodies", "attempts", "send_events"] {
            assert_eq!(count(&database, table, "TRUE").await, 0, "{table}");
        }
    }

    async fn sends_go_in_bounded_batches_the_oldest_first(database: TestDatabase) {
        let store = store(&database).await;
        store.clock().set(monday() + TimeDelta::hours(36));
        store.record_missed(&due_orgs(25, monday()), TimeDelta::hours(36)).await.expect("missed");
        close_w28(&store).await;
        store.clock().set(monday() + TimeDelta::days(40));
        let lease = lead(&store).await;
        let mut batches = Vec::new();
        loop {
            let (sends, _) = store.delete_sends(TimeDelta::days(35), 10, &lease).await.expect("a batch");
            batches.push(sends);
            if sends == 0 {
                break;
            }
        }
        assert_eq!(batches, [10, 10, 5, 0]);
    }

    // A leader that was frozen between two batches (leoflow, issue 1199, and others of its kind).
    async fn a_leader_of_an_old_term_deletes_nothing(database: TestDatabase) {
        let store = with_results(&database).await;
        execute(
            &database,
            format!(
                "INSERT INTO {}fingerprints (fingerprint, owner, expires_at) VALUES ('f', 'o', {});",
                if database.url.starts_with("postgres") { "digestd." } else { "" },
                instant(&database, monday()),
            ),
        )
        .await;
        store.clock().set(monday() + TimeDelta::days(100));
        close_w28(&store).await;
        let old = lead(&store).await;
        store.clock().advance(TimeDelta::hours(1));
        let new = lead(&store).await;
        assert!(new.term() > old.term());
        assert_eq!(store.delete_bodies(WEEK, 0, 100, &old).await.expect("no error").deleted, 0);
        assert_eq!(store.delete_attempts(WEEK, 0, 100, &old).await.expect("no error").deleted, 0);
        assert_eq!(store.delete_sends(WEEK, 100, &old).await.expect("no error"), (0, 0));
        let leftovers = store.delete_leftovers(Leftover::Fingerprints, TimeDelta::zero(), 100, &old).await;
        assert_eq!(leftovers.expect("no error"), 0);

        assert_eq!(store.delete_bodies(WEEK, 0, 100, &new).await.expect("no error").deleted, 3);
        assert_eq!(store.delete_attempts(WEEK, 0, 100, &new).await.expect("no error").deleted, 1);
        let leftovers = store.delete_leftovers(Leftover::Fingerprints, TimeDelta::zero(), 100, &new).await;
        assert_eq!(leftovers.expect("no error"), 1);
    }

    async fn replicas_not_heard_of_and_slots_of_closed_weeks_go(database: TestDatabase) {
        let store = store(&database).await;
        let beat = |replica| Heartbeat {
            replica,
            host: "host".to_owned(),
            version: "0",
            clock_offset: TimeDelta::zero(),
            connections: 1,
        };
        let (silent, alive) = (ReplicaId::random(), ReplicaId::random());
        store.heartbeat(&beat(silent)).await.expect("a beat");
        let schedule = crate::support::fixtures::berlin();
        let slot = schedule.latest_slot(monday());
        let next = schedule.slot_in(slot.week.next());
        store.remember_slots(&[(schedule.clone(), slot), (schedule, next)]).await.expect("stored");
        close_w28(&store).await;

        store.clock().set(monday() + TimeDelta::days(36));
        store.heartbeat(&beat(alive)).await.expect("a beat");
        let lease = lead(&store).await;
        assert_eq!(store.delete_leftovers(Leftover::Replicas, WEEK, 10, &lease).await.expect("deleted"), 1);
        assert_eq!(count(&database, "replicas", "TRUE").await, 1);
        // The later week is not closed.
        store.clock().set(monday() + TimeDelta::days(60));
        let lease = lead(&store).await;
        let keep = TimeDelta::days(35);
        assert_eq!(store.delete_leftovers(Leftover::Slots, keep, 10, &lease).await.expect("deleted"), 1);
        assert_eq!(count(&database, "slots", "week_key = '2026-W29'").await, 1);
    }

    async fn a_checkpoint_does_no_harm(database: TestDatabase) {
        let store = with_results(&database).await;
        store.checkpoint().await.expect("a checkpoint");
        assert_eq!(count(&database, "outbox", "TRUE").await, 4);
    }
}
