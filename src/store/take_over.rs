//! Claims whose holders are gone: taken over, each with a higher epoch.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;

use super::dialect::At;
use super::sends::{ClaimTerms, EVENT, EndRow};
use super::{Store, StoreError, transact, uncancelled};
use crate::domain::address::Address;
use crate::domain::ids::{ClaimId, Epoch, OrgId, SendId};
use crate::domain::schedule::Period;
use crate::domain::send::{Claim, ClaimOrigin, SendReason, SendState};
use crate::domain::week::SendKey;
use crate::domain::zone::Zone;

/// A taken-over claim, and whether its time has passed.
#[derive(Debug)]
pub struct TakenOver {
    /// The claim.
    pub claim: Claim,
    /// When it is failed rather than tried again.
    pub give_up_at: DateTime<Utc>,
}

/// Claims whose lease has passed, whatever their slot, window or origin.
const EXPIRED: &str = "
    SELECT id
    FROM digestd.sends
    WHERE state = 'claimed' AND lease_until <= (SELECT {now})
    ORDER BY lease_until, id
    LIMIT $2
    {skip_locked}";

/// Once a claim is taken over, its row does not tell who had it first.
pub(super) const FIRST_HOLDERS: &str = "
    INSERT INTO digestd.send_events (send_id, at, event, epoch, replica)
    SELECT s.id, s.claimed_at, 'claimed', s.epoch, s.claimed_by
    FROM digestd.sends AS s
    JOIN {each}($1) AS u ON s.id = CAST(u.value->>'id' AS BIGINT)
    WHERE s.epoch = 1 AND s.claimed_by IS NOT NULL";

const TAKE_OVER: &str = "
    UPDATE digestd.sends
    SET epoch = epoch + 1,
        claim_id = $2,
        claimed_by = $3,
        claimed_at = {now},
        lease_until = {now} + $4{ms}
    WHERE id IN (SELECT CAST(u.value->>'id' AS BIGINT) FROM {each}($5) AS u)
      AND state = 'claimed'
      AND lease_until <= {now}
    RETURNING id, epoch, org_id, week_key, slot_at, timezone, period_first, only_address, attempts, give_up_at";

#[derive(Serialize)]
struct ExpiredRow {
    id: i64,
}

/// A take-over row as it stands in the table.
type TakenRow = (i64, i64, String, String, At, String, String, Option<String>, i32, At);

impl Store {
    /// Takes over up to `limit` claims whose lease has passed, each with a higher epoch. A row that cannot
    /// be read holds up no other: it is tried again after a lease, by a release that may know better, and
    /// failed once its time has passed.
    pub async fn take_over(
        &self,
        limit: u32,
        id: ClaimId,
        terms: ClaimTerms,
    ) -> Result<Vec<TakenOver>, StoreError> {
        let store = self.clone();
        let rows: Vec<TakenRow> = uncancelled(async move {
            transact!(&store, tx => {
                let expired: Vec<i64> = sqlx::query_scalar(store.sql(EXPIRED))
                    .bind(store.given())
                    .bind(i64::from(limit))
                    .fetch_all(&mut *tx)
                    .await?;
                if expired.is_empty() {
                    return Ok(Vec::new());
                }
                let expired: Vec<ExpiredRow> = expired.into_iter().map(|id| ExpiredRow { id }).collect();
                sqlx::query(store.sql(FIRST_HOLDERS)).bind(Json(&expired)).execute(&mut *tx).await?;
                let rows: Vec<TakenRow> = sqlx::query_as(store.sql(TAKE_OVER))
                    .bind(store.given())
                    .bind(id.0)
                    .bind(terms.replica.0)
                    .bind(terms.lease.num_milliseconds())
                    .bind(Json(&expired))
                    .fetch_all(&mut *tx)
                    .await?;
                for row in &rows {
                    sqlx::query(store.sql(EVENT))
                        .bind(store.given())
                        .bind(row.0)
                        .bind("taken_over")
                        .bind(row.1)
                        .bind(terms.replica.0)
                        .bind(None::<String>)
                        .execute(&mut *tx)
                        .await?;
                }
                Ok(rows)
            })
        })
        .await
        .map_err(StoreError::doing("taking over expired claims"))?;
        let mut taken = Vec::with_capacity(rows.len());
        for row in rows {
            let (send, epoch, give_up_at) = (SendId(row.0), Epoch(row.1), row.9.0);
            match taken_over(row) {
                Ok(one) => taken.push(one),
                Err(error) => self.leave_unreadable(send, epoch, give_up_at, &error).await?,
            }
        }
        Ok(taken)
    }

    async fn leave_unreadable(
        &self,
        send: SendId,
        epoch: Epoch,
        give_up_at: DateTime<Utc>,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        tracing::error!(
            send.id = %send, error = error as &dyn std::error::Error,
            "a claimed send cannot be read; the others go on"
        );
        if self.now().await? >= give_up_at {
            let (state, reason) = (SendState::Failed, SendReason::TooLate);
            let row = EndRow::new(send, epoch, state, reason, Some(&error.to_string()));
            self.finish_rows(&[row]).await?;
        }
        Ok(())
    }
}

fn taken_over(row: TakenRow) -> Result<TakenOver, StoreError> {
    let (send, epoch, org, key, slot_at, zone, first, only, attempts, give_up_at) = row;
    let unknown = |column| StoreError::inconsistent("sends", column, send);
    let zone = Zone::parse(&zone).map_err(|_| unknown("timezone"))?;
    let first = first.parse().map_err(|_| unknown("period_first"))?;
    let only = only.as_deref().map(Address::parse).transpose().map_err(|_| unknown("only_address"))?;
    let claim = Claim {
        send: SendId(send),
        epoch: Epoch(epoch),
        org: OrgId::parse(&org).map_err(|_| unknown("org_id"))?,
        key: SendKey::parse(&key).map_err(|_| unknown("week_key"))?,
        slot_at: slot_at.0,
        period: Period::seven_days(zone, first),
        only,
        attempts: u32::try_from(attempts).map_err(|_| unknown("attempts"))?,
        origin: ClaimOrigin::TakenOver,
    };
    Ok(TakenOver { claim, give_up_at: give_up_at.0 })
}
