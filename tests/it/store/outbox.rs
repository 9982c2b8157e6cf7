//! Leases, markers and results: whoever is superseded writes nothing.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::clock::Clock;
use digestd::domain::address::Address;
use digestd::domain::ends::Ends;
use digestd::domain::ids::{ReplicaId, Token};
use digestd::domain::message::{Disposition, Fence, Finished, Leased, MessageReason, MessageState};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::outbox::{LeaseTerms, Swept};
use digestd::store::results::Marked;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{
    claim_id, draft, due_orgs, give_back, lease_terms, monday, open, store, terms,
};
use crate::support::world::{execute, number};
use crate::support::{eventually, scale};

const HAND_OVER: Duration = Duration::from_mins(10);

/// A store with `count` pending messages of one org.
async fn with_messages(database: &TestDatabase, count: usize) -> Store {
    let store = store(database).await;
    let claim = store
        .claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random()))
        .await
        .expect("a claim")
        .remove(0);
    let drafts = (0..count).map(|n| draft(&claim, &format!("admin-{n}@example.org"))).collect();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    store
}

fn finished(lease: &Leased, disposition: Disposition) -> Finished {
    Finished {
        fence: lease.fence(),
        disposition,
        phase: "dot",
        note: "250 2.0.0 queued".to_owned(),
        guard: None,
    }
}

both_databases! {
    async fn messages_are_leased_marked_and_accepted(database: TestDatabase) {
        let store = with_messages(&database, 5).await;
        let me = ReplicaId::random();
        let leased = store.lease_messages(3, lease_terms(me)).await.expect("leases").messages;
        assert_eq!(leased.len(), 3);
        assert!(leased.iter().all(|m| m.bytes.starts_with(b"X-Digestd-Id") && m.attempts == 0 && !m.resend));
        assert_eq!(store.lease_messages(10, lease_terms(me)).await.expect("leases").messages.len(), 2);

        let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
        let marked = store.mark_messages(&fences, HAND_OVER).await.expect("markers");
        assert_eq!(marked.len(), 3);
        assert!(marked.iter().all(|(_, m)| *m == Marked::Sending));
        assert!(store.mark_messages(&fences, HAND_OVER).await.expect("no error").is_empty());

        let results: Vec<_> = leased.iter().map(|m| finished(m, Disposition::Accepted)).collect();
        assert_eq!(store.record_results(&results, me).await.expect("recorded").len(), 3);
        assert!(store.record_results(&results, me).await.expect("no error").is_empty());
    }

    async fn a_lease_without_a_marker_returns_and_one_with_a_marker_becomes_uncertain(database: TestDatabase) {
        let store = with_messages(&database, 2).await;
        let me = ReplicaId::random();
        let leased = store.lease_messages(2, lease_terms(me)).await.expect("leases").messages;
        store.mark_messages(&[leased[0].fence()], HAND_OVER).await.expect("a marker");
        store.clock().advance(TimeDelta::seconds(60));
        assert_eq!(store.sweep_messages(100).await.expect("a sweep"), Swept { returned: 1, uncertain: 0 });
        assert!(store.mark_messages(&[leased[1].fence()], HAND_OVER).await.expect("no error").is_empty());
        store.clock().advance(TimeDelta::seconds(600));
        assert_eq!(store.sweep_messages(100).await.expect("a sweep"), Swept { returned: 0, uncertain: 1 });

        // The answer is known after all, and counts.
        let recorded = store.record_results(&[finished(&leased[0], Disposition::Accepted)], me).await.expect("recorded");
        assert_eq!(recorded, [leased[0].id]);
        // The returned one is leased anew, with a higher token; the old one's result is refused.
        let again = store.lease_messages(2, lease_terms(me)).await.expect("leases").messages;
        assert_eq!(again.len(), 1);
        assert!(again[0].token > leased[1].token);
        let late = finished(&leased[1], Disposition::Failed(MessageReason::Refused));
        assert!(store.record_results(&[late], me).await.expect("no error").is_empty());
    }

    async fn a_retry_waits_for_its_delay_and_is_charged(database: TestDatabase) {
        let store = with_messages(&database, 1).await;
        let me = ReplicaId::random();
        let lease = store.lease_messages(1, lease_terms(me)).await.expect("a lease").messages.remove(0);
        let retry = Disposition::Retry { after: TimeDelta::minutes(5), charge: true };
        store.record_results(&[finished(&lease, retry)], me).await.expect("recorded");
        assert!(store.lease_messages(1, lease_terms(me)).await.expect("no error").messages.is_empty());
        store.clock().advance(TimeDelta::minutes(5));
        assert_eq!(store.lease_messages(1, lease_terms(me)).await.expect("a lease").messages.remove(0).attempts, 1);
    }

    async fn a_message_past_its_age_or_attempts_is_never_leased(database: TestDatabase) {
        let store = with_messages(&database, 2).await;
        let me = ReplicaId::random();
        let spent = LeaseTerms { max_attempts: 0, ..lease_terms(me) };
        assert!(store.lease_messages(1, spent).await.expect("no error").messages.is_empty());
        store.clock().advance(TimeDelta::hours(48));
        assert!(store.lease_messages(1, lease_terms(me)).await.expect("no error").messages.is_empty());
        store.clock().advance(TimeDelta::hours(-48));
        assert!(store.lease_messages(1, lease_terms(me)).await.expect("no error").messages.is_empty());
        let ended = "SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('expired', 'failed')";
        assert_eq!(number(&database, ended).await, 2);
        let owned = "SELECT COUNT(*) FROM digestd.outbox WHERE owner IS NOT NULL OR lease_until IS NOT NULL";
        assert_eq!(number(&database, owned).await, 0, "nobody owns what has ended");
    }

    /// A write that commits and whose answer is lost is repeated, finds its rows ended, and counted none of
    /// them. Seen as a counter that stood behind the table after an outage of the database.
    async fn ends_whose_answer_was_lost_are_told_by_the_run_that_repeats_them(database: TestDatabase) {
        let store = with_messages(&database, 4).await;
        let me = ReplicaId::random();
        let leased = store.lease_messages(4, lease_terms(me)).await.expect("leases").messages;
        let left = Address::parse(leased[3].to.normal()).expect("an address");
        store.opt_out(&left, None, "link").await.expect("stored");
        let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
        // The answer to the markers is lost, so that the one that found an opt-out is taken back too.
        drop(store.record_and_mark(&[], &fences, me, HAND_OVER, false).await.expect("markers"));
        let taken_back = Finished { phase: "marker", ..finished(&leased[3], Disposition::Retry { after: TimeDelta::zero(), charge: false }) };
        let results = [
            finished(&leased[0], Disposition::Accepted),
            finished(&leased[1], Disposition::Failed(MessageReason::Refused)),
            finished(&leased[2], Disposition::Uncertain),
            taken_back,
        ];
        let refused = (MessageState::Failed, Some(MessageReason::Refused));
        let accepted = (MessageState::Accepted, None);
        let opted_out = (MessageState::Suppressed, Some(MessageReason::OptedOut));
        let first = store.record_and_mark(&results, &[], me, HAND_OVER, false).await.expect("recorded");
        assert_eq!(first.ended, Ends::from_iter([accepted, refused]));
        let again = store.record_and_mark(&results, &[], me, HAND_OVER, true).await.expect("recorded");
        assert_eq!(again.ended, Ends::from_iter([accepted, refused, opted_out]));
        assert_eq!(number(&database, "SELECT COUNT(*) FROM digestd.attempts").await, 2, "each told once");
        assert_eq!(number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await, 2, "each charged once");

        // Whoever has been superseded has ended nothing.
        let late = Finished { fence: Fence { token: Token(99), ..leased[0].fence() }, ..finished(&leased[0], Disposition::Accepted) };
        let late = store.record_and_mark(&[late], &[], me, HAND_OVER, true).await.expect("no error");
        assert!(late.ended.is_empty());
    }

    async fn leases_given_back_are_free_at_once_and_uncharged(database: TestDatabase) {
        let store = with_messages(&database, 2).await;
        let me = ReplicaId::random();
        let leased = store.lease_messages(2, lease_terms(me)).await.expect("leases").messages;
        store.mark_messages(&[leased[0].fence()], HAND_OVER).await.expect("a marker");
        let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
        give_back(&store, &fences, TimeDelta::zero()).await;
        let again = store.lease_messages(2, lease_terms(me)).await.expect("leases").messages;
        assert!(again.len() == 2 && again.iter().all(|m| m.attempts == 0));
    }
}

/// The addresses of a batch, as their position in it.
fn place_of(batches: &[Vec<String>], wanted: &str) -> usize {
    let all: Vec<&String> = batches.iter().flatten().collect();
    all.iter().position(|to| to.as_str() == wanted).expect("leased")
}

both_databases! {
    /// One customer's thousands held up everybody else's few, on the morning when all are due.
    async fn a_huge_org_does_not_hold_back_a_small_one(database: TestDatabase) {
        let store = store(&database).await;
        let me = ReplicaId::random();
        let claims = store.claim(&due_orgs(3, monday()), claim_id(), terms(me)).await.expect("claims");
        let sizes = [2000, 3, 3];
        for (n, (claim, size)) in claims.into_iter().zip(sizes).enumerate() {
            // The last one comes half a minute after the huge one.
            store.clock().advance(TimeDelta::seconds(if n == 2 { 30 } else { 0 }));
            let drafts = (0..size).map(|a| draft(&claim, &format!("a{a}@org-{n}.example"))).collect();
            store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
        }
        let mut batches = Vec::new();
        loop {
            let leased = store.lease_messages(12, lease_terms(me)).await.expect("leases").messages;
            if leased.is_empty() {
                break;
            }
            batches.push(leased.iter().map(|message| message.to.mailbox().to_owned()).collect::<Vec<_>>());
        }
        assert_eq!(batches.iter().flatten().count(), 2006, "all are due at once");
        assert!(place_of(&batches, "a2@org-1.example") < 24, "beside the huge org's first");
        let late = place_of(&batches, "a2@org-2.example");
        assert!((400..700).contains(&late), "before most of the huge org's: place {late}");
    }
}

/// Rows of the outbox that were read so far, by whatever way.
const READ: &str = "
    SELECT COALESCE(SUM(seq_tup_read + idx_tup_fetch), 0)
    FROM pg_stat_user_tables
    WHERE schemaname = 'digestd' AND relname = 'outbox'";

#[tokio::test(flavor = "multi_thread")]
async fn half_a_million_future_messages_are_not_read_by_a_lease() {
    let database = TestDatabase::postgres().await;
    let store = with_messages(&database, 30).await;
    let rows = scale(50_000, 500_000);
    execute(&database, format!(
        "INSERT INTO digestd.outbox (send_id, org_id, user_id, address, uid, state, next_attempt_at, expires_at, created_at)
         SELECT (SELECT id FROM digestd.sends), 'org-0000', 'u', 'future-' || n, 'uid-' || n, 'pending',
             '2026-07-07T06:00:00Z', '2026-07-09T06:00:00Z', '2026-07-06T06:00:00Z'
         FROM generate_series(1, {rows}) AS n;
         ANALYZE digestd.outbox;"
    ))
    .await;
    store.close().await;
    let store = open(&database, Clock::manual(monday()));
    let before = number(&database, READ).await;
    assert_eq!(
        store.lease_messages(12, lease_terms(ReplicaId::random())).await.expect("leases").messages.len(),
        12
    );
    // A session's counts are visible at its end at the latest.
    store.close().await;
    let read = eventually("the lease's reads are counted", Duration::from_secs(20), async || {
        Some(number(&database, READ).await - before).filter(|read| *read > 0)
    })
    .await;
    assert!(read < 200, "{read} rows read for 12 leases beside {rows} future ones");
}
