//! Counts for `/metrics` and `status`.
//!
//! What is asked at every scrape never reads the whole outbox: messages in final states are millions
//! and have no index by state. The unfinished ones have partial indexes, each as large as the backlog
//! itself; sends are counted from the index over week and state, for the weeks that still have slots
//! in reach. Final states of messages are counted per week and on request only, by [`Store::week_messages`].

use chrono::TimeDelta;

use super::dialect::At;
use super::{Store, StoreError, run};
use crate::domain::ids::ReplicaId;
use crate::domain::message::{MessageReason, MessageState};
use crate::domain::send::{SendReason, SendState};
use crate::domain::week::SendKey;

/// The states that messages do not stay in; the others are final.
pub const UNFINISHED: [MessageState; 4] =
    [MessageState::Pending, MessageState::Leased, MessageState::Sending, MessageState::Uncertain];

/// A week is counted as long as one of its slots is younger than this: the longest catch-up, and
/// the day that a claimed send is tried on, and some.
const RUNNING_DAYS: i64 = 9;

/// What stands in the tables right now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sends of the running weeks.
    pub sends: Vec<SendCount>,
    /// Messages in each of the [`UNFINISHED`] states, zeros included.
    pub messages: Vec<(MessageState, u64)>,
    /// How long the message that is next in line has been due; zero if none is.
    pub oldest_due: TimeDelta,
    /// Addresses and orgs opted out.
    pub opt_outs: u64,
    /// Choices that wait to be written to the application.
    pub write_backs: u64,
}

impl Stats {
    /// How many messages are in one of the [`UNFINISHED`] states.
    pub fn messages_in(&self, state: MessageState) -> u64 {
        self.messages.iter().filter(|(known, _)| *known == state).map(|(_, count)| count).sum()
    }

    /// How many sends of the running weeks have ended, one way or another.
    pub fn settled_sends(&self) -> u64 {
        self.sends.iter().filter(|count| count.state != SendState::Claimed).map(|count| count.count).sum()
    }
}

/// What one replica has won and enqueued.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaWork {
    /// Sends that it was the last to claim.
    pub sends: u64,
    /// Messages of those sends.
    pub messages: u64,
}

/// How many sends of a week are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendCount {
    /// The week.
    pub week: String,
    /// The state.
    pub state: SendState,
    /// How many.
    pub count: u64,
}

/// How many of something ended in a state for a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally<S, R> {
    /// The state.
    pub state: S,
    /// The reason, where the state has one.
    pub reason: Option<R>,
    /// How many.
    pub count: u64,
}

const SENDS: &str = "
    SELECT s.week_key, s.state, COUNT(*)
    FROM digestd.sends AS s
    WHERE s.week_key IN (
        SELECT l.week_key
        FROM digestd.slots AS l
        WHERE l.slot_at > {now} - $2{ms}
    )
    GROUP BY s.week_key, s.state
    ORDER BY s.week_key, s.state";

/// Each branch repeats the condition of the partial index that answers it.
const MESSAGES: &str = "
    SELECT 'pending', COUNT(*) FROM digestd.outbox WHERE state = 'pending'
    UNION ALL
    SELECT 'leased', COUNT(*) FROM digestd.outbox WHERE state IN ('leased', 'sending') AND state = 'leased'
    UNION ALL
    SELECT 'sending', COUNT(*) FROM digestd.outbox WHERE state IN ('leased', 'sending') AND state = 'sending'
    UNION ALL
    SELECT 'uncertain', COUNT(*) FROM digestd.outbox WHERE state = 'uncertain'";

/// Messages that wait for a later try are not due yet, so a long back-off does not count as a jam.
const NEXT_DUE: &str = "
    SELECT {now}, (
        -- Not the head start that a new message has in the queue.
        SELECT CASE WHEN created_at > next_attempt_at THEN created_at ELSE next_attempt_at END
        FROM digestd.outbox
        WHERE state = 'pending'
        ORDER BY next_attempt_at, id
        LIMIT 1
    )";

const OPT_OUTS: &str = "
    SELECT COUNT(*)
    FROM digestd.opt_outs";

const WEEK_SENDS: &str = "
    SELECT state, reason, COUNT(*)
    FROM digestd.sends
    WHERE week_key = $1
    GROUP BY state, reason
    ORDER BY state, reason";

const WEEK_MESSAGES: &str = "
    SELECT o.state, o.reason, COUNT(*)
    FROM digestd.sends AS s
    JOIN digestd.outbox AS o ON o.send_id = s.id
    WHERE s.week_key = $1
    GROUP BY o.state, o.reason
    ORDER BY o.state, o.reason";

const WORK: &str = "
    SELECT claimed_by, COUNT(*), CAST(SUM(messages) AS BIGINT)
    FROM digestd.sends
    WHERE claimed_by IS NOT NULL
    GROUP BY claimed_by";

type TallyRow = (String, Option<String>, i64);

impl Store {
    /// Everything that a scrape shows of the tables.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        let doing = || StoreError::doing("counting for metrics");
        let running = TimeDelta::days(RUNNING_DAYS).num_milliseconds();
        let sends: Vec<(String, String, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(SENDS)).bind(self.given()).bind(running).fetch_all(db).await
        })
        .map_err(doing())?;
        let messages: Vec<(String, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(MESSAGES)).fetch_all(db).await
        })
        .map_err(doing())?;
        let (now, next): (At, Option<At>) = run!(self, read, db => {
            sqlx::query_as(self.sql(NEXT_DUE)).bind(self.given()).fetch_one(db).await
        })
        .map_err(doing())?;
        let opt_outs: i64 =
            run!(self, read, db => sqlx::query_scalar(self.sql(OPT_OUTS)).fetch_one(db).await)
                .map_err(doing())?;
        Ok(Stats {
            sends: sends.into_iter().map(send_count).collect::<Result<_, _>>()?,
            messages: messages
                .into_iter()
                .map(|(state, n)| Ok((known("outbox", MessageState::parse(&state), &state)?, count(n))))
                .collect::<Result<_, StoreError>>()?,
            oldest_due: next.map_or(TimeDelta::zero(), |next| (now.0 - next.0).max(TimeDelta::zero())),
            opt_outs: count(opt_outs),
            write_backs: self.waiting_choices().await?,
        })
    }

    /// What each replica has won. Reads every send, so it is for small tables such as the demo's.
    pub async fn work_by_replica(&self) -> Result<Vec<(ReplicaId, ReplicaWork)>, StoreError> {
        let rows: Vec<(uuid::Uuid, i64, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(WORK)).fetch_all(db).await
        })
        .map_err(StoreError::doing("counting by replica"))?;
        Ok(rows
            .into_iter()
            .map(|(id, sends, messages)| {
                (ReplicaId(id), ReplicaWork { sends: count(sends), messages: count(messages) })
            })
            .collect())
    }

    /// The sends under one key, by state and reason.
    pub async fn week_sends(&self, key: SendKey) -> Result<Vec<Tally<SendState, SendReason>>, StoreError> {
        let rows: Vec<TallyRow> = run!(self, read, db => {
            sqlx::query_as(self.sql(WEEK_SENDS)).bind(key.to_string()).fetch_all(db).await
        })
        .map_err(StoreError::doing("counting a week's sends"))?;
        tally("sends", rows, SendState::parse, SendReason::parse)
    }

    /// The messages under one key, by state and reason. Reads each of them: for a person who asks,
    /// not for a scrape.
    pub async fn week_messages(
        &self,
        key: SendKey,
    ) -> Result<Vec<Tally<MessageState, MessageReason>>, StoreError> {
        let rows: Vec<TallyRow> = run!(self, read, db => {
            sqlx::query_as(self.sql(WEEK_MESSAGES)).bind(key.to_string()).fetch_all(db).await
        })
        .map_err(StoreError::doing("counting a week's messages"))?;
        tally("outbox", rows, MessageState::parse, MessageReason::parse)
    }
}

fn send_count((week, state, n): (String, String, i64)) -> Result<SendCount, StoreError> {
    Ok(SendCount { week, state: known("sends", SendState::parse(&state), &state)?, count: count(n) })
}

fn tally<S, R>(
    table: &'static str,
    rows: Vec<TallyRow>,
    state_of: fn(&str) -> Option<S>,
    reason_of: fn(&str) -> Option<R>,
) -> Result<Vec<Tally<S, R>>, StoreError> {
    rows.into_iter()
        .map(|(state, reason, n)| {
            Ok(Tally {
                state: known(table, state_of(&state), &state)?,
                reason: reason.map(|r| known(table, reason_of(&r), &r)).transpose()?,
                count: count(n),
            })
        })
        .collect()
}

/// Counted rows have no id of their own; the value stands in for it.
fn known<T>(table: &'static str, value: Option<T>, text: &str) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::inconsistent(table, "state or reason", text))
}

fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
