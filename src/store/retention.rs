//! Deleting what has been kept for long enough, in bounded batches.
//!
//! Every statement that deletes repeats its conditions and names the leader's term: a replica that was
//! frozen between two batches deletes nothing any more.
//!
//! Bodies and attempts have no index by age. They are walked by id, which rises with age, page by page, and
//! the walk ends at the first page that holds something younger than the horizon.

use chrono::TimeDelta;
use serde::Serialize;
use sqlx::types::Json;

use super::leases::Leadership;
use super::{Store, StoreError, run, transact, uncancelled};

/// How far a walk has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// The last id of the page.
    pub last: i64,
    /// Rows deleted from the page.
    pub deleted: u64,
    /// Whether something in the page, or nothing at all, was left to look at.
    pub finished: bool,
}

/// Rows that can go at once, each with its own test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// The SQL guard's rows past their own end.
    Fingerprints,
    /// Replicas not heard of.
    Replicas,
    /// Slots of closed weeks.
    Slots,
}

const BODIES_PAGE: &str = "
    SELECT b.message_id, CASE WHEN o.created_at <= {now} - $2{ms} THEN 1 ELSE 0 END
    FROM digestd.bodies AS b
    JOIN digestd.outbox AS o ON o.id = b.message_id
    WHERE b.message_id > $3
    ORDER BY b.message_id
    LIMIT $4";

/// Uncertain messages keep their bytes: they may have to be sent again.
const DELETE_BODIES: &str = "
    DELETE FROM digestd.bodies
    WHERE message_id > $3
      AND message_id <= $4
      AND EXISTS (
          SELECT 1
          FROM digestd.outbox AS o
          WHERE o.id = message_id
            AND o.state IN ('accepted', 'failed', 'suppressed', 'expired', 'cancelled')
            AND o.settled_at <= {now} - $2{ms}
      )
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $5 AND l.holder = $6 AND l.term = $7 AND l.expires_at > {now}
      )";

const ATTEMPTS_PAGE: &str = "
    SELECT id, CASE WHEN at <= {now} - $2{ms} THEN 1 ELSE 0 END
    FROM digestd.attempts
    WHERE id > $3
    ORDER BY id
    LIMIT $4";

/// What is not settled keeps its story.
const DELETE_ATTEMPTS: &str = "
    DELETE FROM digestd.attempts
    WHERE id > $3
      AND id <= $4
      AND at <= {now} - $2{ms}
      AND EXISTS (
          SELECT 1
          FROM digestd.outbox AS o
          WHERE o.id = message_id
            AND o.state IN ('accepted', 'failed', 'suppressed', 'expired', 'cancelled')
      )
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $5 AND l.holder = $6 AND l.term = $7 AND l.expires_at > {now}
      )";

const DELETE_FINGERPRINTS: &str = "
    DELETE FROM digestd.fingerprints
    WHERE fingerprint IN (
        SELECT f.fingerprint
        FROM digestd.fingerprints AS f
        -- A sub-select, because an index cannot be searched for a clock that moves on.
        WHERE f.expires_at <= (SELECT {now}) - $2{ms}
        ORDER BY f.expires_at
        LIMIT $3
    )
      AND expires_at <= {now} - $2{ms}
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $4 AND l.holder = $5 AND l.term = $6 AND l.expires_at > {now}
      )";

const DELETE_REPLICAS: &str = "
    DELETE FROM digestd.replicas
    WHERE id IN (
        SELECT r.id
        FROM digestd.replicas AS r
        WHERE r.seen_at <= {now} - $2{ms}
        LIMIT $3
    )
      AND seen_at <= {now} - $2{ms}
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $4 AND l.holder = $5 AND l.term = $6 AND l.expires_at > {now}
      )";

const DELETE_SLOTS: &str = "
    DELETE FROM digestd.slots
    WHERE (timezone, weekday, local_time, week_key) IN (
        SELECT s.timezone, s.weekday, s.local_time, s.week_key
        FROM digestd.slots AS s
        JOIN digestd.weeks AS w ON w.week_key = s.week_key
        WHERE s.slot_at <= {now} - $2{ms} AND w.closed_at IS NOT NULL
        LIMIT $3
    )
      AND slot_at <= {now} - $2{ms}
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $4 AND l.holder = $5 AND l.term = $6 AND l.expires_at > {now}
      )";

/// Sends whose week is closed (resends belong to no week), that are old and settled, and whose messages
/// are all final.
const OLD_SENDS: &str = "
    SELECT s.id
    FROM digestd.sends AS s
    WHERE s.slot_at <= (SELECT {now}) - $2{ms}
      AND s.state <> 'claimed'
      AND (
          s.week_key LIKE 'manual-%'
          OR EXISTS (
              SELECT 1
              FROM digestd.weeks AS w
              WHERE w.week_key = s.week_key AND w.closed_at IS NOT NULL
          )
      )
      AND NOT EXISTS (
          SELECT 1
          FROM digestd.outbox AS o
          WHERE o.send_id = s.id
            AND o.state NOT IN ('accepted', 'failed', 'suppressed', 'expired', 'cancelled')
      )
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $4 AND l.holder = $5 AND l.term = $6 AND l.expires_at > {now}
      )
    ORDER BY s.slot_at, s.id
    LIMIT $3
    {skip_locked}";

/// Bodies and attempts go with their messages.
const DELETE_MESSAGES: &str = "
    DELETE FROM digestd.outbox
    WHERE send_id IN (SELECT CAST(u.value->>'id' AS BIGINT) FROM {each}($1) AS u)
      AND state IN ('accepted', 'failed', 'suppressed', 'expired', 'cancelled')";

/// Events go with their sends. The conditions once more: whatever has changed since the look stays.
const DELETE_SENDS: &str = "
    DELETE FROM digestd.sends
    WHERE id IN (SELECT CAST(u.value->>'id' AS BIGINT) FROM {each}($3) AS u)
      AND slot_at <= {now} - $2{ms}
      AND state <> 'claimed'
      AND (
          week_key LIKE 'manual-%'
          OR week_key IN (SELECT w.week_key FROM digestd.weeks AS w WHERE w.closed_at IS NOT NULL)
      )
      AND NOT EXISTS (SELECT 1 FROM digestd.outbox AS o WHERE o.send_id = sends.id)
      AND EXISTS (
          SELECT 1
          FROM digestd.leases AS l
          WHERE l.name = $4 AND l.holder = $5 AND l.term = $6 AND l.expires_at > {now}
      )";

/// Passive: waits for nobody and stops nobody.
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

#[derive(Serialize)]
struct IdRow {
    id: i64,
}

impl Store {
    /// Deletes bodies of messages that have been final for `keep`, in one page of messages after `after`.
    pub async fn delete_bodies(
        &self,
        keep: TimeDelta,
        after: i64,
        limit: u32,
        lease: &Leadership,
    ) -> Result<Walk, StoreError> {
        self.walk((BODIES_PAGE, DELETE_BODIES), keep, after, limit, lease)
            .await
            .map_err(StoreError::doing("deleting old bodies"))
    }

    /// Deletes attempts older than `keep`, in one page after `after`.
    pub async fn delete_attempts(
        &self,
        keep: TimeDelta,
        after: i64,
        limit: u32,
        lease: &Leadership,
    ) -> Result<Walk, StoreError> {
        self.walk((ATTEMPTS_PAGE, DELETE_ATTEMPTS), keep, after, limit, lease)
            .await
            .map_err(StoreError::doing("deleting old attempts"))
    }

    async fn walk(
        &self,
        (page, delete): (&'static str, &'static str),
        keep: TimeDelta,
        after: i64,
        limit: u32,
        lease: &Leadership,
    ) -> Result<Walk, sqlx::Error> {
        let keep = keep.num_milliseconds();
        let rows: Vec<(i64, i32)> = run!(self, read, db => {
            sqlx::query_as(self.sql(page))
                .bind(self.given())
                .bind(keep)
                .bind(after)
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })?;
        let Some((last, _)) = rows.last().copied() else {
            return Ok(Walk { last: after, deleted: 0, finished: true });
        };
        let deleted = run!(self, write, db => {
            sqlx::query(self.sql(delete))
                .bind(self.given())
                .bind(keep)
                .bind(after)
                .bind(last)
                .bind(lease.name())
                .bind(lease.holder().0)
                .bind(lease.term().0)
                .execute(db)
                .await
                .map(|done| done.rows_affected())
        })?;
        let finished = rows.len() < limit as usize || rows.iter().any(|(_, old)| *old == 0);
        Ok(Walk { last, deleted, finished })
    }

    /// Deletes up to `limit` rows that have been of no use for `keep`.
    pub async fn delete_leftovers(
        &self,
        what: Leftover,
        keep: TimeDelta,
        limit: u32,
        lease: &Leadership,
    ) -> Result<u64, StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(what.statement()))
                .bind(self.given())
                .bind(keep.num_milliseconds())
                .bind(i64::from(limit))
                .bind(lease.name())
                .bind(lease.holder().0)
                .bind(lease.term().0)
                .execute(db)
                .await
                .map(|done| done.rows_affected())
        })
        .map_err(StoreError::doing("deleting leftovers"))
    }

    /// Deletes up to `limit` sends with slots older than `keep`, and all that belongs to them: sends and
    /// messages deleted. Nothing of a send goes unless all of it can go.
    pub async fn delete_sends(
        &self,
        keep: TimeDelta,
        limit: u32,
        lease: &Leadership,
    ) -> Result<(u64, u64), StoreError> {
        let store = self.clone();
        let keep = keep.num_milliseconds();
        let (name, holder, term) = (lease.name(), lease.holder().0, lease.term().0);
        let deleted = uncancelled(async move {
            transact!(&store, tx => {
                let ids: Vec<i64> = sqlx::query_scalar(store.sql(OLD_SENDS))
                    .bind(store.given())
                    .bind(keep)
                    .bind(i64::from(limit))
                    .bind(name)
                    .bind(holder)
                    .bind(term)
                    .fetch_all(&mut *tx)
                    .await?;
                let rows: Vec<IdRow> = ids.iter().map(|id| IdRow { id: *id }).collect();
                let messages = sqlx::query(store.sql(DELETE_MESSAGES))
                    .bind(Json(&rows))
                    .execute(&mut *tx)
                    .await?
                    .rows_affected();
                let sends = sqlx::query(store.sql(DELETE_SENDS))
                    .bind(store.given())
                    .bind(keep)
                    .bind(Json(&rows))
                    .bind(name)
                    .bind(holder)
                    .bind(term)
                    .execute(&mut *tx)
                    .await?
                    .rows_affected();
                // All or nothing: a send must not lose its messages and stay.
                if sends == ids.len() as u64 { Ok((sends, messages)) } else { Err(sqlx::Error::RowNotFound) }
            })
        })
        .await;
        match deleted {
            Err(sqlx::Error::RowNotFound) => Ok((0, 0)),
            other => other.map_err(StoreError::doing("deleting old sends")),
        }
    }

    /// Moves what the WAL holds into the file. PostgreSQL looks after its own.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(_) => Ok(()),
            Self::Sqlite(inner) => sqlx::query(CHECKPOINT)
                .execute(&inner.write)
                .await
                .map(drop)
                .map_err(StoreError::doing("checkpointing the WAL")),
        }
    }
}

impl Leftover {
    /// The table's name, for metrics.
    pub const fn table(self) -> &'static str {
        match self {
            Self::Fingerprints => "fingerprints",
            Self::Replicas => "replicas",
            Self::Slots => "slots",
        }
    }

    const fn statement(self) -> &'static str {
        match self {
            Self::Fingerprints => DELETE_FINGERPRINTS,
            Self::Replicas => DELETE_REPLICAS,
            Self::Slots => DELETE_SLOTS,
        }
    }
}
