//! Messages that may or may not have been accepted, and the policy that sends them again.
//!
//! The policy speaks of what happens from now on, not of what a person has been asked about already.
//! So the moment at which it was first seen is kept, and a message is sent again by itself only if its
//! **marker was set after that moment**. One whose marker is older waits for a person even if it was
//! found uncertain later: the marker's time is what the row knows for sure.

use chrono::TimeDelta;
use sqlx::types::Json;

use super::queue::{Id, NOTE};
use super::{Store, StoreError, run, transact, uncancelled};
use crate::domain::ids::MessageId;

/// How old a marker must be before its message may be sent again, by whomever: until then the replica
/// that set it may still hear the answer.
pub const SETTLE: TimeDelta = TimeDelta::minutes(30);

const SINCE_NOW: &str = "
    UPDATE digestd.installation
    SET resend_since = {now}
    WHERE resend_since IS NULL";

const HOLD: &str = "
    UPDATE digestd.installation
    SET resend_since = NULL
    WHERE resend_since IS NOT NULL";

/// Charges an attempt. What would be past a bound stays for a person: the lease statement would call it
/// expired or failed, and it may have been accepted.
const RESEND: &str = "
    WITH due AS MATERIALIZED (
        SELECT id AS due_id
        FROM digestd.outbox
        WHERE state = 'uncertain'
          AND marked_at >= (SELECT resend_since FROM digestd.installation)
          AND marked_at + $2{ms} <= (SELECT {now})
          AND expires_at > (SELECT {now})
          AND attempts + 1 < $3
        ORDER BY id
        LIMIT $4
        {skip_locked}
    )
    UPDATE digestd.outbox AS o
    SET state = 'pending',
        resend = TRUE,
        attempts = o.attempts + 1,
        next_attempt_at = {now},
        marked_at = NULL
    FROM due
    WHERE o.id = due_id AND o.state = 'uncertain'
    RETURNING id";

impl Store {
    /// Writes down that uncertain messages are to be sent again from now on (`resend`), or are held.
    /// Called by every replica at its start; the first one's moment counts.
    pub async fn set_uncertain_policy(&self, resend: bool) -> Result<(), StoreError> {
        run!(self, write, db => {
            if resend {
                sqlx::query(self.sql(SINCE_NOW)).bind(self.given()).execute(db).await.map(drop)
            } else {
                sqlx::query(self.sql(HOLD)).execute(db).await.map(drop)
            }
        })
        .map_err(StoreError::doing("noting what becomes of uncertain messages"))
    }

    /// Puts up to `limit` uncertain messages back, to be sent again, as far as the policy is about them.
    pub async fn resend_uncertain(
        &self,
        max_attempts: u32,
        limit: u32,
    ) -> Result<Vec<MessageId>, StoreError> {
        let store = self.clone();
        let ids: Vec<i64> = uncancelled(async move {
            transact!(&store, tx => {
                let ids: Vec<i64> = sqlx::query_scalar(store.sql(RESEND))
                    .bind(store.given())
                    .bind(SETTLE.num_milliseconds())
                    .bind(i64::from(max_attempts))
                    .bind(i64::from(limit))
                    .fetch_all(&mut *tx)
                    .await?;
                let noted: Vec<Id> = ids.iter().map(|id| Id { id: *id }).collect();
                sqlx::query(store.sql(NOTE))
                    .bind(store.given())
                    .bind(Json(&noted))
                    .bind("policy")
                    .bind("resend")
                    .execute(&mut *tx)
                    .await?;
                Ok(ids)
            })
        })
        .await
        .map_err(StoreError::doing("sending uncertain messages again"))?;
        Ok(ids.into_iter().map(MessageId).collect())
    }
}
