//! Claiming and storing: three messages of 8 KB for each org, beside one transaction per org.

use std::time::Instant;

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::fingerprint::Fingerprint;
use digestd::domain::ids::{ClaimId, OrgId, ReplicaId, UserId};
use digestd::domain::message::{Draft, DraftContent, MessageUid};
use digestd::domain::send::{Claim, DueOrg};
use digestd::domain::week::SendKey;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::tick::sweep::visiting_order;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::figures::{line, rate, title};
use crate::world::{World, body, due, terms};

const ROUNDS: usize = 5;
const ORGS: usize = 4_000;
const ORGS_ONE_BY_ONE: usize = 600;
const ADMINS: usize = 3;
/// Orgs per claim, as configured by default.
const CLAIMS: usize = 200;
/// Orgs per transaction of messages, as the tick has it.
const ENQUEUES: usize = 50;

pub async fn run() {
    let world = World::new().await;
    title("claims with 3 x 8 KB, 2 replicas", "batched", "one tx per org");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        world.run("TRUNCATE digestd.sends CASCADE").await;
        let started = Instant::now();
        let (a, b) = tokio::join!(
            tokio::spawn(batched(world.store(), due(ORGS))),
            tokio::spawn(batched(world.store(), due(ORGS)))
        );
        assert_eq!(a.unwrap() + b.unwrap(), ORGS);
        ours.push(rate(ORGS, started));
        world.run("TRUNCATE digestd.sends CASCADE").await;
        let (first, second) = (pool(&world).await, pool(&world).await);
        let started = Instant::now();
        let (a, b) = tokio::join!(tokio::spawn(one_by_one(first)), tokio::spawn(one_by_one(second)));
        assert_eq!(a.unwrap() + b.unwrap(), ORGS_ONE_BY_ONE);
        theirs.push(rate(ORGS_ONE_BY_ONE, started));
    }
    line("durable commits, lz4, orgs/s", ours, theirs);
}

async fn batched(store: Store, due: Vec<DueOrg>) -> usize {
    let replica = ReplicaId::random();
    let mut enqueued = 0;
    let batches: Vec<&[DueOrg]> = due.chunks(CLAIMS).collect();
    for place in visiting_order(batches.len(), replica) {
        let batch = store.without_send(batches[place].to_vec()).await.unwrap();
        if batch.is_empty() {
            continue;
        }
        let claims = store.claim(&batch, ClaimId::random(), terms(replica)).await.unwrap();
        let mut claims = claims.into_iter().peekable();
        while claims.peek().is_some() {
            let batch = claims.by_ref().take(ENQUEUES).map(with_drafts).collect();
            enqueued += store.enqueue(batch, TimeDelta::days(2)).await.unwrap().sends.len();
        }
    }
    enqueued
}

fn with_drafts(claim: Claim) -> Enqueue {
    let drafts = (0..ADMINS).map(|n| draft(&claim.org, claim.key, n)).collect();
    Enqueue { claim, drafts }
}

fn draft(org: &OrgId, key: SendKey, n: usize) -> Draft {
    let to = Address::parse(&format!("admin-{n}@{org}.example.org")).unwrap();
    Draft {
        user: UserId::parse(&format!("admin-{n}")).unwrap(),
        org_name: "An org".to_owned(),
        address: to.normal().to_owned(),
        uid: MessageUid::derive(org, key, to.normal()),
        content: DraftContent::Message {
            fingerprint: Fingerprint::derive(to.normal(), "digest", &key.to_string()),
            to,
            bytes: body(),
        },
    }
}

/// The obvious way, and not a careless one: three statements and a commit per org.
async fn one_by_one(pool: PgPool) -> usize {
    let mut won = 0;
    for org in due(ORGS_ONE_BY_ONE) {
        let mut tx = pool.begin().await.unwrap();
        let send: Option<i64> = sqlx::query_scalar(SEND)
            .bind(org.org.as_str())
            .bind(org.slot.week.to_string())
            .bind(org.slot.at)
            .fetch_optional(&mut *tx)
            .await
            .unwrap();
        if let Some(send) = send {
            let drafts: Vec<Draft> =
                (0..ADMINS).map(|n| draft(&org.org, SendKey::Week(org.slot.week), n)).collect();
            let addresses: Vec<&str> = drafts.iter().map(|draft| draft.address.as_str()).collect();
            let messages: Vec<i64> = sqlx::query_scalar(MESSAGES)
                .bind(send)
                .bind(org.org.as_str())
                .bind(&addresses)
                .fetch_all(&mut *tx)
                .await
                .unwrap();
            let bodies: Vec<Vec<u8>> = drafts.iter().map(|_| body()).collect();
            sqlx::query(BODIES).bind(&messages).bind(&bodies).execute(&mut *tx).await.unwrap();
            won += 1;
        }
        tx.commit().await.unwrap();
    }
    won
}

pub const SEND: &str = "
    INSERT INTO digestd.sends (org_id, week_key, state, slot_at, timezone, period_first, period_start,
        period_end, give_up_at)
    VALUES ($1, $2, 'enqueued', $3, 'UTC', '2026-06-29', $3, $3, $3)
    ON CONFLICT (org_id, week_key) DO NOTHING
    RETURNING id";

pub const MESSAGES: &str = "
    INSERT INTO digestd.outbox (send_id, org_id, user_id, address, mailbox, uid, fingerprint, state,
        next_attempt_at, expires_at, created_at)
    SELECT $1, $2, 'admin', address, address, md5(address), md5(address) || md5(address), 'pending',
        now(), now(), now()
    FROM unnest($3::TEXT[]) AS address
    RETURNING id";

pub const BODIES: &str = "
    INSERT INTO digestd.bodies (message_id, bytes)
    SELECT id, bytes
    FROM unnest($1::BIGINT[], $2::BYTEA[]) AS u (id, bytes)";

pub async fn pool(world: &World) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect(&world.url).await.unwrap()
}
