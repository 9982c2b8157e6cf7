//! Resends that a person asks for.

use chrono::{DateTime, TimeDelta, Utc};

use super::dialect::At;
use super::{Store, StoreError, only, run, transact, uncancelled};
use crate::domain::address::Address;
use crate::domain::ids::{OrgId, SendId};
use crate::domain::schedule::Period;
use crate::domain::send::SendState;
use crate::domain::week::SendKey;

/// A digest to be made once more.
#[derive(Debug, Clone)]
pub struct ManualSend {
    /// Whose digest.
    pub org: OrgId,
    /// When it was asked for: the key, and the slot.
    pub asked_at: DateTime<Utc>,
    /// The days that it is about.
    pub period: Period,
    /// The only address that it may reach.
    pub only: Option<Address>,
    /// How long it is tried.
    pub give_up: TimeDelta,
}

/// A claim that nobody holds and whose lease is over: whichever replica comes first takes it over,
/// and a command that dies right after this loses nothing.
const INSERT: &str = "
    INSERT INTO digestd.sends (
        org_id, week_key, state, slot_at, timezone, period_first, period_start, period_end,
        give_up_at, only_address, epoch, claimed_at, lease_until
    )
    VALUES ($2, $3, 'claimed', $4, $5, $6, $7, $8, $9, $10, 0, {now}, {now})
    ON CONFLICT (org_id, week_key) DO NOTHING
    RETURNING id";

const EVENT: &str = "
    INSERT INTO digestd.send_events (send_id, at, event, epoch)
    VALUES ($2, {now}, 'resend_requested', 0)";

/// The key's prefix alone would read every send there is; the slot's index narrows it.
const RECENT: &str = "
    SELECT state, COUNT(*)
    FROM digestd.sends
    WHERE slot_at > (SELECT {now}) - $2{ms}
      AND week_key LIKE 'manual-%'
    GROUP BY state
    ORDER BY state";

impl Store {
    /// The resends asked for within `span`, by state.
    pub async fn recent_resends(&self, span: TimeDelta) -> Result<Vec<(SendState, u64)>, StoreError> {
        let rows: Vec<(String, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(RECENT)).bind(self.given()).bind(span.num_milliseconds()).fetch_all(db).await
        })
        .map_err(StoreError::doing("counting resends"))?;
        rows.into_iter()
            .map(|(text, count)| {
                let state = SendState::parse(&text);
                let state = state.ok_or_else(|| StoreError::inconsistent("sends", "state", &text))?;
                Ok((state, u64::try_from(count).unwrap_or(0)))
            })
            .collect()
    }

    /// Asks for a resend. `None`: another one was asked for in the same millisecond.
    pub async fn insert_manual(&self, send: &ManualSend) -> Result<Option<(SendId, SendKey)>, StoreError> {
        let (store, send) = (self.clone(), send.clone());
        let key = SendKey::manual(send.asked_at);
        let inserted: Option<i64> = uncancelled(async move {
            transact!(&store, tx => {
                let id: Option<i64> = sqlx::query_scalar(store.sql(INSERT))
                    .bind(store.given())
                    .bind(send.org.as_str())
                    .bind(key.to_string())
                    .bind(At(send.asked_at))
                    .bind(send.period.zone.name())
                    .bind(send.period.first.to_string())
                    .bind(At(send.period.start))
                    .bind(At(send.period.end))
                    .bind(At(send.asked_at + send.give_up))
                    .bind(send.only.as_ref().map(Address::normal))
                    .fetch_all(&mut *tx)
                    .await
                    .map(only)?;
                if id.is_some() {
                    sqlx::query(store.sql(EVENT)).bind(store.given()).bind(id).execute(&mut *tx).await?;
                }
                Ok(id)
            })
        })
        .await
        .map_err(StoreError::doing("asking for a resend"))?;
        Ok(inserted.map(|id| (SendId(id), key)))
    }
}
