//! Addresses that fail, and those that get nothing any more. Never a whole org: one broken address
//! does not stop the others.

use chrono::{DateTime, TimeDelta, Utc};

use super::dialect::At;
use super::sends::cut;
use super::{Store, StoreError, only, run};
use crate::domain::address::{Address, AddressFault};

/// When a failing address is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuppressionTerms {
    /// Permanent failures of the address itself.
    pub hard_after: u32,
    /// Digests in a row that failed otherwise.
    pub soft_after: u32,
    /// After so long without another failure the count begins anew.
    pub soft_decay: TimeDelta,
}

/// An address with a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Suppression {
    /// In its normal form.
    pub address: String,
    /// Whether it gets nothing any more.
    pub suppressed: bool,
    /// Permanent failures.
    pub hard_failures: u32,
    /// Other failures in a row.
    pub soft_failures: u32,
    /// When something was last written about it.
    pub at: DateTime<Utc>,
    /// By whom: `relay`, `cli`, `import`, `http`.
    pub source: String,
    /// What the relay or the operator said.
    pub note: Option<String>,
}

/// One statement, so that failures told by several replicas at once all count.
const FAILED: &str = "
    INSERT INTO digestd.suppressions AS s
        (address, suppressed, hard_failures, soft_failures, at, source, note)
    VALUES ($2, $3 >= $5 OR $4 >= $6, $3, $4, {now}, $9, $8)
    ON CONFLICT (address) DO UPDATE
    SET hard_failures = s.hard_failures + $3,
        soft_failures = CASE WHEN s.at + $7{ms} <= {now} THEN 0 ELSE s.soft_failures END + $4,
        suppressed = s.suppressed
            OR s.hard_failures + $3 >= $5
            OR CASE WHEN s.at + $7{ms} <= {now} THEN 0 ELSE s.soft_failures END + $4 >= $6,
        at = {now},
        -- What a person or a bounce processor has said stays.
        source = CASE WHEN s.suppressed THEN s.source ELSE excluded.source END,
        note = CASE WHEN s.suppressed THEN s.note ELSE excluded.note END
    RETURNING suppressed";

const FORGIVE: &str = "
    DELETE FROM digestd.suppressions
    WHERE address = $1 AND NOT suppressed";

const SUPPRESS: &str = "
    INSERT INTO digestd.suppressions (address, suppressed, at, source, note)
    VALUES ($2, TRUE, {now}, $3, $4)
    ON CONFLICT (address) DO UPDATE
    SET suppressed = TRUE, at = excluded.at, source = excluded.source, note = excluded.note";

const REMOVE: &str = "
    DELETE FROM digestd.suppressions
    WHERE address = $1";

const ONE: &str = "
    SELECT address, suppressed, hard_failures, soft_failures, at, source, note
    FROM digestd.suppressions
    WHERE address = $1";

/// Keyset pages by primary key.
const LIST: &str = "
    SELECT address, suppressed, hard_failures, soft_failures, at, source, note
    FROM digestd.suppressions
    WHERE address > $1 AND (suppressed OR $2)
    ORDER BY address
    LIMIT $3";

type Row = (String, bool, i32, f64, At, String, Option<String>);

impl Store {
    /// Counts one failure of an address, told by `source`. True: it is left out from now on, or was already.
    pub async fn note_address_failure(
        &self,
        address: &Address,
        fault: AddressFault,
        terms: SuppressionTerms,
        source: &str,
        note: &str,
    ) -> Result<bool, StoreError> {
        let (hard, soft) = match fault {
            AddressFault::Hard => (1_i32, 0_i32),
            AddressFault::Soft => (0, 1),
        };
        let limit = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        run!(self, write, db => {
            sqlx::query_scalar(self.sql(FAILED))
                .bind(self.given())
                .bind(address.normal())
                .bind(hard)
                .bind(soft)
                .bind(limit(terms.hard_after))
                .bind(limit(terms.soft_after))
                .bind(terms.soft_decay.num_milliseconds())
                .bind(cut(note))
                .bind(source)
                .fetch_all(db)
                .await
                .and_then(|rows| only(rows).ok_or(sqlx::Error::RowNotFound))
        })
        .map_err(StoreError::doing("counting an address's failure"))
    }

    /// Forgets the failures of an address that has taken a mail. A suppression stays.
    pub async fn forgive_address(&self, address: &Address) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(FORGIVE)).bind(address.normal()).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("forgetting an address's failures"))
    }

    /// Leaves an address out from now on, messages that wait in the outbox included.
    pub async fn suppress(
        &self,
        address: &Address,
        source: &str,
        note: Option<&str>,
    ) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(SUPPRESS))
                .bind(self.given())
                .bind(address.normal())
                .bind(source)
                .bind(note.map(cut))
                .execute(db)
                .await
                .map(drop)
        })
        .map_err(StoreError::doing("suppressing an address"))
    }

    /// Lets an address get digests again, and forgets its failures. Says whether there was anything.
    pub async fn unsuppress(&self, address: &Address) -> Result<bool, StoreError> {
        let removed = run!(self, write, db => {
            sqlx::query(self.sql(REMOVE)).bind(address.normal()).execute(db).await.map(|done| done.rows_affected())
        })
        .map_err(StoreError::doing("taking a suppression back"))?;
        Ok(removed > 0)
    }

    /// What is known against an address.
    pub async fn suppression_of(&self, address: &Address) -> Result<Option<Suppression>, StoreError> {
        let row: Option<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(ONE)).bind(address.normal()).fetch_optional(db).await
        })
        .map_err(StoreError::doing("looking up a suppression"))?;
        Ok(row.map(suppression))
    }

    /// One page of the suppressed addresses, or (`all`) of all that have failed, after the given address.
    pub async fn list_suppressions(
        &self,
        after: Option<&str>,
        all: bool,
        limit: u32,
    ) -> Result<Vec<Suppression>, StoreError> {
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(LIST))
                .bind(after.unwrap_or_default())
                .bind(all)
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("listing suppressions"))?;
        Ok(rows.into_iter().map(suppression).collect())
    }
}

fn suppression((address, suppressed, hard, soft, at, source, note): Row) -> Suppression {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small count, never below zero"
    )]
    let soft_failures = soft as u32;
    let hard_failures = u32::try_from(hard).unwrap_or_default();
    Suppression { address, suppressed, hard_failures, soft_failures, at: at.0, source, note }
}
