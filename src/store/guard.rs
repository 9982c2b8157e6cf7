//! The guard's rows: fingerprints in SQL, and what proves that a hand-over was refused.

use std::time::Duration;

use super::{Store, StoreError, only, run, uncancelled};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{GuardOwner, MessageId};

/// One wish for a fingerprint.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What is wanted.
    pub fingerprint: Fingerprint,
    /// By which hand-over.
    pub owner: GuardOwner,
    /// For which row.
    pub message: MessageId,
    /// Whether it is to be had whoever holds it.
    pub resend: bool,
    /// How long it is to be kept.
    pub ttl: Duration,
}

/// One statement: two that race for a fingerprint wait for each other here, and one goes away empty.
/// The statement may be run again after a lost answer, which is why its own owner passes too.
const TAKE: &str = "
    INSERT INTO digestd.fingerprints AS f (fingerprint, owner, expires_at)
    VALUES ($2, $3, {now} + $4{ms})
    ON CONFLICT (fingerprint) DO UPDATE
    SET owner = excluded.owner, expires_at = excluded.expires_at
    WHERE f.expires_at <= {now}
       OR f.owner = excluded.owner
       OR $6
       -- Held by this row's own hand-over, which was definitely refused and could not give it back.
       OR EXISTS (
            SELECT 1
            FROM digestd.attempts AS a
            WHERE a.message_id = $5
              AND a.guard_owner = f.owner
              AND a.outcome IN ('pending', 'failed')
       )
    RETURNING fingerprint";

const GIVE_BACK: &str = "
    DELETE FROM digestd.fingerprints
    WHERE fingerprint = $1 AND owner = $2";

const REFUSED: &str = "
    SELECT EXISTS (
        SELECT 1
        FROM digestd.attempts AS a
        WHERE a.message_id = $1
          AND a.guard_owner = $2
          AND a.outcome IN ('pending', 'failed')
    )";

impl Store {
    /// Takes a fingerprint. False: somebody else has it.
    pub async fn take_fingerprint(&self, wish: &Wish) -> Result<bool, StoreError> {
        let (store, wish) = (self.clone(), wish.clone());
        let taken: Option<String> = uncancelled(async move {
            run!(&store, write, db => {
                sqlx::query_scalar(store.sql(TAKE))
                    .bind(store.given())
                    .bind(wish.fingerprint.as_str())
                    .bind(wish.owner.to_string())
                    .bind(i64::try_from(wish.ttl.as_millis()).unwrap_or(i64::MAX / 4))
                    .bind(wish.message.0)
                    .bind(wish.resend)
                    .fetch_all(db)
                    .await
                    .map(only)
            })
        })
        .await
        .map_err(StoreError::doing("taking a fingerprint"))?;
        Ok(taken.is_some())
    }

    /// Gives a fingerprint back, if this hand-over holds it.
    pub async fn give_fingerprint_back(
        &self,
        fingerprint: &Fingerprint,
        owner: GuardOwner,
    ) -> Result<bool, StoreError> {
        let (store, fingerprint) = (self.clone(), fingerprint.clone());
        let deleted = uncancelled(async move {
            run!(&store, write, db => {
                sqlx::query(store.sql(GIVE_BACK))
                    .bind(fingerprint.as_str())
                    .bind(owner.to_string())
                    .execute(db)
                    .await
                    .map(|done| done.rows_affected())
            })
        })
        .await
        .map_err(StoreError::doing("giving a fingerprint back"))?;
        Ok(deleted > 0)
    }

    /// Whether the ledger knows that the hand-over of this name was one of this message's, and was
    /// definitely refused.
    pub async fn was_refused(&self, message: MessageId, owner: &str) -> Result<bool, StoreError> {
        run!(self, read, db => {
            sqlx::query_scalar(self.sql(REFUSED)).bind(message.0).bind(owner).fetch_one(db).await
        })
        .map_err(StoreError::doing("looking up a refused hand-over"))
    }
}
