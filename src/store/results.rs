//! Markers and results: what is known of a hand-over, written in one statement.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::ends::{WRITTEN_BEFORE, end};
use super::outbox::millis;
use super::sends::cut;
use super::{Store, StoreError, run, transact, uncancelled};
use crate::domain::ends::Ends;
use crate::domain::ids::{MessageId, ReplicaId};
use crate::domain::message::{Disposition, Fence, Finished, MessageReason, MessageState};

/// What a marker write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// The marker is set: the body may leave.
    Sending,
    /// The recipient has opted out or is suppressed: the row is final, nothing may leave.
    Suppressed,
}

/// What a write of results and markers has done.
#[derive(Debug, Default)]
pub struct Written {
    /// The markers; whoever is missing has been superseded.
    pub marked: Vec<(MessageId, Marked)>,
    /// The messages that it has ended.
    pub ended: Ends,
}

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
                  -- An uncertain result that was written before is not charged and told a second time.
                  WHEN o.state = 'uncertain' THEN u.value->>'state' <> 'uncertain' OR COALESCE(o.note, '') <> u.value->>'note'
                  ELSE o.state IN ('leased', 'sending')
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
    RETURNING id, state, reason";

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

/// A changed row: its id, and the state and reason that it has now.
type Changed = (i64, String, Option<String>);

/// A marker or a result, as `SETTLE` takes it. What is absent is read as null.
#[derive(Serialize)]
struct EntryRow {
    id: i64,
    token: i64,
    marks: u8,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    charge: u8,
    delay: i64,
    settled: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<String>,
}

impl Store {
    /// Sets the marker on leases. Whoever is missing in the answer has been superseded. `hand_over` is how
    /// long body and final reply may take; the leases are extended past it.
    pub async fn mark_messages(
        &self,
        fences: &[Fence],
        hand_over: Duration,
    ) -> Result<Vec<(MessageId, Marked)>, StoreError> {
        let rows: Vec<EntryRow> = fences.iter().map(mark_row).collect();
        let changed = self.settle(&rows, hand_over).await.map_err(StoreError::doing("setting markers"))?;
        changed.iter().map(marked_row).collect()
    }

    /// Records results under their fences. Returns those recorded; whoever is missing has been
    /// superseded, or was recorded before by a run whose answer was lost.
    pub async fn record_results(
        &self,
        results: &[Finished],
        replica: ReplicaId,
    ) -> Result<Vec<MessageId>, StoreError> {
        let changed = self.record(results, &[], replica, Duration::ZERO, false).await;
        let (changed, _) = changed.map_err(StoreError::doing("recording results"))?;
        Ok(changed.into_iter().map(|(id, ..)| MessageId(id)).collect())
    }

    /// Records results and sets markers, in one commit: a marker never lands before the results
    /// that came before it. Running it `again` after a lost answer is safe; markers then are missing.
    pub async fn record_and_mark(
        &self,
        results: &[Finished],
        fences: &[Fence],
        replica: ReplicaId,
        hand_over: Duration,
        again: bool,
    ) -> Result<Written, StoreError> {
        let changed = self.record(results, fences, replica, hand_over, again).await;
        let (changed, before) =
            changed.map_err(StoreError::doing("recording results and setting markers"))?;
        let ended = changed.iter().chain(&before);
        let ended = ended.filter_map(|(_, state, reason)| end(state, reason.as_deref())).collect();
        let marks: HashSet<i64> = fences.iter().map(|fence| fence.id.0).collect();
        let marked = changed.iter().filter(|(id, ..)| marks.contains(id)).map(marked_row);
        Ok(Written { marked: marked.collect::<Result<_, _>>()?, ended })
    }

    /// The rows changed by this run, and, if it runs `again`, those that an earlier run has ended.
    async fn record(
        &self,
        results: &[Finished],
        fences: &[Fence],
        replica: ReplicaId,
        hand_over: Duration,
        again: bool,
    ) -> Result<(Vec<Changed>, Vec<Changed>), sqlx::Error> {
        let rows: Vec<EntryRow> = results.iter().map(result_row).chain(fences.iter().map(mark_row)).collect();
        if !again && results.iter().all(|result| result.disposition == Disposition::Accepted) {
            Ok((self.settle(&rows, hand_over).await?, Vec::new()))
        } else {
            let rows = serde_json::to_value(&rows).unwrap_or_default();
            self.settle_and_remember(rows, replica.0, hand_over, again).await
        }
    }

    async fn settle(&self, rows: &[EntryRow], hand_over: Duration) -> Result<Vec<Changed>, sqlx::Error> {
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
        again: bool,
    ) -> Result<(Vec<Changed>, Vec<Changed>), sqlx::Error> {
        let store = self.clone();
        uncancelled(async move {
            transact!(&store, tx => {
                let changed: Vec<Changed> = sqlx::query_as(store.sql(SETTLE))
                    .bind(store.given())
                    .bind(Json(&rows))
                    .bind(millis(hand_over))
                    .fetch_all(&mut *tx)
                    .await?;
                let before = if again {
                    let others: Vec<&serde_json::Value> =
                        rows.as_array().into_iter().flatten().filter(|row| !is_among(row, &changed)).collect();
                    sqlx::query_as(store.sql(WRITTEN_BEFORE)).bind(Json(&others)).fetch_all(&mut *tx).await?
                } else {
                    Vec::new()
                };
                let kept = not_accepted(&rows, &changed);
                if !kept.is_empty() {
                    sqlx::query(store.sql(REMEMBER))
                        .bind(store.given())
                        .bind(Json(&kept))
                        .bind(replica)
                        .execute(&mut *tx)
                        .await?;
                }
                Ok((changed, before))
            })
        })
        .await
    }
}

fn not_accepted<'a>(rows: &'a serde_json::Value, changed: &[Changed]) -> Vec<&'a serde_json::Value> {
    rows.as_array()
        .into_iter()
        .flatten()
        .filter(|row| row["marks"] == 0 && row["state"] != MessageState::Accepted.as_str())
        .filter(|row| is_among(row, changed))
        .collect()
}

fn is_among(row: &serde_json::Value, changed: &[Changed]) -> bool {
    row["id"].as_i64().is_some_and(|id| changed.iter().any(|(done, ..)| *done == id))
}

fn marked_row((id, state, _): &Changed) -> Result<(MessageId, Marked), StoreError> {
    match MessageState::parse(state) {
        Some(MessageState::Sending) => Ok((MessageId(*id), Marked::Sending)),
        Some(MessageState::Suppressed) => Ok((MessageId(*id), Marked::Suppressed)),
        _ => Err(StoreError::inconsistent("outbox", "state", id)),
    }
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
        phase: Some(finished.phase),
        note: Some(cut(&finished.note)),
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
        phase: None,
        note: None,
        guard: None,
    }
}
