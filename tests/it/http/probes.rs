//! `/healthz`, `/readyz`, `/metrics`.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::clock::Clock;
use digestd::domain::ids::ReplicaId;
use digestd::domain::message::MessageState;
use digestd::metrics::ClaimResult;
use digestd::store::enqueue::Enqueue;

use crate::support::fixtures::{claim_id, draft, due_orgs, monday, open, store, terms};
use crate::support::web::Web;

both_databases! {
    async fn a_loop_without_progress_makes_the_process_unhealthy(database: TestDatabase) {
        let web = Web::start(&store(&database).await).await;
        let _well = web.progress.watch("tick", Duration::from_mins(1));
        assert_eq!(web.get("/healthz").await.status, 200);
        let stuck = web.progress.watch("deliver", Duration::ZERO);
        crate::support::eventually("an unhealthy answer", Duration::from_secs(5), async || {
            let answer = web.get("/healthz").await;
            (answer.status == 503 && answer.body.contains("deliver: stalled") && answer.body.contains("tick: moving"))
                .then_some(())
        })
        .await;
        drop(stuck);
    }

    async fn readiness_needs_a_database_with_our_schema(database: TestDatabase) {
        let empty = open(&database, Clock::manual(monday()));
        let answer = Web::start(&empty).await.get("/readyz").await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "the schema is not up to date\n"));
        let store = store(&database).await;
        let web = Web::start(&store).await;
        assert_eq!(web.get("/readyz").await.status, 200);
        store.close().await;
        let web = Web::start(&store).await;
        let answer = web.get("/readyz").await;
        assert_eq!(answer.status, 503);
        assert!(answer.body.contains("the database failed"), "{}", answer.body);
        // A database that is away is no reason to restart.
        assert_eq!(web.get("/healthz").await.status, 200);
    }

    async fn metrics_show_the_process_and_the_tables(database: TestDatabase) {
        let store = store(&database).await;
        let claim = store
            .claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random()))
            .await
            .expect("a claim")
            .remove(0);
        let drafts = (0..3).map(|n| draft(&claim, &format!("admin-{n}@example.org"))).collect();
        store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
        store.clock().advance(TimeDelta::seconds(90));
        let web = Web::start(&store).await;
        web.metrics.claims(ClaimResult::Won, 1);
        web.metrics.claims(ClaimResult::Lost, 4);

        let answer = web.get("/metrics").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        for line in [
            "digestd_claims_total{result=\"won\"} 1",
            "digestd_claims_total{result=\"lost\"} 4",
            "digestd_claims_total{result=\"taken_over\"} 0",
            "digestd_outbox_messages{state=\"pending\"} 3",
            "digestd_outbox_messages{state=\"uncertain\"} 0",
            "digestd_oldest_pending_seconds 90.0",
        ] {
            assert!(answer.body.lines().any(|l| l == line), "{line} is not in\n{}", answer.body);
        }
        assert_eq!(store.stats().await.expect("counts").messages[0], (MessageState::Pending, 3));
        let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
        let answer = web.ask("GET", "/metrics", &accept, b"").await;
        assert!(answer.headers["content-type"].starts_with("application/openmetrics-text"));
        assert!(answer.body.contains("# EOF"), "{}", answer.body);
    }

    async fn the_server_stops_although_a_visitor_says_nothing(database: TestDatabase) {
        let mut web = Web::start(&store(&database).await).await;
        assert_eq!(web.get("/healthz").await.status, 200);
        let _silent = tokio::net::TcpStream::connect(web.address).await.expect("a connection");
        web.stop(Duration::from_secs(10)).await;
        assert!(tokio::net::TcpStream::connect(web.address).await.is_err());
    }

    async fn metrics_are_served_while_the_database_is_away(database: TestDatabase) {
        let store = store(&database).await;
        store.close().await;
        let web = Web::start(&store).await;
        let answer = web.get("/metrics").await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains("digestd_store_errors_total{class=\"permanent\"} 1"), "{}", answer.body);
    }
}
