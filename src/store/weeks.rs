//! The end of weeks: who was missed, and which weeks are closed.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::types::Json;

use super::dialect::At;
use super::sends::{DueRow, due_row};
use super::{Store, StoreError, only, run};
use crate::domain::ids::OrgId;
use crate::domain::send::DueOrg;
use crate::domain::week::WeekKey;

/// The same unique index as a claim's, and just the moments that a claim refuses: whatever other
/// replicas do at the same time, an org has one row for the week.
const MISS: &str = "
    INSERT INTO digestd.sends (
        org_id, week_key, state, reason, slot_at, timezone, period_first, period_start, period_end,
        give_up_at, settled_at
    )
    SELECT
        u.value->>'org',
        u.value->>'key',
        'missed',
        'too_late',
        {epoch} + CAST(u.value->>'slot' AS BIGINT){ms},
        u.value->>'zone',
        u.value->>'first',
        {epoch} + CAST(u.value->>'starts' AS BIGINT){ms},
        {epoch} + CAST(u.value->>'ends' AS BIGINT){ms},
        {epoch} + CAST(u.value->>'gives_up' AS BIGINT){ms},
        {now}
    FROM {each}($2) AS u
    WHERE {now} >= {epoch} + CAST(u.value->>'closes' AS BIGINT){ms}
      -- A leader that was frozen past retention must not write down as missed what was sent and forgotten.
      AND NOT EXISTS (
          SELECT 1
          FROM digestd.weeks AS w
          WHERE w.week_key = u.value->>'key' AND w.closed_at IS NOT NULL
      )
    ORDER BY 1
    ON CONFLICT (org_id, week_key) DO NOTHING
    RETURNING org_id";

/// The first one who closes a week says when.
const CLOSE: &str = "
    INSERT INTO digestd.weeks AS w (week_key, closed_at)
    VALUES ($2, {now})
    ON CONFLICT (week_key) DO UPDATE
    SET closed_at = excluded.closed_at
    WHERE w.closed_at IS NULL
    RETURNING week_key";

/// Keys of weeks sort as the weeks do.
const LAST_CLOSED: &str = "
    SELECT MAX(week_key)
    FROM digestd.weeks
    WHERE closed_at IS NOT NULL";

const IS_CLOSED: &str = "
    SELECT COUNT(*)
    FROM digestd.weeks
    WHERE week_key = $1 AND closed_at IS NOT NULL";

/// Resends have no slot that could be late.
const CLAIMED: &str = "
    SELECT
        COUNT(*),
        COUNT(CASE WHEN slot_at + $2{ms} <= {now} THEN 1 END),
        MIN(slot_at)
    FROM digestd.sends
    WHERE state = 'claimed'
      AND week_key NOT LIKE 'manual-%'";

impl Store {
    /// Writes down that these orgs were missed, if their window has passed and they have no send.
    /// Returns those written down by this very call.
    pub async fn record_missed(
        &self,
        orgs: &[DueOrg],
        catch_up: TimeDelta,
    ) -> Result<Vec<OrgId>, StoreError> {
        let rows: Vec<DueRow<'_>> =
            orgs.iter().map(|due| due_row(due, catch_up, TimeDelta::zero())).collect();
        let missed: Vec<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(MISS)).bind(self.given()).bind(Json(&rows)).fetch_all(db).await
        })
        .map_err(StoreError::doing("writing down missed sends"))?;
        let known =
            |org: String| OrgId::parse(&org).map_err(|_| StoreError::inconsistent("sends", "org_id", &org));
        missed.into_iter().map(known).collect()
    }

    /// Closes a week. False: it was closed before.
    pub async fn close_week(&self, week: WeekKey) -> Result<bool, StoreError> {
        let closed: Option<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(CLOSE))
                .bind(self.given())
                .bind(week.to_string())
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("closing a week"))?;
        Ok(closed.is_some())
    }

    /// The newest week that is closed, if any is.
    pub async fn last_closed_week(&self) -> Result<Option<WeekKey>, StoreError> {
        let week: Option<String> = run!(self, read, db => {
            sqlx::query_scalar(self.sql(LAST_CLOSED)).fetch_one(db).await
        })
        .map_err(StoreError::doing("looking for closed weeks"))?;
        week.map(|key| WeekKey::parse(&key).map_err(|_| StoreError::inconsistent("weeks", "week_key", &key)))
            .transpose()
    }

    /// How many scheduled sends are claimed and not settled, how many of those have a slot that opened
    /// longer ago than `alarm`, and the oldest slot among them.
    pub async fn unsettled_claims(
        &self,
        alarm: TimeDelta,
    ) -> Result<(usize, usize, Option<DateTime<Utc>>), StoreError> {
        let (all, late, oldest): (i64, i64, Option<At>) = run!(self, read, db => {
            sqlx::query_as(self.sql(CLAIMED))
                .bind(self.given())
                .bind(alarm.num_milliseconds())
                .fetch_one(db)
                .await
        })
        .map_err(StoreError::doing("counting claims"))?;
        let count = |n: i64| usize::try_from(n).unwrap_or(0);
        Ok((count(all), count(late), oldest.map(|at| at.0)))
    }

    /// Whether a week is closed.
    pub async fn is_closed(&self, week: WeekKey) -> Result<bool, StoreError> {
        let rows: i64 = run!(self, read, db => {
            sqlx::query_scalar(self.sql(IS_CLOSED)).bind(week.to_string()).fetch_one(db).await
        })
        .map_err(StoreError::doing("looking whether a week is closed"))?;
        Ok(rows > 0)
    }
}
