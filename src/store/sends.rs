//! Claims: who may render which send, and how it ended.

use std::collections::HashMap;

use chrono::TimeDelta;
use serde::Serialize;
use sqlx::types::Json;

use super::{Store, StoreError, only, run, transact, uncancelled};
use crate::domain::ids::{ClaimId, Epoch, ReplicaId, SendId};
use crate::domain::send::{Claim, ClaimOrigin, DueOrg, SendReason, SendState};
use crate::domain::week::SendKey;

/// How a claim is held, for every claim of a replica.
#[derive(Debug, Clone, Copy)]
pub struct ClaimTerms {
    /// Who claims.
    pub replica: ReplicaId,
    /// How long a claim lives unless it is renewed.
    pub lease: TimeDelta,
    /// How long after its slot an org may still be claimed.
    pub catch_up: TimeDelta,
    /// How long after its window a claimed send is still tried before it is failed.
    pub give_up: TimeDelta,
}

/// The end of a claim without messages.
#[derive(Debug)]
pub struct Ending {
    /// The claim, spent by this.
    pub claim: Claim,
    /// `Skipped` or `Failed`.
    pub state: SendState,
    /// Why.
    pub reason: SendReason,
    /// The error, for the ledger.
    pub detail: Option<String>,
}

/// A due org as the statements that insert sends read it.
#[derive(Serialize)]
pub(super) struct DueRow<'a> {
    org: &'a str,
    key: String,
    slot: i64,
    closes: i64,
    gives_up: i64,
    zone: &'a str,
    first: String,
    starts: i64,
    ends: i64,
}

#[derive(Serialize)]
pub(super) struct EndRow {
    id: i64,
    epoch: i64,
    state: &'static str,
    reason: &'static str,
    detail: Option<String>,
}

impl EndRow {
    pub(super) fn new(
        send: SendId,
        epoch: Epoch,
        state: SendState,
        reason: SendReason,
        detail: Option<&str>,
    ) -> Self {
        let (state, reason) = (state.as_str(), reason.as_str());
        Self { id: send.0, epoch: epoch.0, state, reason, detail: detail.map(cut) }
    }
}

/// The insert is the check. A loser gets no row; a rerun after a lost answer gets its own.
const CLAIM: &str = "
    INSERT INTO digestd.sends AS s (
        org_id, week_key, state, slot_at, timezone, period_first, period_start, period_end,
        give_up_at, epoch, claim_id, claimed_by, claimed_at, lease_until
    )
    SELECT
        u.value->>'org',
        u.value->>'key',
        'claimed',
        {epoch} + CAST(u.value->>'slot' AS BIGINT){ms},
        u.value->>'zone',
        u.value->>'first',
        {epoch} + CAST(u.value->>'starts' AS BIGINT){ms},
        {epoch} + CAST(u.value->>'ends' AS BIGINT){ms},
        {epoch} + CAST(u.value->>'gives_up' AS BIGINT){ms},
        1,
        $3,
        $4,
        {now},
        {now} + $5{ms}
    FROM {each}($2) AS u
    -- A replica that was frozen past the window must not claim a week that retention has forgotten.
    WHERE {now} >= {epoch} + CAST(u.value->>'slot' AS BIGINT){ms}
      AND {now} < {epoch} + CAST(u.value->>'closes' AS BIGINT){ms}
    -- Two replicas that lock the same keys in the same order cannot deadlock.
    ORDER BY 1
    ON CONFLICT (org_id, week_key) DO UPDATE
    SET claim_id = excluded.claim_id
    WHERE s.claim_id = excluded.claim_id AND s.state = 'claimed'
    RETURNING id, epoch, org_id";

/// Which of these orgs have a send under this key already.
const HAVE_SEND: &str = "
    SELECT s.org_id
    FROM digestd.sends AS s
    JOIN {each}($1) AS u ON s.org_id = u.value->>'org' AND s.week_key = u.value->>'key'
    WHERE s.org_id {among}(SELECT v.value->>'org' FROM {each}($1) AS v){end_among}";

/// Locked in the order of ids, like every write of several sends: a batch is renewed while parts of it
/// end, and two statements that lock the same rows in different orders would deadlock.
const RENEW: &str = "
    WITH mine AS MATERIALIZED (
        SELECT s.id AS mine_id
        FROM digestd.sends AS s
        JOIN {each}($2) AS u ON s.id = CAST(u.value->>'id' AS BIGINT)
        WHERE s.id {among}(SELECT CAST(v.value->>'id' AS BIGINT) FROM {each}($2) AS v){end_among}
          AND CASE WHEN s.state = 'claimed' THEN s.epoch = CAST(u.value->>'epoch' AS BIGINT) END
        ORDER BY s.id
        {for_update_s}
    )
    UPDATE digestd.sends
    SET lease_until = {now} + $3{ms}
    FROM mine
    WHERE id = mine_id
    RETURNING id";

/// An attempt is charged when the org's own gathering starts.
const CHARGE: &str = "
    UPDATE digestd.sends
    SET attempts = attempts + 1
    WHERE id = $1 AND epoch = $2 AND state = 'claimed'
    RETURNING attempts";

/// Gives a claim back, to be taken over after a while by whoever comes first. The epoch rises, so that a
/// renewal under way does not shorten or prolong the wait.
const POSTPONE: &str = "
    UPDATE digestd.sends
    SET epoch = epoch + 1,
        lease_until = {now} + $4{ms},
        attempts = $6,
        detail = COALESCE($5, detail)
    WHERE id = $2 AND epoch = $3 AND state = 'claimed'
    RETURNING id";

const FINISH: &str = "
    WITH mine AS MATERIALIZED (
        SELECT
            s.id AS mine_id,
            u.value->>'state' AS new_state,
            u.value->>'reason' AS new_reason,
            u.value->>'detail' AS new_detail
        FROM digestd.sends AS s
        JOIN {each}($2) AS u ON s.id = CAST(u.value->>'id' AS BIGINT)
        WHERE s.id {among}(SELECT CAST(v.value->>'id' AS BIGINT) FROM {each}($2) AS v){end_among}
          AND CASE WHEN s.state = 'claimed' THEN s.epoch = CAST(u.value->>'epoch' AS BIGINT) END
        ORDER BY s.id
        {for_update_s}
    )
    UPDATE digestd.sends
    SET state = new_state,
        reason = new_reason,
        detail = new_detail,
        settled_at = {now},
        lease_until = NULL
    FROM mine
    WHERE id = mine_id
    RETURNING id";

pub(super) const EVENT: &str = "
    INSERT INTO digestd.send_events (send_id, at, event, epoch, replica, detail)
    VALUES ($2, {now}, $3, $4, $5, $6)";

impl Store {
    /// Claims a batch. Returns the claims won; the others belong to somebody else, or their window
    /// has passed. Running it again with the same `id` after an error returns the same claims.
    pub async fn claim(
        &self,
        due: &[DueOrg],
        id: ClaimId,
        terms: ClaimTerms,
    ) -> Result<Vec<Claim>, StoreError> {
        let rows: Vec<DueRow<'_>> =
            due.iter().map(|due| due_row(due, terms.catch_up, terms.give_up)).collect();
        let won: Vec<(i64, i64, String)> = run!(self, write, db => {
            sqlx::query_as(self.sql(CLAIM))
                .bind(self.given())
                .bind(Json(&rows))
                .bind(id.0)
                .bind(terms.replica.0)
                .bind(terms.lease.num_milliseconds())
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("claiming sends"))?;
        let by_org: HashMap<&str, &DueOrg> = due.iter().map(|due| (due.org.as_str(), due)).collect();
        won.into_iter()
            .map(|(send, epoch, org)| {
                let due = by_org
                    .get(org.as_str())
                    .ok_or_else(|| StoreError::inconsistent("sends", "org_id", send))?;
                Ok(Claim {
                    send: SendId(send),
                    epoch: Epoch(epoch),
                    org: due.org.clone(),
                    key: SendKey::Week(due.slot.week),
                    slot_at: due.slot.at,
                    period: due.period.clone(),
                    only: None,
                    attempts: 0,
                    origin: ClaimOrigin::Inserted,
                })
            })
            .collect()
    }

    /// Drops the orgs that have a send for their week already: one look, so that a tick over a
    /// settled week writes nothing.
    pub async fn without_send(&self, due: Vec<DueOrg>) -> Result<Vec<DueOrg>, StoreError> {
        #[derive(Serialize)]
        struct Key<'a> {
            org: &'a str,
            key: String,
        }
        let keys: Vec<Key<'_>> =
            due.iter().map(|d| Key { org: d.org.as_str(), key: d.slot.week.to_string() }).collect();
        let have: Vec<String> = run!(self, read, db => {
            sqlx::query_scalar(self.sql(HAVE_SEND)).bind(Json(&keys)).fetch_all(db).await
        })
        .map_err(StoreError::doing("looking for existing sends"))?;
        let have: std::collections::HashSet<String> = have.into_iter().collect();
        Ok(due.into_iter().filter(|d| !have.contains(d.org.as_str())).collect())
    }

    /// Extends claims. Returns those that are still held; whoever is missing has been superseded.
    pub async fn renew(
        &self,
        claims: &[(SendId, Epoch)],
        lease: TimeDelta,
    ) -> Result<Vec<SendId>, StoreError> {
        #[derive(Serialize)]
        struct Held {
            id: i64,
            epoch: i64,
        }
        let held: Vec<Held> =
            claims.iter().map(|(send, epoch)| Held { id: send.0, epoch: epoch.0 }).collect();
        let ids: Vec<i64> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(RENEW))
                .bind(self.given())
                .bind(Json(&held))
                .bind(lease.num_milliseconds())
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("renewing claims"))?;
        Ok(ids.into_iter().map(SendId).collect())
    }

    /// Charges one attempt to a claim. `None`: superseded.
    pub async fn charge(&self, claim: &Claim) -> Result<Option<u32>, StoreError> {
        let attempts: Option<i32> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(CHARGE))
                .bind(claim.send.0)
                .bind(claim.epoch.0)
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("charging an attempt"))?;
        Ok(attempts.map(|n| u32::try_from(n).unwrap_or(0)))
    }

    /// Gives a claim back, to be taken over after `delay` by whoever comes first, with the error that
    /// stopped it and the attempts that the claim says. False: superseded.
    pub async fn postpone(
        &self,
        claim: Claim,
        delay: TimeDelta,
        error: Option<&str>,
        replica: ReplicaId,
    ) -> Result<bool, StoreError> {
        let store = self.clone();
        let error = error.map(cut);
        let moved = uncancelled(async move {
            transact!(&store, tx => {
                let moved: Option<i64> = sqlx::query_scalar(store.sql(POSTPONE))
                    .bind(store.given())
                    .bind(claim.send.0)
                    .bind(claim.epoch.0)
                    .bind(delay.num_milliseconds())
                    .bind(&error)
                    .bind(i32::try_from(claim.attempts).unwrap_or(i32::MAX))
                    .fetch_all(&mut *tx)
                    .await
                    .map(only)?;
                if moved.is_some() && error.is_some() {
                    sqlx::query(store.sql(EVENT))
                        .bind(store.given())
                        .bind(claim.send.0)
                        .bind("attempt_failed")
                        .bind(claim.epoch.0)
                        .bind(replica.0)
                        .bind(&error)
                        .execute(&mut *tx)
                        .await?;
                }
                Ok(moved.is_some())
            })
        })
        .await;
        moved.map_err(StoreError::doing("giving back a claim"))
    }

    /// Ends claims without messages. Returns those that ended; whoever is missing was superseded.
    pub async fn finish(&self, endings: Vec<Ending>) -> Result<Vec<SendId>, StoreError> {
        let rows: Vec<EndRow> = endings
            .into_iter()
            .map(|Ending { claim, state, reason, detail }| {
                EndRow::new(claim.send, claim.epoch, state, reason, detail.as_deref())
            })
            .collect();
        self.finish_rows(&rows).await
    }

    pub(super) async fn finish_rows(&self, rows: &[EndRow]) -> Result<Vec<SendId>, StoreError> {
        let ids: Vec<i64> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(FINISH)).bind(self.given()).bind(Json(rows)).fetch_all(db).await
        })
        .map_err(StoreError::doing("ending claims"))?;
        Ok(ids.into_iter().map(SendId).collect())
    }
}

pub(super) fn due_row(due: &DueOrg, catch_up: TimeDelta, give_up: TimeDelta) -> DueRow<'_> {
    let closes = due.slot.at + catch_up;
    DueRow {
        org: due.org.as_str(),
        key: due.slot.week.to_string(),
        slot: due.slot.at.timestamp_millis(),
        closes: closes.timestamp_millis(),
        gives_up: (closes + give_up).timestamp_millis(),
        zone: due.period.zone.name(),
        first: due.period.first.to_string(),
        starts: due.period.start.timestamp_millis(),
        ends: due.period.end.timestamp_millis(),
    }
}

/// The longest text kept of an error, in characters.
const DETAIL_CHARS: usize = 500;

/// Cuts a text to what is worth keeping, without characters that a database refuses.
pub(super) fn cut(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(DETAIL_CHARS).collect()
}
