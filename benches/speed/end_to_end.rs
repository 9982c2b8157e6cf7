//! From orgs that are due to mails that the relay has taken: a real `digestd run` on PostgreSQL beside the
//! programs that somebody would write instead, and behind a slow relay beside `smtp-source`.

use std::time::{Duration, SystemTime};

use crate::figures::{line, median, per_second, title};
use crate::relay::{Sink, slow_proxy, smtp_source};
use crate::replica::Replica;
use crate::world::{World, variable};
use crate::{peer, processor};

const ROUNDS: usize = 3;
const ORGS: usize = 2_000;
const ADMINS: usize = 3;
const CONNECTIONS: usize = 16;
/// Messages that smtp-source hands over in a round behind the slow proxy.
const THEIRS_SLOW: usize = CONNECTIONS * 60;

pub async fn run() {
    let orgs = variable("DIGESTD_BENCH_ORGS").map_or(ORGS, |n| n.parse().unwrap());
    let sink = Sink::start();
    let slow_port = slow_proxy(sink.port).await;
    let world = World::new().await;
    world.fill_week(orgs, ADMINS).await;

    title(&format!("end to end, {orgs} orgs x {ADMINS}, mails/s"), "digestd", "script.py");
    let (mut ours, mut script, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = (0_i64, 0_usize);
    let mut spent: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let week = digestd(&world, &sink, sink.port, orgs * ADMINS).await;
        ours.push(week.rate);
        week.spent.into_iter().zip(&mut spent).for_each(|(one, all)| all.push(one));
        bytes.0 = world.count("SELECT CAST(avg(octet_length(bytes)) AS BIGINT) FROM digestd.bodies").await;
        bytes.1 = theirs("script.py", &world, sink.port, orgs * ADMINS, &mut script).await;
        theirs("jobs.py", &world, sink.port, orgs * ADMINS, &mut jobs).await;
    }
    line("fast, one plain Python script", ours.clone(), script);
    line("fast, Procrastinate", ours, jobs);
    println!("bytes of a mail: {} and {}", bytes.0, bytes.1);
    let [own, database, relay] = spent.map(|times| 1e6 * median(times));
    println!(
        "processor time of a mail of ours: {own:.0} us in digestd, {database:.0} us in PostgreSQL, {relay:.0} us in smtp-sink"
    );

    title(&format!("end to end, {orgs} orgs x {ADMINS}, mails/s"), "digestd", "smtp-source");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(digestd(&world, &sink, slow_port, orgs * ADMINS).await.rate);
        theirs.push(smtp_source(slow_port, CONNECTIONS, THEIRS_SLOW).await);
    }
    line(&format!("20 ms, {CONNECTIONS} connections"), ours, theirs);
}

/// Lets a peer send the week, and returns the bytes of a mail.
async fn theirs(program: &str, world: &World, port: u16, mails: usize, rates: &mut Vec<f64>) -> usize {
    world.run("DROP TABLE IF EXISTS sent").await;
    world.settle_down().await;
    let run = peer::run(program, world, port, mails).await;
    rates.push(run.rate);
    run.bytes
}

/// What came of a week of ours.
struct Week {
    /// Mails a second, from the start of the process to the last recorded result.
    rate: f64,
    /// Seconds of processor time for a mail: in digestd, in PostgreSQL, in the sink.
    spent: [f64; 3],
}

async fn digestd(world: &World, sink: &Sink, port: u16, mails: usize) -> Week {
    world.forget_the_week().await;
    let others = [processor::postmaster(world).await, sink.pid()];
    let before = others.map(processor::used);
    let started = SystemTime::now();
    let mut replica = Replica::start(
        &world.url,
        &format!("smtp+plaintext://127.0.0.1:{port}"),
        &[
            ("DIGESTD__SCHEDULE__FIRST_START", "catch_up"),
            // The first tick and the first look into the outbox come after a part of these.
            ("DIGESTD__TICK__INTERVAL", "50ms"),
            ("DIGESTD__TICK__RESWEEP", "15m"),
            ("DIGESTD__DELIVERY__POLL", "50ms"),
            ("DIGESTD__RELAY__CONNECTIONS", &CONNECTIONS.to_string()),
            // Like the others, which never take a fresh connection.
            ("DIGESTD__RELAY__REUSE__MESSAGES", "10000"),
        ],
    );
    loop {
        let (accepted, last): (i64, Option<f64>) =
            sqlx::query_as(PROGRESS).fetch_one(&world.pool).await.unwrap();
        if usize::try_from(accepted).unwrap() == mails {
            let last = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(last.unwrap());
            let [database, relay] = others.map(processor::used);
            let spent = [processor::used(replica.pid()), database - before[0], relay - before[1]];
            let rate = per_second(mails, last.duration_since(started).unwrap());
            return Week {
                rate,
                spent: spent.map(|seconds| 1.0 / per_second(mails, Duration::from_secs_f64(seconds))),
            };
        }
        replica.must_live();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const PROGRESS: &str = "
    SELECT COUNT(*), CAST(EXTRACT(EPOCH FROM MAX(settled_at)) AS DOUBLE PRECISION)
    FROM digestd.outbox
    WHERE state = 'accepted'";
