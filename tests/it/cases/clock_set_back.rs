//! A database whose clock was hours ahead and has been set right: what was written in the meantime says
//! “not before tonight”.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::deliver::gate::{Gate, GateSettings};
use digestd::domain::ids::ReplicaId;
use digestd::metrics::Metrics;
use digestd::store::Store;
use digestd::store::relays::{Breaker, PaceLimits};
use digestd::store::replicas::Heartbeat;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{monday, store};

const RELAY: &str = "relay";
const SPANS: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));
const PATIENCE: Duration = Duration::from_mins(2);

/// A store whose clock is eight hours ahead.
async fn ahead(database: &TestDatabase) -> Store {
    let store = store(database).await;
    store.relay(RELAY).await.expect("a row");
    store.clock().set(monday() + TimeDelta::hours(8));
    store
}

async fn beat(store: &Store, replica: ReplicaId) {
    let beat = Heartbeat {
        replica,
        host: "here".to_owned(),
        version: "0",
        clock_offset: TimeDelta::zero(),
        connections: 4,
    };
    store.heartbeat(&beat).await.expect("noted");
}

/// The connections that a replica may use by what a fresh look tells it.
async fn connections(store: &Store, replica: ReplicaId) -> usize {
    let gate = Gate::new(
        store.clone(),
        GateSettings {
            relay: RELAY.to_owned(),
            replica,
            connections: 4,
            connections_total: Some(4),
            pace: PaceLimits::default(),
            probe_interval: Duration::from_mins(1),
        },
        Metrics::new(),
    );
    gate.refresh().await.expect("a look");
    *gate.limit().borrow()
}

both_databases! {
    /// A wrong clock wrote a next run far ahead, and nothing ran until then.
    async fn a_stopped_relay_is_tried_again_and_not_only_tonight(database: TestDatabase) {
        let store = ahead(&database).await;
        assert!(store.relay_open(RELAY, "auth", SPANS, "").await.expect("opened").is_some());
        store.clock().set(monday());
        assert!(store.relay_probe(RELAY, ReplicaId::random(), PATIENCE).await.expect("a probe"));
        assert!(!store.relay_probe(RELAY, ReplicaId::random(), PATIENCE).await.expect("one at a time"));
        // The prober's own time is no longer either.
        store.clock().set(monday() + TimeDelta::hours(8));
        assert!(store.relay_probe(RELAY, ReplicaId::random(), PATIENCE).await.expect("a probe"));
        store.clock().set(monday());
        assert!(store.relay_probe(RELAY, ReplicaId::random(), PATIENCE).await.expect("another prober"));
        assert!(store.relay_healthy(RELAY, true).await.expect("closed"));
        assert_eq!(store.relay(RELAY).await.expect("a state").breaker, Breaker::Closed);
    }

    async fn the_pace_goes_on_and_the_day_ends_a_day_from_then(database: TestDatabase) {
        let store = ahead(&database).await;
        let limits = PaceLimits { per_second: Some(2.0), per_day: Some(5) };
        let take = async || store.take_pace(RELAY, 9, limits).await.expect("a share");
        assert_eq!(take().await, 2);
        store.clock().set(monday());
        assert_eq!(take().await, 0, "no time has passed");
        store.clock().advance(TimeDelta::seconds(1));
        assert_eq!(take().await, 2);
        store.clock().advance(TimeDelta::seconds(1));
        assert_eq!(take().await, 1, "the quota counts what was sent under the wrong clock");
        store.clock().advance(TimeDelta::hours(24));
        assert_eq!(take().await, 2);
    }

    async fn a_complaint_is_heard_and_forgiven_as_ever(database: TestDatabase) {
        let store = ahead(&database).await;
        let rate = async || store.relay(RELAY).await.expect("a state").rate_factor;
        store.relay_throttled(RELAY, Duration::from_secs(10)).await.expect("slower");
        store.clock().set(monday());
        store.relay_throttled(RELAY, Duration::from_secs(10)).await.expect("slower still");
        assert!((rate().await - 0.25).abs() < 1e-9);
        store.clock().set(monday() + TimeDelta::hours(8));
        store.relay_throttled(RELAY, Duration::from_secs(10)).await.expect("slower");
        store.clock().set(monday());
        let slow = rate().await;
        store.relay_recover(RELAY, Duration::from_secs(30)).await.expect("faster");
        assert!(rate().await > slow);
    }

    async fn connections_are_shared_among_those_who_live(database: TestDatabase) {
        let store = ahead(&database).await;
        let (dead, one, other) = (ReplicaId::random(), ReplicaId::random(), ReplicaId::random());
        for replica in [dead, one, other] {
            beat(&store, replica).await;
        }
        assert!(store.relay_open(RELAY, "auth", SPANS, "").await.expect("opened").is_some());
        store.clock().advance(TimeDelta::minutes(1));
        assert!(store.relay_probe(RELAY, one, PATIENCE).await.expect("a probe"));
        assert!(store.relay_healthy(RELAY, true).await.expect("closed"));
        store.clock().set(monday());
        for replica in [one, other] {
            beat(&store, replica).await;
        }
        assert_eq!((connections(&store, one).await, connections(&store, other).await), (2, 2));
    }
}
