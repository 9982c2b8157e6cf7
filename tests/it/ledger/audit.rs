//! Eligible against settled.

use chrono::TimeDelta;
use digestd::domain::message::Leased;
use digestd::domain::week::WeekKey;
use digestd::ledger::audit::Audit;
use digestd::store::Store;

use super::{after, claim, enqueue, hand_over, ledger, web, world};
use crate::support::fixtures::{directory, give_back, lease_terms, monday};
use crate::support::world::execute;

async fn audit(store: &Store) -> Audit {
    let week = WeekKey::parse("2026-W28").expect("a week");
    ledger(store).audit(Some(week)).await.expect("an audit")
}

fn kinds(audit: &Audit) -> Vec<(&str, &str)> {
    audit.problems.iter().map(|finding| (finding.kind, finding.org.as_str())).collect()
}

both_databases! {
    async fn a_week_under_way_adds_up(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[
            ("acme", "Europe/Berlin", ""),
            ("globex", "Europe/Berlin", ""),
            ("later", "America/New_York", ""),
            ("new", "Europe/Berlin", "created_at = NULL"),
        ])
        .await;
        let claimed = claim(&store, "acme", web(1)).await;
        enqueue(&store, claimed, &["ann", "bob"]).await;
        drop(claim(&store, "globex", web(1)).await);
        hand_over(&store, web(1), &[
            (digestd::domain::message::Disposition::Accepted, "dot", "250 ok"),
            (digestd::domain::message::Disposition::Uncertain, "dot", "the connection broke"),
        ])
        .await;
        store.clock().set(after(60));
        let audit = audit(&store).await;
        assert!(audit.adds_up());
        insta::assert_snapshot!("under_way", audit);
    }

    async fn what_does_not_add_up_is_listed_by_name(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[
            ("acme", "Europe/Berlin", ""),
            ("forgotten", "Europe/Berlin", ""),
            ("stuck", "Europe/Berlin", ""),
            ("torn", "Europe/Berlin", ""),
        ])
        .await;
        let torn = claim(&store, "torn", web(1)).await;
        enqueue(&store, torn, &["ann", "bob"]).await;
        let acme = claim(&store, "acme", web(1)).await;
        enqueue(&store, acme, &["ann"]).await;
        drop(claim(&store, "stuck", web(1)).await);
        let leased = store.lease_messages(3, lease_terms(web(1))).await.expect("leases").messages;
        let two: Vec<_> = leased[..2].iter().map(Leased::fence).collect();
        give_back(&store, &two, TimeDelta::zero()).await;
        let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
        execute(&database, format!("DELETE FROM {prefix}outbox WHERE address = 'bob@torn.example';")).await;

        // Within the grace after a lease somebody comes by.
        store.clock().set(after(180));
        assert_eq!(kinds(&audit(&store).await), [("wrong_count", "torn")]);
        store.clock().set(monday() + TimeDelta::hours(36));
        let audit = audit(&store).await;
        assert_eq!(
            kinds(&audit),
            [
                ("without_send", "forgotten"),
                ("claim_past_lease", "stuck"),
                ("message_past_lease", "acme"),
                ("wrong_count", "torn")
            ]
        );
        assert!(!audit.adds_up());
        insta::assert_snapshot!("does_not_add_up", audit);
    }
}
