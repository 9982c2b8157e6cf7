//! An operator's hands in the outbox, and the policy that sends uncertain messages again.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{GuardOwner, MessageId, ReplicaId};
use digestd::domain::message::{Disposition, Finished, Leased, MessageReason, MessageState};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::queue::{QueueAct, QueueFilter};
use digestd::store::uncertain::SETTLE;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{claim_id, draft, due_orgs, lease_terms, monday, store, terms};

const HAND_OVER: Duration = Duration::from_mins(10);
const RETRY: QueueAct = QueueAct::Retry { live_for: TimeDelta::hours(48) };
const RESEND: QueueAct = QueueAct::ResolveResend { max_attempts: 8 };

/// Two orgs with two messages each, all leased and marked.
async fn marked(database: &TestDatabase) -> (Store, Vec<Leased>) {
    let store = store(database).await;
    let me = ReplicaId::random();
    let claims = store.claim(&due_orgs(2, monday()), claim_id(), terms(me)).await.expect("claims");
    let sends = claims.into_iter().map(|claim| {
        let drafts = vec![draft(&claim, "ann@example.org"), draft(&claim, "bob@example.org")];
        Enqueue { claim, drafts }
    });
    store.enqueue(sends.collect(), TimeDelta::hours(48)).await.expect("enqueued");
    let leased = store.lease_messages(10, lease_terms(me)).await.expect("leases").messages;
    let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
    assert_eq!(store.mark_messages(&fences, HAND_OVER).await.expect("markers").len(), 4);
    (store, leased)
}

async fn record(store: &Store, message: &Leased, disposition: Disposition) {
    let guard = Some(GuardOwner::random());
    let finished =
        Finished { fence: message.fence(), disposition, phase: "dot", note: "said".to_owned(), guard };
    assert_eq!(store.record_results(&[finished], ReplicaId::random()).await.expect("recorded").len(), 1);
}

async fn states(store: &Store) -> Vec<String> {
    let all = store.list_queue(&QueueFilter::default(), None, 100).await.expect("a list");
    all.into_iter().map(|message| message.state).collect()
}

async fn act(store: &Store, act: QueueAct, message: &Leased) -> bool {
    let done = store.act_on_queue(act, &[message.id]).await.expect("an answer");
    assert!(done.is_empty() || done == [message.id]);
    !done.is_empty()
}

both_databases! {
    async fn messages_are_listed_by_state_org_week_address_and_age(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        record(&store, &leased[0], Disposition::Failed(MessageReason::Refused)).await;
        let list = async |filter: QueueFilter| -> Vec<MessageId> {
            store.list_queue(&filter, None, 100).await.expect("a list").iter().map(|m| m.id).collect()
        };
        let any = QueueFilter::default;
        assert_eq!(list(any()).await.len(), 4);
        assert_eq!(list(QueueFilter { states: vec![MessageState::Failed], ..any() }).await, [leased[0].id]);
        let states = vec![MessageState::Failed, MessageState::Sending];
        assert_eq!(list(QueueFilter { states, ..any() }).await.len(), 4);
        assert_eq!(list(QueueFilter { org: Some("org-0001".to_owned()), ..any() }).await.len(), 2);
        assert_eq!(list(QueueFilter { week: Some("2026-W28".to_owned()), ..any() }).await.len(), 4);
        assert_eq!(list(QueueFilter { week: Some("2026-W27".to_owned()), ..any() }).await.len(), 0);
        assert_eq!(list(QueueFilter { to: Some("bob@example.org".to_owned()), ..any() }).await.len(), 2);
        let old = || QueueFilter { older: Some(TimeDelta::hours(1)), ..any() };
        assert_eq!(list(old()).await.len(), 0);
        store.clock().advance(TimeDelta::hours(1));
        assert_eq!(list(old()).await.len(), 4);
        let page = store.list_queue(&any(), Some(leased[1].id), 1).await.expect("a page");
        assert_eq!(page.iter().map(|m| m.id).collect::<Vec<_>>(), [leased[2].id]);

        let shown = store.queued(leased[0].id).await.expect("a look").expect("a message");
        assert_eq!((shown.state.as_str(), shown.reason.as_deref()), ("failed", Some("refused")));
        let history = store.message_events(leased[0].id).await.expect("a history");
        assert_eq!((history[0].phase.as_str(), history[0].outcome.as_str()), ("dot", "failed"));
        assert!(store.queued(MessageId(999_999)).await.expect("a look").is_none());
    }

    async fn what_was_given_up_is_tried_again_from_the_start_and_nothing_else_is(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        record(&store, &leased[0], Disposition::Failed(MessageReason::TooManyAttempts)).await;
        record(&store, &leased[1], Disposition::Accepted).await;
        record(&store, &leased[2], Disposition::Uncertain).await;
        for message in &leased[1..] {
            assert!(!act(&store, RETRY, message).await);
        }
        assert!(act(&store, RETRY, &leased[0]).await);
        assert!(!act(&store, RETRY, &leased[0]).await, "it waits already");
        let again = store.lease_messages(10, lease_terms(ReplicaId::random())).await.expect("a lease").messages;
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].id, again[0].attempts, again[0].resend), (leased[0].id, 0, false));
        assert!(again[0].token > leased[0].token);
        let history = store.message_events(leased[0].id).await.expect("a history");
        assert_eq!(history.last().map(|e| (e.phase.as_str(), e.outcome.as_str())), Some(("operator", "retry")));
    }

    /// A person was told that these “will be tried again”, and the marker then found that they must not.
    async fn what_must_not_be_sent_is_not_tried_again(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        for message in &leased {
            record(&store, message, Disposition::Failed(MessageReason::Refused)).await;
        }
        let to = |name: &str| Address::parse(&format!("{name}@example.org")).expect("an address");
        store.suppress(&to("bob"), "http", None).await.expect("a suppression");
        store.opt_out(&to("ann"), Some(&leased[0].org), "link").await.expect("an opt-out");
        for message in &leased {
            let may = message.to == to("ann") && message.org != leased[0].org;
            assert_eq!(act(&store, RETRY, message).await, may, "{}", message.org);
        }
        assert!(store.remove_opt_out(&to("ann"), Some(&leased[0].org)).await.expect("an answer"));
        store.opt_out(&to("ann"), None, "link").await.expect("an opt-out");
        let mut now = states(&store).await;
        now.sort_unstable();
        assert_eq!(now, ["failed", "failed", "failed", "pending"]);
        let ann = leased.iter().find(|message| message.org == leased[0].org && message.to == to("ann"));
        let ann = ann.expect("each org has one");
        assert!(!act(&store, RETRY, ann).await, "they have left all digests");
        assert!(store.remove_opt_out(&to("ann"), None).await.expect("an answer"));
        assert!(act(&store, RETRY, ann).await);
    }

    // A digest that is tried for a week meets the next one.
    async fn a_retry_ends_before_the_next_digest_whatever_the_age_limit(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        record(&store, &leased[0], Disposition::Failed(MessageReason::Refused)).await;
        record(&store, &leased[1], Disposition::Failed(MessageReason::Refused)).await;
        store.clock().advance(TimeDelta::days(5));
        assert!(act(&store, RETRY, &leased[0]).await);
        let shown = store.queued(leased[0].id).await.expect("a look").expect("a message");
        assert_eq!(shown.expires_at, monday() + TimeDelta::days(6));
        store.clock().advance(TimeDelta::days(1));
        assert!(!act(&store, RETRY, &leased[1]).await);
    }

    async fn only_what_has_not_left_is_cancelled_and_a_cancelled_lease_sends_nothing(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        let me = ReplicaId::random();
        assert!(!act(&store, QueueAct::Cancel, &leased[0]).await, "it may be leaving just now");
        let later = Disposition::Retry { after: TimeDelta::zero(), charge: false };
        record(&store, &leased[0], later.clone()).await;
        record(&store, &leased[1], later).await;
        assert!(act(&store, QueueAct::Cancel, &leased[0]).await);
        let held = store.lease_messages(10, lease_terms(me)).await.expect("a lease").messages.remove(0);
        assert_eq!(held.id, leased[1].id);
        assert!(act(&store, QueueAct::Cancel, &held).await);
        assert!(store.mark_messages(&[held.fence()], HAND_OVER).await.expect("no error").is_empty());
        assert!(act(&store, RETRY, &held).await);
        assert!(store.mark_messages(&[held.fence()], HAND_OVER).await.expect("no error").is_empty());
    }

    async fn an_uncertain_message_is_settled_by_a_person_and_sent_again_only_when_it_has_rested(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        for message in &leased[..3] {
            record(&store, message, Disposition::Uncertain).await;
        }
        assert!(act(&store, QueueAct::ResolveAccepted, &leased[0]).await);
        assert!(!act(&store, QueueAct::ResolveAccepted, &leased[3]).await, "it is under way");
        assert!(!act(&store, RESEND, &leased[0]).await, "it is settled");
        store.clock().advance(SETTLE - TimeDelta::seconds(1));
        assert!(!act(&store, RESEND, &leased[1]).await);
        store.clock().advance(TimeDelta::seconds(1));
        assert!(act(&store, RESEND, &leased[1]).await);
        assert!(!act(&store, QueueAct::ResolveResend { max_attempts: 2 }, &leased[2]).await, "no attempt is left");
        let again = store.lease_messages(10, lease_terms(ReplicaId::random())).await.expect("a lease").messages;
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].id, again[0].attempts, again[0].resend), (leased[1].id, 2, true));
        assert_eq!(again[0].bytes, leased[1].bytes, "the same mail");
        // The first hand-over's late answer is not the second's.
        let late = Finished {
            fence: leased[1].fence(), disposition: Disposition::Accepted, phase: "dot", note: String::new(), guard: None,
        };
        assert!(store.record_results(&[late], ReplicaId::random()).await.expect("no error").is_empty());
        store.clock().advance(TimeDelta::hours(48));
        assert!(!act(&store, RESEND, &leased[2]).await, "it is too old");
    }

    async fn the_policy_sends_again_what_was_marked_after_it_was_set_and_nothing_older(database: TestDatabase) {
        let (store, leased) = marked(&database).await;
        record(&store, &leased[0], Disposition::Uncertain).await;
        record(&store, &leased[1], Disposition::Retry { after: TimeDelta::zero(), charge: false }).await;
        store.clock().advance(TimeDelta::minutes(1));
        let resend = async || store.resend_uncertain(8, 100).await.expect("an answer");
        store.set_uncertain_policy(true).await.expect("noted");
        // Another replica starts later; the first one's moment counts.
        store.clock().advance(TimeDelta::minutes(1));
        let held = store.lease_messages(1, lease_terms(ReplicaId::random())).await.expect("a lease").messages.remove(0);
        store.mark_messages(&[held.fence()], HAND_OVER).await.expect("a marker");
        store.clock().advance(TimeDelta::minutes(1));
        store.set_uncertain_policy(true).await.expect("noted");
        record(&store, &held, Disposition::Uncertain).await;
        assert!(resend().await.is_empty(), "it has not rested");
        store.clock().advance(SETTLE);
        assert_eq!(resend().await, [held.id]);
        assert!(resend().await.is_empty());
        assert_eq!(states(&store).await, ["uncertain", "pending", "sending", "sending"]);
        let again = store.lease_messages(10, lease_terms(ReplicaId::random())).await.expect("a lease").messages;
        assert!(again[0].resend && again[0].attempts == 2 && again[0].bytes == held.bytes);

        // Uncertain once more, and the policy is taken back meanwhile.
        store.mark_messages(&[again[0].fence()], HAND_OVER).await.expect("a marker");
        record(&store, &again[0], Disposition::Uncertain).await;
        store.clock().advance(SETTLE);
        store.set_uncertain_policy(false).await.expect("noted");
        assert!(resend().await.is_empty());
        store.set_uncertain_policy(true).await.expect("noted");
        assert!(resend().await.is_empty(), "it is older than the policy now");
    }
}
