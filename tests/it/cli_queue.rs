//! Commands about messages and addresses.

use std::fs;
use std::time::Duration;

use chrono::TimeDelta;
use digestd::clock::Clock;
use digestd::domain::ids::{GuardOwner, ReplicaId};
use digestd::domain::message::{Disposition, Finished, Leased, MessageReason};
use digestd::store::enqueue::Enqueue;
use digestd::store::migrate::MigrateMode;
use serde_json::json;

use crate::cli::{digestd, json as parsed, well};
use crate::support::backend::TestDatabase;
use crate::support::fixtures::{claim_id, draft, due_orgs, lease_terms, open, terms};

/// Three messages of now: one failed, one uncertain, one waiting. Their ids, in this order.
async fn three(database: &TestDatabase) -> Vec<String> {
    let store = open(database, Clock::Database);
    store.migrate(MigrateMode::Auto).await.expect("a fresh schema");
    let now = store.now().await.expect("the time");
    let me = ReplicaId::random();
    let claim_terms = digestd::store::sends::ClaimTerms { catch_up: TimeDelta::days(8), ..terms(me) };
    let claim = store.claim(&due_orgs(1, now), claim_id(), claim_terms).await.expect("a claim").remove(0);
    let drafts = ["a@x.org", "b@x.org", "c@x.org"].map(|to| draft(&claim, to)).into();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    let leased = store.lease_messages(3, lease_terms(me)).await.expect("leases").messages;
    let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
    store.mark_messages(&fences, Duration::from_mins(1)).await.expect("markers");
    let ends = [
        Disposition::Failed(MessageReason::Refused),
        Disposition::Uncertain,
        Disposition::Retry { after: TimeDelta::hours(1), charge: true },
    ];
    let results: Vec<Finished> = leased
        .iter()
        .zip(ends)
        .map(|(message, disposition)| Finished {
            fence: message.fence(),
            disposition,
            phase: "dot",
            note: "451 4.3.0 later".to_owned(),
            guard: Some(GuardOwner::random()),
        })
        .collect();
    assert_eq!(store.record_results(&results, me).await.expect("recorded").len(), 3);
    store.close().await;
    leased.iter().map(|message| message.id.to_string()).collect()
}

both_databases! {
    async fn messages_are_listed_shown_retried_cancelled_and_resolved(database: TestDatabase) {
        let ids = three(&database).await;
        let listed = parsed(&well(&database, &["queue", "list", "--json"]).await);
        let shown: Vec<_> = listed.as_array().expect("a list").iter().map(|m| (m["state"].clone(), m["address"].clone())).collect();
        assert_eq!(json!(shown), json!([["failed", "a@x.org"], ["uncertain", "b@x.org"], ["pending", "c@x.org"]]));
        let line = well(&database, &["queue", "list", "--state", "failed"]).await;
        assert!(line.starts_with(&format!("{}\tfailed (refused)\t", ids[0])), "{line}");
        let cut = digestd(&database, &["queue", "list", "--limit", "1"]).await;
        assert!(cut.out.lines().count() == 1 && cut.err.contains("there are more"), "{cut:?}");
        let one = well(&database, &["queue", "show", &ids[2]]).await;
        assert!(one.contains("state         pending") && one.contains("pending at dot by ") && one.contains("451 4.3.0 later"), "{one}");

        let counted = digestd(&database, &["queue", "retry", "--state", "failed"]).await;
        assert!(counted.code == 1 && counted.err.starts_with("1 message found; nothing was changed"), "{counted:?}");
        assert_eq!(well(&database, &["queue", "retry", "--state", "failed", "--yes"]).await, "1 message will be tried again\n");
        assert_eq!(well(&database, &["queue", "cancel", &ids[0], &ids[2]]).await, "2 messages cancelled\n");
        let soon = digestd(&database, &["queue", "resolve", "--resend", &ids[1]]).await;
        assert!(soon.code == 1 && soon.err.contains("less than 30 minutes ago"), "{soon:?}");
        // Nothing was found, and a hint said how to change it; one message was left alone because "they" were not.
        let none = digestd(&database, &["queue", "retry", "--state", "expired"]).await;
        assert_eq!((none.code, none.err.as_str()), (0, "0 messages found\n"));
        let early = digestd(&database, &["queue", "resolve", "--accepted", &ids[0]]).await;
        assert_eq!((early.code, early.err.as_str()), (1, "1 message left alone: not uncertain\n"));
        let left = digestd(&database, &["queue", "retry", &ids[1]]).await;
        assert!(left.err.starts_with("1 message left alone: not failed, expired or cancelled, or "), "{left:?}");
        let done = well(&database, &["queue", "resolve", "--accepted", "--json", &ids[1]]).await;
        assert_eq!(parsed(&done)["done"], json!([ids[1].parse::<i64>().expect("a number")]));
        let listed = parsed(&well(&database, &["queue", "list", "--json"]).await);
        let states: Vec<_> = listed.as_array().expect("a list").iter().map(|m| m["state"].clone()).collect();
        assert_eq!(json!(states), json!(["cancelled", "accepted", "cancelled"]));
        let history = parsed(&well(&database, &["queue", "show", &ids[1], "--json"]).await);
        assert_eq!(history["history"].as_array().expect("a list").last().expect("an event")["phase"], "operator");
    }

    async fn wrong_wishes_are_refused_and_nothing_changes(database: TestDatabase) {
        let ids = three(&database).await;
        for arguments in [
            &["queue", "retry"][..],
            &["queue", "retry", "--state", "accepted", "--yes"],
            &["queue", "cancel", &ids[2], "--org", "org-0000"],
            &["queue", "resolve", &ids[1]],
            &["queue", "resolve", "--accepted", "--resend", &ids[1]],
            &["queue", "list", "--state", "lost"],
            &["queue", "list", "--older", "soon"],
            &["queue", "show", "999999"],
        ] {
            assert_eq!(digestd(&database, arguments).await.code, 64, "{arguments:?}");
        }
        let listed = parsed(&well(&database, &["queue", "list", "--json"]).await);
        let states: Vec<_> = listed.as_array().expect("a list").iter().map(|m| m["state"].clone()).collect();
        assert_eq!(json!(states), json!(["failed", "uncertain", "pending"]));
    }

    async fn deliveries_are_paused_and_go_on(database: TestDatabase) {
        assert_eq!(well(&database, &["queue", "pause"]).await, "deliveries are paused\n");
        assert_eq!(parsed(&well(&database, &["status", "--json"]).await)["relay"]["paused"], true);
        assert_eq!(well(&database, &["queue", "resume"]).await, "deliveries go on\n");
        assert_eq!(parsed(&well(&database, &["status", "--json"]).await)["relay"]["paused"], false);
    }

    async fn addresses_are_suppressed_listed_imported_and_taken_back(database: TestDatabase) {
        assert_eq!(well(&database, &["suppress", "add", "Ann@X.org", "--note", "closed"]).await, "suppressed\n");
        fs::write(database.folder().join("bounced.txt"), "# June\nbob@x.org\n\ncy@x.org\n").expect("a file");
        assert_eq!(well(&database, &["suppress", "import", "bounced.txt"]).await, "imported 2 suppressions\n");
        let listed = parsed(&well(&database, &["suppress", "list", "--json"]).await);
        let shown: Vec<_> = listed.as_array().expect("a list").iter().map(|row| (row["address"].clone(), row["source"].clone())).collect();
        assert_eq!(json!(shown), json!([["ann@x.org", "operator"], ["bob@x.org", "import"], ["cy@x.org", "import"]]));
        assert_eq!(well(&database, &["suppress", "remove", "ann@x.org"]).await, "removed\n");
        assert_eq!(digestd(&database, &["suppress", "remove", "ann@x.org"]).await.code, 64);
        fs::write(database.folder().join("bad.txt"), "dora@x.org\nnobody\n").expect("a file");
        let bad = digestd(&database, &["suppress", "import", "bad.txt"]).await;
        assert!(bad.code == 64 && bad.err.contains("line 2"), "{bad:?}");
        assert_eq!(well(&database, &["suppress", "list"]).await.lines().count(), 2);
    }
}
