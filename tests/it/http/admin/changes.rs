//! What the forms change.

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{MessageId, OrgId, ReplicaId};
use digestd::domain::send::{SendReason, SendState};
use digestd::domain::week::WeekKey;
use digestd::store::sends::Ending;

use super::{Browser, Office, RELAY, claim, fields, office};

async fn state(office: &Office, id: MessageId) -> String {
    office.store.queued(id).await.expect("a look").expect("a message").state
}

/// The resends of acme: how many there are.
async fn resends(office: &Office) -> usize {
    let org = OrgId::parse("acme").expect("an id");
    let week = WeekKey::parse("2026-W28").expect("a week");
    let sends = office.store.sends_of(&org, week, "2026-06-29").await.expect("sends");
    sends.iter().filter(|send| send.key.to_string().starts_with("manual-")).count()
}

both_databases! {
    async fn a_message_is_retried_cancelled_and_resolved_from_its_page(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let act = async |id: MessageId, act: &str| {
            browser.submit(&format!("/admin/message?id={id}"), "/admin/message", &[("act", act)]).await
        };
        let page = act(office.failed, "retry").await;
        assert!(page.body.contains("1 message: will be tried again."), "{}", page.body);
        assert_eq!(state(&office, office.failed).await, "pending");
        act(office.failed, "cancel").await;
        assert_eq!(state(&office, office.failed).await, "cancelled");
        let page = act(office.uncertain, "accepted").await;
        assert!(page.body.contains("1 message: settled as accepted."), "{}", page.body);
        assert_eq!(state(&office, office.uncertain).await, "accepted");
        // An act of an operator stands in the history.
        let page = browser.get(&format!("/admin/message?id={}", office.uncertain)).await;
        assert!(page.body.contains("operator: accepted"), "{}", page.body);
    }

    async fn an_uncertain_message_is_sent_again_with_its_risk_named(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let path = format!("/admin/message?id={}", office.uncertain);
        assert!(browser.get(&path).await.body.contains("may arrive twice"));
        let page = browser.submit(&path, "/admin/message", &[("act", "resend")]).await;
        assert!(page.body.contains("1 message: will be sent again."), "{}", page.body);
        let message = office.store.queued(office.uncertain).await.expect("a look").expect("a message");
        assert!(message.resend && message.state == "pending");
    }

    async fn several_messages_are_changed_at_once_and_those_left_alone_are_counted(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let ids = [office.failed, office.pending, office.accepted].map(|id| id.to_string());
        let chosen: Vec<(&str, &str)> = ids.iter().map(|id| ("id", id.as_str())).chain([("act", "cancel")]).collect();
        let page = browser.submit("/admin/queue?state=any", "/admin/queue", &chosen).await;
        assert!(page.body.contains("1 message: cancelled. 2 messages left alone:"), "{}", page.body);
        assert_eq!(state(&office, office.pending).await, "cancelled");
        assert_eq!(state(&office, office.failed).await, "failed");
        let none = browser.submit("/admin/queue?state=any", "/admin/queue", &[("act", "cancel")]).await;
        assert_eq!(none.status, 422);
        assert!(none.body.contains("tick some"), "{}", none.body);
    }

    async fn the_relay_is_paused_and_resumed(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        for (act, words, paused) in [("pause", "Paused by an operator.", true), ("resume", "Working.", false)] {
            let page = browser.submit("/admin/relay", "/admin/relay", &[("act", act)]).await;
            assert!(page.body.contains(words), "{}", page.body);
            assert_eq!(office.store.relay(RELAY).await.expect("a relay").paused, paused);
        }
    }

    async fn a_resend_is_asked_for_once_after_a_confirmation(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let path = "/admin/resend?org=acme&week=2026-W28";
        let unconfirmed = browser.submit(path, "/admin/resend", &[]).await;
        assert_eq!((unconfirmed.status, resends(&office).await), (422, 0), "{}", unconfirmed.body);

        let mut form = fields(&browser.get(path).await.body, "/admin/resend");
        form.push(("confirm".to_owned(), "yes".to_owned()));
        for words in ["The digest will be sent once more.", "had been asked for already"] {
            let answer = browser.send("/admin/resend", &form).await;
            assert_eq!(answer.status, 303, "{}", answer.body);
            let page = browser.get(&answer.headers["location"]).await;
            assert!(page.body.contains(words), "{}", page.body);
            assert_eq!(resends(&office).await, 1);
        }
        let left_open = form.clone();
        office.store.clock().advance(TimeDelta::hours(2));
        assert_eq!(browser.send("/admin/resend", &left_open).await.status, 422);
    }

    async fn a_resend_to_nobody_or_before_its_time_is_refused(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let path = "/admin/resend?org=acme&week=2026-W28";
        let mut form = fields(&browser.get(path).await.body, "/admin/resend");
        form.push(("confirm".to_owned(), "yes".to_owned()));
        form.push(("to".to_owned(), "zoe@acme.example".to_owned()));
        let answer = browser.send("/admin/resend", &form).await;
        assert_eq!((answer.status, resends(&office).await), (422, 0));
        assert!(answer.body.contains("no active admin with this address"), "{}", answer.body);
        form.pop();
        form.push(("to".to_owned(), "ann@acme.example".to_owned()));
        assert_eq!(browser.send("/admin/resend", &form).await.status, 303);
        assert_eq!(resends(&office).await, 1);
        let early = browser.get("/admin/resend?org=acme&week=2026-W40").await;
        assert_eq!(early.status, 422);
        assert!(early.body.contains("has not been due yet"), "{}", early.body);
    }

    async fn a_failed_send_is_opened_again(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let failed = claim(&office.store, "initech", ReplicaId::random()).await;
        let ending = Ending { claim: failed, state: SendState::Failed, reason: SendReason::GatherFailed, detail: None };
        assert_eq!(office.store.finish(vec![ending]).await.expect("no error").len(), 1);
        let path = "/admin/org?id=initech&week=2026-W28";
        let mut form = fields(&browser.get(path).await.body, "/admin/org");
        for words in ["The send is open again.", "Nothing was changed: the send is neither failed nor missed."] {
            let answer = browser.send("/admin/org", &form).await;
            let page = browser.get(&answer.headers["location"]).await;
            assert!(page.body.contains(words), "{}", page.body);
        }
        form.retain(|(name, _)| name != "week");
        assert_eq!(browser.send("/admin/org", &form).await.status, 422);
    }

    async fn an_opted_out_admin_gets_no_resend(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let ann = Address::parse("ann@acme.example").expect("an address");
        office.store.opt_out(&ann, None, "cli").await.expect("opted out");
        let story = browser.get("/admin/org?id=acme&week=2026-W28&to=ann@acme.example").await;
        assert!(story.body.contains("opted out of all digests"), "{}", story.body);
    }
}
