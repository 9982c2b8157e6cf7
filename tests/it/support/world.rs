//! A small world for tests with real processes: orgs whose slot opens now, and what must have come of
//! them in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use chrono::{Datelike, TimeDelta, Timelike};
use digestd::clock::host_now;
use digestd::domain::zone::Zone;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use super::backend::{Kind, TestDatabase};
use super::eventually;
use super::smtp_server::SmtpServer;

/// Zones of the test orgs: whole, half and quarter hours, both hemispheres.
const ZONES: [&str; 5] =
    ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Auckland"];

/// The orgs of a test and who must get a digest.
#[derive(Debug)]
pub struct World {
    /// How many orgs there are.
    pub orgs: usize,
    /// Org and address of everybody who is opted in.
    pub expected: BTreeSet<(String, String)>,
}

impl World {
    /// Fills a migrated database: org `n` has `1 + n % 4` opted-in admins and an opted-out one, and each
    /// org's weekday and time are those of this very minute in its zone.
    pub async fn fill(database: &TestDatabase, orgs: usize) -> Self {
        let mut world = Self { orgs: 0, expected: BTreeSet::new() };
        world.grow(database, orgs).await;
        world
    }

    /// Adds orgs that become due in the minute that now is.
    pub async fn grow(&mut self, database: &TestDatabase, orgs: usize) {
        let mut script = String::new();
        let table = |name: &str| match database.kind {
            Kind::Postgres => format!("digestd.{name}"),
            Kind::Sqlite => name.to_owned(),
        };
        let now = host_now();
        let last_week = now - TimeDelta::days(7);
        let instant = match database.kind {
            Kind::Postgres => format!("'{}'", last_week.to_rfc3339()),
            Kind::Sqlite => last_week.timestamp_millis().to_string(),
        };
        for n in self.orgs..self.orgs + orgs {
            let zone = ZONES[n % ZONES.len()];
            let local = Zone::parse(zone).expect("a zone").local(now);
            let _ = writeln!(
                script,
                "INSERT INTO {} (id, name, timezone, weekday, local_time) \
                 VALUES ('org-{n}', 'Org {n}', '{zone}', '{}', '{:02}:{:02}');",
                table("orgs"),
                local.weekday(),
                local.hour(),
                local.minute()
            );
            for admin in 0..=(n % 4) {
                let address = format!("admin-{admin}@org-{n}.example");
                let _ = writeln!(
                    script,
                    "INSERT INTO {} (id, org_id, email, name) VALUES ('{n}-{admin}', 'org-{n}', '{address}', 'A{admin}');",
                    table("admins")
                );
                self.expected.insert((format!("org-{n}"), address));
            }
            let _ = writeln!(
                script,
                "INSERT INTO {} (id, org_id, email, weekly_digest) VALUES ('{n}-x', 'org-{n}', 'out@org-{n}.example', FALSE);",
                table("admins")
            );
            let _ = writeln!(
                script,
                "INSERT INTO {} (id, org_id, kind, title, occurred_at) VALUES ('{n}', 'org-{n}', 'commit', 'A change', {instant});",
                table("activity")
            );
        }
        execute(database, script).await;
        self.orgs += orgs;
    }

    /// Waits until every org has a settled send and no message is under way.
    pub async fn settled(&self, database: &TestDatabase, within: Duration) -> Counts {
        eventually("every send settled and no message under way", within, async || {
            let counts = Counts::read(database).await;
            let busy = ["pending", "leased", "sending"].iter().map(|s| counts.messages(s)).sum::<i64>();
            let settled = counts.sends.values().sum::<i64>() - counts.sends("claimed");
            (busy == 0 && settled == i64::try_from(self.orgs).expect("a count")).then_some(counts)
        })
        .await
    }

    /// The promise: one send per org, at most one acceptance per address, nothing for anybody else, and
    /// whoever has no acceptance is uncertain. Returns how many are uncertain.
    pub fn check(&self, counts: &Counts, relay: &SmtpServer) -> usize {
        self.check_accepted(counts, relay.accepted().into_iter().map(|message| message.to))
    }

    /// The same for any relay that tells whom it has accepted something for.
    pub fn check_accepted(&self, counts: &Counts, by_relay: impl Iterator<Item = String>) -> usize {
        assert_eq!(counts.sends("enqueued"), i64::try_from(self.orgs).expect("a count"), "{counts:?}");
        let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
        for to in by_relay {
            *accepted.entry(to).or_default() += 1;
        }
        let twice: Vec<_> = accepted.iter().filter(|(_, n)| **n > 1).collect();
        assert!(twice.is_empty(), "accepted more than once: {twice:?}");
        let wanted: BTreeSet<&String> = self.expected.iter().map(|(_, address)| address).collect();
        let stray: Vec<_> = accepted.keys().filter(|address| !wanted.contains(address)).collect();
        assert!(stray.is_empty(), "nobody asked for these: {stray:?}");
        let uncertain = usize::try_from(counts.messages("uncertain")).expect("a count");
        let recorded = usize::try_from(counts.messages("accepted")).expect("a count");
        assert_eq!(recorded + uncertain, self.expected.len(), "{counts:?}");
        assert!(accepted.len() >= recorded, "accepted in the ledger, but not by the relay");
        assert!(accepted.len() <= recorded + uncertain);
        uncertain
    }
}

/// The ledger in numbers.
#[derive(Debug)]
pub struct Counts {
    sends: BTreeMap<String, i64>,
    outbox: BTreeMap<String, i64>,
}

impl Counts {
    /// Counts sends and messages by state.
    pub async fn read(database: &TestDatabase) -> Self {
        let by_state = async |table: &str| {
            let text = match database.kind {
                Kind::Postgres => format!("SELECT state, count(*) FROM digestd.{table} GROUP BY state"),
                Kind::Sqlite => format!("SELECT state, count(*) FROM {table} GROUP BY state"),
            };
            rows(database, text).await.into_iter().collect()
        };
        Self { sends: by_state("sends").await, outbox: by_state("outbox").await }
    }

    /// Sends in a state.
    pub fn sends(&self, state: &str) -> i64 {
        self.sends.get(state).copied().unwrap_or(0)
    }

    /// Messages in a state.
    pub fn messages(&self, state: &str) -> i64 {
        self.outbox.get(state).copied().unwrap_or(0)
    }
}

/// Runs a script of statements.
pub async fn execute(database: &TestDatabase, script: String) {
    match database.kind {
        Kind::Postgres => {
            let mut connection = PgConnection::connect(&database.url).await.expect("a connection");
            sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.map(drop)
        }
        Kind::Sqlite => {
            let mut connection = SqliteConnection::connect(&database.url).await.expect("a connection");
            let script = format!("PRAGMA busy_timeout = 20000; BEGIN IMMEDIATE; {script} COMMIT;");
            sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.map(drop)
        }
    }
    .expect("a script of ours");
}

/// How many rows of a table fulfil a condition.
pub async fn count(database: &TestDatabase, table: &str, condition: &str) -> i64 {
    let prefix = if database.kind == Kind::Postgres { "digestd." } else { "" };
    let text = format!("SELECT '', count(*) FROM {prefix}{table} WHERE {condition}");
    rows(database, text).await.first().map_or(0, |(_, n)| *n)
}

/// Rows of a text and a number; `{}` in the query stands for the schema.
pub async fn numbers(database: &TestDatabase, query: &str) -> Vec<(String, i64)> {
    let schema = if database.kind == Kind::Postgres { "digestd." } else { "" };
    rows(database, query.replace("{}", schema)).await
}

/// One number, by a query that names tables as `digestd.table`.
pub async fn number(database: &TestDatabase, query: &str) -> i64 {
    let query = match database.kind {
        Kind::Postgres => query.to_owned(),
        Kind::Sqlite => query.replace("digestd.", ""),
    };
    let found = rows(database, format!("SELECT 'it', CAST(({query}) AS BIGINT)")).await;
    found.first().expect("one row").1
}

/// Whether nobody is inside a write of an SQLite file right now.
pub async fn writable(database: &TestDatabase) -> bool {
    let mut connection = SqliteConnection::connect(&database.url).await.expect("a connection");
    let tried = "PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK;";
    sqlx::raw_sql(tried).execute(&mut connection).await.is_ok()
}

/// Rows of a text and a number.
async fn rows(database: &TestDatabase, text: String) -> Vec<(String, i64)> {
    match database.kind {
        Kind::Postgres => {
            let mut connection = PgConnection::connect(&database.url).await.expect("a connection");
            sqlx::query_as(AssertSqlSafe(text)).fetch_all(&mut connection).await
        }
        Kind::Sqlite => {
            let mut connection = SqliteConnection::connect(&database.url).await.expect("a connection");
            sqlx::query_as(AssertSqlSafe(text)).fetch_all(&mut connection).await
        }
    }
    .expect("a query of ours")
}
