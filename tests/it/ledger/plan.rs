//! A dry run.

use chrono::TimeDelta;
use digestd::domain::week::WeekKey;
use digestd::ledger::Ledger;
use digestd::ledger::plan::Planned;

use super::{after, claim, ledger, web, world};
use crate::support::fixtures::{directory, instant, monday};
use crate::support::world::count;

async fn orgs(ledger: &Ledger, week: Option<WeekKey>) -> Vec<Planned> {
    let mut plan = ledger.plan(week).await.expect("a plan");
    let mut orgs = Vec::new();
    while let Some(page) = plan.next_page().await.expect("a page") {
        orgs.extend(page);
    }
    orgs
}

both_databases! {
    async fn a_plan_says_who_gets_what_and_when_and_leaves_no_trace(database: TestDatabase) {
        let store = world(&database).await;
        let created = format!("created_at = {}", instant(&database, after(1)));
        directory(&database, &[
            ("sent", "Europe/Berlin", ""),
            ("due", "Europe/Berlin", ""),
            ("early", "Asia/Kolkata", "weekday = 'friday', local_time = '18:30'"),
            ("west", "America/New_York", ""),
            ("broken", "Mars/Base", ""),
            ("young", "Europe/Berlin", &created),
        ])
        .await;
        drop(claim(&store, "sent", web(1)).await);
        store.clock().set(after(60));
        let now = orgs(&ledger(&store), None).await;
        insta::assert_snapshot!("now", now.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        let week = WeekKey::parse("2026-W29").expect("a week");
        let next = orgs(&ledger(&store), Some(week)).await;
        assert!(next.iter().all(|org| org.week == "2026-W29" && org.recipients.len() == 1));
        assert_eq!(next.iter().map(|org| org.at).min(), Some(monday() + TimeDelta::days(7)));
        assert_eq!(count(&database, "sends", "TRUE").await, 1);
        for table in ["slots", "outbox", "send_events", "fingerprints"] {
            assert_eq!(count(&database, table, "TRUE").await, 0, "{table}");
        }
    }
}
