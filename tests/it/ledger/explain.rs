//! What a person reads who asks what became of a digest.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::cleanup::election::Election;
use digestd::domain::address::{Address, AddressFault};
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::message::{Disposition, MessageReason};
use digestd::domain::send::{SendReason, SendState};
use digestd::domain::week::WeekKey;
use digestd::ledger::story::Story;
use digestd::ledger::whom::Whom;
use digestd::progress::Progress;
use digestd::store::Store;
use digestd::store::manual::ManualSend;
use digestd::store::sends::Ending;
use digestd::store::suppressions::SuppressionTerms;
use tokio_util::sync::CancellationToken;

use super::{RELAY, after, beat, claim, enqueue, hand_over, ledger, web, world};
use crate::support::fixtures::{claim_id, cleanup, directory, due_org, instant, lease_terms, monday, terms};
use crate::support::world::execute;

async fn explain(store: &Store, org: &str) -> Story {
    let org = OrgId::parse(org).expect("an id");
    let week = WeekKey::parse("2026-W28").expect("a week");
    ledger(store).explain(&org, Some(week), None).await.expect("a story")
}

async fn finish(store: &Store, org: &str, state: SendState, reason: SendReason, detail: Option<&str>) {
    let claim = claim(store, org, web(1)).await;
    store.charge(&claim).await.expect("charged");
    store.clock().set(after(9));
    let ending = Ending { claim, state, reason, detail: detail.map(str::to_owned) };
    assert_eq!(store.finish(vec![ending]).await.expect("no error").len(), 1);
}

both_databases! {
    async fn a_digest_that_everybody_got(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        store.clock().set(after(3));
        let claim = claim(&store, "acme", web(1)).await;
        store.clock().set(after(5));
        enqueue(&store, claim, &["ann"]).await;
        store.clock().set(after(8));
        hand_over(&store, web(2), &[(Disposition::Accepted, "dot", "250 2.0.0 queued as 4F2A")]).await;
        insta::assert_snapshot!("accepted", explain(&store, "acme").await);
    }

    async fn a_digest_that_is_not_due_yet(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        store.clock().set(monday() - TimeDelta::minutes(190));
        insta::assert_snapshot!("not_due_yet", explain(&store, "acme").await);
    }

    async fn a_digest_that_is_due_and_that_nobody_has_claimed(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        store.clock().set(after(600));
        let stopped = explain(&store, "acme").await;
        assert_eq!(stopped.outcome, "Due for 10 min and not claimed by anybody yet; no replica is running.");
        beat(&store).await;
        insta::assert_snapshot!("due", explain(&store, "acme").await);
    }

    async fn an_org_that_was_created_after_its_slot(database: TestDatabase) {
        let store = world(&database).await;
        let created = format!("created_at = {}", instant(&database, after(1)));
        directory(&database, &[("acme", "Europe/Berlin", &created)]).await;
        store.clock().set(after(600));
        insta::assert_snapshot!("created_after", explain(&store, "acme").await);
    }

    async fn a_digest_that_was_missed(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        store.clock().set(monday() + TimeDelta::hours(37));
        let before = explain(&store, "acme").await;
        assert_eq!(
            before.outcome,
            "Missed: the window passed 1 h ago without a claim; this is written down when the week is closed."
        );
        store.clock().set("2026-07-15T00:00:00Z".parse().expect("a time"));
        let mut election = Election::new(store.clone(), ReplicaId::random());
        let pulse = Progress::new().watch("test", Duration::from_mins(1));
        let closed = cleanup(&store).close_weeks(&mut election, &pulse, &CancellationToken::new()).await;
        assert_eq!(closed.expect("no error").missed, 1);
        insta::assert_snapshot!("missed", explain(&store, "acme").await);
    }

    async fn a_week_in_which_nothing_happened(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        finish(&store, "acme", SendState::Skipped, SendReason::EmptyWeek, None).await;
        insta::assert_snapshot!("skipped", explain(&store, "acme").await);
    }

    async fn an_org_whose_zone_is_none(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berln", "")]).await;
        let detail = "“Europe/Berln” is not an IANA time zone; did you mean Europe/Berlin?";
        finish(&store, "acme", SendState::Failed, SendReason::BadTimezone, Some(detail)).await;
        insta::assert_snapshot!("bad_zone", explain(&store, "acme").await);
    }

    async fn a_morning_with_a_lost_replica_a_failure_a_grey_list_and_an_opt_out(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
        let admin = |id: &str, more: &str| {
            format!(
                "INSERT INTO {prefix}admins (id, org_id, email) VALUES ('{id}', 'acme', '{id}@acme.example');
                 UPDATE {prefix}admins SET {more} WHERE id = '{id}';"
            )
        };
        let late = format!("opted_in_at = {}", instant(&database, after(60)));
        let script = [
            admin("bob", "active = TRUE"),
            admin("cid", "weekly_digest = FALSE"),
            admin("dora", "active = FALSE"),
            admin("eve", &late),
        ];
        execute(&database, script.concat()).await;
        store.clock().set(monday() - TimeDelta::days(1));
        let bob = Address::parse("bob@acme.example").expect("an address");
        store.opt_out(&bob, Some(&OrgId::parse("acme").expect("an id")), "link").await.expect("opted out");

        store.clock().set(after(3));
        drop(claim(&store, "acme", web(1)).await);
        store.clock().set(after(130));
        let mut taken = store.take_over(8, claim_id(), terms(web(2))).await.expect("taken over").pop().expect("one").claim;
        taken.attempts = store.charge(&taken).await.expect("charged").expect("still ours");
        store.clock().set(after(140));
        let error = Some("section “incidents” failed: statement timeout");
        assert!(store.postpone(taken, TimeDelta::minutes(1), error, web(2)).await.expect("no error"));
        let failed = explain(&store, "acme").await;
        assert_eq!(failed.outcome, "In work: attempt 1 of 5 has failed, and it will be tried again.");
        let next = "any replica tries it again from 2026-07-06 06:03:20 UTC; it is given up at ";
        assert!(failed.next[0].starts_with(next), "{failed}");
        store.clock().set(after(205));
        let taken = store.take_over(8, claim_id(), terms(web(2))).await.expect("taken over").pop().expect("one").claim;
        store.charge(&taken).await.expect("charged");
        let second = explain(&store, "acme").await;
        assert_eq!(second.outcome, "In work: attempt 2 of 5, and not yet enqueued.");
        store.clock().set(after(207));
        enqueue(&store, taken, &["ann", "bob"]).await;
        store.clock().set(after(210));
        let grey = Disposition::Retry { after: TimeDelta::minutes(5), charge: true };
        hand_over(&store, web(2), &[(grey, "rcpt", "451 4.7.1 greylisted, try again later")]).await;
        let told = explain(&store, "acme").await;
        insta::assert_snapshot!("lost_replica", told);
        insta::assert_snapshot!("lost_replica_json", serde_json::to_string_pretty(&told).expect("JSON"));
    }

    async fn a_hand_over_whose_answer_never_came(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        let claim = claim(&store, "acme", web(1)).await;
        enqueue(&store, claim, &["ann"]).await;
        let leased = store.lease_messages(1, lease_terms(web(1))).await.expect("a lease").messages;
        store.mark_messages(&[leased[0].fence()], Duration::from_mins(5)).await.expect("marked");
        store.clock().set(after(300));
        assert_eq!(store.sweep_messages(10).await.expect("swept").uncertain, 1);
        insta::assert_snapshot!("uncertain", explain(&store, "acme").await);
    }

    async fn a_recipient_whom_the_relay_refused(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        let claim = claim(&store, "acme", web(1)).await;
        enqueue(&store, claim, &["ann", "bob"]).await;
        let refused = Disposition::Failed(MessageReason::Refused);
        let results = [
            (refused, "rcpt", "550 5.1.1 no such user"),
            (Disposition::Accepted, "dot", "250 2.0.0 queued as 4F2B"),
        ];
        hand_over(&store, web(1), &results).await;
        insta::assert_snapshot!("refused", explain(&store, "acme").await);

        let org = OrgId::parse("acme").expect("an id");
        let bob = ledger(&store).explain(&org, None, Some(&Whom::new("BOB@acme.example"))).await.expect("a story");
        assert_eq!(bob.outcome, "Enqueued for 2 recipients; the message to this one: accepted.");
        assert_eq!(bob.sends[0].recipients.len(), 1);
        let stranger = ledger(&store).explain(&org, None, Some(&Whom::new("zoe@acme.example"))).await.expect("a story");
        assert_eq!(stranger.left_out[0].why, "is not the address of a recipient of this org");
    }

    async fn a_failure_that_was_reopened_and_a_resend_beside_it(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        finish(&store, "acme", SendState::Failed, SendReason::GatherFailed, Some("no such column")).await;
        store.clock().set(after(3600));
        let week = WeekKey::parse("2026-W28").expect("a week");
        let reopened = store.reopen(week, None, SendState::Failed, TimeDelta::days(1), 10).await.expect("reopened");
        assert_eq!(reopened.len(), 1);
        store.clock().set(after(3660));
        let taken = store.take_over(8, claim_id(), terms(web(2))).await.expect("taken over").pop().expect("one").claim;
        enqueue(&store, taken, &["ann"]).await;
        let manual = ManualSend {
            org: OrgId::parse("acme").expect("an id"),
            asked_at: after(7200),
            period: due_org("acme", monday()).period,
            only: None,
            give_up: TimeDelta::days(1),
        };
        store.clock().set(after(7200));
        assert!(store.insert_manual(&manual).await.expect("no error").is_some());
        insta::assert_snapshot!("reopened", explain(&store, "acme").await);
    }

    /// Whoever asked about an admin of an org without messages was told that the org has no such recipient.
    async fn a_recipient_is_not_called_a_stranger_where_there_is_no_message(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", ""), ("quiet", "Europe/Berlin", "")]).await;
        let ann = async |org: &str, whom: &str| {
            let org = OrgId::parse(org).expect("an id");
            ledger(&store).explain(&org, None, Some(&Whom::new(whom))).await.expect("a story")
        };
        store.clock().set(after(600));
        let due = ann("acme", "Ann@acme.example").await;
        assert_eq!((due.left_out, &due.outcome[..14]), (Vec::new(), "Due for 10 min"));
        finish(&store, "quiet", SendState::Skipped, SendReason::EmptyWeek, None).await;
        let skipped = ann("quiet", "quiet-ann").await;
        assert_eq!(skipped.outcome, "Skipped: nothing happened in the days that it is about.");
        assert_eq!(skipped.left_out, []);

        let claim = claim(&store, "acme", web(1)).await;
        assert_eq!(ann("acme", "acme-ann").await.left_out, []);
        enqueue(&store, claim, &["bob"]).await;
        let late = ann("acme", "acme-ann").await;
        assert_eq!(late.outcome, "Enqueued for 1 recipient, and this is none of them.");
        let why = "is a recipient at this address now, and was none when the digest was made at 2026-07-06 06:00:09 UTC";
        assert_eq!(late.left_out.iter().map(|one| one.why.as_str()).collect::<Vec<_>>(), [why]);
        let stranger = ann("acme", "not an address").await;
        assert_eq!(stranger.left_out[0].why, "is not the address of a recipient of this org");
        assert_eq!(ann("nobody", "x").await.left_out, [], "the outcome has said it");
    }

    /// A message waited “for its turn” while nobody was delivering anything.
    async fn a_message_that_waits_tells_what_stops_it(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        let claim = claim(&store, "acme", web(1)).await;
        enqueue(&store, claim, &["ann"]).await;
        let next = async || explain(&store, "acme").await.next.remove(0);
        store.relay(RELAY).await.expect("a row");
        assert!(next().await.starts_with("2026-W29 opens"));
        store.relay_pause(RELAY, true).await.expect("paused");
        assert_eq!(next().await, "deliveries are paused by an operator; `digestd queue resume` lets them go on");
        store.relay_pause(RELAY, false).await.expect("goes on");
        let spans = (Duration::from_mins(1), Duration::from_mins(10));
        assert!(store.relay_open(RELAY, "account", spans, "550 5.7.1 suspended").await.expect("opened").is_some());
        assert_eq!(
            next().await,
            "the relay does not work (account: 550 5.7.1 suspended): one message at a time is tried, next at \
             2026-07-06 06:01:00 UTC, and all go on once it is accepted"
        );
        hand_over(&store, web(1), &[(Disposition::Accepted, "dot", "250 2.0.0 queued as 4F2A")]).await;
        assert!(next().await.starts_with("2026-W29 opens"), "nothing of this org waits");
    }

    async fn an_address_that_is_left_out_tells_since_when_and_how_it_comes_back(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("acme", "Europe/Berlin", "")]).await;
        let ann = Address::parse("ann@acme.example").expect("an address");
        let terms = SuppressionTerms { hard_after: 1, soft_after: 5, soft_decay: TimeDelta::days(90) };
        store.note_address_failure(&ann, AddressFault::Hard, terms, "http", "5.1.1").await.expect("noted");
        store.clock().set(after(3));
        let claim = claim(&store, "acme", web(1)).await;
        enqueue(&store, claim, &["ann", "bob"]).await;
        let told = explain(&store, "acme").await;
        assert_eq!(told.outcome, "Enqueued for 2 recipients: 1 suppressed, 1 pending.");
        assert_eq!(told.left_out.iter().map(|one| one.why.as_str()).collect::<Vec<_>>(), [
            "left out of every digest after 1 permanent failure, last told at 2026-07-06 06:00:00 UTC by http \
             (5.1.1); `digestd suppress remove ann@acme.example` takes it back"
        ]);
    }

    async fn an_org_that_nobody_knows_and_one_that_is_not_active(database: TestDatabase) {
        let store = world(&database).await;
        directory(&database, &[("gone", "Europe/Berlin", "active = FALSE"), ("empty", "Europe/Berlin", "")]).await;
        let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
        execute(&database, format!("UPDATE {prefix}admins SET weekly_digest = FALSE WHERE org_id = 'empty';")).await;
        store.clock().set(after(600));
        insta::assert_snapshot!("unknown_org", explain(&store, "acme").await);
        insta::assert_snapshot!("not_active", explain(&store, "gone").await);
        insta::assert_snapshot!("nobody_wants_it", explain(&store, "empty").await);
    }
}
