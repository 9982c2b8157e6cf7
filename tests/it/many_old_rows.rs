//! Retention over very many old rows, beside replicas that go on working.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use digestd::cleanup::election::Election;
use digestd::cleanup::retention::Deleted;
use digestd::domain::ids::ReplicaId;
use digestd::domain::message::{Disposition, Finished};
use digestd::progress::Progress;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use tokio_util::sync::CancellationToken;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{
    claim_id, cleanup, draft, due_org, instant, lease_terms, monday, store, terms,
};
use crate::support::scale;
use crate::support::world::{count, execute};

/// Messages of one send.
const OF_A_SEND: usize = 5;
/// Of so many old messages one is uncertain, and keeps its send.
const UNCERTAIN: usize = 1000;
/// Rows of each kind inside every horizon.
const YOUNG: usize = 500;

/// `messages` old messages with their sends, bodies and attempts, and as many young ones as [`YOUNG`].
async fn fill(database: &TestDatabase, messages: usize) {
    let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
    let ago = |days| {
        let at = instant(database, monday() - TimeDelta::days(days));
        if prefix.is_empty() { at } else { format!("TIMESTAMPTZ {at}") }
    };
    let rows = |sends: usize,
                first: usize,
                week: &str,
                slot: &str,
                settled: &str,
                attempted: &str,
                uncertain: usize| {
        let messages = sends * OF_A_SEND;
        let numbers = |n: usize| {
            format!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})")
        };
        format!(
            "{sends_n}
             INSERT INTO {prefix}sends (org_id, week_key, state, slot_at, timezone, period_first, period_start, period_end,
                 give_up_at, messages, settled_at)
             SELECT 'old-' || i, '{week}', 'enqueued', {slot}, 'UTC', '2026-01-01', {slot}, {slot}, {slot}, {OF_A_SEND}, {settled} FROM n;
             {messages_n}
             INSERT INTO {prefix}outbox (send_id, org_id, user_id, address, mailbox, uid, state, next_attempt_at, expires_at,
                 created_at, settled_at)
             SELECT {first} + (i - 1) / {OF_A_SEND}, 'old', 'u', 'a' || i || '@x.example', 'a@x.example', '{week}-' || i,
                 CASE WHEN {uncertain} > 0 AND i % {UNCERTAIN} = 0 THEN 'uncertain' ELSE 'accepted' END, {settled}, {settled}, {settled},
                 CASE WHEN {uncertain} > 0 AND i % {UNCERTAIN} = 0 THEN NULL ELSE {settled} END
             FROM n;
             INSERT INTO {prefix}bodies (message_id, bytes)
             SELECT id, CAST('a body' AS {bytes}) FROM {prefix}outbox WHERE id > {first_message};
             INSERT INTO {prefix}attempts (message_id, at, token, phase, outcome)
             SELECT id, {attempted}, 1, 'rcpt', 'pending' FROM {prefix}outbox WHERE id > {first_message} ORDER BY id;
             INSERT INTO {prefix}weeks (week_key, closed_at) VALUES ('{week}', {slot});",
            sends_n = numbers(sends),
            messages_n = numbers(messages),
            bytes = if prefix.is_empty() { "BLOB" } else { "BYTEA" },
            first_message = (first - 1) * OF_A_SEND,
        )
    };
    let sends = messages / OF_A_SEND;
    execute(database, rows(sends, 1, "2026-W12", &ago(100), &ago(100), &ago(100), 1)).await;
    // A day inside each horizon: 35 days for sends, 7 for bodies, 90 for attempts.
    let young = YOUNG / OF_A_SEND;
    execute(database, rows(young, sends + 1, "2026-W23", &ago(34), &ago(6), &ago(89), 0)).await;
}

/// Claims, enqueues, leases and settles until told to stop; the longest of these steps.
async fn work(store: Store, done: Arc<AtomicBool>) -> (usize, Duration) {
    let me = ReplicaId::random();
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while !done.load(Ordering::Relaxed) || rounds == 0 {
        let due: Vec<_> = (0..10).map(|n| due_org(&format!("new-{rounds}-{n}"), monday())).collect();
        let mut step = Instant::now();
        let mut lap = || {
            longest = longest.max(step.elapsed());
            step = Instant::now();
        };
        let claims = store.claim(&due, claim_id(), terms(me)).await.expect("claims");
        lap();
        let batch =
            claims.into_iter().map(|claim| Enqueue { drafts: vec![draft(&claim, "ann@x.example")], claim });
        store.enqueue(batch.collect(), TimeDelta::hours(48)).await.expect("enqueued");
        lap();
        let leased = store.lease_messages(10, lease_terms(me)).await.expect("leases").messages;
        lap();
        assert_eq!(leased.len(), 10);
        let finished: Vec<Finished> = leased
            .iter()
            .map(|lease| Finished {
                fence: lease.fence(),
                disposition: Disposition::Accepted,
                phase: "dot",
                note: String::new(),
                guard: None,
            })
            .collect();
        store.record_results(&finished, me).await.expect("recorded");
        lap();
        rounds += 1;
    }
    (rounds, longest)
}

both_databases! {
    async fn very_many_old_rows_go_in_batches_while_replicas_go_on_and_nothing_young_goes(database: TestDatabase) {
        let store = store(&database).await;
        let old = scale(5_000, 1_000_000);
        fill(&database, old).await;
        let cleanup = cleanup(&store);
        let mut election = Election::new(store.clone(), ReplicaId::random());
        let pulse = Progress::new().watch("test", Duration::from_mins(1));
        let done = Arc::new(AtomicBool::new(false));
        let working = tokio::spawn(work(store.clone(), Arc::clone(&done)));

        let started = Instant::now();
        let mut total = Deleted::default();
        let mut rounds = 0;
        loop {
            let deleted = cleanup.delete_old(&mut election, &pulse, &CancellationToken::new()).await.expect("no error");
            if deleted == Deleted::default() {
                break;
            }
            rounds += 1;
            total.sends += deleted.sends;
            total.messages += deleted.messages;
        }
        let took = started.elapsed();
        done.store(true, Ordering::Relaxed);
        let (worked, longest) = working.await.expect("no panic");
        eprintln!("{old} old messages in {rounds} rounds and {took:?}; beside it {worked} rounds of work, the longest step {longest:?}");
        // Had a round of deletions kept the others out, they would have got less done than it.
        assert!(worked >= rounds, "{worked} rounds of work beside {rounds} of deletions");

        // Each uncertain message keeps its send, and with it the other messages.
        let kept = old / UNCERTAIN;
        assert_eq!(total.sends, u64::try_from(old / OF_A_SEND - kept).expect("a count"));
        assert_eq!(total.messages, u64::try_from(old - kept * OF_A_SEND).expect("a count"));
        let rows = async |table: &str, filter: &str| usize::try_from(count(&database, table, filter).await).expect("a count");
        assert_eq!(rows("sends", "week_key = '2026-W12'").await, kept);
        assert_eq!(rows("outbox", "state = 'uncertain'").await, kept);
        let young = [("sends", YOUNG / OF_A_SEND), ("outbox", YOUNG)];
        for (table, expected) in young {
            let filter = if table == "sends" { "week_key = '2026-W23'" } else { "uid LIKE '2026-W23-%'" };
            assert_eq!(rows(table, filter).await, expected, "{table}");
        }
        let new = worked * 10;
        // An uncertain message keeps its bytes and its story; a new one has bytes and no attempts.
        assert_eq!(rows("bodies", "TRUE").await, YOUNG + kept + new);
        assert_eq!(rows("attempts", "TRUE").await, YOUNG + kept);
    }
}
