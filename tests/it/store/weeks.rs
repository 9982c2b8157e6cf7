//! The end of weeks: a missed row never stands beside another, and there is one of it.

use chrono::TimeDelta;
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::send::{SendReason, SendState};
use digestd::domain::week::{SendKey, WeekKey};
use digestd::store::enqueue::Enqueue;

use crate::support::fixtures::{claim_id, draft, due_orgs, monday, store, terms};

const CATCH_UP: TimeDelta = TimeDelta::hours(36);

fn w28() -> WeekKey {
    WeekKey::parse("2026-W28").expect("a week")
}

both_databases! {
    async fn an_org_is_missed_only_when_its_window_has_passed_and_it_has_no_send(database: TestDatabase) {
        let store = store(&database).await;
        let claims = store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
        let mut claims = claims.into_iter();
        let enqueued = claims.next().expect("a claim");
        let drafts = vec![draft(&enqueued, "ann@example.org")];
        store.enqueue(vec![Enqueue { claim: enqueued, drafts }], TimeDelta::hours(48)).await.expect("enqueued");

        let orgs = due_orgs(4, monday());
        store.clock().set(monday() + CATCH_UP - TimeDelta::milliseconds(1));
        assert!(store.record_missed(&orgs, CATCH_UP).await.expect("no error").is_empty());
        store.clock().set(monday() + CATCH_UP);
        let mut missed = store.record_missed(&orgs, CATCH_UP).await.expect("missed");
        missed.sort();
        assert_eq!(missed.iter().map(OrgId::as_str).collect::<Vec<_>>(), ["org-0002", "org-0003"]);
        let tallies = store.week_sends(SendKey::Week(w28())).await.expect("tallies");
        let tallies: Vec<_> = tallies.iter().map(|t| (t.state, t.reason.map(SendReason::as_str), t.count)).collect();
        assert_eq!(
            tallies,
            [
                (SendState::Claimed, None, 1),
                (SendState::Enqueued, None, 1),
                (SendState::Missed, Some("too_late"), 2)
            ]
        );
    }

    async fn of_racing_replicas_each_org_is_written_down_by_one(database: TestDatabase) {
        let store = store(&database).await;
        store.clock().set(monday() + CATCH_UP);
        let racers: Vec<_> = (0..6)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    store.record_missed(&due_orgs(200, monday()), CATCH_UP).await.expect("no error").len()
                })
            })
            .collect();
        let mut written = 0;
        for racer in racers {
            written += racer.await.expect("no panic");
        }
        assert_eq!(written, 200);
    }

    async fn a_missed_week_cannot_be_claimed(database: TestDatabase) {
        let store = store(&database).await;
        store.clock().set(monday() + CATCH_UP);
        assert_eq!(store.record_missed(&due_orgs(1, monday()), CATCH_UP).await.expect("missed").len(), 1);
        // Even by a clock that has gone back into the window.
        store.clock().set(monday());
        let claims = store.claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random())).await.expect("no error");
        assert!(claims.is_empty());
        store.clock().advance(TimeDelta::days(1));
        assert!(store.take_over(10, claim_id(), terms(ReplicaId::random())).await.expect("no error").is_empty());
    }

    // The model of the protocol found that a leader which is frozen between reading the orgs and writing down
    // the missed ones, and thaws when retention has deleted the week, wrote `missed` for what had been sent.
    async fn nothing_is_written_down_as_missed_once_the_week_is_closed(database: TestDatabase) {
        let store = store(&database).await;
        store.clock().set(monday() + TimeDelta::days(60));
        store.close_week(w28()).await.expect("closed");
        assert!(store.record_missed(&due_orgs(3, monday()), CATCH_UP).await.expect("no error").is_empty());
        assert!(store.week_sends(SendKey::Week(w28())).await.expect("tallies").is_empty());
    }

    async fn a_week_is_closed_once_and_the_newest_is_found_across_a_new_year(database: TestDatabase) {
        let store = store(&database).await;
        assert_eq!(store.last_closed_week().await.expect("a look"), None);
        for (week, first) in [("2026-W53", true), ("2026-W52", true), ("2027-W01", true), ("2026-W53", false)] {
            let week = WeekKey::parse(week).expect("a week");
            assert_eq!(store.close_week(week).await.expect("no error"), first, "{week}");
        }
        let last = store.last_closed_week().await.expect("a look").expect("a closed week");
        assert_eq!(last.to_string(), "2027-W01");
        assert!(store.is_closed(last).await.expect("a look"));
        assert!(!store.is_closed(w28()).await.expect("a look"));
    }
}
