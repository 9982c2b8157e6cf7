//! Replicas on hosts whose clocks are wrong: by hours, and by a week.
//!
//! On PostgreSQL only. An SQLite file has no server; the host's clock is the database's there.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveTime, TimeDelta, Timelike, Utc};
use digestd::clock::Clock;
use digestd::domain::schedule::{WeeklySchedule, parse_weekday};
use digestd::domain::week::WeekKey;
use digestd::domain::zone::Zone;
use digestd::store::Store;
use sqlx::{Connection, PgConnection};

use crate::support::backend::TestDatabase;
use crate::support::fixtures::open;
use crate::support::fleet::{PATIENCE, config, migrate, relay};
use crate::support::process::{Launch, Process};
use crate::support::smtp_server::SmtpServer;
use crate::support::web;
use crate::support::world::{World, execute};

/// What the hosts' clocks are off by, in libfaketime's words and in hours.
const CLOCKS: [(&str, i64); 4] = [("-7d", -7 * 24), ("-2h", -2), ("+0", 0), ("+3h", 3)];
const ORGS: usize = 60;
/// Orgs whose slot is an hour ahead: due already by a clock that is three hours fast.
const EARLY: usize = 12;
/// A replica starts, and a busy machine steals its time, within this.
const SLACK: TimeDelta = TimeDelta::minutes(2);

/// A replica whose host has another time, and where its metrics are.
struct Shifted {
    process: Process,
    http: SocketAddr,
    hours: i64,
}

impl Shifted {
    fn start(database: &TestDatabase, relay: &SmtpServer, (shift, hours): (&str, i64)) -> Self {
        let http = web::free_address();
        let process = Launch::new(database.folder(), &format!("clock{shift}"), &["run"])
            .config(&config(database, relay))
            .env("DIGESTD__HTTP__LISTEN", &http.to_string())
            .env("DIGESTD__LOG__FILTER", "info,digestd=debug")
            .clock(shift)
            .start();
        Self { process, http, hours }
    }

    /// Its clock's offset from the database's, as it says itself.
    async fn offset_in_metrics(&self) -> TimeDelta {
        let text = web::get(self.http, "/metrics").await.body;
        let line = text.lines().find_map(|line| line.strip_prefix("digestd_clock_offset_seconds "));
        let seconds: f64 = line.and_then(|value| value.trim().parse().ok()).expect("the metric");
        #[expect(clippy::cast_possible_truncation, reason = "a week in milliseconds")]
        TimeDelta::milliseconds((seconds * 1000.0) as i64)
    }
}

fn close_to(found: TimeDelta, hours: i64) -> bool {
    (found - TimeDelta::hours(hours)).abs() < SLACK
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_wrong_clocks_send_by_the_databases_clock_alone() {
    let database = TestDatabase::postgres().await;
    migrate(&database).await;
    let store = open(&database, Clock::Database);
    let began = store.now().await.expect("the time");
    let world = World::fill(&database, ORGS).await;
    not_yet_due(&database, began + TimeDelta::hours(1)).await;
    let relay = relay().await;
    let mut replicas = CLOCKS.map(|clock| Shifted::start(&database, &relay, clock));

    let counts = world.settled(&database, PATIENCE).await;
    for replica in &mut replicas {
        // Each has looked at every org, and has looked again since: nothing was left that it wanted.
        replica.process.logged("tick finished: nothing to do", PATIENCE).await;
    }
    assert_eq!(world.check(&counts, &relay), 0);
    let ended = store.now().await.expect("the time");
    check_sends(&database, began, ended).await;
    check_slots(&database, began, ended).await;
    check_dates(&relay, began, ended);
    check_offsets(&store, &mut replicas).await;
}

/// Adds orgs whose slot comes later than any test lasts.
async fn not_yet_due(database: &TestDatabase, slot: DateTime<Utc>) {
    let mut script = String::new();
    let week_before = (slot - TimeDelta::days(7)).to_rfc3339();
    for n in 0..EARLY {
        let zone = ["Europe/Berlin", "Asia/Kathmandu", "America/New_York"][n % 3];
        let local = Zone::parse(zone).expect("a zone").local(slot);
        let _ = writeln!(
            script,
            "INSERT INTO digestd.orgs (id, name, timezone, weekday, local_time) \
             VALUES ('early-{n}', 'Early {n}', '{zone}', '{}', '{:02}:{:02}');
             INSERT INTO digestd.admins (id, org_id, email) VALUES ('early-{n}', 'early-{n}', 'a@early-{n}.example');
             INSERT INTO digestd.activity (id, org_id, kind, title, occurred_at) \
             VALUES ('early-{n}', 'early-{n}', 'commit', 'A change', '{week_before}');",
            local.weekday(),
            local.hour(),
            local.minute()
        );
    }
    execute(database, script).await;
}

/// Nothing was claimed for another week, nor before its slot, nor for an org that is not due yet.
async fn check_sends(database: &TestDatabase, began: DateTime<Utc>, ended: DateTime<Utc>) {
    type Row = (String, String, String, DateTime<Utc>, DateTime<Utc>, DateTime<Utc>);
    let mut connection = PgConnection::connect(&database.url).await.expect("a connection");
    let sends: Vec<Row> = sqlx::query_as(
        "SELECT org_id, week_key, timezone, slot_at, claimed_at, settled_at FROM digestd.sends ORDER BY org_id",
    )
    .fetch_all(&mut connection)
    .await
    .expect("the sends");
    assert_eq!(sends.len(), ORGS, "one for each org that is due");
    for (org, key, zone, slot_at, claimed_at, settled_at) in sends {
        assert!(!org.starts_with("early"), "{org} was sent an hour early");
        let week = WeekKey::of(Zone::parse(&zone).expect("a zone").local(slot_at).date());
        assert_eq!(key, week.to_string(), "{org}");
        // The slot is the minute in which the test began.
        assert!(slot_at <= began && began - slot_at < SLACK, "{org}: {slot_at}");
        assert!(
            claimed_at >= began && settled_at >= claimed_at && ended >= settled_at,
            "{org}: {claimed_at}"
        );
    }
}

/// Remembered are the newest and the next slot of each schedule, by the database's clock, and no other.
async fn check_slots(database: &TestDatabase, began: DateTime<Utc>, ended: DateTime<Utc>) {
    let mut connection = PgConnection::connect(&database.url).await.expect("a connection");
    let slots: Vec<(String, String, String, String, DateTime<Utc>)> =
        sqlx::query_as("SELECT timezone, weekday, local_time, week_key, slot_at FROM digestd.slots")
            .fetch_all(&mut connection)
            .await
            .expect("the slots");
    assert!(!slots.is_empty());
    for (zone, weekday, time, key, slot_at) in slots {
        let schedule = WeeklySchedule {
            weekday: parse_weekday(&weekday).expect("a weekday"),
            time: NaiveTime::parse_from_str(&time, "%H:%M").expect("a time"),
            zone: Zone::parse(&zone).expect("a zone"),
        };
        let possible: Vec<_> = [began, ended]
            .into_iter()
            .flat_map(|now| [Some(schedule.latest_slot(now)), schedule.upcoming(now).next()])
            .flatten()
            .map(|slot| (slot.week.to_string(), slot.at))
            .collect();
        assert!(possible.contains(&(key.clone(), slot_at)), "{zone} {weekday} {time} {key}: {slot_at}");
    }
}

/// The mails' own dates are the database's too.
fn check_dates(relay: &SmtpServer, began: DateTime<Utc>, ended: DateTime<Utc>) {
    // A Date header has whole seconds.
    let (from, to) = (began - TimeDelta::seconds(1), ended);
    for message in relay.accepted() {
        let text = String::from_utf8_lossy(&message.data).into_owned();
        let date = text.lines().find_map(|line| line.strip_prefix("Date: ")).expect("a date");
        let date = DateTime::parse_from_rfc2822(date).expect("a date");
        assert!(from <= date && date <= to, "{date}");
    }
}

/// Everybody can see whose clock is wrong: in the log, in `/metrics`, and in the replicas' table.
async fn check_offsets(store: &Store, replicas: &mut [Shifted]) {
    let mut listed: Vec<TimeDelta> = store
        .live_replicas(Duration::from_mins(2))
        .await
        .expect("the replicas")
        .into_iter()
        .map(|replica| replica.clock_offset)
        .collect();
    listed.sort();
    assert_eq!(listed.len(), replicas.len());
    for (offset, (_, hours)) in listed.into_iter().zip(CLOCKS) {
        assert!(close_to(offset, hours), "in the table: {offset}");
    }
    for replica in replicas {
        let shown = replica.offset_in_metrics().await;
        assert!(close_to(shown, replica.hours), "in /metrics: {shown}");
        let warned = replica.process.log().contains("this host's clock differs from the database's");
        assert_eq!(warned, replica.hours != 0, "{}", replica.process.log());
    }
}
