//! Resident memory of a replica that works through 100,000 orgs, as a table and as a drawing.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::relay::Sink;
use crate::replica::Replica;
use crate::world::{World, variable};

const ORGS: usize = 100_000;
/// Orgs between two points of the drawing, about.
const STEP: i64 = 1_000;

pub async fn run() {
    let orgs = variable("DIGESTD_BENCH_ORGS").map_or(ORGS, |n| n.parse().unwrap());
    let world = World::new().await;
    world.fill(orgs).await;
    world
        .run(
            "INSERT INTO digestd.activity (id, org_id, kind, title, occurred_at, actor, url, value)
             SELECT o.id || '-' || n, o.id, (ARRAY['Orders', 'Returns', 'Reviews'])[1 + n % 3], 'Order ' || n || ' shipped',
                 date_trunc('week', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - n * INTERVAL '17 hours',
                 'Jörg Müller', 'https://app.example/orders/' || n, n
             FROM digestd.orgs AS o CROSS JOIN generate_series(1, 8) AS n",
        )
        .await;
    world.settle_down().await;
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
    if let Some(file) = variable("DIGESTD_BENCH_DRAWING") {
        std::fs::write(&file, drawing(&points)).unwrap();
        println!("drawn into {file}");
    }
}

/// The drawing's measures, in pixels, and the megabytes at its top.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;
const LIMIT: f64 = 150.0;

const PROGRESS: &str = "
    SELECT
        (SELECT COUNT(*) FROM digestd.sends WHERE state = 'enqueued'),
        (SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('pending', 'leased', 'sending'))";

/// Megabytes over orgs, as a drawing that needs no tool. The scale ends at the limit of 150 MB.
fn drawing(points: &[(f64, f64)]) -> String {
    let orgs = points.iter().map(|point| point.0).fold(1.0, f64::max);
    let x = |n: f64| LEFT + n / orgs * WIDTH;
    let y = |mb: f64| TOP + HEIGHT - mb / LIMIT * HEIGHT;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 730 320\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"730\" height=\"320\" fill=\"white\"/>\n",
    );
    for mb in [0.0, 50.0, 100.0, 150.0] {
        let at = y(mb);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at}H{}\" stroke=\"#ccc\"/><text x=\"50\" y=\"{}\" text-anchor=\"end\">{mb}</text>",
            LEFT + WIDTH,
            at + 4.0
        );
    }
    for part in 0..=5 {
        let n = orgs * f64::from(part) / 5.0;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"290\" text-anchor=\"middle\">{n:.0}</text>", x(n));
    }
    svg.push_str("<text x=\"380\" y=\"312\" text-anchor=\"middle\">orgs whose digest is enqueued</text>\n");
    svg.push_str("<text x=\"60\" y=\"18\">resident memory of one replica, MB (limit 150)</text>\n");
    let line: Vec<String> = points.iter().map(|(n, mb)| format!("{:.1},{:.1}", x(*n), y(*mb))).collect();
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"#0b6\" stroke-width=\"2\" points=\"{}\"/>",
        line.join(" ")
    );
    svg.push_str("</svg>\n");
    svg
}
