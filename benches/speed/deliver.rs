//! Durable delivery by a real replica: leases, markers and results in PostgreSQL with synced commits,
//! beside Debian's `smtp-source`, which keeps nothing.

use std::time::Duration;

use crate::figures::{line, title};
use crate::relay::{Sink, slow_proxy, smtp_source};
use crate::replica::Replica;
use crate::world::World;

const ROUNDS: usize = 5;
/// Messages that smtp-source hands over in a fast round: few seconds' worth.
const THEIRS_FAST: usize = 20_000;

pub async fn run() {
    let sink = Sink::start();
    let slow_port = slow_proxy(sink.port).await;
    let fast = World::new().await;
    fast.fill_outbox(10_000).await;
    title("durable delivery, messages/s", "digestd", "smtp-source");
    for connections in [8, 32] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(digestd(&fast, sink.port, connections).await);
            theirs.push(smtp_source(sink.port, connections, THEIRS_FAST).await);
        }
        line(&format!("fast, {connections} connections"), ours, theirs);
    }
    for connections in [8, 32] {
        let messages = connections * 80;
        let slow = World::new().await;
        slow.fill_outbox(messages).await;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(digestd(&slow, slow_port, connections).await);
            theirs.push(smtp_source(slow_port, connections, messages).await);
        }
        line(&format!("20 ms, {connections} connections"), ours, theirs);
    }
}

/// Messages a second, from the first marker to the last recorded result.
async fn digestd(world: &World, port: u16, connections: usize) -> f64 {
    world.put_back_messages().await;
    let mut replica = Replica::start(
        &world.url,
        &format!("smtp+plaintext://127.0.0.1:{port}"),
        &[
            ("DIGESTD__RELAY__CONNECTIONS", &connections.to_string()),
            // Like the reference, which never takes a fresh connection.
            ("DIGESTD__RELAY__REUSE__MESSAGES", "10000"),
        ],
    );
    loop {
        if let (0, Some(rate)) = world.delivered().await {
            return rate;
        }
        replica.must_live();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
