//! Opt-outs, the subscriptions that links mean, and the key that signs them.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::message::{Leased, MessageState};
use digestd::domain::token::{KeyRing, Scope, SubscriptionRef};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::opt_outs::OptIn;
use digestd::store::results::Marked;
use secrecy::ExposeSecret;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{claim_id, draft, due_orgs, lease_terms, monday, store, terms};

fn ann() -> Address {
    Address::parse("Ann@example.org").expect("an address")
}

fn org(name: &str) -> OrgId {
    OrgId::parse(name).expect("an id")
}

/// A store with one message to Ann in each of two orgs.
async fn with_two_orgs(database: &TestDatabase) -> Store {
    let store = store(database).await;
    let claims =
        store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
    let batch = claims
        .into_iter()
        .map(|claim| Enqueue { drafts: vec![draft(&claim, "Ann@example.org")], claim })
        .collect();
    store.enqueue(batch, TimeDelta::hours(48)).await.expect("enqueued");
    store
}

/// The orgs whose message to Ann would still leave.
async fn leaving(store: &Store) -> Vec<String> {
    let leased = store.lease_messages(10, lease_terms(ReplicaId::random())).await.expect("leases").messages;
    let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
    let marked = store.mark_messages(&fences, Duration::from_mins(1)).await.expect("markers");
    let goes = |m: &&Leased| marked.contains(&(m.id, Marked::Sending));
    leased.iter().filter(goes).map(|m| m.org.to_string()).collect()
}

both_databases! {
    async fn an_enqueued_message_makes_its_link_known_for_good(database: TestDatabase) {
        let store = with_two_orgs(&database).await;
        let reference = SubscriptionRef::derive(&org("org-0001"), ann().normal());
        let found = store.subscription(reference).await.expect("a look").expect("a subscription");
        assert_eq!((found.org, found.address.normal()), (org("org-0001"), "ann@example.org"));
        let stranger = SubscriptionRef::derive(&org("org-0002"), ann().normal());
        assert_eq!(store.subscription(stranger).await.expect("a look"), None);
    }

    async fn an_opt_out_of_one_org_stops_its_queued_message_only(database: TestDatabase) {
        let store = with_two_orgs(&database).await;
        store.opt_out(&ann(), Some(&org("org-0000")), "link").await.expect("stored");
        assert_eq!(leaving(&store).await, ["org-0001"]);
        let suppressed = store.stats().await.expect("counts").messages;
        assert!(suppressed.contains(&(MessageState::Sending, 1)), "{suppressed:?}");
    }

    async fn an_opt_out_of_everything_stops_every_queued_message(database: TestDatabase) {
        let store = with_two_orgs(&database).await;
        store.opt_out(&ann(), None, "link").await.expect("stored");
        assert_eq!(leaving(&store).await, [""; 0]);
    }

    async fn whoever_subscribes_again_gets_that_org_s_digest(database: TestDatabase) {
        let store = with_two_orgs(&database).await;
        let (first, second) = (org("org-0000"), org("org-0001"));
        for opted_out in [None, Some(&first), Some(&second)] {
            store.opt_out(&ann(), opted_out, "link").await.expect("stored");
        }
        assert_eq!(store.scopes_opted_out(&ann(), &first).await.expect("a look"), [Scope::All, Scope::Org]);
        store.resubscribe(&ann(), &first).await.expect("removed");
        assert_eq!(store.scopes_opted_out(&ann(), &first).await.expect("a look"), []);
        assert_eq!(store.scopes_opted_out(&ann(), &second).await.expect("a look"), [Scope::Org]);
        assert_eq!(leaving(&store).await, ["org-0000"]);
    }

    async fn an_opt_out_said_again_counts_from_then_on(database: TestDatabase) {
        let store = store(&database).await;
        store.opt_out(&ann(), None, "cli").await.expect("stored");
        store.clock().advance(TimeDelta::hours(1));
        store.opt_out(&ann(), None, "link").await.expect("stored");
        let rows = store.opt_outs_of(&["ann@example.org", "bob@example.org"]).await.expect("a look");
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].at, rows[0].source.as_str()), (monday() + TimeDelta::hours(1), "link"));
        assert!(store.remove_opt_out(&ann(), None).await.expect("removed"));
        assert!(!store.remove_opt_out(&ann(), None).await.expect("no error"));
    }

    async fn a_later_opt_in_of_the_application_overrules_that_org_s_opt_out_only(database: TestDatabase) {
        let store = store(&database).await;
        let (first, second) = (org("a"), org("b"));
        for opted_out in [None, Some(&first), Some(&second)] {
            store.opt_out(&ann(), opted_out, "link").await.expect("stored");
        }
        let opt_in = |org, at| OptIn { address: "ann@example.org", org, at };
        let (earlier, later) = (monday() - TimeDelta::hours(1), monday() + TimeDelta::hours(1));
        let opt_ins = [opt_in(&first, later), opt_in(&second, earlier), opt_in(&second, monday())];
        assert_eq!(store.overrule_opt_outs(&opt_ins).await.expect("a look"), 1);
        let rest = store.opt_outs_of(&["ann@example.org"]).await.expect("a look");
        assert_eq!(rest.into_iter().map(|o| o.org).collect::<Vec<_>>(), [None, Some(second)]);
    }

    async fn opt_outs_are_listed_page_by_page(database: TestDatabase) {
        let store = store(&database).await;
        let bob = Address::parse("bob@example.org").expect("an address");
        store.opt_out(&bob, None, "import").await.expect("stored");
        store.opt_out(&ann(), Some(&org("b")), "import").await.expect("stored");
        store.opt_out(&ann(), None, "import").await.expect("stored");
        let mut seen = Vec::new();
        while let Some(next) = store.list_opt_outs(seen.last(), 1).await.expect("a page").pop() {
            seen.push(next);
        }
        let rows: Vec<_> = seen.iter().map(|o| (o.address.as_str(), o.org.as_ref().map(OrgId::as_str))).collect();
        assert_eq!(rows, [("ann@example.org", None), ("ann@example.org", Some("b")), ("bob@example.org", None)]);
    }

    async fn replicas_that_boot_together_sign_by_one_key(database: TestDatabase) {
        let store = store(&database).await;
        let asked: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.unsubscribe_key().await.expect("a key") })
            })
            .collect();
        let mut keys = std::collections::HashSet::new();
        for key in asked {
            keys.insert(key.await.expect("no panic").expose_secret().to_owned());
        }
        assert_eq!(keys.len(), 1);
        let key = store.unsubscribe_key().await.expect("a key");
        assert!(keys.contains(key.expose_secret()));
        assert!(KeyRing::new(&[key]).is_ok());
    }
}
