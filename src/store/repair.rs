//! Repairs that a person asks for.

use chrono::TimeDelta;
use serde::Serialize;
use sqlx::types::Json;

use super::take_over::FIRST_HOLDERS;
use super::{Store, StoreError, transact, uncancelled};
use crate::domain::ids::OrgId;
use crate::domain::send::SendState;
use crate::domain::week::WeekKey;

/// A send that is failed or missed has no messages; one that had would not be made again.
const CHOOSE: &str = "
    SELECT id, org_id, reason, detail
    FROM digestd.sends
    WHERE week_key = $1
      AND state = $2
      AND ($3 = '' OR org_id = $3)
      AND NOT EXISTS (SELECT 1 FROM digestd.outbox AS o WHERE o.send_id = sends.id)
    ORDER BY id
    LIMIT $4
    {skip_locked}";

/// A claim that nobody holds and whose lease is over, so that any replica takes it over.
const REOPEN: &str = "
    UPDATE digestd.sends
    SET state = 'claimed',
        reason = NULL,
        detail = NULL,
        settled_at = NULL,
        epoch = epoch + 1,
        claim_id = NULL,
        claimed_by = NULL,
        claimed_at = {now},
        lease_until = {now},
        attempts = 0,
        give_up_at = {now} + $4{ms}
    WHERE id IN (SELECT CAST(u.value->>'id' AS BIGINT) FROM {each}($2) AS u)
      AND state = $3
      AND NOT EXISTS (SELECT 1 FROM digestd.outbox AS o WHERE o.send_id = sends.id)
    RETURNING id";

const EVENTS: &str = "
    INSERT INTO digestd.send_events (send_id, at, event, epoch, detail)
    SELECT s.id, {now}, 'reopened', s.epoch, u.value->>'detail'
    FROM {each}($2) AS u
    JOIN digestd.sends AS s ON s.id = CAST(u.value->>'id' AS BIGINT)";

#[derive(Serialize)]
struct Chosen {
    id: i64,
    org: String,
    detail: String,
}

impl Store {
    /// Reopens up to `limit` sends of a week that ended as `Failed` or `Missed`, of all orgs or of one, to
    /// be tried for as long as `give_up`. Returns their orgs.
    pub async fn reopen(
        &self,
        week: WeekKey,
        org: Option<&OrgId>,
        state: SendState,
        give_up: TimeDelta,
        limit: u32,
    ) -> Result<Vec<OrgId>, StoreError> {
        if !matches!(state, SendState::Failed | SendState::Missed) {
            return Ok(Vec::new());
        }
        let store = self.clone();
        let org = org.map_or(String::new(), ToString::to_string);
        let reopened: Vec<String> = uncancelled(async move {
            transact!(&store, tx => {
                let rows: Vec<(i64, String, Option<String>, Option<String>)> =
                    sqlx::query_as(store.sql(CHOOSE))
                        .bind(week.to_string())
                        .bind(state.as_str())
                        .bind(org)
                        .bind(i64::from(limit))
                        .fetch_all(&mut *tx)
                        .await?;
                let chosen: Vec<Chosen> = rows.into_iter().map(|row| chosen(row, state)).collect();
                sqlx::query(store.sql(FIRST_HOLDERS)).bind(Json(&chosen)).execute(&mut *tx).await?;
                let ids: Vec<i64> = sqlx::query_scalar(store.sql(REOPEN))
                    .bind(store.given())
                    .bind(Json(&chosen))
                    .bind(state.as_str())
                    .bind(give_up.num_milliseconds())
                    .fetch_all(&mut *tx)
                    .await?;
                let reopened: Vec<&Chosen> = chosen.iter().filter(|send| ids.contains(&send.id)).collect();
                sqlx::query(store.sql(EVENTS))
                    .bind(store.given())
                    .bind(Json(&reopened))
                    .execute(&mut *tx)
                    .await?;
                Ok(reopened.into_iter().map(|send| send.org.clone()).collect())
            })
        })
        .await
        .map_err(StoreError::doing("reopening sends"))?;
        let known =
            |org: String| OrgId::parse(&org).map_err(|_| StoreError::inconsistent("sends", "org_id", &org));
        reopened.into_iter().map(known).collect()
    }
}

/// What the send was before, which its row will not tell any more.
fn chosen(
    (id, org, reason, detail): (i64, String, Option<String>, Option<String>),
    state: SendState,
) -> Chosen {
    let mut was = state.to_string();
    for more in [reason, detail].into_iter().flatten() {
        was = format!("{was}: {more}");
    }
    Chosen { id, org, detail: was }
}
