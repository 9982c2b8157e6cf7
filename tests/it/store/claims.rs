//! Claims: one winner, take-over by a higher epoch, and nothing outside the window.

use std::sync::Arc;

use chrono::TimeDelta;
use digestd::domain::ids::{Epoch, ReplicaId};
use digestd::domain::send::{SendReason, SendState};
use digestd::store::enqueue::Enqueue;
use digestd::store::sends::Ending;
use tokio::sync::Barrier;

use crate::support::fixtures::{claim_id, draft, due_orgs, monday, store, terms};

both_databases! {
    /// Identical twins were mailed because uniqueness was read first and written later.
    async fn of_32_racers_for_one_org_one_wins(database: TestDatabase) {
        let store = store(&database).await;
        let barrier = Arc::new(Barrier::new(32));
        let racers: Vec<_> = (0..32)
            .map(|_| {
                let (store, barrier) = (store.clone(), Arc::clone(&barrier));
                tokio::spawn(async move {
                    let due = due_orgs(1, monday());
                    barrier.wait().await;
                    store.claim(&due, claim_id(), terms(ReplicaId::random())).await.expect("no error for a loser").len()
                })
            })
            .collect();
        let mut won = 0;
        for racer in racers {
            won += racer.await.expect("no panic");
        }
        assert_eq!(won, 1);
    }

    async fn a_rerun_after_a_lost_answer_gets_its_own_claims(database: TestDatabase) {
        let store = store(&database).await;
        let (id, terms) = (claim_id(), terms(ReplicaId::random()));
        let first = store.claim(&due_orgs(5, monday()), id, terms).await.expect("claims");
        let again = store.claim(&due_orgs(5, monday()), id, terms).await.expect("claims");
        assert_eq!(first.iter().map(|c| c.send).collect::<std::collections::BTreeSet<_>>(),
            again.iter().map(|c| c.send).collect::<std::collections::BTreeSet<_>>());
        assert_eq!(store.claim(&due_orgs(5, monday()), claim_id(), terms).await.expect("no error").len(), 0);
    }

    async fn nothing_is_claimed_before_the_slot_or_after_its_window(database: TestDatabase) {
        let store = store(&database).await;
        let due = due_orgs(3, monday());
        for hours in [-1, 36, 24 * 40] {
            store.clock().set(monday() + TimeDelta::hours(hours));
            assert_eq!(store.claim(&due, claim_id(), terms(ReplicaId::random())).await.expect("no error").len(), 0);
        }
        store.clock().set(monday() + TimeDelta::hours(36) - TimeDelta::milliseconds(1));
        assert_eq!(store.claim(&due, claim_id(), terms(ReplicaId::random())).await.expect("claims").len(), 3);
    }

    async fn an_expired_claim_is_taken_over_with_a_higher_epoch_and_the_old_one_is_refused(database: TestDatabase) {
        let store = store(&database).await;
        let mine = store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
        let other = terms(ReplicaId::random());
        assert!(store.take_over(10, claim_id(), other).await.expect("no error").is_empty());

        store.clock().advance(TimeDelta::minutes(2));
        let taken = store.take_over(10, claim_id(), other).await.expect("a take-over");
        assert_eq!(taken.len(), 2);
        assert!(taken.iter().all(|t| t.claim.epoch == Epoch(2) && t.claim.period == mine[0].period));
        assert!(store.take_over(10, claim_id(), other).await.expect("no error").is_empty());

        let held: Vec<_> = mine.iter().map(|c| (c.send, c.epoch)).collect();
        assert!(store.renew(&held, TimeDelta::minutes(2)).await.expect("no error").is_empty());
        assert_eq!(store.charge(&mine[0]).await.expect("no error"), None);
        let late: Vec<Enqueue> = mine
            .into_iter()
            .map(|claim| Enqueue { drafts: vec![draft(&claim, "late@example.org")], claim })
            .collect();
        let enqueued = store.enqueue(late, TimeDelta::hours(48)).await.expect("no error");
        assert_eq!((enqueued.sends.len(), enqueued.messages), (0, 0));

        let mut taken = taken.into_iter().map(|t| t.claim);
        let (one, two) = (taken.next().expect("one"), taken.next().expect("two"));
        assert_eq!(store.charge(&one).await.expect("no error"), Some(1));
        let ending =
            Ending { claim: one, state: SendState::Skipped, reason: SendReason::EmptyWeek, detail: None };
        assert_eq!(store.finish(vec![ending]).await.expect("no error").len(), 1);
        let drafts = vec![draft(&two, "a@example.org"), draft(&two, "b@example.org")];
        let enqueued = store.enqueue(vec![Enqueue { claim: two, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
        assert_eq!((enqueued.sends.len(), enqueued.messages), (1, 2));
    }

    async fn a_postponed_claim_comes_back_after_its_delay(database: TestDatabase) {
        let store = store(&database).await;
        let me = ReplicaId::random();
        let claim = store.claim(&due_orgs(1, monday()), claim_id(), terms(me)).await.expect("claims").remove(0);
        assert!(store.postpone(claim, TimeDelta::minutes(5), Some("query failed"), me).await.expect("no error"));
        store.clock().advance(TimeDelta::minutes(4));
        assert!(store.take_over(10, claim_id(), terms(me)).await.expect("no error").is_empty());
        store.clock().advance(TimeDelta::minutes(1));
        assert_eq!(store.take_over(10, claim_id(), terms(me)).await.expect("no error").len(), 1);
    }

    /// The renewal of a batch went on while one of its orgs was postponed: the wait became the lease.
    async fn a_renewal_under_way_does_not_change_a_postponed_claims_wait(database: TestDatabase) {
        let store = store(&database).await;
        let me = ReplicaId::random();
        let claim = store.claim(&due_orgs(1, monday()), claim_id(), terms(me)).await.expect("claims").remove(0);
        let held = [(claim.send, claim.epoch)];
        assert!(store.postpone(claim, TimeDelta::hours(1), Some("query failed"), me).await.expect("no error"));
        assert!(store.renew(&held, TimeDelta::minutes(2)).await.expect("no error").is_empty());
        store.clock().advance(TimeDelta::minutes(59));
        assert!(store.take_over(10, claim_id(), terms(me)).await.expect("no error").is_empty());
    }

    async fn a_live_claim_is_renewed(database: TestDatabase) {
        let store = store(&database).await;
        let claims = store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
        store.clock().advance(TimeDelta::seconds(100));
        let held: Vec<_> = claims.iter().map(|c| (c.send, c.epoch)).collect();
        assert_eq!(store.renew(&held, TimeDelta::minutes(2)).await.expect("renewed").len(), 2);
        store.clock().advance(TimeDelta::seconds(100));
        assert!(store.take_over(10, claim_id(), terms(ReplicaId::random())).await.expect("no error").is_empty());
    }

    async fn orgs_with_a_send_are_dropped_before_the_insert(database: TestDatabase) {
        let store = store(&database).await;
        store.claim(&due_orgs(3, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
        let left = store.without_send(due_orgs(5, monday())).await.expect("a look");
        assert_eq!(left.iter().map(|d| d.org.as_str()).collect::<Vec<_>>(), ["org-0003", "org-0004"]);
    }
}
