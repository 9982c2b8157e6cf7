//! Leases: one holder, a higher term for the next, and nothing done under an old one.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use digestd::cleanup::election::Election;
use digestd::domain::ids::{ReplicaId, Term};
use digestd::store::leases::{LEADER, LeadershipTerms};

use crate::support::fixtures::store;

const TERMS: LeadershipTerms =
    LeadershipTerms { ttl: Duration::from_mins(1), margin: Duration::from_secs(10) };

both_databases! {
    async fn a_lease_has_one_holder_until_it_expires(database: TestDatabase) {
        let store = store(&database).await;
        let (a, b) = (ReplicaId::random(), ReplicaId::random());
        let lease = store.acquire_lease(LEADER, a, TERMS).await.expect("no error").expect("free");
        assert_eq!(lease.term(), Term(1));
        assert!(store.acquire_lease(LEADER, b, TERMS).await.expect("no error").is_none());
        store.clock().advance(TimeDelta::seconds(60));
        let next = store.acquire_lease(LEADER, b, TERMS).await.expect("no error").expect("expired");
        assert_eq!((next.term(), next.holder()), (Term(2), b));
    }

    async fn a_renewed_lease_lives_on_and_a_lost_one_is_not_renewed(database: TestDatabase) {
        let store = store(&database).await;
        let (a, b) = (ReplicaId::random(), ReplicaId::random());
        let mut old = store.acquire_lease(LEADER, a, TERMS).await.expect("no error").expect("free");
        store.clock().advance(TimeDelta::seconds(59));
        assert!(store.renew_lease(&mut old, TERMS).await.expect("no error"));
        store.clock().advance(TimeDelta::seconds(59));
        assert!(store.acquire_lease(LEADER, b, TERMS).await.expect("no error").is_none());
        store.clock().advance(TimeDelta::seconds(1));
        let mut new = store.acquire_lease(LEADER, b, TERMS).await.expect("no error").expect("expired");
        assert!(!store.renew_lease(&mut old, TERMS).await.expect("no error"));
        assert!(store.renew_lease(&mut new, TERMS).await.expect("no error"));
    }

    // A release deleted somebody else's lock, because it compared nothing (nexspence/nexspence, issue 223).
    async fn giving_up_an_old_lease_leaves_the_successor_s_alone(database: TestDatabase) {
        let store = store(&database).await;
        let (a, b) = (ReplicaId::random(), ReplicaId::random());
        let old = store.acquire_lease(LEADER, a, TERMS).await.expect("no error").expect("free");
        store.clock().advance(TimeDelta::seconds(60));
        let mut new = store.acquire_lease(LEADER, b, TERMS).await.expect("no error").expect("expired");
        store.resign_lease(old).await.expect("no error");
        assert!(store.renew_lease(&mut new, TERMS).await.expect("no error"));
        store.resign_lease(new).await.expect("no error");
        let third = store.acquire_lease(LEADER, a, TERMS).await.expect("no error").expect("given up");
        assert_eq!(third.term(), Term(3));
    }

    async fn of_many_candidates_one_leads_and_a_resignation_lets_the_next_one(database: TestDatabase) {
        let store = store(&database).await;
        let mut replicas: Vec<_> = (0..4).map(|_| Election::new(store.clone(), ReplicaId::random())).collect();
        let mut leading = Vec::new();
        for election in &mut replicas {
            leading.push(election.stand().await.expect("no error"));
        }
        assert_eq!(leading, [true, false, false, false]);
        assert!(replicas[0].stand().await.expect("no error"));
        replicas[0].resign().await.expect("no error");
        assert_eq!(replicas[0].term(), None);
        assert!(replicas[3].stand().await.expect("no error"));
        assert_eq!(replicas[3].term(), Some(Term(2)));
        assert!(!replicas[0].stand().await.expect("no error"));
    }

    async fn a_holder_stops_to_believe_before_the_lease_ends(database: TestDatabase) {
        let store = store(&database).await;
        let before = Instant::now();
        let lease = store.acquire_lease(LEADER, ReplicaId::random(), TERMS).await.expect("no error").expect("free");
        let after = Instant::now();
        assert!(lease.is_trusted(before + Duration::from_millis(49_999)));
        assert!(!lease.is_trusted(after + Duration::from_secs(50)));
    }
}
