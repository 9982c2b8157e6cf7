//! Ends of messages: as statements return them, as the table shows them after a lost answer, and as a command
//! leaves them for a replica to count.

use super::{Store, StoreError, run};
use crate::domain::ends::{End, Ends};
use crate::domain::message::{MessageReason, MessageState};

/// Results whose earlier write did commit, although its answer was lost: nobody else ends a message under
/// their token. To be asked after the same results were written again, which waits for the earlier write.
/// A marker that is taken back may have found an opt-out.
pub(super) const WRITTEN_BEFORE: &str = "
    SELECT o.id, o.state, o.reason
    FROM digestd.outbox AS o
    JOIN {each}($1) AS u ON o.id = CAST(u.value->>'id' AS BIGINT)
    WHERE o.token = CAST(u.value->>'token' AS BIGINT)
      AND (
          CAST(u.value->>'settled' AS INTEGER) <> 0
              AND o.state = u.value->>'state'
              AND COALESCE(o.reason, '') = COALESCE(u.value->>'reason', '')
          OR u.value->>'phase' = 'marker' AND o.state = 'suppressed'
      )";

pub(super) const LEAVE: &str = "
    INSERT INTO digestd.uncounted_ends (state, reason, messages)
    VALUES ($1, $2, $3)";

const TAKE: &str = "
    DELETE FROM digestd.uncounted_ends
    RETURNING state, reason, messages";

/// An end as it stands in two columns. States and reasons that this release does not know are nobody's to count.
pub(super) fn end(state: &str, reason: Option<&str>) -> Option<End> {
    Some((MessageState::parse(state)?, reason.and_then(MessageReason::parse)))
}

impl Store {
    /// Takes what commands have ended since the last call, to be counted: they have no metrics of their own.
    pub async fn take_uncounted_ends(&self) -> Result<Ends, StoreError> {
        let rows: Vec<(String, Option<String>, i64)> =
            run!(self, write, db => sqlx::query_as(self.sql(TAKE)).fetch_all(db).await)
                .map_err(StoreError::doing("counting what commands have ended"))?;
        let mut ends = Ends::default();
        for (state, reason, messages) in rows {
            if let Some(end) = end(&state, reason.as_deref()) {
                ends.add(end, u64::try_from(messages).unwrap_or(0));
            }
        }
        Ok(ends)
    }
}
