//! What an audit reads: the states of a week's sends, and the rows that do not add up.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use sqlx::types::Json;

use super::dialect::At;
use super::{Store, StoreError, run};
use crate::domain::ids::OrgId;
use crate::domain::send::SendState;
use crate::domain::week::SendKey;

/// Something in a week that somebody may have to look into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oddity {
    /// The org.
    pub org: String,
    /// The recipient, where it is about one.
    pub address: Option<String>,
    /// Since when, where there is a moment.
    pub since: Option<DateTime<Utc>>,
    /// Messages that the send says it has.
    pub expected: i64,
    /// Messages that there are.
    pub found: i64,
}

/// Which oddities to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OddityKind {
    /// Claims whose lease has passed and that nobody has taken over.
    StaleClaims,
    /// Messages whose lease has passed and that nobody has swept.
    StaleLeases,
    /// Sends whose count of messages is not that of their rows.
    WrongCounts,
    /// Messages that may or may not have been accepted.
    Uncertain,
}

/// By org and week, and not by reading the whole week for each page of orgs.
pub(super) const STATES: &str = "
    SELECT s.org_id, s.state
    FROM digestd.sends AS s
    WHERE s.week_key = $1
      AND s.org_id {among}(SELECT u.value->>'org' FROM {each}($2) AS u){end_among}";

const STALE_CLAIMS: &str = "
    SELECT org_id, NULL, lease_until, CAST(0 AS BIGINT), CAST(0 AS BIGINT)
    FROM digestd.sends
    WHERE week_key = $2 AND state = 'claimed' AND lease_until + $3{ms} <= {now}
    ORDER BY org_id
    LIMIT $4";

const STALE_LEASES: &str = "
    SELECT o.org_id, o.address, o.lease_until, CAST(0 AS BIGINT), CAST(0 AS BIGINT)
    FROM digestd.sends AS s
    JOIN digestd.outbox AS o ON o.send_id = s.id
    WHERE s.week_key = $2 AND o.state IN ('leased', 'sending') AND o.lease_until + $3{ms} <= {now}
    ORDER BY o.org_id, o.address
    LIMIT $4";

/// A send that is not enqueued has no messages at all.
const WRONG_COUNTS: &str = "
    SELECT org_id, NULL, settled_at, expected, found
    FROM (
        SELECT
            s.org_id,
            s.settled_at,
            CAST(CASE s.state WHEN 'enqueued' THEN s.messages ELSE 0 END AS BIGINT) AS expected,
            (SELECT COUNT(*) FROM digestd.outbox AS o WHERE o.send_id = s.id) AS found
        FROM digestd.sends AS s
        WHERE s.week_key = $2
    ) AS counted
    -- The moment and the grace stand here so that all of these statements take the same parameters.
    WHERE expected <> found AND {now} IS NOT NULL AND $3 IS NOT NULL
    ORDER BY org_id
    LIMIT $4";

const UNCERTAIN: &str = "
    SELECT o.org_id, o.address, o.marked_at, CAST(0 AS BIGINT), CAST(0 AS BIGINT)
    FROM digestd.sends AS s
    JOIN digestd.outbox AS o ON o.send_id = s.id
    WHERE s.week_key = $2 AND o.state = 'uncertain' AND {now} IS NOT NULL AND $3 IS NOT NULL
    ORDER BY o.org_id, o.address
    LIMIT $4";

#[derive(Serialize)]
struct OrgKey<'a> {
    org: &'a str,
}

impl Store {
    /// The states of these orgs' sends under one key; orgs without a send are missing.
    pub async fn send_states(
        &self,
        key: SendKey,
        orgs: &[&OrgId],
    ) -> Result<HashMap<String, SendState>, StoreError> {
        let keys: Vec<OrgKey<'_>> = orgs.iter().map(|org| OrgKey { org: org.as_str() }).collect();
        let rows: Vec<(String, String)> = run!(self, read, db => {
            sqlx::query_as(self.sql(STATES)).bind(key.to_string()).bind(Json(&keys)).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading the states of sends"))?;
        rows.into_iter()
            .map(|(org, state)| {
                let state = SendState::parse(&state);
                let state = state.ok_or_else(|| StoreError::inconsistent("sends", "state", &org))?;
                Ok((org, state))
            })
            .collect()
    }

    /// Up to `limit` oddities of one kind under one key. Leases count as passed after `grace`, in which
    /// somebody will have come by.
    pub async fn oddities(
        &self,
        kind: OddityKind,
        key: SendKey,
        grace: TimeDelta,
        limit: u32,
    ) -> Result<Vec<Oddity>, StoreError> {
        type Row = (String, Option<String>, Option<At>, i64, i64);
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(kind.statement()))
                .bind(self.given())
                .bind(key.to_string())
                .bind(grace.num_milliseconds())
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("looking for what does not add up"))?;
        Ok(rows
            .into_iter()
            .map(|(org, address, since, expected, found)| Oddity {
                org,
                address,
                since: since.map(|at| at.0),
                expected,
                found,
            })
            .collect())
    }
}

impl OddityKind {
    const fn statement(self) -> &'static str {
        match self {
            Self::StaleClaims => STALE_CLAIMS,
            Self::StaleLeases => STALE_LEASES,
            Self::WrongCounts => WRONG_COUNTS,
            Self::Uncertain => UNCERTAIN,
        }
    }
}
