//! Failing addresses: counted, forgiven, left out, and taken back.

use chrono::TimeDelta;
use digestd::domain::address::{Address, AddressFault};
use digestd::store::suppressions::SuppressionTerms;

use crate::support::fixtures::store;

const TERMS: SuppressionTerms =
    SuppressionTerms { hard_after: 2, soft_after: 3, soft_decay: TimeDelta::days(90) };

fn ann() -> Address {
    Address::parse("Ann@example.org").expect("an address")
}

both_databases! {
    async fn hard_failures_leave_an_address_out_at_their_limit(database: TestDatabase) {
        let store = store(&database).await;
        assert!(!store.note_address_failure(&ann(), AddressFault::Hard, TERMS, "relay", "550 5.1.1 no").await.expect("counted"));
        // They never decay: the mailbox will not come back by itself.
        store.clock().advance(TimeDelta::days(300));
        assert!(store.note_address_failure(&ann(), AddressFault::Hard, TERMS, "relay", "550 5.1.1 no").await.expect("counted"));
        let known = store.suppression_of(&ann()).await.expect("a look").expect("a row");
        assert_eq!((known.address.as_str(), known.suppressed, known.hard_failures), ("ann@example.org", true, 2));
        assert_eq!((known.source.as_str(), known.note.as_deref()), ("relay", Some("550 5.1.1 no")));
    }

    async fn soft_failures_count_in_a_row_and_not_for_ever(database: TestDatabase) {
        let store = store(&database).await;
        let fail = async || store.note_address_failure(&ann(), AddressFault::Soft, TERMS, "relay", "").await.expect("counted");
        assert!(!fail().await && !fail().await);
        // An acceptance ends the row.
        store.forgive_address(&ann()).await.expect("forgiven");
        assert_eq!(store.suppression_of(&ann()).await.expect("a look"), None);
        assert!(!fail().await && !fail().await);
        // So does time.
        store.clock().advance(TimeDelta::days(90));
        assert!(!fail().await && !fail().await);
        assert!(fail().await);
        store.forgive_address(&ann()).await.expect("no error");
        assert!(store.suppression_of(&ann()).await.expect("a look").expect("it stays").suppressed);
    }

    async fn failures_told_at_once_all_count(database: TestDatabase) {
        let store = store(&database).await;
        let terms = SuppressionTerms { hard_after: 100, ..TERMS };
        let (a, b) = (ann(), ann());
        for _ in 0..10 {
            let (left, right) = tokio::join!(
                store.note_address_failure(&a, AddressFault::Hard, terms, "relay", ""),
                store.note_address_failure(&b, AddressFault::Hard, terms, "relay", ""),
            );
            assert!(!left.expect("counted") && !right.expect("counted"));
        }
        assert_eq!(store.suppression_of(&ann()).await.expect("a look").expect("a row").hard_failures, 20);
    }

    async fn a_person_suppresses_lists_and_takes_back(database: TestDatabase) {
        let store = store(&database).await;
        for name in ["c@x.org", "a@x.org", "b@x.org"] {
            let address = Address::parse(name).expect("an address");
            store.suppress(&address, "cli", Some("asked by phone")).await.expect("suppressed");
        }
        store.note_address_failure(&ann(), AddressFault::Soft, TERMS, "relay", "").await.expect("counted");
        let names = async |after: Option<&str>, all, limit| -> Vec<String> {
            let page = store.list_suppressions(after, all, limit).await.expect("a page");
            page.into_iter().map(|row| row.address).collect()
        };
        assert_eq!(names(None, false, 2).await, ["a@x.org", "b@x.org"]);
        assert_eq!(names(Some("b@x.org"), false, 2).await, ["c@x.org"]);
        assert_eq!(names(None, true, 10).await.len(), 4);
        // What a person has said is not overwritten by the relay.
        let a = Address::parse("a@x.org").expect("an address");
        assert!(store.note_address_failure(&a, AddressFault::Hard, TERMS, "relay", "550").await.expect("counted"));
        let known = store.suppression_of(&a).await.expect("a look").expect("a row");
        assert_eq!((known.source.as_str(), known.note.as_deref()), ("cli", Some("asked by phone")));
        assert!(store.unsuppress(&a).await.expect("taken back"));
        assert!(!store.unsuppress(&a).await.expect("no error"));
        assert_eq!(names(None, false, 10).await, ["b@x.org", "c@x.org"]);
    }
}
