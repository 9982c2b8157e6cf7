//! A fresh database for each benchmark, and what stands in it.

use chrono::{Datelike as _, NaiveTime, TimeDelta};
use digestd::clock::{Clock, host_now};
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::schedule::{PeriodKind, WeeklySchedule};
use digestd::domain::send::DueOrg;
use digestd::domain::zone::Zone;
use digestd::store::connect::Target;
use digestd::store::migrate::MigrateMode;
use digestd::store::sends::ClaimTerms;
use digestd::store::{ConnectOptions, Store};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};
use uuid::Uuid;

/// A database on the server that `scripts/with-postgres --durable` has started. The server goes away
/// as a whole, so databases are not dropped one by one.
pub struct World {
    pub url: String,
    /// For setting the scene, and for the plain SQL that we compare with.
    pub pool: PgPool,
}

impl World {
    pub async fn new() -> Self {
        let server = variable("DIGESTD_TEST_POSTGRES_URL").expect("scripts/bench starts a server");
        let name = format!("bench_{}", Uuid::new_v4().simple());
        let mut admin = PgConnection::connect(&server).await.unwrap();
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        let url = server.replace("/postgres?", &format!("/{name}?"));
        let pool = PgPoolOptions::new().max_connections(8).connect(&url).await.unwrap();
        let world = Self { url, pool };
        world.store().migrate(MigrateMode::Auto).await.unwrap();
        world
    }

    /// A replica's own view of the database.
    pub fn store(&self) -> Store {
        Store::open(&ConnectOptions {
            target: Target::Postgres(self.url.clone().into()),
            pool: 4,
            schema: "digestd".to_owned(),
            pgbouncer: false,
            clock: Clock::Database,
        })
        .unwrap()
    }

    /// Several statements without parameters.
    pub async fn run(&self, sql: &str) {
        self.pool.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    /// Orgs whose slot opened at the last midnight in UTC, each with one opted-in admin.
    pub async fn fill(&self, orgs: usize) {
        let day = host_now().weekday();
        self.run(&format!(
            "INSERT INTO digestd.orgs (id, name, timezone, weekday, local_time)
             SELECT 'org-' || lpad(n::TEXT, 7, '0'), 'Org ' || n, 'UTC', '{day}', '00:00'
             FROM generate_series(1, {orgs}) AS n;
             INSERT INTO digestd.admins (id, org_id, email, name, weekly_digest)
             SELECT 'admin-of-' || id, id, id || '@example.org', 'Ana', TRUE FROM digestd.orgs;
             ANALYZE digestd.orgs, digestd.admins"
        ))
        .await;
    }

    /// Orgs as above with so many admins, and a week in which a few things happened to each.
    pub async fn fill_week(&self, orgs: usize, admins: usize) {
        self.fill(orgs).await;
        self.run(&format!(
            "INSERT INTO digestd.admins (id, org_id, email, name, weekly_digest)
             SELECT 'admin-' || n || '-of-' || o.id, o.id, o.id || '-' || n || '@example.org', 'Ana', TRUE
             FROM digestd.orgs AS o CROSS JOIN generate_series(2, {admins}) AS n"
        ))
        .await;
        self.run(
            "INSERT INTO digestd.activity (id, org_id, kind, title, occurred_at, actor, url, value)
             SELECT o.id || '-' || n, o.id, (ARRAY['Orders', 'Returns', 'Reviews'])[1 + n % 3], 'Order ' || n || ' shipped',
                 date_trunc('week', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - n * INTERVAL '17 hours',
                 'Jörg Müller', 'https://app.example/orders/' || n, n
             FROM digestd.orgs AS o CROSS JOIN generate_series(1, 8) AS n",
        )
        .await;
        self.settle_down().await;
    }

    /// Nothing is claimed, stored or sent any more.
    pub async fn forget_the_week(&self) {
        self.run(
            "TRUNCATE digestd.sends, digestd.outbox, digestd.bodies, digestd.slots, digestd.weeks,
                 digestd.subscriptions CASCADE",
        )
        .await;
        self.settle_down().await;
    }

    /// The one number that a query answers.
    pub async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap()
    }

    /// Messages that wait for delivery, one for each org, and the sends that they belong to.
    pub async fn fill_outbox(&self, messages: usize) {
        self.fill(messages).await;
        self.run(
            "INSERT INTO digestd.sends (org_id, week_key, state, slot_at, timezone, period_first, period_start,
                 period_end, give_up_at, messages, settled_at)
             SELECT id, '2026-W28', 'enqueued', now(), 'UTC', '2026-06-29', now(), now(), now(), 1, now()
             FROM digestd.orgs",
        )
        .await;
        self.run(
            "INSERT INTO digestd.outbox (send_id, org_id, user_id, address, mailbox, uid, fingerprint, state,
                 next_attempt_at, expires_at, created_at)
             SELECT id, org_id, 'admin-of-' || org_id, org_id || '@example.org', org_id || '@example.org',
                 md5(org_id), md5(org_id) || md5(org_id), 'pending', now(), now() + INTERVAL '2 days', now()
             FROM digestd.sends",
        )
        .await;
        sqlx::query("INSERT INTO digestd.bodies (message_id, bytes) SELECT id, $1 FROM digestd.outbox")
            .bind(body())
            .execute(&self.pool)
            .await
            .unwrap();
        self.settle_down().await;
    }

    /// The messages wait as if none had been tried.
    pub async fn put_back_messages(&self) {
        self.run(
            "UPDATE digestd.outbox SET state = 'pending', owner = NULL, lease_until = NULL, token = 0,
                 marked_at = NULL, settled_at = NULL, attempts = 0",
        )
        .await;
        self.settle_down().await;
    }

    /// How many messages are not accepted, and how many a second were, from the first marker to the last
    /// recorded result.
    pub async fn delivered(&self) -> (i64, Option<f64>) {
        sqlx::query_as(
            "SELECT
                 COUNT(*) FILTER (WHERE state <> 'accepted'),
                 CAST(COUNT(*) / EXTRACT(EPOCH FROM MAX(settled_at) - MIN(marked_at)) AS DOUBLE PRECISION)
             FROM digestd.outbox",
        )
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// Statistics and free space as a database that has run for a while has them.
    pub async fn settle_down(&self) {
        self.run("VACUUM ANALYZE").await;
        self.run("CHECKPOINT").await;
    }
}

/// Orgs that are due now, in the order of a sweep.
pub fn due(orgs: usize) -> Vec<DueOrg> {
    let now = host_now();
    let schedule = WeeklySchedule { weekday: now.weekday(), time: NaiveTime::MIN, zone: Zone::utc() };
    let slot = schedule.latest_slot(now);
    let period = PeriodKind::PreviousWeek.of(&schedule, slot.week);
    (1..=orgs)
        .map(|n| DueOrg { org: OrgId::parse(&format!("org-{n:07}")).unwrap(), slot, period: period.clone() })
        .collect()
}

/// A replica's way to hold claims.
pub fn terms(replica: ReplicaId) -> ClaimTerms {
    ClaimTerms {
        replica,
        lease: TimeDelta::minutes(2),
        catch_up: TimeDelta::hours(36),
        give_up: TimeDelta::hours(24),
    }
}

/// A message of 8 KB: headers, and lines that compress about as well as a digest does.
pub fn body() -> Vec<u8> {
    let mut text = b"Subject: bench\r\n\r\n".to_vec();
    let mut n = 1_u32;
    while text.len() < 8 * 1024 - 66 {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(
            format!("<td style=3D\"padding:8px;color:#333\">item {n:010} of week</td>\r\n").as_bytes(),
        );
    }
    text
}

/// One variable of the environment; an empty one counts as absent.
#[expect(clippy::disallowed_methods, reason = "the benchmarks' own settings, read here alone")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
