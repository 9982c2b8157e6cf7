//! Resident memory of a replica that works through 100,000 orgs, as a table and as a drawing.

use std::time::{Duration, Instant};

use crate::drawing::Drawing;
use crate::relay::Sink;
use crate::replica::Replica;
use crate::world::{World, variable};

const ORGS: usize = 100_000;
/// Orgs between two points of the drawing, about.
const STEP: i64 = 1_000;

pub async fn run() {
    let orgs = variable("DIGESTD_BENCH_ORGS").map_or(ORGS, |n| n.parse().unwrap());
    let world = World::new().await;
    world.fill_week(orgs, 1).await;
    let sink = Sink::start();
    let mut replica = Replica::start(
        &world.url,
        &format!("smtp+plaintext://127.0.0.1:{}", sink.port),
        &[
            ("DIGESTD__SCHEDULE__FIRST_START", "catch_up"),
            ("DIGESTD__TICK__INTERVAL", "1s"),
            ("DIGESTD__RELAY__CONNECTIONS", "16"),
        ],
    );
    let started = Instant::now();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let (mut next, mut most) = (0, 0.0_f64);
    loop {
        replica.must_live();
        let megabytes = replica.resident_mb();
        most = most.max(megabytes);
        let (settled, left): (i64, i64) = sqlx::query_as(PROGRESS).fetch_one(&world.pool).await.unwrap();
        if settled >= next {
            points.push((f64::from(i32::try_from(settled).unwrap()), megabytes));
            next = settled + STEP;
        }
        if settled == i64::try_from(orgs).unwrap() && left == 0 {
            points.push((f64::from(i32::try_from(settled).unwrap()), megabytes));
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let tenth = points[points.len() / 10].1;
    let end = points[points.len() - 1].1;
    println!(
        "\nresident memory over {orgs} orgs and as many mails, {:.0} s",
        started.elapsed().as_secs_f64()
    );
    println!("most {most:.0} MB; after a tenth {tenth:.0} MB; at the end {end:.0} MB");
    Drawing {
        title: "resident memory of one replica, MB (limit 150)",
        below: "orgs whose digest is enqueued",
        limit: 150.0,
        line: &points,
        dots: &[],
    }
    .write("memory");
}

const PROGRESS: &str = "
    SELECT
        (SELECT COUNT(*) FROM digestd.sends WHERE state = 'enqueued'),
        (SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('pending', 'leased', 'sending'))";
