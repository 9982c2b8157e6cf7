//! Counts equal the tables.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::ids::ReplicaId;
use digestd::domain::message::{Disposition, Finished, MessageReason, MessageState};
use digestd::domain::send::{SendReason, SendState};
use digestd::domain::week::{SendKey, WeekKey};
use digestd::store::enqueue::Enqueue;
use digestd::store::sends::Ending;
use digestd::store::stats::{SendCount, Tally};

use crate::support::fixtures::{
    claim_id, draft, due_org, due_orgs, give_back, lease_terms, monday, store, terms,
};

both_databases! {
    async fn counts_follow_sends_and_messages(database: TestDatabase) {
        let store = store(&database).await;
        let me = ReplicaId::random();
        let due = due_orgs(3, monday());
        let schedule = digestd::domain::schedule::WeeklySchedule {
            weekday: chrono::Weekday::Mon,
            time: chrono::NaiveTime::from_hms_opt(8, 0, 0).expect("a time"),
            zone: due[0].period.zone.clone(),
        };
        store.remember_slots(&[(schedule, due[0].slot)]).await.expect("slots");
        let mut claims = store.claim(&due, claim_id(), terms(me)).await.expect("claims");
        let skipped = claims.pop().expect("three claims");
        let ending = Ending {
            claim: skipped, state: SendState::Skipped, reason: SendReason::EmptyWeek, detail: None,
        };
        store.finish(vec![ending]).await.expect("skipped");
        let claim = claims.pop().expect("three claims");
        let drafts = (0..4).map(|n| draft(&claim, &format!("admin-{n}@example.org"))).collect();
        store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
        let leased = store.lease_messages(3, lease_terms(me)).await.expect("leases").messages;
        store.mark_messages(&[leased[0].fence(), leased[1].fence()], Duration::from_mins(1)).await.expect("markers");
        let refused = Finished {
            fence: leased[0].fence(),
            disposition: Disposition::Failed(MessageReason::Refused),
            phase: "rcpt",
            note: "550 5.1.1".to_owned(),
            guard: None,
        };
        store.record_results(&[refused], me).await.expect("recorded");
        store.clock().advance(TimeDelta::seconds(30));

        let stats = store.stats().await.expect("counts");
        let week = due[0].slot.week.to_string();
        let of = |state, count| SendCount { week: week.clone(), state, count };
        assert_eq!(
            stats.sends,
            [of(SendState::Claimed, 1), of(SendState::Enqueued, 1), of(SendState::Skipped, 1)]
        );
        assert_eq!(
            stats.messages,
            [
                (MessageState::Pending, 1),
                (MessageState::Leased, 1),
                (MessageState::Sending, 1),
                (MessageState::Uncertain, 0)
            ]
        );
        assert_eq!(stats.oldest_due, TimeDelta::seconds(30));

        let key = SendKey::Week(due[0].slot.week);
        let messages = store.week_messages(key).await.expect("counts");
        assert!(messages.contains(&Tally {
            state: MessageState::Failed,
            reason: Some(MessageReason::Refused),
            count: 1
        }));
        assert_eq!(messages.iter().map(|t| t.count).sum::<u64>(), 4);
        let sends = store.week_sends(key).await.expect("counts");
        assert!(sends.contains(&Tally { state: SendState::Skipped, reason: Some(SendReason::EmptyWeek), count: 1 }));
    }

    async fn a_retry_that_waits_is_not_overdue_and_old_weeks_are_not_counted(database: TestDatabase) {
        let store = store(&database).await;
        let me = ReplicaId::random();
        let due = due_org("acme", monday());
        let claim = store.claim(&[due], claim_id(), terms(me)).await.expect("a claim").remove(0);
        let drafts = vec![draft(&claim, "ann@example.org")];
        store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
        let lease = store.lease_messages(1, lease_terms(me)).await.expect("a lease").messages.remove(0);
        give_back(&store, &[lease.fence()], TimeDelta::minutes(10)).await;
        store.clock().advance(TimeDelta::seconds(599));
        let stats = store.stats().await.expect("counts");
        assert_eq!(stats.oldest_due, TimeDelta::zero());
        // No slot of that week is remembered: nothing to count.
        assert_eq!(stats.sends, []);
        let other = SendKey::Week(WeekKey::parse("2026-W01").expect("a week"));
        assert_eq!(store.week_messages(other).await.expect("counts"), []);
    }
}
