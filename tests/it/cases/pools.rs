//! Connections: too few of them, and futures that are dropped half-way.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::ids::ReplicaId;
use digestd::domain::message::{Disposition, Fence, Finished};
use digestd::domain::send::{SendReason, SendState};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::migrate::MigrateMode;
use digestd::store::sends::Ending;

use crate::support::backend::{Kind, TestDatabase};
use crate::support::engine::{Engine, Rows, mails};
use crate::support::eventually;
use crate::support::fixtures::{
    claim_id, draft, due_org, due_orgs, lease_terms, monday, open, open_with_pool, store, terms,
};
use crate::support::world::{Counts, numbers};
use digestd::clock::Clock;

/// One step of a small week under an impatient caller.
async fn step(store: &Store, n: usize) {
    let me = ReplicaId::random();
    let due = [due_org(&format!("org-{n:04}"), monday()), due_org(&format!("org-{n:04}-x"), monday())];
    let Ok(mut claims) = store.claim(&due, claim_id(), terms(me)).await else { return };
    if let Some(claim) = claims.pop() {
        let ending = Ending { claim, state: SendState::Skipped, reason: SendReason::EmptyWeek, detail: None };
        let _ = store.finish(vec![ending]).await;
    }
    if let Some(claim) = claims.pop() {
        let drafts = vec![draft(&claim, &format!("a@org-{n}.example"))];
        let _ = store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await;
    }
    let _ = store.take_over(4, claim_id(), terms(me)).await;
    if let Ok(batch) = store.lease_messages(4, lease_terms(me)).await {
        let fences: Vec<_> = batch.messages.iter().map(digestd::domain::message::Leased::fence).collect();
        let _ = store.record_and_mark(&[], &fences, me, Duration::from_secs(5), false).await;
        let back = Disposition::Retry { after: TimeDelta::zero(), charge: false };
        let back = |fence: &Fence| Finished {
            fence: *fence,
            disposition: back.clone(),
            phase: "lease",
            note: String::new(),
            guard: None,
        };
        let _ = store.record_results(&fences.iter().map(back).collect::<Vec<_>>(), me).await;
    }
    if let Ok(import) = store.begin_import().await {
        drop(import);
    }
}

/// Sessions of ours that sit in an open transaction. SQLite has one writer: it shows at the next write.
async fn idle_in_transaction(database: &TestDatabase) -> i64 {
    if database.kind == Kind::Sqlite {
        return 0;
    }
    let asked = "SELECT 'idle', COUNT(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'digestd' AND state LIKE 'idle in%'";
    numbers(database, asked).await[0].1
}

both_databases! {
    /// A function took a second connection while it held a transaction: with a pool of one, for ever.
    async fn one_connection_is_enough_for_every_path(database: TestDatabase) {
        let store = open_with_pool(&database, Clock::manual(monday()), 1);
        let work = async {
            store.migrate(MigrateMode::Auto).await.expect("a fresh schema");
            store.migrate(MigrateMode::Check).await.expect("a current schema");
            let last_week = monday() - TimeDelta::days(2);
            let mut rows = Rows::new(&database);
            for n in 0..30 {
                rows.simple(&format!("org-{n}"), last_week);
            }
            rows.org("quiet", "Quiet", "Europe/Berlin").admin("q", "quiet", "q@x.io");
            rows.write(&database).await;
            let engine = Engine::with(&database, &store, "[guard]\nbackend = \"sql\"\n").await;
            // Claims that nobody works, for the take-over.
            store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
            assert_eq!(engine.sweep().await.enqueued, 30);
            store.clock().advance(TimeDelta::minutes(2));
            assert_eq!(engine.rescue().await.skipped, 2);
            tokio::join!(engine.deliver(&database), async {
                store.stats().await.expect("stats");
                store.live_replicas(Duration::from_secs(30)).await.expect("replicas");
            });
            assert_eq!(mails(&database).len(), 30);
            let import = store.begin_import().await.expect("an import");
            import.commit().await.expect("a commit");
            step(&store, 9_000).await;
        };
        tokio::time::timeout(Duration::from_mins(1), work).await.expect("no wait for a second connection");
        assert_eq!(Counts::read(&database).await.messages("accepted"), 30);
    }

    /// A cancelled `BEGIN` left a pooled connection inside a transaction, and for twenty minutes all that one
    /// process wrote was seen by nobody.
    async fn a_step_that_is_cut_anywhere_poisons_no_connection(database: TestDatabase) {
        let store = store(&database).await;
        for n in 0..150_usize {
            // From at once to about as long as a whole step takes.
            let patience = Duration::from_micros(u64::try_from(n * n * 2 % 30_011).expect("small"));
            let _ = tokio::time::timeout(patience, step(&store, n)).await;
            if n % 10 == 9 {
                let probe = due_org(&format!("probe-{n}"), monday());
                let won = store.claim(&[probe], claim_id(), terms(ReplicaId::random())).await.expect("a claim");
                assert_eq!(won.len(), 1, "after {n}");
            }
        }
        // Seen from elsewhere, every one of them.
        let seen = numbers(&database, "SELECT 'probes', COUNT(*) FROM {}sends WHERE org_id LIKE 'probe-%'").await;
        assert_eq!(seen[0].1, 15);
        eventually("no session left in a transaction", Duration::from_secs(10), async || {
            (idle_in_transaction(&database).await == 0).then_some(())
        })
        .await;
        // A send says “enqueued” with its message or not at all.
        let torn = "SELECT s.org_id, COUNT(o.id) FROM {}sends AS s LEFT JOIN {}outbox AS o ON o.send_id = s.id \
                    WHERE s.state = 'enqueued' GROUP BY s.org_id HAVING COUNT(o.id) <> 1";
        assert_eq!(numbers(&database, torn).await, []);
        // Another process is not held up by anything that was left open.
        let other = open(&database, Clock::manual(monday()));
        let won = other.claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random())).await;
        assert!(won.is_ok(), "{won:?}");
    }
}
