//! Named leases: who does what only one needs to do, under a term that rises with every holder.

use std::time::{Duration, Instant};

use super::{Store, StoreError, only, run};
use crate::domain::ids::{ReplicaId, Term};

/// The lease of the replica that keeps house.
pub const LEADER: &str = "leader";

/// A lease that was held when the database last answered. Not `Clone`: whoever has it is the holder.
#[derive(Debug)]
pub struct Leadership {
    name: &'static str,
    holder: ReplicaId,
    term: Term,
    trusted_until: Instant,
}

/// How long a lease lives, and how long before its end its holder stops to believe in it.
#[derive(Debug, Clone, Copy)]
pub struct LeadershipTerms {
    /// How long it lives unless it is renewed.
    pub ttl: Duration,
    /// For clocks that run at different speeds and for statements under way.
    pub margin: Duration,
}

/// A free name, or one whose holder has let it expire, gets a new holder and a higher term.
const ACQUIRE: &str = "
    INSERT INTO digestd.leases AS l (name, holder, term, expires_at)
    VALUES ($2, $3, 1, {now} + $4{ms})
    ON CONFLICT (name) DO UPDATE
    SET holder = excluded.holder,
        term = l.term + 1,
        expires_at = excluded.expires_at
    WHERE l.expires_at <= {now}
    RETURNING term";

/// An expired lease that nobody has taken is still its holder's: the term says so.
const RENEW: &str = "
    UPDATE digestd.leases
    SET expires_at = {now} + $5{ms}
    WHERE name = $2 AND holder = $3 AND term = $4
    RETURNING term";

/// The row stays, so that the next term is higher.
const RESIGN: &str = "
    UPDATE digestd.leases
    SET holder = NULL, expires_at = {now}
    WHERE name = $2 AND holder = $3 AND term = $4";

impl Leadership {
    /// The fence that every write under this lease names.
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Who holds it.
    pub const fn holder(&self) -> ReplicaId {
        self.holder
    }

    /// Which lease it is.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the lease is certainly still held at a moment of this process's own monotonic clock.
    pub fn is_trusted(&self, at: Instant) -> bool {
        at < self.trusted_until
    }
}

impl Store {
    /// Tries to get a lease. `None`: somebody else holds it. An answer that is lost leaves a lease that
    /// nobody uses and that expires.
    pub async fn acquire_lease(
        &self,
        name: &'static str,
        holder: ReplicaId,
        terms: LeadershipTerms,
    ) -> Result<Option<Leadership>, StoreError> {
        let asked_at = Instant::now();
        let term: Option<i64> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(ACQUIRE))
                .bind(self.given())
                .bind(name)
                .bind(holder.0)
                .bind(millis(terms.ttl))
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("acquiring a lease"))?;
        let trusted_until = trusted_until(asked_at, terms);
        Ok(term.map(|term| Leadership { name, holder, term: Term(term), trusted_until }))
    }

    /// Extends a lease. False: it has another holder, or had one meanwhile.
    pub async fn renew_lease(
        &self,
        lease: &mut Leadership,
        terms: LeadershipTerms,
    ) -> Result<bool, StoreError> {
        let asked_at = Instant::now();
        let term: Option<i64> = run!(self, write, db => {
            sqlx::query_scalar(self.sql(RENEW))
                .bind(self.given())
                .bind(lease.name)
                .bind(lease.holder.0)
                .bind(lease.term.0)
                .bind(millis(terms.ttl))
                .fetch_all(db)
                .await
                .map(only)
        })
        .map_err(StoreError::doing("renewing a lease"))?;
        if term.is_some() {
            lease.trusted_until = trusted_until(asked_at, terms);
        }
        Ok(term.is_some())
    }

    /// Gives a lease up, so that nobody has to wait for its end. A successor's lease stays untouched.
    pub async fn resign_lease(&self, lease: Leadership) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(RESIGN))
                .bind(self.given())
                .bind(lease.name)
                .bind(lease.holder.0)
                .bind(lease.term.0)
                .execute(db)
                .await
                .map(drop)
        })
        .map_err(StoreError::doing("giving up a lease"))
    }
}

/// Counted from before the statement began, so that belief ends before the lease does.
fn trusted_until(asked_at: Instant, terms: LeadershipTerms) -> Instant {
    asked_at + terms.ttl.saturating_sub(terms.margin)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
