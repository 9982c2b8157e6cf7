//! The outbox: leases, markers, results, and what a dead replica has left behind.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::sends::cut;
use super::{Store, StoreError, run, transact, uncancelled};
use crate::domain::address::Address;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{MessageId, OrgId, ReplicaId, Token, UserId};
use crate::domain::message::{Disposition, Fence, Finished, Leased, MessageReason, MessageState, MessageUid};

/// How messages are leased.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTerms {
    /// Who leases.
    pub replica: ReplicaId,
    /// How long a lease lives.
    pub lease: Duration,
    /// Charged attempts after which a message is failed.
    pub max_attempts: u32,
}

/// What a lease statement gave.
#[derive(Debug, Default)]
pub struct LeasedBatch {
    /// Messages to hand over, by id.
    pub messages: Vec<Leased>,
    /// Rows that cannot be read, so that one of them does not stop the others.
    pub broken: Vec<(Fence, StoreError)>,
}

/// What a marker write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// The marker is set: the body may leave.
    Sending,
    /// The recipient has opted out or is suppressed: the row is final, nothing may leave.
    Suppressed,
}

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases without a marker: back to `pending`.
    pub returned: u64,
    /// Leases with a marker: `uncertain`.
    pub uncertain: u64,
}

/// The bounds are checked here too, so that a failure while recording a failure cannot make a
/// message immortal. Rows past a bound come back with their final state and are not handed over.
const LEASE: &str = "
    WITH due AS MATERIALIZED (
        SELECT id AS due_id
        FROM digestd.outbox
        WHERE state = 'pending' AND next_attempt_at <= (SELECT {now})
        ORDER BY next_attempt_at, id
        LIMIT $4
        {skip_locked}
    )
    UPDATE digestd.outbox AS o
    SET state = CASE
            WHEN o.expires_at <= {now} THEN 'expired'
            WHEN o.attempts >= $5 THEN 'failed'
            ELSE 'leased'
        END,
        reason = CASE
            WHEN o.expires_at <= {now} THEN 'too_old'
            WHEN o.attempts >= $5 THEN 'too_many_attempts'
        END,
        settled_at = CASE WHEN o.expires_at <= {now} OR o.attempts >= $5 THEN {now} END,
        token = o.token + 1,
        owner = $2,
        lease_until = {now} + $3{ms}
    WHERE o.id {among}(SELECT due_id FROM due){end_among} AND o.state = 'pending'
    RETURNING
        id, token, state, uid, org_id, user_id, mailbox, fingerprint, attempts, resend,
        EXISTS (
            SELECT 1
            -- Under another name, because RETURNING cannot qualify its own.
            FROM (SELECT p.address AS known, p.suppressed AS stopped FROM digestd.suppressions AS p) AS k
            WHERE known = address AND NOT stopped
        ),
        (SELECT b.bytes FROM digestd.bodies AS b WHERE b.message_id = id)";

/// Markers and results in one statement, and so in one round trip and one commit. What belongs to a
/// marker stands under `CASE WHEN marks`.
///
/// An opt-out is a CASE and not a condition: only a missing row means “superseded”. And a known answer
/// is never thrown away: it counts under the same token even if the row was swept to `uncertain`
/// meanwhile.
const SETTLE: &str = "
    WITH held AS MATERIALIZED (
        SELECT
            o.id AS held_id,
            o.org_id AS held_org,
            o.address AS held_address,
            CAST(u.value->>'marks' AS INTEGER) <> 0 AS marks,
            u.value->>'state' AS new_state,
            u.value->>'reason' AS new_reason,
            CAST(u.value->>'charge' AS INTEGER) AS charge,
            CAST(u.value->>'delay' AS BIGINT) AS delay,
            CAST(u.value->>'settled' AS INTEGER) AS settled,
            u.value->>'note' AS new_note
        FROM digestd.outbox AS o
        JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
        WHERE o.id {among}(SELECT CAST(v.value->>'id' AS BIGINT) FROM {each}($2) AS v){end_among}
          AND o.token = CAST(u.value->>'token' AS BIGINT)
          AND CASE
                  WHEN CAST(u.value->>'marks' AS INTEGER) <> 0 THEN o.state = 'leased' AND o.lease_until > {now}
                  ELSE o.state IN ('leased', 'sending', 'uncertain')
              END
        ORDER BY o.id
        {for_update_o}
    ), looked AS MATERIALIZED (
        SELECT
            held.*,
            marks AND EXISTS (
                SELECT 1
                FROM digestd.opt_outs AS p
                WHERE p.address = held_address AND p.org_id IN ('', held_org)
            ) AS opted_out,
            marks AND EXISTS (
                SELECT 1
                FROM digestd.suppressions AS p
                WHERE p.address = held_address AND p.suppressed
            ) AS stopped
        FROM held
    )
    UPDATE digestd.outbox AS o
    SET state = CASE WHEN opted_out OR stopped THEN 'suppressed' ELSE new_state END,
        reason = CASE WHEN opted_out THEN 'opted_out' WHEN stopped THEN 'suppressed' ELSE new_reason END,
        note = CASE WHEN marks THEN o.note ELSE new_note END,
        attempts = o.attempts + charge,
        next_attempt_at = CASE WHEN marks THEN o.next_attempt_at ELSE {now} + delay{ms} END,
        marked_at = CASE WHEN marks THEN {now} WHEN new_state <> 'pending' THEN o.marked_at END,
        settled_at = CASE WHEN opted_out OR stopped OR settled <> 0 THEN {now} END,
        owner = CASE WHEN marks THEN o.owner END,
        -- Past the body and the final reply, however slow the relay is.
        lease_until = CASE WHEN marks THEN {now} + $3{ms} END
    FROM looked
    WHERE o.id = held_id AND o.state IN ('leased', 'sending', 'uncertain')
    RETURNING id, state";

/// What did not end in an acceptance is kept for the ledger.
const REMEMBER: &str = "
    INSERT INTO digestd.attempts (message_id, at, replica, token, phase, outcome, note, guard_owner)
    SELECT
        CAST(u.value->>'id' AS BIGINT),
        {now},
        $3,
        CAST(u.value->>'token' AS BIGINT),
        u.value->>'phase',
        u.value->>'state',
        u.value->>'note',
        u.value->>'guard'
    FROM {each}($2) AS u";

/// Takes leases back without a trace: the message was not tried.
const GIVE_BACK: &str = "
    WITH mine AS MATERIALIZED (
        SELECT o.id AS mine_id
        FROM digestd.outbox AS o
        JOIN {each}($2) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
        WHERE o.token = CAST(u.value->>'token' AS BIGINT)
          AND o.state IN ('leased', 'sending')
        ORDER BY o.id
        {for_update_o}
    )
    UPDATE digestd.outbox AS o
    SET state = 'pending',
        marked_at = NULL,
        owner = NULL,
        lease_until = NULL,
        next_attempt_at = {now} + $3{ms}
    FROM mine
    WHERE o.id = mine_id
    RETURNING id";

/// The token stays, so that a result that is known after all is still recorded.
const SWEEP: &str = "
    WITH expired AS MATERIALIZED (
        SELECT id AS expired_id
        FROM digestd.outbox
        WHERE state IN ('leased', 'sending') AND lease_until <= (SELECT {now})
        ORDER BY id
        LIMIT $2
        {skip_locked}
    )
    UPDATE digestd.outbox AS o
    SET state = CASE o.state WHEN 'leased' THEN 'pending' ELSE 'uncertain' END,
        note = CASE o.state WHEN 'leased' THEN o.note ELSE 'the replica was lost between the marker and the answer' END,
        owner = NULL,
        lease_until = NULL
    WHERE o.id {among}(SELECT expired_id FROM expired){end_among}
      AND o.state IN ('leased', 'sending')
      AND o.lease_until <= {now}
    RETURNING state";

type LeasedRow = (
    i64,
    i64,
    String,
    String,
    String,
    String,
    Option<String>,
    Option<String>,
    i32,
    bool,
    bool,
    Option<Vec<u8>>,
);

#[derive(Serialize)]
struct FenceRow {
    id: i64,
    token: i64,
}

/// A marker or a result, as `SETTLE` takes it.
#[derive(Serialize)]
struct EntryRow {
    id: i64,
    token: i64,
    marks: u8,
    state: &'static str,
    reason: Option<&'static str>,
    charge: u8,
    delay: i64,
    settled: u8,
    phase: &'static str,
    note: String,
    guard: Option<String>,
}

impl Store {
    /// Leases up to `limit` messages whose time has come, oldest first.
    pub async fn lease_messages(&self, limit: u32, terms: LeaseTerms) -> Result<LeasedBatch, StoreError> {
        // Local trust is counted from before the statement, so that it ends before the lease does.
        let asked_at = Instant::now();
        let rows: Vec<LeasedRow> = run!(self, write, db => {
            sqlx::query_as(self.sql(LEASE))
                .bind(self.given())
                .bind(terms.replica.0)
                .bind(millis(terms.lease))
                .bind(i64::from(limit))
                .bind(i64::from(terms.max_attempts))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("leasing messages"))?;
        let leased = MessageState::Leased.as_str();
        let mut rows: Vec<LeasedRow> = rows.into_iter().filter(|row| row.2 == leased).collect();
        // RETURNING promises no order.
        rows.sort_by_key(|row| row.0);
        let mut batch = LeasedBatch::default();
        for row in rows {
            let fence = Fence { id: MessageId(row.0), token: Token(row.1) };
            match leased_message(row, asked_at + terms.lease) {
                Ok(message) => batch.messages.push(message),
                Err(error) => batch.broken.push((fence, error)),
            }
        }
        Ok(batch)
    }

    /// Sets the marker on leases. Whoever is missing in the answer has been superseded. `hand_over` is how
    /// long body and final reply may take; the leases are extended past it.
    pub async fn mark_messages(
        &self,
        fences: &[Fence],
        hand_over: Duration,
    ) -> Result<Vec<(MessageId, Marked)>, StoreError> {
        let rows: Vec<EntryRow> = fences.iter().map(mark_row).collect();
        let changed = self.settle(&rows, hand_over).await.map_err(StoreError::doing("setting markers"))?;
        changed.into_iter().map(marked_row).collect()
    }

    /// Records results under their fences. Returns those recorded; whoever is missing has been
    /// superseded, or was recorded before by a run whose answer was lost.
    pub async fn record_results(
        &self,
        results: &[Finished],
        replica: ReplicaId,
    ) -> Result<Vec<MessageId>, StoreError> {
        let changed = self.record(results, &[], replica, Duration::ZERO).await;
        let changed = changed.map_err(StoreError::doing("recording results"))?;
        Ok(changed.into_iter().map(|(id, _)| MessageId(id)).collect())
    }

    /// Records results and sets markers, in one commit: a marker never lands before the results
    /// that came before it. Running it again after a lost answer is safe; markers then are missing.
    pub async fn record_and_mark(
        &self,
        results: &[Finished],
        fences: &[Fence],
        replica: ReplicaId,
        hand_over: Duration,
    ) -> Result<Vec<(MessageId, Marked)>, StoreError> {
        let changed = self.record(results, fences, replica, hand_over).await;
        let changed = changed.map_err(StoreError::doing("recording results and setting markers"))?;
        let marked: HashSet<i64> = fences.iter().map(|fence| fence.id.0).collect();
        changed.into_iter().filter(|(id, _)| marked.contains(id)).map(marked_row).collect()
    }

    async fn record(
        &self,
        results: &[Finished],
        fences: &[Fence],
        replica: ReplicaId,
        hand_over: Duration,
    ) -> Result<Vec<(i64, String)>, sqlx::Error> {
        let rows: Vec<EntryRow> = results.iter().map(result_row).chain(fences.iter().map(mark_row)).collect();
        if results.iter().all(|result| result.disposition == Disposition::Accepted) {
            self.settle(&rows, hand_over).await
        } else {
            let rows = serde_json::to_value(&rows).unwrap_or_default();
            self.settle_and_remember(rows, replica.0, hand_over).await
        }
    }

    async fn settle(
        &self,
        rows: &[EntryRow],
        hand_over: Duration,
    ) -> Result<Vec<(i64, String)>, sqlx::Error> {
        run!(self, write, db => {
            sqlx::query_as(self.sql(SETTLE))
                .bind(self.given())
                .bind(Json(rows))
                .bind(millis(hand_over))
                .fetch_all(db)
                .await
        })
    }

    /// Settles, and keeps for the ledger what did not end in an acceptance.
    async fn settle_and_remember(
        &self,
        rows: serde_json::Value,
        replica: Uuid,
        hand_over: Duration,
    ) -> Result<Vec<(i64, String)>, sqlx::Error> {
        let store = self.clone();
        uncancelled(async move {
            transact!(&store, tx => {
                let changed: Vec<(i64, String)> = sqlx::query_as(store.sql(SETTLE))
                    .bind(store.given())
                    .bind(Json(&rows))
                    .bind(millis(hand_over))
                    .fetch_all(&mut *tx)
                    .await?;
                let kept = not_accepted(&rows, &changed);
                if !kept.is_empty() {
                    sqlx::query(store.sql(REMEMBER))
                        .bind(store.given())
                        .bind(Json(&kept))
                        .bind(replica)
                        .execute(&mut *tx)
                        .await?;
                }
                Ok(changed)
            })
        })
        .await
    }

    /// Gives leases back, not to be tried before `delay`; takes a marker back whose body never left.
    pub async fn give_back(&self, fences: &[Fence], delay: Duration) -> Result<u64, StoreError> {
        let ids: Vec<i64> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(GIVE_BACK))
                .bind(self.given())
                .bind(Json(fence_rows(fences)))
                .bind(millis(delay))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("giving back leases"))?;
        Ok(u64::try_from(ids.len()).unwrap_or(u64::MAX))
    }

    /// Settles up to `limit` leases that have expired. Any replica may do it at any time.
    pub async fn sweep_messages(&self, limit: u32) -> Result<Swept, StoreError> {
        let states: Vec<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(SWEEP)).bind(self.given()).bind(i64::from(limit)).fetch_all(db).await
        })
        .map_err(StoreError::doing("sweeping expired leases"))?;
        let uncertain = states.iter().filter(|s| *s == MessageState::Uncertain.as_str()).count();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Ok(Swept { returned: count(states.len() - uncertain), uncertain: count(uncertain) })
    }
}

fn not_accepted<'a>(rows: &'a serde_json::Value, changed: &[(i64, String)]) -> Vec<&'a serde_json::Value> {
    rows.as_array()
        .into_iter()
        .flatten()
        .filter(|row| row["marks"] == 0 && row["state"] != MessageState::Accepted.as_str())
        .filter(|row| row["id"].as_i64().is_some_and(|id| changed.iter().any(|(done, _)| *done == id)))
        .collect()
}

fn marked_row((id, state): (i64, String)) -> Result<(MessageId, Marked), StoreError> {
    match MessageState::parse(&state) {
        Some(MessageState::Sending) => Ok((MessageId(id), Marked::Sending)),
        Some(MessageState::Suppressed) => Ok((MessageId(id), Marked::Suppressed)),
        _ => Err(StoreError::inconsistent("outbox", "state", id)),
    }
}

fn leased_message(row: LeasedRow, trusted_until: Instant) -> Result<Leased, StoreError> {
    let (id, token, _, uid, org, user, mailbox, fingerprint, attempts, resend, failed_before, bytes) = row;
    let unknown = |column| StoreError::inconsistent("outbox", column, id);
    Ok(Leased {
        id: MessageId(id),
        token: Token(token),
        uid: MessageUid::from_stored(uid),
        org: OrgId::parse(&org).map_err(|_| unknown("org_id"))?,
        user: UserId::parse(&user).map_err(|_| unknown("user_id"))?,
        to: mailbox.and_then(|m| Address::parse(&m).ok()).ok_or_else(|| unknown("mailbox"))?,
        fingerprint: fingerprint.map(Fingerprint::from_stored).ok_or_else(|| unknown("fingerprint"))?,
        attempts: u32::try_from(attempts).map_err(|_| unknown("attempts"))?,
        resend,
        failed_before,
        bytes: bytes.ok_or_else(|| StoreError::inconsistent("bodies", "bytes", id))?,
        trusted_until,
    })
}

fn result_row(finished: &Finished) -> EntryRow {
    let state = finished.disposition.state();
    let (reason, charge, delay): (Option<MessageReason>, bool, i64) = match &finished.disposition {
        Disposition::Accepted => (None, false, 0),
        Disposition::Retry { after, charge } => (None, *charge, after.num_milliseconds()),
        Disposition::Failed(reason) => (Some(*reason), true, 0),
        Disposition::Suppressed(reason) => (Some(*reason), false, 0),
        Disposition::Uncertain => (None, true, 0),
    };
    EntryRow {
        id: finished.fence.id.0,
        token: finished.fence.token.0,
        marks: 0,
        state: state.as_str(),
        reason: reason.map(MessageReason::as_str),
        charge: charge.into(),
        delay,
        settled: state.is_final().into(),
        phase: finished.phase,
        note: cut(&finished.note),
        guard: finished.guard.map(|owner| owner.to_string()),
    }
}

fn mark_row(fence: &Fence) -> EntryRow {
    EntryRow {
        id: fence.id.0,
        token: fence.token.0,
        marks: 1,
        state: MessageState::Sending.as_str(),
        reason: None,
        charge: 0,
        delay: 0,
        settled: 0,
        phase: "",
        note: String::new(),
        guard: None,
    }
}

fn fence_rows(fences: &[Fence]) -> Vec<FenceRow> {
    fences.iter().map(|fence| FenceRow { id: fence.id.0, token: fence.token.0 }).collect()
}

fn millis(duration: Duration) -> i64 {
    TimeDelta::from_std(duration).map_or(i64::MAX / 2, |delta| delta.num_milliseconds())
}
