//! The ledger: stories that read well, audits that add up, plans that leave no trace.

mod audit;
mod explain;
mod plan;

use chrono::{DateTime, TimeDelta, Utc};
use digestd::domain::ids::ReplicaId;
use digestd::domain::message::{Disposition, Finished};
use digestd::domain::send::Claim;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::replicas::Heartbeat;
use uuid::Uuid;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{RELAY, claim_id, draft, due_org, lease_terms, ledger, monday, store, terms};

/// Two replicas with ids that snapshots can hold.
fn web(n: u128) -> ReplicaId {
    ReplicaId(Uuid::from_u128(n << 124 | n))
}

fn after(seconds: i64) -> DateTime<Utc> {
    monday() + TimeDelta::seconds(seconds)
}

/// A store at [`monday`] with two replicas that are heard of.
async fn world(database: &TestDatabase) -> Store {
    let store = store(database).await;
    beat(&store).await;
    store
}

async fn beat(store: &Store) {
    for n in [1, 2] {
        let beat = Heartbeat {
            replica: web(n),
            host: format!("web-{n}"),
            version: "0",
            clock_offset: TimeDelta::zero(),
            connections: 1,
        };
        store.heartbeat(&beat).await.expect("a beat");
    }
}

async fn claim(store: &Store, org: &str, replica: ReplicaId) -> Claim {
    let due = due_org(org, monday());
    store.claim(&[due], claim_id(), terms(replica)).await.expect("no error").pop().expect("a claim")
}

async fn enqueue(store: &Store, claim: Claim, names: &[&str]) {
    let org = claim.org.clone();
    let drafts = names.iter().map(|name| draft(&claim, &format!("{name}@{org}.example"))).collect();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
}

/// Hands over what is due, in the order of rows: each message gets the next of the results.
async fn hand_over(store: &Store, replica: ReplicaId, results: &[(Disposition, &'static str, &str)]) {
    let leased = store.lease_messages(100, lease_terms(replica)).await.expect("leases").messages;
    assert_eq!(leased.len(), results.len());
    let finished: Vec<Finished> = leased
        .iter()
        .zip(results)
        .map(|(lease, (disposition, phase, note))| Finished {
            fence: lease.fence(),
            disposition: disposition.clone(),
            phase,
            note: (*note).to_owned(),
            guard: None,
        })
        .collect();
    assert_eq!(store.record_results(&finished, replica).await.expect("recorded").len(), results.len());
}
