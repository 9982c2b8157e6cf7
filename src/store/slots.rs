//! Slots: which schedules have an open moment, and which of those are swept.

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use serde::Serialize;
use sqlx::types::Json;

use super::dialect::At;
use super::{Store, StoreError, run};
use crate::domain::schedule::{Slot, WeeklySchedule};
use crate::domain::week::WeekKey;

/// A slot that is open and not swept yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSlot {
    /// The zone, as the schedule names it.
    pub timezone: String,
    /// The weekday, as stored: `Mon`.
    pub weekday: String,
    /// The local time, as stored: `08:00`.
    pub local_time: String,
    /// The week.
    pub week: WeekKey,
    /// The stored instant, which every replica compares.
    pub at: DateTime<Utc>,
}

#[derive(Serialize)]
struct SlotRow<'a> {
    place: usize,
    zone: &'a str,
    weekday: String,
    time: String,
    week: String,
    at: i64,
}

const REMEMBER: &str = "
    INSERT INTO digestd.slots (timezone, weekday, local_time, week_key, slot_at)
    SELECT
        u.value->>'zone',
        u.value->>'weekday',
        u.value->>'time',
        u.value->>'week',
        {epoch} + CAST(u.value->>'at' AS BIGINT){ms}
    FROM {each}($1) AS u
    WHERE TRUE
    ORDER BY 1, 2, 3, 4
    ON CONFLICT (timezone, weekday, local_time, week_key) DO NOTHING";

const STORED: &str = "
    SELECT CAST(u.value->>'place' AS BIGINT), s.slot_at
    FROM digestd.slots AS s
    JOIN {each}($1) AS u
      ON s.timezone = u.value->>'zone'
     AND s.weekday = u.value->>'weekday'
     AND s.local_time = u.value->>'time'
     AND s.week_key = u.value->>'week'";

const OPEN: &str = "
    SELECT timezone, weekday, local_time, week_key, slot_at
    FROM digestd.slots
    WHERE swept_at IS NULL
      AND slot_at <= (SELECT {now})
      AND slot_at + $2{ms} > (SELECT {now})
    ORDER BY slot_at, timezone, weekday, local_time";

/// Past their start and not swept, in weeks that are not closed: some of their orgs may have no send.
const UNSWEPT: &str = "
    SELECT s.timezone, s.weekday, s.local_time, s.week_key, s.slot_at
    FROM digestd.slots AS s
    LEFT JOIN digestd.weeks AS w ON w.week_key = s.week_key
    WHERE s.swept_at IS NULL
      AND s.slot_at <= (SELECT {now})
      AND w.closed_at IS NULL
    ORDER BY s.slot_at, s.timezone, s.weekday, s.local_time";

/// Locked in the order of the key: several replicas reach the end of their sweeps together.
const SWEPT: &str = "
    WITH mine AS MATERIALIZED (
        SELECT s.timezone AS zone, s.weekday AS day, s.local_time AS time, s.week_key AS week
        FROM digestd.slots AS s
        JOIN {each}($2) AS u
          ON s.timezone = u.value->>'zone'
         AND s.weekday = u.value->>'weekday'
         AND s.local_time = u.value->>'time'
         AND s.week_key = u.value->>'week'
        WHERE s.swept_at IS NULL
        ORDER BY 1, 2, 3, 4
        {for_update_s}
    )
    UPDATE digestd.slots
    SET swept_at = {now}
    FROM mine
    WHERE timezone = zone AND weekday = day AND local_time = time AND week_key = week";

const INSTALLED: &str = "
    SELECT installed_at
    FROM digestd.installation";

impl Store {
    /// Remembers slots with their instants, and returns the instants as stored, in the same order:
    /// whoever was first decides.
    pub async fn remember_slots(
        &self,
        slots: &[(WeeklySchedule, Slot)],
    ) -> Result<Vec<DateTime<Utc>>, StoreError> {
        let rows = slot_rows(slots);
        run!(self, write, db => {
            sqlx::query(self.sql(REMEMBER)).bind(Json(&rows)).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("remembering slots"))?;
        self.stored_slots(slots).await
    }

    /// The instants of slots, in the same order: as stored, or as given where nobody has stored them.
    pub async fn stored_slots(
        &self,
        slots: &[(WeeklySchedule, Slot)],
    ) -> Result<Vec<DateTime<Utc>>, StoreError> {
        let rows = slot_rows(slots);
        // From the writing side, which has seen what this replica has just remembered.
        let stored: Vec<(i64, At)> = run!(self, write, db => {
            sqlx::query_as(self.sql(STORED)).bind(Json(&rows)).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading slots back"))?;
        let mut instants: Vec<DateTime<Utc>> = slots.iter().map(|(_, slot)| slot.at).collect();
        for (place, at) in stored {
            if let Some(instant) = usize::try_from(place).ok().and_then(|place| instants.get_mut(place)) {
                *instant = at.0;
            }
        }
        Ok(instants)
    }

    /// The slots that are open and not swept: all that an idle tick looks at.
    pub async fn open_slots(&self, catch_up: TimeDelta) -> Result<Vec<OpenSlot>, StoreError> {
        let rows: Vec<OpenRow> = run!(self, read, db => {
            sqlx::query_as(self.sql(OPEN))
                .bind(self.given())
                .bind(catch_up.num_milliseconds())
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("looking for open slots"))?;
        Ok(rows.into_iter().filter_map(open_slot).collect())
    }

    /// The slots past their start that nobody has swept, open or not, in weeks that are not closed.
    pub async fn unswept_slots(&self) -> Result<Vec<OpenSlot>, StoreError> {
        let rows: Vec<OpenRow> = run!(self, read, db => {
            sqlx::query_as(self.sql(UNSWEPT)).bind(self.given()).fetch_all(db).await
        })
        .map_err(StoreError::doing("looking for slots that nobody has swept"))?;
        Ok(rows.into_iter().filter_map(open_slot).collect())
    }

    /// Marks slots as swept. Only after every candidate was read and every claim answered.
    pub async fn mark_swept(&self, slots: &[OpenSlot]) -> Result<(), StoreError> {
        let rows: Vec<SlotRow<'_>> = slots
            .iter()
            .enumerate()
            .map(|(place, slot)| SlotRow {
                place,
                zone: &slot.timezone,
                weekday: slot.weekday.clone(),
                time: slot.local_time.clone(),
                week: slot.week.to_string(),
                at: slot.at.timestamp_millis(),
            })
            .collect();
        run!(self, write, db => {
            sqlx::query(self.sql(SWEPT)).bind(self.given()).bind(Json(&rows)).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("marking slots as swept"))
    }

    /// When the first replica of this installation booted.
    pub async fn installed_at(&self) -> Result<DateTime<Utc>, StoreError> {
        let at: At = run!(self, read, db => {
            sqlx::query_scalar(self.sql(INSTALLED)).fetch_one(db).await
        })
        .map_err(StoreError::doing("reading the installation's age"))?;
        Ok(at.0)
    }
}

type OpenRow = (String, String, String, String, At);

/// One slot that cannot be read, of a release that writes it otherwise, must not stop every tick.
fn open_slot((timezone, weekday, local_time, week, at): OpenRow) -> Option<OpenSlot> {
    let Ok(week) = WeekKey::parse(&week) else {
        let error = StoreError::inconsistent("slots", "week_key", &timezone);
        tracing::error!(error = &error as &dyn std::error::Error, "a slot cannot be read; the others go on");
        return None;
    };
    Some(OpenSlot { timezone, weekday, local_time, week, at: at.0 })
}

fn slot_rows(slots: &[(WeeklySchedule, Slot)]) -> Vec<SlotRow<'_>> {
    slots
        .iter()
        .enumerate()
        .map(|(place, (schedule, slot))| SlotRow {
            place,
            zone: schedule.zone.name(),
            weekday: weekday_name(schedule.weekday),
            time: time_name(schedule.time),
            week: slot.week.to_string(),
            at: slot.at.timestamp_millis(),
        })
        .collect()
}

fn weekday_name(weekday: Weekday) -> String {
    weekday.to_string()
}

fn time_name(time: NaiveTime) -> String {
    time.format("%H:%M").to_string()
}
