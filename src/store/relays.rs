//! The relay's state, shared by all replicas: breaker, pace, and the operator's pause.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::dialect::At;
use super::sends::cut;
use super::{Store, StoreError, only, run, transact, uncancelled};
use crate::domain::ids::ReplicaId;

/// The breaker's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// Mail flows.
    Closed,
    /// Nothing is tried before a moment.
    Open,
    /// One replica tries one message.
    HalfOpen,
}

impl Breaker {
    /// The name in the database and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Closed, Self::Open, Self::HalfOpen].into_iter().find(|state| state.as_str() == text)
    }
}

/// How often in a row the breaker has opened since the relay last worked: once, and after each failed probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Openings(i32);

impl Openings {
    /// Whether the relay worked before.
    pub const fn is_first(self) -> bool {
        self.0 == 1
    }
}

/// The relay as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayState {
    /// The breaker.
    pub breaker: Breaker,
    /// Whether an operator has paused deliveries.
    pub paused: bool,
    /// Why the breaker opened last.
    pub reason: Option<String>,
    /// What the relay or the system said then.
    pub note: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// Until when nothing is tried.
    pub open_until: Option<DateTime<Utc>>,
    /// When the breaker closed last.
    pub closed_at: Option<DateTime<Utc>>,
    /// When the relay last asked to slow down.
    pub throttled_at: Option<DateTime<Utc>>,
    /// The share of pace and connections that is used, above 0 and up to 1.
    pub rate_factor: f64,
    /// The database's time at the reading.
    pub now: DateTime<Utc>,
}

/// How fast the relay may be used by all replicas together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PaceLimits {
    /// Messages per second.
    pub per_second: Option<f64>,
    /// Messages per day, counted from the first one.
    pub per_day: Option<i64>,
}

const ENSURE: &str = "
    INSERT INTO digestd.relays (name)
    VALUES ($1)
    ON CONFLICT (name) DO NOTHING";

const READ: &str = "
    SELECT state, paused, reason, note, failures, open_until, closed_at, throttled_at, rate_factor, {now}
    FROM digestd.relays
    WHERE name = $2";

/// Failures count while the breaker is closed; the last of a row opens it.
const FAILING: &str = "
    UPDATE digestd.relays
    SET failures = failures + 1,
        state = CASE WHEN failures + 1 >= $3 THEN 'open' ELSE state END,
        reason = CASE WHEN failures + 1 >= $3 THEN 'failing' ELSE reason END,
        note = $6,
        openings = CASE WHEN failures + 1 >= $3 THEN openings + 1 ELSE openings END,
        opened_at = CASE WHEN failures + 1 >= $3 THEN {now} ELSE opened_at END,
        open_until = CASE
            WHEN failures + 1 >= $3
            THEN {now} + (CASE WHEN $4 * (openings + 1) < $5 THEN $4 * (openings + 1) ELSE $5 END){ms}
            ELSE open_until
        END
    WHERE name = $2 AND state = 'closed'
    RETURNING CASE WHEN state = 'open' THEN openings END";

/// Opens the breaker, longer each time in a row; an open one stays as it is.
const OPEN: &str = "
    UPDATE digestd.relays
    SET state = 'open',
        reason = $3,
        note = $6,
        failures = 0,
        openings = openings + 1,
        opened_at = {now},
        open_until = {now} + (CASE WHEN $4 * (openings + 1) < $5 THEN $4 * (openings + 1) ELSE $5 END){ms},
        probe_owner = NULL,
        probe_until = NULL
    WHERE name = $2 AND state IN ('closed', 'half_open')
    RETURNING openings";

/// One replica becomes the prober; if it dies, another does after a while. A moment that is still to come,
/// because the database's clock was ahead when it was written and has been set right, holds nobody up.
const PROBE: &str = "
    UPDATE digestd.relays
    SET state = 'half_open',
        probe_owner = $3,
        probe_until = {now} + $4{ms}
    WHERE name = $2
      AND NOT paused
      AND (
          (state = 'open' AND (open_until <= {now} OR opened_at > {now}))
          OR (state = 'half_open' AND (probe_until <= {now} OR probe_until > {now} + $4{ms}))
      )
    RETURNING state";

/// Only a probe closes an open breaker: what was under way when it opened proves too little.
const HEALTHY: &str = "
    UPDATE digestd.relays
    SET closed_at = CASE WHEN state = 'closed' THEN closed_at ELSE {now} END,
        state = 'closed',
        reason = NULL,
        note = NULL,
        failures = 0,
        openings = 0,
        open_until = NULL,
        probe_owner = NULL,
        probe_until = NULL
    WHERE name = $2 AND ((state = 'closed' AND failures > 0) OR (state <> 'closed' AND $3))
    RETURNING state";

/// Half the rate at once, but once per a few seconds: all connections hear the same complaint.
const THROTTLED: &str = "
    UPDATE digestd.relays
    SET rate_factor = CASE WHEN rate_factor > 0.1 THEN rate_factor / 2 ELSE rate_factor END,
        throttled_at = {now}
    WHERE name = $2 AND (throttled_at IS NULL OR throttled_at + $3{ms} <= {now} OR throttled_at > {now})
    RETURNING state";

/// A tenth back after each quiet while.
const RECOVER: &str = "
    UPDATE digestd.relays
    SET rate_factor = CASE WHEN rate_factor + 0.1 < 1 THEN rate_factor + 0.1 ELSE 1 END,
        throttled_at = {now}
    WHERE name = $2 AND rate_factor < 1 AND (throttled_at + $3{ms} <= {now} OR throttled_at > {now})
    RETURNING state";

const PAUSE: &str = "
    UPDATE digestd.relays
    SET paused = $2
    WHERE name = $1";

/// Fills the bucket for the time passed, up to one second's worth, and at least one message's: a pace
/// below one a second would never fill a whole one otherwise. Where the clock was set back, no time has passed.
const FILL: &str = "
    UPDATE digestd.relays
    SET bucket = CASE
            WHEN bucket_at IS NULL THEN $5
            WHEN bucket_at > {now} THEN bucket
            WHEN bucket + $3 * {span}{now} - bucket_at{end} / 1000.0 > $5 THEN $5
            ELSE bucket + $3 * {span}{now} - bucket_at{end} / 1000.0
        END,
        bucket_at = {now},
        day_used = CASE WHEN day_started_at IS NULL OR day_started_at + $4{ms} <= {now} THEN 0 ELSE day_used END,
        day_started_at = CASE
            WHEN day_started_at IS NULL OR day_started_at + $4{ms} <= {now} THEN {now}
            -- Begun in a time that has not come: what it has used still counts, from now on for a day.
            WHEN day_started_at > {now} THEN {now}
            ELSE day_started_at
        END
    WHERE name = $2
    RETURNING bucket, day_used";

const TAKE: &str = "
    UPDATE digestd.relays
    SET bucket = bucket - $2, day_used = day_used + $2
    WHERE name = $1";

/// What was taken and not needed. The next filling cuts the bucket at its brim again.
const RETURN: &str = "
    UPDATE digestd.relays
    SET bucket = bucket + $2, day_used = day_used - $2
    WHERE name = $1";

type RelayRow =
    (String, bool, Option<String>, Option<String>, i32, Option<At>, Option<At>, Option<At>, f64, At);

/// A day, for quotas.
const DAY: TimeDelta = TimeDelta::days(1);

impl Store {
    /// The relay's state; makes its row where there is none yet.
    pub async fn relay(&self, name: &str) -> Result<RelayState, StoreError> {
        let doing = "reading the relay's state";
        if let Some(row) = self.read_relay(name).await.map_err(StoreError::doing(doing))? {
            return relay_state(name, row);
        }
        run!(self, write, db => sqlx::query(self.sql(ENSURE)).bind(name).execute(db).await.map(drop))
            .map_err(StoreError::doing(doing))?;
        let row = self.read_relay(name).await.map_err(StoreError::doing(doing))?;
        relay_state(name, row.ok_or_else(|| StoreError::inconsistent("relays", "name", name))?)
    }

    async fn read_relay(&self, name: &str) -> Result<Option<RelayRow>, sqlx::Error> {
        run!(self, read, db => {
            sqlx::query_as(self.sql(READ)).bind(self.given()).bind(name).fetch_optional(db).await
        })
    }

    /// Counts a failure to talk to the relay; opens the breaker at `threshold` of them in a row, for `first`
    /// times the openings in a row and at most `longest`. `None`: it has not opened by this.
    pub async fn relay_failing(
        &self,
        name: &str,
        threshold: u32,
        (first, longest): (Duration, Duration),
        note: &str,
    ) -> Result<Option<Openings>, StoreError> {
        let openings: Option<Option<i32>> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(FAILING))
                .bind(self.given())
                .bind(name)
                .bind(i32::try_from(threshold).unwrap_or(i32::MAX))
                .bind(millis(first))
                .bind(millis(longest))
                .bind(cut(note))
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("counting a relay's failure"))?;
        Ok(openings.flatten().map(Openings))
    }

    /// Opens the breaker at once. `None`: it was open before.
    pub async fn relay_open(
        &self,
        name: &str,
        reason: &str,
        (first, longest): (Duration, Duration),
        note: &str,
    ) -> Result<Option<Openings>, StoreError> {
        let openings: Option<i32> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(OPEN))
                .bind(self.given())
                .bind(name)
                .bind(reason)
                .bind(millis(first))
                .bind(millis(longest))
                .bind(cut(note))
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("opening the relay's breaker"))?;
        Ok(openings.map(Openings))
    }

    /// Tries to become the one that probes an open relay. The right passes on after `patience`.
    pub async fn relay_probe(
        &self,
        name: &str,
        me: ReplicaId,
        patience: Duration,
    ) -> Result<bool, StoreError> {
        let state: Option<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(PROBE))
                .bind(self.given())
                .bind(name)
                .bind(me.0)
                .bind(millis(patience))
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("asking to probe the relay"))?;
        Ok(state.is_some())
    }

    /// Forgets failures; after a `probe` closes the breaker, too. True: something was changed.
    pub async fn relay_healthy(&self, name: &str, probe: bool) -> Result<bool, StoreError> {
        let state: Option<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(HEALTHY))
                .bind(self.given())
                .bind(name)
                .bind(probe)
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("closing the relay's breaker"))?;
        Ok(state.is_some())
    }

    /// Halves the rate, at most once per `per`. True: it was halved by this.
    pub async fn relay_throttled(&self, name: &str, per: Duration) -> Result<bool, StoreError> {
        self.change_rate(THROTTLED, name, per).await
    }

    /// Gives a tenth of the rate back if nobody complained for `quiet`.
    pub async fn relay_recover(&self, name: &str, quiet: Duration) -> Result<bool, StoreError> {
        self.change_rate(RECOVER, name, quiet).await
    }

    async fn change_rate(&self, text: &'static str, name: &str, span: Duration) -> Result<bool, StoreError> {
        let state: Option<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(text))
                .bind(self.given())
                .bind(name)
                .bind(millis(span))
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("changing the relay's rate"))?;
        Ok(state.is_some())
    }

    /// An operator's pause, or its end.
    pub async fn relay_pause(&self, name: &str, paused: bool) -> Result<(), StoreError> {
        run!(self, write, db => sqlx::query(self.sql(ENSURE)).bind(name).execute(db).await.map(drop))
            .map_err(StoreError::doing("pausing the relay"))?;
        run!(self, write, db => {
            sqlx::query(self.sql(PAUSE)).bind(name).bind(paused).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("pausing the relay"))
    }

    /// Takes up to `want` messages' worth of pace, shared by all replicas.
    pub async fn take_pace(&self, name: &str, want: u32, limits: PaceLimits) -> Result<u32, StoreError> {
        let (store, name) = (self.clone(), name.to_owned());
        let per_second = limits.per_second.unwrap_or(f64::from(u32::MAX));
        let granted: u32 = uncancelled(async move {
            transact!(&store, tx => {
                let filled: Option<(f64, i64)> = sqlx::query_as(store.sql(FILL))
                    .bind(store.given())
                    .bind(&name)
                    .bind(per_second)
                    .bind(DAY.num_milliseconds())
                    .bind(per_second.max(1.0))
                    .fetch_all(&mut *tx)
                    .await
                    .map(only)?;
                let (bucket, used) = filled.unwrap_or_default();
                let left_today = limits.per_day.map_or(i64::MAX, |quota| quota - used);
                let granted = whole(bucket).min(want).min(u32::try_from(left_today.max(0)).unwrap_or(u32::MAX));
                if granted > 0 {
                    sqlx::query(store.sql(TAKE)).bind(&name).bind(i64::from(granted)).execute(&mut *tx).await?;
                }
                Ok(granted)
            })
        })
        .await
        .map_err(StoreError::doing("taking pace"))?;
        Ok(granted)
    }

    /// Puts pace back that was taken for messages that were not there.
    pub async fn return_pace(&self, name: &str, unused: u32) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(RETURN)).bind(name).bind(i64::from(unused)).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("returning pace"))
    }
}

fn relay_state(name: &str, row: RelayRow) -> Result<RelayState, StoreError> {
    let (state, paused, reason, note, failures, open_until, closed_at, throttled_at, rate_factor, now) = row;
    Ok(RelayState {
        breaker: Breaker::parse(&state).ok_or_else(|| StoreError::inconsistent("relays", "state", name))?,
        paused,
        reason,
        note,
        failures: u32::try_from(failures).unwrap_or(0),
        open_until: open_until.map(|at| at.0),
        closed_at: closed_at.map(|at| at.0),
        throttled_at: throttled_at.map(|at| at.0),
        rate_factor,
        now: now.0,
    })
}

/// The whole messages in a bucket.
fn whole(bucket: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the type's range"
    )]
    let whole = bucket.floor().clamp(0.0, f64::from(u32::MAX)) as u32;
    whole
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
