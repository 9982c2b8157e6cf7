//! Claiming: two replicas that share the work by racing, beside one INSERT per org.

use std::time::Instant;

use digestd::domain::ids::{ClaimId, ReplicaId};
use digestd::domain::send::DueOrg;
use digestd::store::Store;
use digestd::tick::sweep::{PAGE, WINDOW, visiting_order};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::figures::{line, median, rate, title};
use crate::world::{World, due, terms};

const ROUNDS: usize = 5;
const ORGS: usize = 40_000;
/// A commit each makes these slow.
const ORGS_ONE_BY_ONE: usize = 1_500;
/// Orgs per claim, as configured by default.
const BATCH: usize = 200;

pub async fn run() {
    let world = World::new().await;
    title("claims, 2 replicas, orgs/s", "batched", "INSERT per org");
    let (mut ours, mut theirs, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        world.run("TRUNCATE digestd.sends CASCADE").await;
        let started = Instant::now();
        let (a, b) = tokio::join!(
            tokio::spawn(batched(world.store(), due(ORGS))),
            tokio::spawn(batched(world.store(), due(ORGS)))
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        ours.push(rate(ORGS, started));
        assert_eq!(a.0 + b.0, ORGS);
        lost.push(share(a.1 + b.1, ORGS));
        world.run("TRUNCATE digestd.sends CASCADE").await;
        let started = Instant::now();
        let (a, b) = tokio::join!(
            tokio::spawn(one_by_one(pool(&world).await)),
            tokio::spawn(one_by_one(pool(&world).await))
        );
        assert_eq!(a.unwrap() + b.unwrap(), ORGS_ONE_BY_ONE);
        theirs.push(rate(ORGS_ONE_BY_ONE, started));
    }
    line("durable commits", ours, theirs);
    println!("lost inserts, batched: {:.1} %, one by one: 50 %", 100.0 * median(lost));
}

/// Claims as a sweep does: batch by batch, in the replica's own order. Returns wins and losses.
async fn batched(store: Store, due: Vec<DueOrg>) -> (usize, usize) {
    let replica = ReplicaId::random();
    let (mut won, mut lost) = (0, 0);
    for window in due.chunks(PAGE as usize * WINDOW) {
        let batches: Vec<&[DueOrg]> = window.chunks(BATCH).collect();
        for place in visiting_order(batches.len(), replica) {
            let batch = store.without_send(batches[place].to_vec()).await.unwrap();
            if batch.is_empty() {
                continue;
            }
            let claims = store.claim(&batch, ClaimId::random(), terms(replica)).await.unwrap();
            won += claims.len();
            lost += batch.len() - claims.len();
        }
    }
    (won, lost)
}

/// The obvious way: each replica tries each org, one commit each. Returns the wins.
async fn one_by_one(pool: PgPool) -> usize {
    let mut won = 0;
    for org in due(ORGS_ONE_BY_ONE) {
        let inserted = sqlx::query(INSERT)
            .bind(org.org.as_str())
            .bind(org.slot.week.to_string())
            .bind(org.slot.at)
            .execute(&pool)
            .await
            .unwrap();
        won += usize::try_from(inserted.rows_affected()).unwrap();
    }
    won
}

const INSERT: &str = "
    INSERT INTO digestd.sends (org_id, week_key, state, slot_at, timezone, period_first, period_start,
        period_end, give_up_at)
    VALUES ($1, $2, 'claimed', $3, 'UTC', '2026-06-29', $3, $3, $3)
    ON CONFLICT (org_id, week_key) DO NOTHING";

async fn pool(world: &World) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect(&world.url).await.unwrap()
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn share(lost: usize, won: usize) -> f64 {
    lost as f64 / (lost + won) as f64
}
