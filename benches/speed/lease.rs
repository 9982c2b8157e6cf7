//! Leasing from an outbox with and without half a million messages whose time has not come.

use std::time::{Duration, Instant};

use digestd::domain::ids::ReplicaId;
use digestd::store::outbox::LeaseTerms;

use crate::figures::{line, rate, title};
use crate::world::World;

const ROUNDS: usize = 7;
const DUE: usize = 20_000;
const FUTURE: usize = 500_000;
/// Messages per lease: what 32 connections ask for.
const BATCH: u32 = 64;

pub async fn run() {
    let (crowded, alone) = (World::new().await, World::new().await);
    for world in [&crowded, &alone] {
        world.fill_outbox(DUE).await;
    }
    // One send stands for them all: leasing looks at messages alone.
    crowded
        .run(&format!(
            "INSERT INTO digestd.outbox (send_id, org_id, user_id, address, mailbox, uid, fingerprint, state,
                 next_attempt_at, expires_at, created_at)
             SELECT (SELECT MIN(id) FROM digestd.sends), 'later', 'admin', n || '@later.example.org',
                 n || '@later.example.org', md5(n::TEXT), md5(n::TEXT) || md5(n::TEXT), 'pending',
                 now() + INTERVAL '1 day', now() + INTERVAL '2 days', now()
             FROM generate_series(1, {FUTURE}) AS n"
        ))
        .await;
    title("leases, messages/s", "500,000 later", "none later");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(drain(&crowded).await);
        theirs.push(drain(&alone).await);
    }
    line("20,000 due", ours, theirs);
}

async fn drain(world: &World) -> f64 {
    world
        .run(
            "UPDATE digestd.outbox SET state = 'pending', owner = NULL, lease_until = NULL, token = 0
             WHERE state <> 'pending'",
        )
        .await;
    world.settle_down().await;
    let store = world.store();
    let terms = LeaseTerms { replica: ReplicaId::random(), lease: Duration::from_mins(5), max_attempts: 8 };
    let mut leased = 0;
    let started = Instant::now();
    loop {
        let batch = store.lease_messages(BATCH, terms).await.unwrap();
        if batch.messages.is_empty() {
            break;
        }
        leased += batch.messages.len();
    }
    assert_eq!(leased, DUE);
    rate(leased, started)
}
