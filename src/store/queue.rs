//! The outbox as an operator sees and changes it. Every change names the states that it is for, and is
//! written into the message's history in the same transaction.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use sqlx::types::Json;

use super::dialect::At;
use super::ends::LEAVE;
use super::uncertain::SETTLE;
use super::{Store, StoreError, run, transact, uncancelled};
use crate::domain::ends::End;
use crate::domain::ids::MessageId;
use crate::domain::message::{MessageReason, MessageState};
use crate::domain::retry::MAX_AGE;

/// Which messages. Every part narrows the choice; an empty one leaves it alone.
#[derive(Debug, Clone, Default)]
pub struct QueueFilter {
    /// In one of these states.
    pub states: Vec<MessageState>,
    /// Of this org.
    pub org: Option<String>,
    /// Of sends with this key: a week, or a resend's own key.
    pub week: Option<String>,
    /// To this address, in its normal form.
    pub to: Option<String>,
    /// Enqueued at least so long ago.
    pub older: Option<TimeDelta>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The row.
    pub id: MessageId,
    /// The name outside the database.
    pub uid: String,
    /// Whose digest.
    pub org: String,
    /// The send's key.
    pub week: String,
    /// The admin.
    pub user: String,
    /// The address in its normal form.
    pub address: String,
    /// Where it is.
    pub state: String,
    /// Why, if it is final.
    pub reason: Option<String>,
    /// Attempts charged.
    pub attempts: u32,
    /// When it is tried next, if it waits.
    pub next_attempt_at: DateTime<Utc>,
    /// When it is given up.
    pub expires_at: DateTime<Utc>,
    /// When its body last was about to leave.
    pub marked_at: Option<DateTime<Utc>>,
    /// Whether it is to be sent although it may have been accepted before.
    pub resend: bool,
    /// What was said last.
    pub note: Option<String>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it became final.
    pub settled_at: Option<DateTime<Utc>>,
}

/// One entry of a message's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEvent {
    /// When.
    pub at: DateTime<Utc>,
    /// By which replica; nobody for an operator.
    pub replica: Option<uuid::Uuid>,
    /// The phase reached, or `operator`, or `policy`.
    pub phase: String,
    /// What came of it.
    pub outcome: String,
    /// What was said.
    pub note: Option<String>,
}

/// What an operator may do to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueAct {
    /// Try again what was given up, expired or cancelled, if its bytes are still there and its address may get it.
    Retry {
        /// How long it is tried.
        live_for: TimeDelta,
    },
    /// Take back what has not left.
    Cancel,
    /// Say of an uncertain message that it was accepted.
    ResolveAccepted,
    /// Send an uncertain message again, at the risk of a second copy.
    ResolveResend {
        /// As many charged attempts end a message.
        max_attempts: u32,
    },
}

impl QueueAct {
    /// The name in a message's history.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Cancel => "cancel",
            Self::ResolveAccepted => "accepted",
            Self::ResolveResend { .. } => "resend",
        }
    }

    /// The end that it brings messages to, if it does.
    const fn end(self) -> Option<End> {
        match self {
            Self::Cancel => Some((MessageState::Cancelled, Some(MessageReason::Operator))),
            Self::ResolveAccepted => Some((MessageState::Accepted, None)),
            Self::Retry { .. } | Self::ResolveResend { .. } => None,
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::Retry { .. } => RETRY,
            Self::Cancel => CANCEL,
            Self::ResolveAccepted => ACCEPTED,
            Self::ResolveResend { .. } => RESEND,
        }
    }

    /// What `$3` and `$4` are, in a statement that has them.
    fn numbers(self) -> Option<(i64, i64)> {
        match self {
            Self::Retry { live_for } => Some((MAX_AGE.num_milliseconds(), live_for.num_milliseconds())),
            Self::Cancel | Self::ResolveAccepted => None,
            Self::ResolveResend { max_attempts } => {
                Some((SETTLE.num_milliseconds(), i64::from(max_attempts)))
            }
        }
    }
}

/// Keyset pages by id. Filters that are not given are `NULL`.
const LIST: &str = "
    SELECT
        o.id, o.uid, o.org_id, s.week_key, o.user_id, o.address, o.state, o.reason, o.attempts,
        o.next_attempt_at, o.expires_at, o.marked_at, o.resend, o.note, o.created_at, o.settled_at
    FROM digestd.outbox AS o
    JOIN digestd.sends AS s ON s.id = o.send_id
    WHERE o.id > $2
      AND o.state IN (SELECT u.value->>'state' FROM {each}($3) AS u)
      AND (CAST($4 AS TEXT) IS NULL OR o.org_id = $4)
      AND (CAST($5 AS TEXT) IS NULL OR s.week_key = $5)
      AND (CAST($6 AS TEXT) IS NULL OR o.address = $6)
      AND (CAST($7 AS BIGINT) IS NULL OR o.created_at + $7{ms} <= {now})
    ORDER BY o.id
    LIMIT $8";

const EVENTS: &str = "
    SELECT at, replica, phase, outcome, note
    FROM digestd.attempts
    WHERE message_id = $1
    ORDER BY id";

/// A retry begins anew: its attempts are forgotten, or it would be failed by its next lease. It is no
/// resend: the guard still has its say.
const RETRY: &str = "
    WITH wanted AS MATERIALIZED (
        SELECT o.id AS wanted_id
        FROM digestd.outbox AS o
        JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
        WHERE o.state IN ('failed', 'expired', 'cancelled')
          AND o.created_at + $3{ms} > {now}
          AND EXISTS (SELECT 1 FROM digestd.bodies AS b WHERE b.message_id = o.id)
          -- The marker would find the same, after a person was told that these are tried again.
          AND NOT EXISTS (
              SELECT 1
              FROM digestd.opt_outs AS p
              WHERE p.address = o.address AND p.org_id IN ('', o.org_id)
          )
          AND NOT EXISTS (
              SELECT 1
              FROM digestd.suppressions AS p
              WHERE p.address = o.address AND p.suppressed
          )
        ORDER BY o.id
        {for_update_o}
    )
    UPDATE digestd.outbox AS o
    SET state = 'pending',
        reason = NULL,
        attempts = 0,
        next_attempt_at = {now},
        expires_at = CASE
            WHEN o.created_at + $3{ms} < {now} + $4{ms} THEN o.created_at + $3{ms}
            ELSE {now} + $4{ms}
        END,
        marked_at = NULL,
        settled_at = NULL
    FROM wanted
    WHERE o.id = wanted_id AND o.state IN ('failed', 'expired', 'cancelled')
    RETURNING id";

/// A leased message may be cancelled too: its marker then finds another state, and nothing leaves.
const CANCEL: &str = "
    WITH wanted AS MATERIALIZED (
        SELECT o.id AS wanted_id
        FROM digestd.outbox AS o
        JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
        WHERE o.state IN ('pending', 'leased')
        ORDER BY o.id
        {for_update_o}
    )
    UPDATE digestd.outbox AS o
    SET state = 'cancelled',
        reason = 'operator',
        owner = NULL,
        lease_until = NULL,
        settled_at = {now}
    FROM wanted
    WHERE o.id = wanted_id AND o.state IN ('pending', 'leased')
    RETURNING id";

const ACCEPTED: &str = "
    WITH wanted AS MATERIALIZED (
        SELECT o.id AS wanted_id
        FROM digestd.outbox AS o
        JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
        WHERE o.state = 'uncertain'
        ORDER BY o.id
        {for_update_o}
    )
    UPDATE digestd.outbox AS o
    SET state = 'accepted',
        reason = NULL,
        settled_at = {now}
    FROM wanted
    WHERE o.id = wanted_id AND o.state = 'uncertain'
    RETURNING id";

const RESEND: &str = "
    WITH wanted AS MATERIALIZED (
        SELECT o.id AS wanted_id
        FROM digestd.outbox AS o
        JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
        WHERE o.state = 'uncertain'
          AND o.marked_at + $3{ms} <= {now}
          AND o.expires_at > {now}
          AND o.attempts + 1 < $4
        ORDER BY o.id
        {for_update_o}
    )
    UPDATE digestd.outbox AS o
    SET state = 'pending',
        resend = TRUE,
        attempts = o.attempts + 1,
        next_attempt_at = {now},
        marked_at = NULL
    FROM wanted
    WHERE o.id = wanted_id AND o.state = 'uncertain'
    RETURNING id";

/// Writes what was done into the histories of messages.
pub(super) const NOTE: &str = "
    INSERT INTO digestd.attempts (message_id, at, token, phase, outcome)
    SELECT o.id, {now}, o.token, $3, $4
    FROM digestd.outbox AS o
    JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)";

type Row = (
    i64,
    String,
    String,
    String,
    String,
    String,
    String,
    Option<String>,
    i32,
    At,
    At,
    Option<At>,
    bool,
    Option<String>,
    At,
    Option<At>,
);

/// An id in a JSON array.
#[derive(Serialize)]
pub(super) struct Id {
    pub(super) id: i64,
}

#[derive(Serialize)]
struct StateName {
    state: &'static str,
}

impl Store {
    /// One page of the messages that a filter lets through, after the given one.
    pub async fn list_queue(
        &self,
        filter: &QueueFilter,
        after: Option<MessageId>,
        limit: u32,
    ) -> Result<Vec<Queued>, StoreError> {
        let states = if filter.states.is_empty() { &MessageState::ALL[..] } else { &filter.states };
        let states: Vec<StateName> = states.iter().map(|state| StateName { state: state.as_str() }).collect();
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(LIST))
                .bind(self.given())
                .bind(after.map_or(0, |id| id.0))
                .bind(Json(&states))
                .bind(&filter.org)
                .bind(&filter.week)
                .bind(&filter.to)
                .bind(filter.older.map(|older| older.num_milliseconds()))
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("listing messages"))?;
        Ok(rows.into_iter().map(queued).collect())
    }

    /// One message by its id.
    pub async fn queued(&self, id: MessageId) -> Result<Option<Queued>, StoreError> {
        let before = Some(MessageId(id.0.saturating_sub(1)));
        let page = self.list_queue(&QueueFilter::default(), before, 1).await?;
        Ok(page.into_iter().find(|message| message.id == id))
    }

    /// What has happened to a message, beyond what stands in its row.
    pub async fn message_events(&self, id: MessageId) -> Result<Vec<QueueEvent>, StoreError> {
        type EventRow = (At, Option<uuid::Uuid>, String, String, Option<String>);
        let rows: Vec<EventRow> = run!(self, read, db => {
            sqlx::query_as(self.sql(EVENTS)).bind(id.0).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading a message's history"))?;
        let event = |(at, replica, phase, outcome, note): EventRow| QueueEvent {
            at: at.0,
            replica,
            phase,
            outcome,
            note,
        };
        Ok(rows.into_iter().map(event).collect())
    }

    /// Does something to messages, to those that it is for. Returns which they were; the others are in
    /// a state, or of an age, that it is not for.
    pub async fn act_on_queue(&self, act: QueueAct, ids: &[MessageId]) -> Result<Vec<MessageId>, StoreError> {
        let ids: Vec<Id> = ids.iter().map(|id| Id { id: id.0 }).collect();
        let ids = serde_json::to_value(&ids).unwrap_or_default();
        let store = self.clone();
        let done: Vec<i64> = uncancelled(async move {
            transact!(&store, tx => {
                let mut statement =
                    sqlx::query_scalar(store.sql(act.statement())).bind(store.given()).bind(Json(&ids));
                if let Some((first, second)) = act.numbers() {
                    statement = statement.bind(first).bind(second);
                }
                let done: Vec<i64> = statement.fetch_all(&mut *tx).await?;
                let noted: Vec<Id> = done.iter().map(|id| Id { id: *id }).collect();
                sqlx::query(store.sql(NOTE))
                    .bind(store.given())
                    .bind(Json(&noted))
                    .bind("operator")
                    .bind(act.as_str())
                    .execute(&mut *tx)
                    .await?;
                if let Some((state, reason)) = act.end().filter(|_| !done.is_empty()) {
                    sqlx::query(store.sql(LEAVE))
                        .bind(state.as_str())
                        .bind(reason.map(MessageReason::as_str))
                        .bind(i64::try_from(done.len()).unwrap_or(i64::MAX))
                        .execute(&mut *tx)
                        .await?;
                }
                Ok(done)
            })
        })
        .await
        .map_err(StoreError::doing("changing messages by hand"))?;
        Ok(done.into_iter().map(MessageId).collect())
    }
}

fn queued(row: Row) -> Queued {
    let (id, uid, org, week, user, address, state, reason, attempts, next, expires, marked, resend, note, ..) =
        row;
    Queued {
        id: MessageId(id),
        uid,
        org,
        week,
        user,
        address,
        state,
        reason,
        attempts: u32::try_from(attempts).unwrap_or_default(),
        next_attempt_at: next.0,
        expires_at: expires.0,
        marked_at: marked.map(|at| at.0),
        resend,
        note,
        created_at: row.14.0,
        settled_at: row.15.map(|at| at.0),
    }
}
