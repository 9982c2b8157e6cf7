//! A week of many orgs claimed, rendered and stored, with delivery paused: time, memory and what it leaves
//! in the database, over the number of orgs; and the same week by one, two and four replicas.

use std::time::{Duration, Instant, SystemTime};

use digestd::app;
use digestd::config::Config;

use crate::drawing::Drawing;
use crate::figures::{median, per_second};
use crate::replica::Replica;
use crate::world::{World, variable};

const ROUNDS: usize = 3;
const ORGS: usize = 10_000;
/// The most orgs that several replicas share: each round takes its time.
const SHARED: usize = 20_000;
const ADMINS: usize = 3;
/// Nobody listens there, and nobody asks.
const RELAY: &str = "smtp+plaintext://127.0.0.1:9";
/// Longer than any week takes.
const PATIENCE: Duration = Duration::from_hours(3);

pub async fn run() {
    let most = variable("DIGESTD_BENCH_ORGS").map_or(ORGS, |n| n.parse().unwrap());
    let mut sizes: Vec<usize> = [1_000, 10_000, 100_000].into_iter().filter(|n| *n < most).collect();
    sizes.push(most);
    println!("\n{:>9} {:>9} {:>9} {:>9} {:>9}", "orgs", "seconds", "orgs/s", "peak MB", "busy");
    let (mut times, mut memories, mut last) = (Vec::new(), Vec::new(), None);
    for orgs in sizes {
        let world = World::new().await;
        world.fill_week(orgs, ADMINS).await;
        let week = enqueue(&world, orgs, 1).await;
        println!(
            "{orgs:>9} {:>9.1} {:>9.0} {:>9.0} {:>8.0}%",
            week.took.as_secs_f64(),
            per_second(orgs, week.took),
            week.peak_mb,
            100.0 * week.busy
        );
        times.push((number(orgs), week.took.as_secs_f64()));
        memories.push((number(orgs), week.peak_mb));
        leftovers(&world).await;
        last = Some(week);
    }
    let last = last.unwrap();
    let longest = times.iter().map(|point| point.1).fold(0.0, f64::max);
    let seconds: Vec<(f64, f64)> = last.points.iter().map(|point| (point.0, point.1)).collect();
    let megabytes: Vec<(f64, f64)> = last.points.iter().map(|point| (point.0, point.2)).collect();
    let below = "orgs whose digest is enqueued; a dot for each run";
    Drawing {
        title: "time of one replica, seconds",
        below,
        limit: round_up(longest),
        line: &seconds,
        dots: &times,
    }
    .write("scale-time");
    Drawing {
        title: "resident memory of one replica, MB (limit 200)",
        below,
        limit: 200.0,
        line: &megabytes,
        dots: &memories,
    }
    .write("scale-memory");
    several(most.min(SHARED)).await;
}

/// One, two and four replicas take turns with the same week.
async fn several(orgs: usize) {
    println!(
        "\n{orgs} orgs x {ADMINS}: {:>3} {:>9} {:>9} {:>9}",
        "replicas", "orgs/s", "busy", "lost inserts"
    );
    let world = World::new().await;
    world.fill_week(orgs, ADMINS).await;
    let mut weeks: [Vec<Week>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (place, replicas) in [1, 2, 4].into_iter().enumerate() {
            world.forget_the_week().await;
            weeks[place].push(enqueue(&world, orgs, replicas).await);
        }
    }
    for (weeks, replicas) in weeks.iter().zip([1, 2, 4]) {
        let of = |figure: fn(&Week) -> f64| median(weeks.iter().map(figure).collect());
        println!(
            "{replicas:>26} {:>9.0} {:>8.0}% {:>8.1}%",
            number(orgs) / of(|week| week.took.as_secs_f64()),
            100.0 * of(|week| week.busy),
            100.0 * of(|week| week.lost)
        );
    }
}

/// What came of one run.
struct Week {
    /// From the start of the first process to the last send that was enqueued.
    took: Duration,
    /// The most that one of the replicas had in memory.
    peak_mb: f64,
    /// Lost inserts among all.
    lost: f64,
    /// How busy the machine's cores were meanwhile, the database's among them.
    busy: f64,
    /// Orgs enqueued, seconds since the start, and megabytes of the first replica.
    points: Vec<(f64, f64, f64)>,
}

async fn enqueue(world: &World, orgs: usize, replicas: usize) -> Week {
    pause(world).await;
    let (started, clock, cores) = (SystemTime::now(), Instant::now(), Cores::now());
    let mut running: Vec<Replica> = (0..replicas)
        .map(|_| {
            Replica::start(
                &world.url,
                RELAY,
                &[
                    ("DIGESTD__SCHEDULE__FIRST_START", "catch_up"),
                    ("DIGESTD__TICK__INTERVAL", "50ms"),
                    ("DIGESTD__TICK__RESWEEP", "15m"),
                ],
            )
        })
        .collect();
    // Counting a million rows is work for the database too.
    let pause = Duration::from_millis(200) * u32::try_from(1 + orgs / 40_000).unwrap();
    let mut points = vec![(0.0, 0.0, 0.0)];
    let mut told = Instant::now();
    loop {
        running.iter_mut().for_each(Replica::must_live);
        let done = usize::try_from(world.count(ENQUEUED).await).unwrap();
        points.push((number(done), clock.elapsed().as_secs_f64(), running[0].resident_mb()));
        if done == orgs {
            break;
        }
        assert!(clock.elapsed() < PATIENCE, "{done} of {orgs} orgs are enqueued after {PATIENCE:?}");
        if told.elapsed() > Duration::from_secs(30) {
            println!("{done} of {orgs} orgs after {:.0} s", clock.elapsed().as_secs_f64());
            told = Instant::now();
        }
        tokio::time::sleep(pause).await;
    }
    let busy = cores.busy_since();
    let ended: f64 = sqlx::query_scalar(LAST).fetch_one(&world.pool).await.unwrap();
    let ended = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(ended);
    let peak_mb = running.iter().map(Replica::peak_mb).fold(0.0, f64::max);
    let (mut won, mut lost) = (0.0, 0.0);
    for replica in &running {
        won += replica.metric(r#"digestd_claims_total{result="won"}"#).await;
        lost += replica.metric(r#"digestd_claims_total{result="lost"}"#).await;
    }
    Week { took: ended.duration_since(started).unwrap(), peak_mb, lost: lost / (won + lost), busy, points }
}

const ENQUEUED: &str = "SELECT COUNT(*) FROM digestd.sends WHERE state = 'enqueued'";

const LAST: &str = "SELECT CAST(EXTRACT(EPOCH FROM MAX(settled_at)) AS DOUBLE PRECISION) FROM digestd.sends";

/// As `digestd queue pause` does it.
async fn pause(world: &World) {
    let settings = [
        ("DIGESTD__RELAY__URL", RELAY),
        ("DIGESTD__RELAY__FROM", "digests@example.org"),
        ("DIGESTD__PUBLIC_URL", "https://digest.example.org"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(None, settings).unwrap();
    world.store().relay_pause(&app::relay_name(&config.relay), true).await.unwrap();
}

/// What a run has left in the database.
async fn leftovers(world: &World) {
    // Counts of dead rows come a little later.
    world.run("SELECT pg_stat_force_next_flush()").await;
    let tables: Vec<(String, i64, f64, f64, i64)> =
        sqlx::query_as(LEFTOVERS).fetch_all(&world.pool).await.unwrap();
    for (table, rows, heap, indexes, dead) in tables {
        println!(
            "{:>19} {table:<14} {rows:>9} rows {heap:>8.1} MB, indexes {indexes:>7.1} MB, dead rows {dead}",
            ""
        );
    }
}

const LEFTOVERS: &str = "
    SELECT
        relname,
        n_live_tup,
        CAST(pg_table_size(relid) / 1e6 AS DOUBLE PRECISION),
        CAST(pg_indexes_size(relid) / 1e6 AS DOUBLE PRECISION),
        n_dead_tup
    FROM pg_stat_user_tables
    WHERE schemaname = 'digestd' AND relname IN ('sends', 'outbox', 'bodies', 'subscriptions')
    ORDER BY pg_total_relation_size(relid) DESC";

/// Time of all cores, as the kernel counts it.
struct Cores {
    idle: f64,
    all: f64,
}

impl Cores {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let times: Vec<f64> =
            stat.lines().next().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
        // user nice system idle iowait irq softirq steal; what follows is counted in user already.
        Self { idle: times[3] + times[4], all: times.iter().take(8).sum() }
    }

    fn busy_since(&self) -> f64 {
        let now = Self::now();
        1.0 - (now.idle - self.idle) / (now.all - self.all)
    }
}

/// One or two digits and noughts, so that the scale reads well.
fn round_up(value: f64) -> f64 {
    let step = 3.0 * 10_f64.powf((value / 3.0).log10().floor());
    (value / step).ceil() * step
}

#[expect(clippy::cast_precision_loss, reason = "some millions")]
fn number(n: usize) -> f64 {
    n as f64
}
