//! Commands about the ledger: `explain`, `audit`, `plan`, `schedule`, `retry`.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use digestd::domain::address::Address;
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::message::{Disposition, Finished, MessageReason};
use digestd::domain::send::{SendReason, SendState};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::replicas::Heartbeat;
use digestd::store::sends::Ending;
use serde_json::{Value, json};

use crate::cli::{Ran, digestd, json as parsed, well};
use crate::support::backend::TestDatabase;
use crate::support::fixtures::{
    claim_id, directory, draft, due_org, instant, lease_terms, monday, store, terms,
};
use crate::support::world::{count, execute, number};

const WEEK: [&str; 2] = ["--week", "2026-W28"];
/// Orgs of [`ledger`].
const ORGS: [&str; 5] = ["acme", "broken", "forgotten", "late", "quiet"];

/// A week long past in which one org got its digest, one had nothing to tell, one could not be served, one was
/// missed, and one was forgotten.
async fn ledger(database: &TestDatabase) {
    let store = store(database).await;
    directory(
        database,
        &[
            ("acme", "Europe/Berlin", "name = 'Acme & Söhne'"),
            ("broken", "Mars/Base", ""),
            ("forgotten", "Europe/Berlin", ""),
            ("late", "Europe/Berlin", ""),
            ("quiet", "Europe/Berlin", ""),
        ],
    )
    .await;
    let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
    let began = instant(database, monday() - TimeDelta::days(5));
    execute(
        database,
        format!(
            "INSERT INTO {prefix}admins (id, org_id, email) VALUES ('bert', 'acme', 'bert@acme.example');
             INSERT INTO {prefix}admins (id, org_id, email) VALUES ('cy', 'acme', 'cy@acme.example');
             UPDATE {prefix}installation SET installed_at = {began};"
        ),
    )
    .await;
    let web = ReplicaId(uuid::Uuid::from_u128(1 << 124 | 1));
    let beat = Heartbeat {
        replica: web,
        host: "web-1".to_owned(),
        version: "0",
        clock_offset: TimeDelta::zero(),
        connections: 1,
    };
    store.heartbeat(&beat).await.expect("a beat");
    send(&store, web).await;
    end(&store, web, "quiet", SendState::Skipped, SendReason::EmptyWeek, None).await;
    let why = "“Mars/Base” is not an IANA time zone";
    end(&store, web, "broken", SendState::Failed, SendReason::BadTimezone, Some(why)).await;
    store.clock().set(monday() + TimeDelta::hours(36));
    let missed = store.record_missed(&[due_org("late", monday())], TimeDelta::hours(36)).await;
    assert_eq!(missed.expect("missed").len(), 1);
    store.close().await;
}

/// Acme's digest: one admin has it, one has no mailbox, one has left.
async fn send(store: &Store, web: ReplicaId) {
    let acme = OrgId::parse("acme").expect("an id");
    store
        .opt_out(&Address::parse("cy@acme.example").expect("an address"), Some(&acme), "link")
        .await
        .expect("out");
    store.clock().advance(TimeDelta::seconds(10));
    let claim =
        store.claim(&[due_org("acme", monday())], claim_id(), terms(web)).await.expect("claims").remove(0);
    let drafts = ["ann", "bert", "cy"].map(|name| draft(&claim, &format!("{name}@acme.example"))).into();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    store.clock().advance(TimeDelta::seconds(2));
    let leased = store.lease_messages(10, lease_terms(web)).await.expect("leases").messages;
    let ends = [Disposition::Accepted, Disposition::Failed(MessageReason::Refused)];
    let notes = ["250 2.0.0 ok", "550 5.1.1 no such user"];
    let results: Vec<Finished> = leased
        .iter()
        .zip(ends)
        .zip(notes)
        .map(|((message, disposition), note)| Finished {
            fence: message.fence(),
            disposition,
            phase: "dot",
            note: note.to_owned(),
            guard: None,
        })
        .collect();
    let fences: Vec<_> = leased.iter().map(digestd::domain::message::Leased::fence).collect();
    store.mark_messages(&fences, Duration::from_mins(1)).await.expect("markers");
    assert_eq!(store.record_results(&results, web).await.expect("recorded").len(), 2);
}

async fn end(
    store: &Store,
    web: ReplicaId,
    org: &str,
    state: SendState,
    reason: SendReason,
    detail: Option<&str>,
) {
    let claim =
        store.claim(&[due_org(org, monday())], claim_id(), terms(web)).await.expect("claims").remove(0);
    let ending = Ending { claim, state, reason, detail: detail.map(str::to_owned) };
    assert_eq!(store.finish(vec![ending]).await.expect("ended").len(), 1);
}

/// Arguments with the week of the tests.
fn of_week<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &WEEK].concat()
}

/// What was printed without the moment at which it was, which comes first in it.
fn timeless(text: &str) -> String {
    let now = text.find(" UTC").map(|end| end - "2026-07-06 06:00:00".len()..end).expect("a moment");
    text[..now.start].to_owned() + "…" + &text[now.end..]
}

/// A story without what comes next, which depends on when it is told.
fn past(text: &str) -> &str {
    text.split_once("\nNext\n").expect("a story").0
}

/// JSON without either.
fn timeless_json(text: &str) -> String {
    let mut value = parsed(text);
    let now: DateTime<Utc> = value["now"].as_str().expect("now").parse().expect("a time");
    assert!(now > monday());
    value["now"] = "…".into();
    if let Some(next) = value.get_mut("next") {
        *next = "…".into();
    }
    serde_json::to_string_pretty(&value).expect("JSON")
}

fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{ran:?}");
    for part in words {
        assert!(ran.err.contains(part), "“{part}” is not in: {}", ran.err);
    }
}

/// A command that was given the wrong words says what would be right.
async fn wrong_weeks_are_refused(database: &TestDatabase, command: &[&str]) {
    for (week, words) in [
        ("2026-28", "“2026-28” is not an ISO week such as 2026-W28"),
        ("2026-W54", "2026-W54"),
        ("", "“” is not an ISO week"),
    ] {
        let arguments = [command, &["--week", week]].concat();
        refused(&digestd(database, &arguments).await, &["error: ", words, "--week"]);
    }
}

both_databases! {
    async fn explain_tells_a_digest_s_story_in_words_and_in_json(database: TestDatabase) {
        ledger(&database).await;
        let text = well(&database, &of_week(&["explain", "--org", "acme"])).await;
        insta::assert_snapshot!("explain", past(&text));
        let as_json = well(&database, &of_week(&["explain", "--org", "acme", "--json"])).await;
        insta::assert_snapshot!("explain_json", timeless_json(&as_json));
        let bert = well(&database, &of_week(&["explain", "--org", "acme", "--to", "Bert@ACME.example"])).await;
        assert!(bert.contains("bert@acme.example") && bert.contains("550 5.1.1 no such user"), "{bert}");
        assert!(!bert.contains("ann@acme.example") && !bert.contains("cy@acme.example"), "{bert}");
        let late = well(&database, &of_week(&["explain", "--org", "late"])).await;
        insta::assert_snapshot!("explain_missed", past(&late));
        // Without a week it is that of the newest slot.
        let newest = parsed(&well(&database, &["explain", "--org", "acme", "--json"]).await);
        let moment = |value: &Value| -> DateTime<Utc> { value.as_str().expect("text").parse().expect("a time") };
        let since = moment(&newest["now"]) - moment(&newest["slot"]["at"]);
        assert!(since >= TimeDelta::zero() && since < TimeDelta::days(7) + TimeDelta::hours(1), "{newest}");
    }

    async fn explain_says_what_is_wrong_with_its_arguments(database: TestDatabase) {
        ledger(&database).await;
        let nobody = well(&database, &of_week(&["explain", "--org", "Acme"])).await;
        assert!(nobody.contains("Nobody knows an org “Acme”; ids are compared letter by letter."), "{nobody}");
        let stranger = well(&database, &of_week(&["explain", "--org", "acme", "--to", "dora@acme.example"])).await;
        assert!(stranger.contains("dora@acme.example: is not the address of a recipient of this org"), "{stranger}");
        refused(&digestd(&database, &["explain"]).await, &["--org <ID>"]);
        refused(&digestd(&database, &["explain", "--org", ""]).await, &["--org"]);
        // A broken address may be the very question.
        let broken = well(&database, &of_week(&["explain", "--org", "acme", "--to", "not an address"])).await;
        assert!(broken.contains("not an address: is not the address of a recipient of this org"), "{broken}");
        wrong_weeks_are_refused(&database, &["explain", "--org", "acme"]).await;
    }

    async fn audit_ends_with_one_if_something_does_not_add_up(database: TestDatabase) {
        ledger(&database).await;
        let wrong = digestd(&database, &of_week(&["audit"])).await;
        assert_eq!((wrong.code, wrong.err.as_str()), (1, ""), "{wrong:?}");
        insta::assert_snapshot!("audit", timeless(&wrong.out));
        let wrong = digestd(&database, &of_week(&["audit", "--json"])).await;
        assert_eq!((wrong.code, wrong.err.as_str()), (1, ""), "{wrong:?}");
        insta::assert_snapshot!("audit_json", timeless_json(&wrong.out));
        // The week before began before the installation did: nobody was owed anything.
        let right = well(&database, &["audit", "--week", "2026-W27"]).await;
        assert!(right.contains("Eligible orgs: 0\n") && right.ends_with("\nIt adds up.\n"), "{right}");
        assert_eq!(parsed(&well(&database, &["audit", "--week", "2026-W27", "--json"]).await)["problems"], json!([]));
        wrong_weeks_are_refused(&database, &["audit"]).await;
    }

    async fn a_plan_lists_everybody_and_leaves_no_trace(database: TestDatabase) {
        ledger(&database).await;
        let before = number(&database, "SELECT COUNT(*) FROM digestd.sends").await;
        let text = well(&database, &of_week(&["plan"])).await;
        insta::assert_snapshot!("plan", timeless(&text));
        let as_json = well(&database, &of_week(&["plan", "--json"])).await;
        insta::assert_snapshot!("plan_json", timeless_json(&as_json));
        let next = parsed(&well(&database, &["plan", "--json"]).await);
        let orgs: Vec<&str> = next["orgs"].as_array().expect("orgs").iter().filter_map(|org| org["org"].as_str()).collect();
        assert_eq!(orgs, ORGS);
        wrong_weeks_are_refused(&database, &["plan"]).await;
        for (table, rows) in [("sends", before), ("slots", 0)] {
            assert_eq!(count(&database, table, "TRUE").await, rows, "{table}");
        }
    }

    async fn a_plan_without_orgs_is_a_plan_too(database: TestDatabase) {
        store(&database).await.close().await;
        let text = well(&database, &["plan"]).await;
        assert!(text.starts_with("As of ") && text.ends_with(" UTC\n0 orgs\n"), "{text}");
        assert_eq!(parsed(&well(&database, &["plan", "--json"]).await)["orgs"], json!([]));
    }

    async fn a_schedule_lists_the_coming_slots_and_marks_where_clocks_change(database: TestDatabase) {
        ledger(&database).await;
        let eight = well(&database, &["schedule", "--org", "acme"]).await;
        let lines: Vec<&str> = eight.lines().collect();
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.contains("  Mon 20") && line.contains(" 08:00 +0") && line.contains(" Europe/Berlin  = 20")), "{eight}");
        let year = parsed(&well(&database, &["schedule", "--org", "acme", "--count", "52", "--json"]).await);
        let slots = year.as_array().expect("slots");
        let moment = |slot: &Value| -> DateTime<Utc> { slot["at"].as_str().expect("text").parse().expect("a time") };
        for pair in slots.windows(2) {
            let changed = pair[1]["clock_change_seconds"].as_i64().expect("a number");
            assert_eq!(moment(&pair[1]) - moment(&pair[0]), TimeDelta::days(7) - TimeDelta::seconds(changed), "{pair:?}");
        }
        let mut changes: Vec<i64> = slots.iter().filter_map(|slot| slot["clock_change_seconds"].as_i64()).filter(|n| *n != 0).collect();
        changes.sort_unstable();
        assert_eq!((slots.len(), changes), (52, vec![-3_600, 3_600]));
        let told = well(&database, &["schedule", "--org", "acme", "--count", "52"]).await;
        for words in ["  clocks went forward by 60 min\n", "  clocks went back by 60 min\n"] {
            assert_eq!(told.matches(words).count(), 1, "{told}");
        }
    }

    async fn a_schedule_that_there_is_none_of_says_so(database: TestDatabase) {
        ledger(&database).await;
        let nobody = digestd(&database, &["schedule", "--org", "Acme"]).await;
        refused(&nobody, &["error: there is no active org “Acme”\n", "hint: ids are compared letter by letter"]);
        let broken = digestd(&database, &["schedule", "--org", "broken"]).await;
        assert_eq!((broken.code, broken.out.as_str()), (65, ""), "{broken:?}");
        assert!(broken.err.contains("the org broken has no usable time zone") && broken.err.contains("“Mars/Base”"), "{broken:?}");
        for count in ["0", "521", "many"] {
            refused(&digestd(&database, &["schedule", "--org", "acme", "--count", count]).await, &["--count"]);
        }
    }

    async fn retry_reopens_what_failed_or_was_missed_and_nothing_else(database: TestDatabase) {
        ledger(&database).await;
        let missed = digestd(&database, &of_week(&["retry", "--state", "missed"])).await;
        assert_eq!((missed.code, missed.out.as_str()), (0, "1 send of 2026-W28 reopened\n"), "{missed:?}");
        assert!(missed.err.starts_with("note: no replica is running"), "{missed:?}");
        let failed = digestd(&database, &of_week(&["retry", "--state", "failed", "--org", "broken", "--json"])).await;
        assert_eq!((failed.code, parsed(&failed.out)), (0, json!({ "week": "2026-W28", "orgs": ["broken"] })));
        let reopened = "state = 'claimed' AND claimed_by IS NULL AND reason IS NULL AND org_id IN ('late', 'broken')";
        assert_eq!(count(&database, "sends", reopened).await, 2);
        // A second time there is nothing to reopen, nor ever anything that was sent or skipped.
        for arguments in [["--state", "missed"], ["--state", "failed"]] {
            for org in [&[][..], &["--org", "acme"], &["--org", "quiet"], &["--org", "nobody"]] {
                let none = digestd(&database, &of_week(&[&["retry"], &arguments[..], org].concat())).await;
                assert_eq!((none.code, none.out.as_str()), (0, "0 sends of 2026-W28 reopened\n"), "{none:?}");
                assert!(none.err.starts_with("note: no such send is "), "{none:?}");
                assert!(none.err.contains("`digestd audit --week 2026-W28`"), "{none:?}");
            }
        }
        assert_eq!(count(&database, "sends", "org_id = 'acme' AND state = 'enqueued' AND epoch = 1").await, 1);
        assert_eq!(count(&database, "outbox", "TRUE").await, 3);
        let story = well(&database, &of_week(&["explain", "--org", "late"])).await;
        assert!(story.contains("reopened"), "{story}");
    }

    async fn retry_says_what_is_wrong_with_its_arguments(database: TestDatabase) {
        ledger(&database).await;
        refused(&digestd(&database, &["retry"]).await, &["--week <WEEK>", "--state <STATE>"]);
        let sent = digestd(&database, &of_week(&["retry", "--state", "enqueued"])).await;
        refused(&sent, &["invalid value 'enqueued' for '--state <STATE>'", "possible values: failed, missed"]);
        refused(&digestd(&database, &of_week(&["retry", "--state", "failed", "--org", ""])).await, &["--org"]);
        wrong_weeks_are_refused(&database, &["retry", "--state", "failed"]).await;
        assert_eq!(count(&database, "sends", "state = 'claimed'").await, 0);
    }

    /// Reading must not change anything, not even a schema that is too old.
    async fn commands_that_only_read_leave_an_old_schema_alone(database: TestDatabase) {
        for arguments in [&["explain", "--org", "acme"][..], &["audit"], &["plan"], &["schedule", "--org", "acme"]] {
            let ran = digestd(&database, arguments).await;
            assert_eq!((ran.code, ran.out.as_str()), (78, ""), "{arguments:?}: {ran:?}");
            assert!(ran.err.contains("hint: `digestd migrate` brings the schema up to date"), "{arguments:?}: {ran:?}");
        }
    }
}
