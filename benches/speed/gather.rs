//! From an application's tables to messages in the outbox: a query for each section and batch, beside a
//! loop that asks for each org.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use digestd::app;
use digestd::clock::host_now;
use digestd::config::Config;
use digestd::domain::address::Address;
use digestd::domain::digest::{Amount, DigestInput, Figure, Recipient, Row, Rows, Section, SectionBody};
use digestd::domain::ids::{ClaimId, ReplicaId, UserId};
use digestd::domain::message::DraftContent;
use digestd::domain::send::DueOrg;
use digestd::domain::week::SendKey;
use digestd::metrics::Metrics;
use digestd::progress::Progress;
use digestd::tick::drafts::Drafter;
use serde_json::Value;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::enqueue::{BODIES, MESSAGES, SEND, pool};
use crate::figures::{line, rate, title};
use crate::world::{World, due, terms};

const ROUNDS: usize = 5;
const ORGS: usize = 1_000;
const ADMINS: usize = 3;
const ROWS: usize = 1_000_000;
/// Orgs per batch, as configured by default.
const BATCH: usize = 200;

const CONFIG: &str = r#"
public_url = "https://digest.example.com"

[relay]
url = "file:./mail"
from = "Digests <digests@example.com>"

[source]
url = "URL"
recipients = """
SELECT o.id AS org_id, o.name AS org_name, m.id AS user_id, m.email
FROM app_orgs o JOIN app_members m ON m.org_id = o.id WHERE m.wants"""

[[section]]
name = "figures"
title = "This week"
kind = "figures"
sql = """
SELECT org_id, kind AS label, count(*) FILTER (WHERE at >= :from) AS value, count(*) FILTER (WHERE at < :from) AS previous
FROM app_activity WHERE org_id = ANY(:org_ids) AND at >= :previous_from AND at < :to
GROUP BY org_id, kind ORDER BY kind"""

[[section]]
name = "newest"
title = "Newest"
sql = """
SELECT org_id, title, at AS "when"
FROM app_activity WHERE org_id = ANY(:org_ids) AND at >= :from AND at < :to
ORDER BY at DESC"""
"#;

const RECIPIENTS: &str = "
    SELECT o.name, m.id, m.email
    FROM app_orgs o JOIN app_members m ON m.org_id = o.id
    WHERE o.id = $1 AND m.wants";

const FIGURES: &str = "
    SELECT kind, count(*) FILTER (WHERE at >= $3), count(*) FILTER (WHERE at < $3)
    FROM app_activity
    WHERE org_id = $1 AND at >= $2 AND at < $4
    GROUP BY kind
    ORDER BY kind";

const NEWEST: &str = "
    SELECT title, at, count(*) OVER ()
    FROM app_activity
    WHERE org_id = $1 AND at >= $2 AND at < $3
    ORDER BY at DESC
    LIMIT 10";

pub async fn run() {
    let world = World::new().await;
    fill(&world).await;
    let config = Config::parse(&CONFIG.replace("URL", &world.url), []).unwrap();
    title("1,000 orgs x 3, 1,000,000 rows", "in batches", "org by org");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        world.run("TRUNCATE digestd.sends CASCADE").await;
        ours.push(batched(&world, &config).await);
        world.run("TRUNCATE digestd.sends CASCADE").await;
        let keys = app::key_ring(&config, &world.store()).await.unwrap();
        let drafter = app::drafter_of(&config, keys).unwrap();
        let pool = pool(&world).await;
        let started = Instant::now();
        assert_eq!(one_by_one(pool, &drafter, due(ORGS)).await, ORGS);
        theirs.push(rate(ORGS, started));
    }
    line("gather, render, enqueue, orgs/s", ours, theirs);
}

/// The rows lie in the fifty days up to now.
async fn fill(world: &World) {
    world
        .run(&format!(
            "CREATE TABLE app_orgs (id text PRIMARY KEY, name text);
             CREATE TABLE app_members (id bigint PRIMARY KEY, org_id text, email text, wants boolean);
             CREATE TABLE app_activity (org_id text, kind text, title text, at timestamptz);
             INSERT INTO app_orgs SELECT 'org-' || lpad(n::text, 7, '0'), 'Org ' || n FROM generate_series(1, {ORGS}) n;
             INSERT INTO app_members
                 SELECT n, 'org-' || lpad((1 + n % {ORGS})::text, 7, '0'), 'a' || n || '@example.org', TRUE
                 FROM generate_series(1, {ORGS} * {ADMINS}) n;
             INSERT INTO app_activity
                 SELECT 'org-' || lpad((1 + n % {ORGS})::text, 7, '0'), 'kind ' || n / {ORGS} % 5, 'Title ' || n,
                     now() - n / {ORGS} % 50 * INTERVAL '1 day'
                 FROM generate_series(1, {ROWS}) n;
             CREATE INDEX ON app_members (org_id);
             CREATE INDEX ON app_activity (org_id, at);"
        ))
        .await;
    world.settle_down().await;
}

async fn batched(world: &World, config: &Config) -> f64 {
    let (store, replica, metrics) = (world.store(), ReplicaId::random(), Metrics::new());
    let source = app::source_of(config, &store).unwrap();
    let keys = app::key_ring(config, &store).await.unwrap();
    let tick = app::tick_of(config, &store, source, keys, replica, &metrics).await.unwrap();
    let pulse = Progress::new().watch("bench", Duration::from_mins(1));
    let stop = CancellationToken::new();
    let started = Instant::now();
    let mut enqueued = 0;
    for batch in due(ORGS).chunks(BATCH) {
        let claims = store.claim(batch, ClaimId::random(), terms(replica)).await.unwrap();
        enqueued += tick.work(claims, &pulse, &stop).await.messages;
    }
    let rate = rate(ORGS, started);
    assert_eq!(enqueued, (ORGS * ADMINS) as u64);
    rate
}

/// The obvious way, and not a careless one: three prepared queries for an org, and one commit.
async fn one_by_one(pool: PgPool, drafter: &Drafter, due: Vec<DueOrg>) -> usize {
    let mut done = 0;
    for org in due {
        let input = ask(&pool, &org).await;
        let drafts = Arc::new(drafter.drafts(&input, None, host_now()).drafts);
        let mut tx = pool.begin().await.unwrap();
        let send: i64 = sqlx::query_scalar(SEND)
            .bind(org.org.as_str())
            .bind(org.slot.week.to_string())
            .bind(org.slot.at)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        let addresses: Vec<&str> = drafts.iter().map(|draft| draft.address.as_str()).collect();
        let messages: Vec<i64> = sqlx::query_scalar(MESSAGES)
            .bind(send)
            .bind(org.org.as_str())
            .bind(&addresses)
            .fetch_all(&mut *tx)
            .await
            .unwrap();
        let bodies: Vec<&[u8]> = drafts
            .iter()
            .map(|draft| match &draft.content {
                DraftContent::Message { bytes, .. } => bytes.as_slice(),
                DraftContent::Final(..) => panic!("every address is good"),
            })
            .collect();
        sqlx::query(BODIES).bind(&messages).bind(&bodies).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        done += usize::from(messages.len() == ADMINS);
    }
    done
}

async fn ask(pool: &PgPool, org: &DueOrg) -> DigestInput {
    let (id, period) = (org.org.as_str(), &org.period);
    let members: Vec<(String, i64, String)> =
        sqlx::query_as(RECIPIENTS).bind(id).fetch_all(pool).await.unwrap();
    let figures: Vec<(String, i64, i64)> = sqlx::query_as(FIGURES)
        .bind(id)
        .bind(period.previous().start)
        .bind(period.start)
        .bind(period.end)
        .fetch_all(pool)
        .await
        .unwrap();
    let newest: Vec<(String, DateTime<Utc>, i64)> =
        sqlx::query_as(NEWEST).bind(id).bind(period.start).bind(period.end).fetch_all(pool).await.unwrap();
    let count = |n: i64| Amount::count(n.unsigned_abs());
    let figures = figures.into_iter().map(|(label, value, previous)| Figure {
        label,
        value: count(value),
        previous: Some(count(previous)),
    });
    let total = newest.first().map_or(0, |row| row.2.unsigned_abs());
    let shown = newest.into_iter().map(|(title, at, _)| {
        Row::from_iter([
            ("title".to_owned(), Value::from(title)),
            ("when".to_owned(), Value::from(at.to_rfc3339())),
        ])
    });
    let rows = Rows { shown: shown.collect(), total };
    let section = |name: &str, title: &str, body| Section { name: name.into(), title: title.into(), body };
    DigestInput {
        org: org.org.clone(),
        org_name: members[0].0.clone(),
        key: SendKey::Week(org.slot.week),
        period: period.clone(),
        sections: vec![
            section("figures", "This week", SectionBody::Figures(figures.collect::<Vec<_>>().into())),
            section("newest", "Newest", SectionBody::Rows(rows)),
        ],
        recipients: members
            .into_iter()
            .map(|(_, user, email)| Recipient {
                user: UserId::parse(&user.to_string()).unwrap(),
                address: Ok(Address::parse(&email).unwrap()),
                name: None,
                locale: None,
                opted_in_at: None,
            })
            .collect(),
    }
}
