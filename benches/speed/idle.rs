//! A tick with nothing to do, beside `SELECT 1`, for few orgs and for many.

use std::time::Instant;

use digestd::app;
use digestd::config::Config;
use digestd::domain::ids::ReplicaId;
use digestd::domain::token::KeyRing;
use digestd::metrics::Metrics;
use digestd::progress::Progress;
use digestd::tick::sweep::Scope;
use tokio_util::sync::CancellationToken;

use crate::figures::{line, title};
use crate::world::World;

const TICKS: usize = 2_000;

pub async fn run() {
    title("an idle tick, ms", "tick", "SELECT 1");
    for orgs in [10_000, 100_000, 1_000_000] {
        let world = World::new().await;
        world.fill(orgs).await;
        world
            .run(
                "INSERT INTO digestd.sends (org_id, week_key, state, slot_at, timezone, period_first,
                     period_start, period_end, give_up_at, messages, settled_at)
                 SELECT id, to_char(now(), 'IYYY-\"W\"IW'), 'enqueued', date_trunc('day', now()), 'UTC',
                     '2026-06-29', now(), now(), now(), 1, now()
                 FROM digestd.orgs;
                 INSERT INTO digestd.slots (timezone, weekday, local_time, week_key, slot_at, swept_at)
                 SELECT 'UTC', weekday, local_time, to_char(now(), 'IYYY-\"W\"IW'), date_trunc('day', now()), now()
                 FROM digestd.orgs LIMIT 1",
            )
            .await;
        world.settle_down().await;
        measure(&world, orgs).await;
    }
}

async fn measure(world: &World, orgs: usize) {
    let config = Config::load(None, [("DIGESTD__DATABASE__URL".to_owned(), world.url.clone())]).unwrap();
    let store = world.store();
    let keys = KeyRing::new(&[store.unsubscribe_key().await.unwrap()]).unwrap();
    let source = app::source_of(&config, &store).unwrap();
    let tick =
        app::tick_of(&config, &store, source, keys, ReplicaId::random(), &Metrics::new()).await.unwrap();
    let progress = Progress::new();
    let pulse = progress.watch("tick", std::time::Duration::from_mins(1));
    let stop = CancellationToken::new();
    let (mut ticks, mut ones) = (Vec::new(), Vec::new());
    for _ in 0..TICKS {
        let started = Instant::now();
        let report = tick.sweep(Scope::OpenSlots, &pulse, &stop).await.unwrap();
        ticks.push(started.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(report.candidates, 0, "the tick was not idle");
        let started = Instant::now();
        let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&world.pool).await.unwrap();
        ones.push(started.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(one, 1);
    }
    line(&format!("{orgs} settled orgs"), ticks, ones);
}
