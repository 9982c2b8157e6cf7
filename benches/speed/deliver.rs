//! Durable delivery by a real replica: leases, markers and results in PostgreSQL with synced commits,
//! beside Debian's `smtp-source`, which keeps nothing.

use std::time::Duration;

use crate::figures::{line, per_second, title};
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
            ours.push(digestd(&fast, sink.port, connections, 10_000).await);
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
            ours.push(digestd(&slow, slow_port, connections, messages).await);
            theirs.push(smtp_source(slow_port, connections, messages).await);
        }
        line(&format!("20 ms, {connections} connections"), ours, theirs);
    }
}

/// Messages a second, from the first marker to the last recorded result.
async fn digestd(world: &World, port: u16, connections: usize, messages: usize) -> f64 {
    world
        .run(
            "UPDATE digestd.outbox SET state = 'pending', owner = NULL, lease_until = NULL, token = 0,
                 marked_at = NULL, settled_at = NULL, attempts = 0",
        )
        .await;
    world.settle_down().await;
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
        let (left, took): (i64, Option<f64>) = sqlx::query_as(PROGRESS).fetch_one(&world.pool).await.unwrap();
        if left == 0 {
            return per_second(messages, Duration::from_secs_f64(took.unwrap()));
        }
        replica.must_live();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

const PROGRESS: &str = "
    SELECT
        COUNT(*) FILTER (WHERE state <> 'accepted'),
        CAST(EXTRACT(EPOCH FROM MAX(settled_at) - MIN(marked_at)) AS DOUBLE PRECISION)
    FROM digestd.outbox";
