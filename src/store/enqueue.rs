//! Enqueue: all messages of a send and the send's change to `enqueued`, or nothing.

use std::collections::HashMap;

use chrono::TimeDelta;
use serde::Serialize;
use sqlx::types::Json;

use super::ends::end;
use super::sends::cut;
use super::{Store, StoreError, here, uncancelled};
use crate::domain::ends::Ends;
use crate::domain::ids::SendId;
use crate::domain::message::{Draft, DraftContent, MessageState};
use crate::domain::send::Claim;
use crate::domain::token::SubscriptionRef;
use crate::domain::week::SendKey;
use crate::faults::{self, Point};

/// One claim with its messages, ready to be enqueued.
#[derive(Debug)]
pub struct Enqueue {
    /// The claim, spent by this.
    pub claim: Claim,
    /// One draft per recipient.
    pub drafts: Vec<Draft>,
}

/// What became of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// Sends that moved to `enqueued`.
    pub sends: Vec<SendId>,
    /// Rows inserted into the outbox.
    pub messages: u64,
    /// Those among them that are final from the start.
    pub ended: Ends,
}

/// A batch of which nothing was enqueued, given back, so that its orgs can be tried one at a time.
#[derive(Debug, thiserror::Error)]
#[error("nothing was enqueued")]
pub struct NotEnqueued {
    /// Why.
    pub source: StoreError,
    /// The claims with their messages.
    pub batch: Vec<Enqueue>,
}

/// First the send moves, fenced; messages are inserted only for those that did.
const MOVE: &str = "
    WITH mine AS MATERIALIZED (
        SELECT s.id AS mine_id, CAST(u.value->>'messages' AS INTEGER) AS made
        FROM digestd.sends AS s
        JOIN {each}($2) AS u ON s.id = CAST(u.value->>'id' AS BIGINT)
        WHERE s.id {among}(SELECT CAST(v.value->>'id' AS BIGINT) FROM {each}($2) AS v){end_among}
          AND CASE WHEN s.state = 'claimed' THEN s.epoch = CAST(u.value->>'epoch' AS BIGINT) END
        ORDER BY s.id
        {for_update_s}
    )
    UPDATE digestd.sends
    SET state = 'enqueued',
        messages = made,
        settled_at = {now},
        lease_until = NULL
    FROM mine
    WHERE id = mine_id
    RETURNING id";

/// What stops a message is looked up first, once for each.
const INSERT_MESSAGES: &str = "
    WITH u AS MATERIALIZED (
        SELECT
            e.value,
            -- Opt-outs are read here and again by the marker, so that one in between counts too.
            CASE
                WHEN e.value->>'state' <> 'pending' THEN e.value->>'reason'
                WHEN EXISTS (
                    SELECT 1
                    FROM digestd.opt_outs AS p
                    WHERE p.address = e.value->>'address' AND p.org_id IN ('', e.value->>'org')
                ) THEN 'opted_out'
                WHEN EXISTS (
                    SELECT 1
                    FROM digestd.suppressions AS p
                    WHERE p.address = e.value->>'address' AND p.suppressed
                ) THEN 'suppressed'
            END AS stop
        FROM {each}($2) AS e
    )
    INSERT INTO digestd.outbox (
        send_id, org_id, user_id, address, mailbox, uid, fingerprint, state, reason, resend,
        next_attempt_at, expires_at, created_at, settled_at
    )
    SELECT
        CAST(u.value->>'send' AS BIGINT),
        u.value->>'org',
        u.value->>'user',
        u.value->>'address',
        u.value->>'mailbox',
        u.value->>'uid',
        u.value->>'fingerprint',
        CASE WHEN u.value->>'state' = 'pending' AND u.stop IS NOT NULL THEN 'suppressed' ELSE u.value->>'state' END,
        u.stop,
        CAST(u.value->>'resend' AS INTEGER) <> 0,
        -- Due at once; the head start only says who goes first.
        {now} - CAST(u.value->>'head_start' AS BIGINT){ms},
        {now} + $3{ms},
        {now},
        CASE WHEN u.value->>'state' = 'pending' AND u.stop IS NULL THEN NULL ELSE {now} END
    FROM u
    RETURNING id, uid, state, reason";

/// Sorted, because a resend and the week's own send may name the same admins at the same time. Written
/// only where something is new: week after week nearly nothing is.
const INSERT_SUBSCRIPTIONS: &str = "
    INSERT INTO digestd.subscriptions AS s (ref, org_id, org_name, user_id, address)
    SELECT
        u.value->>'ref',
        u.value->>'org',
        u.value->>'org_name',
        u.value->>'user',
        u.value->>'address'
    FROM {each}($1) AS u
    WHERE u.value->>'ref' IS NOT NULL
    ORDER BY 1
    ON CONFLICT (ref) DO UPDATE
    SET org_name = excluded.org_name, user_id = excluded.user_id
    WHERE s.org_name <> excluded.org_name OR s.user_id <> excluded.user_id";

const INSERT_BODIES_POSTGRES: &str = "
    INSERT INTO digestd.bodies (message_id, bytes)
    SELECT id, bytes
    FROM unnest($1::BIGINT[], $2::BYTEA[]) AS u (id, bytes)";

const INSERT_BODY_SQLITE: &str = "
    INSERT INTO digestd.bodies (message_id, bytes)
    VALUES ($1, $2)";

#[derive(Serialize)]
struct Moving {
    id: i64,
    epoch: i64,
    messages: usize,
}

#[derive(Serialize)]
struct MessageRow {
    send: i64,
    org: String,
    org_name: String,
    user: String,
    address: String,
    mailbox: Option<String>,
    /// The subscription that the message's unsubscribe link means.
    #[serde(rename = "ref")]
    subscription: Option<String>,
    uid: String,
    fingerprint: Option<String>,
    state: &'static str,
    reason: Option<&'static str>,
    resend: u8,
    /// In milliseconds.
    head_start: i64,
}

/// The first message of a send stands in the queue as if it had come a minute earlier, each further one
/// a little less: the thousands of a huge org let the few of a small one pass, even one that is enqueued later.
const HEAD_START: TimeDelta = TimeDelta::minutes(1);
/// By how much the head start shrinks from one message of a send to the next.
const HEAD_START_STEP: TimeDelta = TimeDelta::milliseconds(60);

/// A batch taken apart into what the statements want.
struct Batch<'a> {
    moving: Vec<Moving>,
    rows: Vec<MessageRow>,
    bodies: HashMap<&'a str, &'a [u8]>,
}

/// Moves the sends and inserts the narrow rows; what is left to insert are the bodies, by row id.
macro_rules! enqueue_rows {
    ($store:expr, $tx:expr, $batch:expr, $max_age:expr) => {{
        let moved: Vec<i64> = sqlx::query_scalar($store.sql(MOVE))
            .bind($store.given())
            .bind(Json(&$batch.moving))
            .fetch_all(&mut **$tx)
            .await?;
        let rows: Vec<&MessageRow> = $batch.rows.iter().filter(|row| moved.contains(&row.send)).collect();
        let inserted: Vec<(i64, String, String, Option<String>)> =
            sqlx::query_as($store.sql(INSERT_MESSAGES))
                .bind($store.given())
                .bind(Json(&rows))
                .bind($max_age.num_milliseconds())
                .fetch_all(&mut **$tx)
                .await?;
        sqlx::query($store.sql(INSERT_SUBSCRIPTIONS)).bind(Json(&rows)).execute(&mut **$tx).await?;
        let bodies: Vec<(i64, &[u8])> = inserted
            .iter()
            .filter_map(|(id, uid, ..)| $batch.bodies.get(uid.as_str()).map(|bytes| (*id, *bytes)))
            .collect();
        let messages = u64::try_from(inserted.len()).unwrap_or(u64::MAX);
        let ended = inserted.iter().filter_map(|(.., state, reason)| end(state, reason.as_deref())).collect();
        (Enqueued { sends: moved.into_iter().map(SendId).collect(), messages, ended }, bodies)
    }};
}

impl Store {
    /// Enqueues a batch in one transaction. A claim that was superseded meanwhile leaves no trace of
    /// its messages and does not hold up the others. Running it again after a lost answer enqueues
    /// nothing twice: the sends have moved, and only moved sends get messages.
    pub async fn enqueue(&self, batch: Vec<Enqueue>, max_age: TimeDelta) -> Result<Enqueued, NotEnqueued> {
        let store = self.clone();
        uncancelled(async move {
            let enqueued = store.enqueue_all(&batch, max_age).await;
            enqueued.map_err(|source| NotEnqueued {
                source: StoreError::doing("enqueueing messages")(source),
                batch,
            })
        })
        .await
    }

    async fn enqueue_all(&self, batch: &[Enqueue], max_age: TimeDelta) -> Result<Enqueued, sqlx::Error> {
        let batch = take_apart(batch);
        match self {
            Store::Postgres(inner) => {
                let request = inner.line.ask(here!())?;
                let mut tx = inner.begin().await?;
                let (enqueued, bodies) = enqueue_rows!(self, &mut tx, &batch, max_age);
                let (ids, bytes): (Vec<i64>, Vec<&[u8]>) = bodies.into_iter().unzip();
                sqlx::query(self.sql(INSERT_BODIES_POSTGRES)).bind(ids).bind(bytes).execute(&mut *tx).await?;
                faults::point(Point::BeforeEnqueueCommit);
                request.answered(tx.commit().await)?;
                Ok(enqueued)
            }
            Store::Sqlite(inner) => {
                let request = inner.line.ask(here!())?;
                let mut tx = inner.write.begin_with("BEGIN IMMEDIATE").await?;
                let (enqueued, bodies) = enqueue_rows!(self, &mut tx, &batch, max_age);
                for (id, bytes) in bodies {
                    sqlx::query(self.sql(INSERT_BODY_SQLITE)).bind(id).bind(bytes).execute(&mut *tx).await?;
                }
                faults::point(Point::BeforeEnqueueCommit);
                request.answered(tx.commit().await)?;
                Ok(enqueued)
            }
        }
    }
}

fn take_apart(batch: &[Enqueue]) -> Batch<'_> {
    let mut taken = Batch { moving: Vec::new(), rows: Vec::new(), bodies: HashMap::new() };
    for Enqueue { claim, drafts } in batch {
        taken.moving.push(Moving { id: claim.send.0, epoch: claim.epoch.0, messages: drafts.len() });
        let resend = u8::from(matches!(claim.key, SendKey::Manual(_)));
        for (rank, draft) in drafts.iter().enumerate() {
            let row = MessageRow {
                send: claim.send.0,
                org: claim.org.to_string(),
                org_name: cut(&draft.org_name),
                user: draft.user.to_string(),
                address: cut(&draft.address),
                mailbox: None,
                subscription: None,
                uid: draft.uid.as_str().to_owned(),
                fingerprint: None,
                state: MessageState::Pending.as_str(),
                reason: None,
                resend,
                head_start: head_start(rank),
            };
            taken.rows.push(match &draft.content {
                DraftContent::Message { to, fingerprint, bytes } => {
                    taken.bodies.insert(draft.uid.as_str(), bytes.as_slice());
                    MessageRow {
                        mailbox: Some(to.mailbox().to_owned()),
                        // By the address that the link was signed for, even if another gets the message.
                        subscription: Some(SubscriptionRef::derive(&claim.org, &draft.address).to_string()),
                        fingerprint: Some(fingerprint.as_str().to_owned()),
                        ..row
                    }
                }
                DraftContent::Final(state, reason) => {
                    MessageRow { state: state.as_str(), reason: Some(reason.as_str()), ..row }
                }
            });
        }
    }
    taken
}

fn head_start(rank: usize) -> i64 {
    let passed = HEAD_START_STEP.num_milliseconds().saturating_mul(i64::try_from(rank).unwrap_or(i64::MAX));
    (HEAD_START.num_milliseconds() - passed).max(0)
}
