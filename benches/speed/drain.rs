//! Draining without a relay: leases, markers and results of an outbox, beside `graphile_worker` whose jobs
//! do nothing.
//!
//! Ours is delivery as it is, with its leaser's terms, its relay's state, its look at who still is an admin,
//! and its journal; only the hand-over is left out. The reference leases 500 at once and deletes ended
//! jobs in groups. It keeps no marker, and a job of its carries no mail.

use std::sync::Arc;

use digestd::app;
use digestd::config::Config;
use digestd::deliver::Deliver;
use digestd::deliver::journal::MarkAnswer;
use digestd::domain::ids::{GuardOwner, ReplicaId};
use digestd::domain::message::{Disposition, Finished, Leased};
use digestd::metrics::Metrics;
use tokio::process::Command;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::figures::{line, title};
use crate::world::{World, variable};

const ROUNDS: usize = 5;
const MESSAGES: usize = 20_000;
/// As many as can be configured.
const CONNECTIONS: usize = 50;
/// Messages that each connection must have taken before more are leased, as in delivery.
const LEASE_PER_CONNECTION: usize = 2;

pub async fn run() {
    let (whole, bare, jobs) = (World::new().await, World::new().await, World::new().await);
    for world in [&whole, &bare] {
        world.fill_outbox(MESSAGES).await;
    }
    bare.run("UPDATE digestd.bodies SET bytes = 'x'").await;
    title("drain, messages/s", "digestd", "graphile_worker");
    let (mut with_bodies, mut without, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with_bodies.push(digestd(&whole).await);
        without.push(digestd(&bare).await);
        theirs.push(graphile(&jobs).await);
    }
    line("bodies of 8 KB", with_bodies, theirs.clone());
    line("bodies of one byte", without, theirs);
}

/// Messages a second, from the first marker to the last recorded result.
async fn digestd(world: &World) -> f64 {
    world.put_back_messages().await;
    let settings = [
        ("DIGESTD__DATABASE__URL", world.url.clone()),
        ("DIGESTD__RELAY__CONNECTIONS", CONNECTIONS.to_string()),
    ];
    let config = Config::load(None, settings.map(|(name, value)| (name.to_owned(), value))).unwrap();
    let store = world.store();
    let source = app::source_of(&config, &store).unwrap();
    let (deliver, journal) =
        app::deliver_of(&config, &store, source, ReplicaId::random(), &Metrics::new()).unwrap();
    let deliver = Arc::new(deliver);
    let (feed, queue) = mpsc::channel(deliver.places());
    let queue = Arc::new(Mutex::new(queue));
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(serve(Arc::clone(&deliver), Arc::clone(&queue)));
    }
    loop {
        drop(feed.reserve_many(CONNECTIONS * LEASE_PER_CONNECTION).await.unwrap());
        let leased = deliver.lease(feed.capacity()).await.unwrap();
        if leased.is_empty() {
            break;
        }
        for message in leased {
            feed.send(message).await.unwrap();
        }
    }
    drop(feed);
    while let Some(served) = connections.join_next().await {
        served.unwrap();
    }
    drop(deliver);
    journal.await.unwrap();
    let (left, rate) = world.delivered().await;
    assert_eq!(left, 0);
    rate.unwrap()
}

/// What a connection does with each message, but for the relay.
async fn serve(deliver: Arc<Deliver>, queue: Arc<Mutex<mpsc::Receiver<Leased>>>) {
    loop {
        let Some(message) = queue.lock().await.recv().await else { return };
        let owner = GuardOwner::random();
        let MarkAnswer::Sending(mut marker) = deliver.journal.mark(message.fence(), owner).await else {
            panic!("nobody else is there");
        };
        marker.spend();
        let finished = Finished {
            fence: message.fence(),
            disposition: Disposition::Accepted,
            phase: "reply",
            note: String::new(),
            guard: Some(owner),
        };
        deliver.journal.record(finished).await;
    }
}

/// Jobs a second, from the first call of the handler until no job is left.
async fn graphile(world: &World) -> f64 {
    world.run("DROP SCHEMA IF EXISTS graphile_worker CASCADE").await;
    let binary = variable("DIGESTD_BENCH_GRAPHILE").expect("scripts/bench builds it");
    let output = Command::new(binary)
        .args([&world.url, &MESSAGES.to_string()])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}
