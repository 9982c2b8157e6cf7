//! The outbox: leases, and what a dead replica has left behind. What comes of them stands in [`super::results`].

use std::time::{Duration, Instant};

use chrono::TimeDelta;

use super::ends::end;
use super::{Store, StoreError, run};
use crate::domain::address::Address;
use crate::domain::ends::Ends;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{MessageId, OrgId, ReplicaId, Token, UserId};
use crate::domain::message::{Fence, Leased, MessageState, MessageUid};

/// How messages are leased.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTerms {
    /// Who leases.
    pub replica: ReplicaId,
    /// How long a lease lives.
    pub lease: Duration,
    /// Charged attempts after which a message is failed.
    pub max_attempts: u32,
}

/// What a lease statement gave.
#[derive(Debug, Default)]
pub struct LeasedBatch {
    /// Messages to hand over, by id.
    pub messages: Vec<Leased>,
    /// Rows that cannot be read, so that one of them does not stop the others.
    pub broken: Vec<(Fence, StoreError)>,
    /// Messages that were past a bound.
    pub ended: Ends,
}

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases without a marker: back to `pending`.
    pub returned: u64,
    /// Leases with a marker: `uncertain`.
    pub uncertain: u64,
}

/// The bounds are checked here too, so that a failure while recording a failure cannot make a
/// message immortal. Rows past a bound come back with their final state and are not handed over.
const LEASE: &str = "
    WITH due AS MATERIALIZED (
        SELECT id AS due_id
        FROM digestd.outbox
        WHERE state = 'pending' AND next_attempt_at <= (SELECT {now})
        ORDER BY next_attempt_at, id
        LIMIT $4
        {skip_locked}
    )
    UPDATE digestd.outbox AS o
    SET state = CASE
            WHEN o.expires_at <= {now} THEN 'expired'
            WHEN o.attempts >= $5 THEN 'failed'
            ELSE 'leased'
        END,
        reason = CASE
            WHEN o.expires_at <= {now} THEN 'too_old'
            WHEN o.attempts >= $5 THEN 'too_many_attempts'
        END,
        settled_at = CASE WHEN o.expires_at <= {now} OR o.attempts >= $5 THEN {now} END,
        token = o.token + 1,
        owner = CASE WHEN o.expires_at > {now} AND o.attempts < $5 THEN $2 END,
        lease_until = CASE WHEN o.expires_at > {now} AND o.attempts < $5 THEN {now} + $3{ms} END
    -- Locked above as pending. Said again here, the state would make a plan read every pending row.
    WHERE o.id {among}(SELECT due_id FROM due){end_among}
    RETURNING
        id, token, state, reason, uid, org_id, user_id, address, mailbox, fingerprint, attempts, resend,
        EXISTS (
            SELECT 1
            -- Under another name, because RETURNING cannot qualify its own.
            FROM (SELECT p.address AS known, p.suppressed AS stopped FROM digestd.suppressions AS p) AS k
            WHERE known = address AND NOT stopped
        ),
        (SELECT b.bytes FROM digestd.bodies AS b WHERE b.message_id = id)";

/// The token stays, so that a result that is known after all is still recorded.
const SWEEP: &str = "
    WITH expired AS MATERIALIZED (
        SELECT id AS expired_id
        FROM digestd.outbox
        WHERE state IN ('leased', 'sending') AND lease_until <= (SELECT {now})
        ORDER BY id
        LIMIT $2
        {skip_locked}
    )
    UPDATE digestd.outbox AS o
    SET state = CASE o.state WHEN 'leased' THEN 'pending' ELSE 'uncertain' END,
        note = CASE o.state WHEN 'leased' THEN o.note ELSE 'the replica was lost between the marker and the answer' END,
        owner = NULL,
        lease_until = NULL
    WHERE o.id {among}(SELECT expired_id FROM expired){end_among}
      AND o.state IN ('leased', 'sending')
      AND o.lease_until <= {now}
    RETURNING state";

type LeasedRow = (
    i64,
    i64,
    String,
    Option<String>,
    String,
    String,
    String,
    String,
    Option<String>,
    Option<String>,
    i32,
    bool,
    bool,
    Option<Vec<u8>>,
);

impl Store {
    /// Leases up to `limit` messages whose time has come, oldest first.
    pub async fn lease_messages(&self, limit: u32, terms: LeaseTerms) -> Result<LeasedBatch, StoreError> {
        // Local trust is counted from before the statement, so that it ends before the lease does.
        let asked_at = Instant::now();
        let rows: Vec<LeasedRow> = run!(self, write, db => {
            sqlx::query_as(self.sql(LEASE))
                .bind(self.given())
                .bind(terms.replica.0)
                .bind(millis(terms.lease))
                .bind(i64::from(limit))
                .bind(i64::from(terms.max_attempts))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("leasing messages"))?;
        let leased = MessageState::Leased.as_str();
        let (mut leased, ended): (Vec<LeasedRow>, Vec<LeasedRow>) =
            rows.into_iter().partition(|row| row.2 == leased);
        // RETURNING promises no order.
        leased.sort_by_key(|row| row.0);
        let ended = ended.iter().filter_map(|row| end(&row.2, row.3.as_deref())).collect();
        let mut batch = LeasedBatch { ended, ..LeasedBatch::default() };
        for row in leased {
            let fence = Fence { id: MessageId(row.0), token: Token(row.1) };
            match leased_message(row, asked_at + terms.lease) {
                Ok(message) => batch.messages.push(message),
                Err(error) => batch.broken.push((fence, error)),
            }
        }
        Ok(batch)
    }

    /// Settles up to `limit` leases that have expired. Any replica may do it at any time.
    pub async fn sweep_messages(&self, limit: u32) -> Result<Swept, StoreError> {
        let states: Vec<String> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(SWEEP)).bind(self.given()).bind(i64::from(limit)).fetch_all(db).await
        })
        .map_err(StoreError::doing("sweeping expired leases"))?;
        let uncertain = states.iter().filter(|s| *s == MessageState::Uncertain.as_str()).count();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Ok(Swept { returned: count(states.len() - uncertain), uncertain: count(uncertain) })
    }
}

fn leased_message(row: LeasedRow, trusted_until: Instant) -> Result<Leased, StoreError> {
    let (
        id,
        token,
        _,
        _,
        uid,
        org,
        user,
        address,
        mailbox,
        fingerprint,
        attempts,
        resend,
        failed_before,
        bytes,
    ) = row;
    let unknown = |column| StoreError::inconsistent("outbox", column, id);
    Ok(Leased {
        id: MessageId(id),
        token: Token(token),
        uid: MessageUid::from_stored(uid),
        org: OrgId::parse(&org).map_err(|_| unknown("org_id"))?,
        user: UserId::parse(&user).map_err(|_| unknown("user_id"))?,
        address,
        to: mailbox.and_then(|m| Address::parse(&m).ok()).ok_or_else(|| unknown("mailbox"))?,
        fingerprint: fingerprint.map(Fingerprint::from_stored).ok_or_else(|| unknown("fingerprint"))?,
        attempts: u32::try_from(attempts).map_err(|_| unknown("attempts"))?,
        resend,
        failed_before,
        bytes: bytes.ok_or_else(|| StoreError::inconsistent("bodies", "bytes", id))?,
        trusted_until,
    })
}

pub(super) fn millis(duration: Duration) -> i64 {
    TimeDelta::from_std(duration).map_or(i64::MAX / 2, |delta| delta.num_milliseconds())
}
