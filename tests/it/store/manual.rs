//! Resends: rows of their own that any replica takes over.

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{Epoch, ReplicaId};
use digestd::domain::week::SendKey;
use digestd::store::manual::ManualSend;

use crate::support::fixtures::{claim_id, due_org, due_orgs, monday, store, terms};

fn resend() -> ManualSend {
    let due = due_org("org-0000", monday());
    ManualSend {
        org: due.org,
        asked_at: monday() + TimeDelta::hours(1),
        period: due.period,
        only: Some(Address::parse("Ann@example.org").expect("an address")),
        give_up: TimeDelta::days(1),
    }
}

both_databases! {
    async fn a_resend_is_taken_over_at_once_with_all_that_it_needs(database: TestDatabase) {
        let store = store(&database).await;
        let asked = resend();
        let (send, key) = store.insert_manual(&asked).await.expect("no error").expect("a row");
        assert_eq!(key, SendKey::Manual(asked.asked_at));
        let taken = store.take_over(10, claim_id(), terms(ReplicaId::random())).await.expect("a take-over");
        assert_eq!(taken.len(), 1);
        let claim = &taken[0].claim;
        assert_eq!((claim.send, claim.epoch, claim.key, claim.attempts), (send, Epoch(1), key, 0));
        assert_eq!((&claim.period, claim.slot_at), (&asked.period, asked.asked_at));
        assert_eq!(claim.only.as_ref().map(Address::normal), Some("ann@example.org"));
        assert_eq!(taken[0].give_up_at, asked.asked_at + TimeDelta::days(1));
    }

    async fn a_resend_neither_blocks_nor_repeats_the_scheduled_digest(database: TestDatabase) {
        let store = store(&database).await;
        store.insert_manual(&resend()).await.expect("no error").expect("a row");
        let claims = store.claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
        assert_eq!(claims.len(), 1);
        // In the same millisecond there is one, in the next another.
        assert_eq!(store.insert_manual(&resend()).await.expect("no error"), None);
        let later = ManualSend { asked_at: resend().asked_at + TimeDelta::milliseconds(1), ..resend() };
        assert!(store.insert_manual(&later).await.expect("no error").is_some());
    }
}
