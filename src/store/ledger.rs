//! What the ledger reads: one org's rows, for its story.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::dialect::At;
use super::{Store, StoreError, run};
use crate::domain::ids::{MessageId, OrgId, ReplicaId, SendId};
use crate::domain::message::{MessageReason, MessageState};
use crate::domain::send::{SendReason, SendState};
use crate::domain::week::{SendKey, WeekKey};

/// An org and its admins as the built-in directory has them, whoever gets a digest or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The org's name.
    pub name: String,
    /// Its zone, unchecked.
    pub timezone: String,
    /// Whether it gets digests at all.
    pub active: bool,
    /// When it was created, if known.
    pub created_at: Option<DateTime<Utc>>,
    /// Everybody, by id.
    pub admins: Vec<AdminStanding>,
}

/// An admin as the built-in directory has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminStanding {
    /// The admin.
    pub user: String,
    /// The address, unchecked.
    pub email: String,
    /// Whether the account is active.
    pub active: bool,
    /// Whether the admin wants the digest.
    pub weekly_digest: bool,
    /// Since when, if known.
    pub opted_in_at: Option<DateTime<Utc>>,
}

/// A send as it stands in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendRow {
    /// The row.
    pub id: SendId,
    /// The key.
    pub key: SendKey,
    /// The state.
    pub state: SendState,
    /// Why it ended without messages.
    pub reason: Option<SendReason>,
    /// The last error.
    pub detail: Option<String>,
    /// When its slot opened.
    pub slot_at: DateTime<Utc>,
    /// The zone of its days.
    pub timezone: String,
    /// The first local date that it is about.
    pub period_first: String,
    /// For a resend to one admin: the only address.
    pub only_address: Option<String>,
    /// When it is failed rather than tried again.
    pub give_up_at: DateTime<Utc>,
    /// Who claimed it last.
    pub claimed_by: Option<ReplicaId>,
    /// When.
    pub claimed_at: Option<DateTime<Utc>>,
    /// How long that claim holds.
    pub lease_until: Option<DateTime<Utc>>,
    /// Own gatherings begun.
    pub attempts: i32,
    /// Messages enqueued.
    pub messages: i32,
    /// When it was settled.
    pub settled_at: Option<DateTime<Utc>>,
}

/// Something that happened to a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendEvent {
    /// When.
    pub at: DateTime<Utc>,
    /// `claimed`, `taken_over`, `attempt_failed`, `resend_requested`, `reopened`.
    pub event: String,
    /// The replica, if one did it.
    pub replica: Option<ReplicaId>,
    /// More about it.
    pub detail: Option<String>,
}

/// A message as it stands in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// The row.
    pub id: MessageId,
    /// The admin.
    pub user: String,
    /// The normalised address.
    pub address: String,
    /// The state.
    pub state: MessageState,
    /// Why it ended without an acceptance.
    pub reason: Option<MessageReason>,
    /// Charged attempts.
    pub attempts: i32,
    /// Who holds it.
    pub owner: Option<ReplicaId>,
    /// When it is tried next.
    pub next_attempt_at: DateTime<Utc>,
    /// When it expires.
    pub expires_at: DateTime<Utc>,
    /// When its body was about to leave.
    pub marked_at: Option<DateTime<Utc>>,
    /// The relay's last words, or ours.
    pub note: Option<String>,
    /// When it was settled.
    pub settled_at: Option<DateTime<Utc>>,
}

/// A hand-over that did not end in an acceptance, or an operator's act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// Whose.
    pub message: MessageId,
    /// When.
    pub at: DateTime<Utc>,
    /// By which replica.
    pub replica: Option<ReplicaId>,
    /// How far it came.
    pub phase: String,
    /// The state that the message came to.
    pub outcome: String,
    /// The relay's words, or ours.
    pub note: Option<String>,
}

const STANDING: &str = "
    SELECT name, timezone, active, created_at
    FROM digestd.orgs
    WHERE id = $1";

const ADMINS: &str = "
    SELECT id, email, active, weekly_digest, opted_in_at
    FROM digestd.admins
    WHERE org_id = $1
    ORDER BY id";

/// The week's send first, then resends of the same days: as the send has them, or as they are asked for.
const SENDS: &str = "
    SELECT
        id, week_key, state, reason, detail, slot_at, timezone, period_first, only_address, give_up_at,
        claimed_by, claimed_at, lease_until, attempts, messages, settled_at
    FROM digestd.sends
    WHERE org_id = $1
      AND (
          week_key = $2
          OR (week_key LIKE 'manual-%' AND period_first = COALESCE(
              (SELECT w.period_first FROM digestd.sends AS w WHERE w.org_id = $1 AND w.week_key = $2), $3
          ))
      )
    ORDER BY CASE WHEN week_key = $2 THEN 0 ELSE 1 END, slot_at, id";

/// Resends are not of a week.
const NEWEST_WEEK: &str = "
    SELECT week_key
    FROM digestd.sends
    WHERE org_id = $1 AND week_key NOT LIKE 'manual-%'
    ORDER BY slot_at DESC
    LIMIT 1";

const EVENTS: &str = "
    SELECT at, event, replica, detail
    FROM digestd.send_events
    WHERE send_id = $1
    ORDER BY at, id";

const MESSAGES: &str = "
    SELECT
        id, user_id, address, state, reason, attempts, owner, next_attempt_at, expires_at, marked_at,
        note, settled_at
    FROM digestd.outbox
    WHERE send_id = $1
    ORDER BY address";

const ATTEMPTS: &str = "
    SELECT a.message_id, a.at, a.replica, a.phase, a.outcome, a.note
    FROM digestd.attempts AS a
    JOIN digestd.outbox AS o ON o.id = a.message_id
    WHERE o.send_id = $1
    ORDER BY a.id";

const HOSTS: &str = "
    SELECT id, host
    FROM digestd.replicas";

type RawSend = (
    i64,
    String,
    String,
    Option<String>,
    Option<String>,
    At,
    String,
    String,
    Option<String>,
    At,
    Option<Uuid>,
    Option<At>,
    Option<At>,
    i32,
    i32,
    Option<At>,
);

type RawMessage = (
    i64,
    String,
    String,
    String,
    Option<String>,
    i32,
    Option<Uuid>,
    At,
    At,
    Option<At>,
    Option<String>,
    Option<At>,
);

impl Store {
    /// An org and its admins in the built-in directory, active or not.
    pub async fn standing(&self, org: &OrgId) -> Result<Option<Standing>, StoreError> {
        let doing = || StoreError::doing("reading an org and its admins");
        let found: Option<(String, String, bool, Option<At>)> = run!(self, read, db => {
            sqlx::query_as(self.sql(STANDING)).bind(org.as_str()).fetch_optional(db).await
        })
        .map_err(doing())?;
        let Some((name, timezone, active, created_at)) = found else { return Ok(None) };
        let admins: Vec<(String, String, bool, bool, Option<At>)> = run!(self, read, db => {
            sqlx::query_as(self.sql(ADMINS)).bind(org.as_str()).fetch_all(db).await
        })
        .map_err(doing())?;
        let admins = admins
            .into_iter()
            .map(|(user, email, active, weekly_digest, opted_in_at)| AdminStanding {
                user,
                email,
                active,
                weekly_digest,
                opted_in_at: opted_in_at.map(|at| at.0),
            })
            .collect();
        Ok(Some(Standing { name, timezone, active, created_at: created_at.map(|at| at.0), admins }))
    }

    /// An org's send of a week, and the resends about the days that begin on `first`.
    pub async fn sends_of(
        &self,
        org: &OrgId,
        week: WeekKey,
        first: &str,
    ) -> Result<Vec<SendRow>, StoreError> {
        let rows: Vec<RawSend> = run!(self, read, db => {
            sqlx::query_as(self.sql(SENDS))
                .bind(org.as_str())
                .bind(week.to_string())
                .bind(first)
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("reading an org's sends"))?;
        rows.into_iter().map(send_row).collect()
    }

    /// The week of the last send that an org has had, if it has had one.
    pub async fn newest_week_of(&self, org: &OrgId) -> Result<Option<WeekKey>, StoreError> {
        let key: Option<String> = run!(self, read, db => {
            sqlx::query_scalar(self.sql(NEWEST_WEEK)).bind(org.as_str()).fetch_optional(db).await
        })
        .map_err(StoreError::doing("reading an org's newest week"))?;
        let parsed = |key: String| {
            WeekKey::parse(&key).map_err(|_| StoreError::inconsistent("sends", "week_key", &key))
        };
        key.map(parsed).transpose()
    }

    /// What happened to a send, in the order of time.
    pub async fn send_events(&self, send: SendId) -> Result<Vec<SendEvent>, StoreError> {
        let rows: Vec<(At, String, Option<Uuid>, Option<String>)> = run!(self, read, db => {
            sqlx::query_as(self.sql(EVENTS)).bind(send.0).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading what happened to a send"))?;
        Ok(rows
            .into_iter()
            .map(|(at, event, replica, detail)| SendEvent {
                at: at.0,
                event,
                replica: replica.map(ReplicaId),
                detail,
            })
            .collect())
    }

    /// The messages of a send, by address.
    pub async fn messages_of(&self, send: SendId) -> Result<Vec<MessageRow>, StoreError> {
        let rows: Vec<RawMessage> = run!(self, read, db => {
            sqlx::query_as(self.sql(MESSAGES)).bind(send.0).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading a send's messages"))?;
        rows.into_iter().map(message_row).collect()
    }

    /// The attempts on a send's messages, in order.
    pub async fn attempts_of(&self, send: SendId) -> Result<Vec<AttemptRow>, StoreError> {
        type Row = (i64, At, Option<Uuid>, String, String, Option<String>);
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(ATTEMPTS)).bind(send.0).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading attempts"))?;
        Ok(rows
            .into_iter()
            .map(|(message, at, replica, phase, outcome, note)| AttemptRow {
                message: MessageId(message),
                at: at.0,
                replica: replica.map(ReplicaId),
                phase,
                outcome,
                note,
            })
            .collect())
    }

    /// The hosts of the replicas that are known, for people.
    pub async fn replica_hosts(&self) -> Result<HashMap<ReplicaId, String>, StoreError> {
        let rows: Vec<(Uuid, String)> =
            run!(self, read, db => sqlx::query_as(self.sql(HOSTS)).fetch_all(db).await)
                .map_err(StoreError::doing("reading replicas' hosts"))?;
        Ok(rows.into_iter().map(|(id, host)| (ReplicaId(id), host)).collect())
    }
}

fn send_row(row: RawSend) -> Result<SendRow, StoreError> {
    let (id, key, state, reason, detail, slot_at, timezone, period_first, only_address, give_up_at, ..) = row;
    let (.., claimed_by, claimed_at, lease_until, attempts, messages, settled_at) = row;
    let unknown = |column| StoreError::inconsistent("sends", column, id);
    Ok(SendRow {
        id: SendId(id),
        key: SendKey::parse(&key).map_err(|_| unknown("week_key"))?,
        state: SendState::parse(&state).ok_or_else(|| unknown("state"))?,
        reason: reason
            .map(|reason| SendReason::parse(&reason).ok_or_else(|| unknown("reason")))
            .transpose()?,
        detail,
        slot_at: slot_at.0,
        timezone,
        period_first,
        only_address,
        give_up_at: give_up_at.0,
        claimed_by: claimed_by.map(ReplicaId),
        claimed_at: claimed_at.map(|at| at.0),
        lease_until: lease_until.map(|at| at.0),
        attempts,
        messages,
        settled_at: settled_at.map(|at| at.0),
    })
}

fn message_row(row: RawMessage) -> Result<MessageRow, StoreError> {
    let (id, user, address, state, reason, attempts, owner, next, expires, marked, note, settled) = row;
    let unknown = |column| StoreError::inconsistent("outbox", column, id);
    Ok(MessageRow {
        id: MessageId(id),
        user,
        address,
        state: MessageState::parse(&state).ok_or_else(|| unknown("state"))?,
        reason: reason
            .map(|reason| MessageReason::parse(&reason).ok_or_else(|| unknown("reason")))
            .transpose()?,
        attempts,
        owner: owner.map(ReplicaId),
        next_attempt_at: next.0,
        expires_at: expires.0,
        marked_at: marked.map(|at| at.0),
        note,
        settled_at: settled.map(|at| at.0),
    })
}
