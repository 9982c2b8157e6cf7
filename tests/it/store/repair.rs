//! Reopening what ended without messages.

use chrono::TimeDelta;
use digestd::domain::ids::{Epoch, OrgId, ReplicaId};
use digestd::domain::send::{SendReason, SendState};
use digestd::domain::week::WeekKey;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::sends::Ending;

use crate::support::fixtures::{claim_id, draft, due_orgs, monday, store, terms};
use crate::support::world::{count, execute};

const DAY: TimeDelta = TimeDelta::days(1);

fn w28() -> WeekKey {
    WeekKey::parse("2026-W28").expect("a week")
}

/// Three orgs: the first is enqueued, the second failed, the third was missed.
async fn mixed(database: &crate::support::backend::TestDatabase) -> Store {
    let store = store(database).await;
    let claims =
        store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
    for claim in claims {
        if claim.org.as_str() == "org-0000" {
            let drafts = vec![draft(&claim, "ann@example.org")];
            store.enqueue(vec![Enqueue { claim, drafts }], DAY).await.expect("enqueued");
        } else {
            let (state, reason) = (SendState::Failed, SendReason::GatherFailed);
            let ending = Ending { claim, state, reason, detail: Some("no such column".to_owned()) };
            store.finish(vec![ending]).await.expect("failed");
        }
    }
    store.clock().set(monday() + TimeDelta::hours(36));
    store.record_missed(&due_orgs(3, monday()), TimeDelta::hours(36)).await.expect("missed");
    store
}

both_databases! {
    async fn a_failed_send_is_taken_over_by_any_replica_under_a_higher_epoch(database: TestDatabase) {
        let store = mixed(&database).await;
        let reopened = store.reopen(w28(), None, SendState::Failed, DAY, 10).await.expect("reopened");
        assert_eq!(reopened, [OrgId::parse("org-0001").expect("an id")]);
        assert!(store.reopen(w28(), None, SendState::Failed, DAY, 10).await.expect("no error").is_empty());

        let taken = store.take_over(10, claim_id(), terms(ReplicaId::random())).await.expect("taken over");
        assert_eq!(taken.len(), 1);
        let taken = taken.into_iter().next().expect("one");
        assert_eq!((taken.claim.epoch, taken.claim.attempts), (Epoch(3), 0));
        assert_eq!(taken.give_up_at, store.now().await.expect("now") + DAY);
        let drafts = vec![draft(&taken.claim, "bob@example.org")];
        let enqueued = store.enqueue(vec![Enqueue { claim: taken.claim, drafts }], DAY).await.expect("enqueued");
        assert_eq!(enqueued.messages, 1);
        assert_eq!(count(&database, "send_events", "event = 'reopened' AND detail = 'failed: gather_failed: no such column'").await, 1);
        assert_eq!(count(&database, "send_events", "event = 'claimed'").await, 1);
    }

    async fn a_missed_send_is_reopened_for_the_org_named_alone(database: TestDatabase) {
        let store = mixed(&database).await;
        let other = OrgId::parse("org-0001").expect("an id");
        assert!(store.reopen(w28(), Some(&other), SendState::Missed, DAY, 10).await.expect("no error").is_empty());
        let missed = OrgId::parse("org-0002").expect("an id");
        let reopened = store.reopen(w28(), Some(&missed), SendState::Missed, DAY, 10).await.expect("reopened");
        assert_eq!(reopened, [missed]);
        assert_eq!(store.take_over(10, claim_id(), terms(ReplicaId::random())).await.expect("taken over").len(), 1);
    }

    async fn whoever_was_enqueued_is_never_reopened(database: TestDatabase) {
        let store = mixed(&database).await;
        for state in [SendState::Enqueued, SendState::Skipped, SendState::Claimed] {
            assert!(store.reopen(w28(), None, state, DAY, 10).await.expect("no error").is_empty());
        }
        // A state that our code never writes: failed, and with messages all the same.
        let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
        execute(&database, format!("UPDATE {prefix}sends SET state = 'failed' WHERE state = 'enqueued';")).await;
        let reopened = store.reopen(w28(), None, SendState::Failed, DAY, 10).await.expect("reopened");
        assert_eq!(reopened, [OrgId::parse("org-0001").expect("an id")]);
    }
}
