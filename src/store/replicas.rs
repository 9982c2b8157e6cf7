//! Replicas: who is alive, and how far each one's clock is off.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::dialect::At;
use super::{Store, StoreError, run};
use crate::domain::ids::ReplicaId;

/// What a replica says of itself.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// Who.
    pub replica: ReplicaId,
    /// The host's name, for people.
    pub host: String,
    /// The release.
    pub version: &'static str,
    /// How far its clock is ahead of the database's.
    pub clock_offset: TimeDelta,
    /// Connections to the relay that it may open.
    pub connections: u32,
}

/// A replica as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Who.
    pub id: ReplicaId,
    /// The host's name.
    pub host: String,
    /// The release.
    pub version: String,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it was last heard of.
    pub seen_at: DateTime<Utc>,
    /// How far its clock was ahead of the database's.
    pub clock_offset: TimeDelta,
}

const BEAT: &str = "
    INSERT INTO digestd.replicas (id, host, version, started_at, seen_at, clock_offset_ms, connections)
    VALUES ($2, $3, $4, {now}, {now}, $5, $6)
    ON CONFLICT (id) DO UPDATE
    SET seen_at = excluded.seen_at,
        clock_offset_ms = excluded.clock_offset_ms,
        connections = excluded.connections";

/// Whoever was heard of in a time that has not come was so before the database's clock was set back; those
/// who live have been heard of since.
const LIVE: &str = "
    SELECT id, host, version, started_at, seen_at, clock_offset_ms
    FROM digestd.replicas
    WHERE seen_at + $2{ms} > {now} AND seen_at < {now} + $2{ms}
    ORDER BY started_at, id";

const GOODBYE: &str = "
    DELETE FROM digestd.replicas
    WHERE id = $1";

impl Store {
    /// Says that a replica is alive.
    pub async fn heartbeat(&self, beat: &Heartbeat) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(BEAT))
                .bind(self.given())
                .bind(beat.replica.0)
                .bind(&beat.host)
                .bind(beat.version)
                .bind(beat.clock_offset.num_milliseconds())
                .bind(i32::try_from(beat.connections).unwrap_or(i32::MAX))
                .execute(db)
                .await
                .map(drop)
        })
        .map_err(StoreError::doing("sending a heartbeat"))
    }

    /// The replicas heard of within `silence`.
    pub async fn live_replicas(&self, silence: Duration) -> Result<Vec<Replica>, StoreError> {
        let rows: Vec<(uuid::Uuid, String, String, At, At, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(LIVE))
                .bind(self.given())
                .bind(i64::try_from(silence.as_millis()).unwrap_or(i64::MAX))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("listing replicas"))?;
        Ok(rows
            .into_iter()
            .map(|(id, host, version, started_at, seen_at, offset)| Replica {
                id: ReplicaId(id),
                host,
                version,
                started_at: started_at.0,
                seen_at: seen_at.0,
                clock_offset: TimeDelta::milliseconds(offset),
            })
            .collect())
    }

    /// Takes a replica off the list when it stops.
    pub async fn goodbye(&self, replica: ReplicaId) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(GOODBYE)).bind(replica.0).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("saying goodbye"))
    }
}
