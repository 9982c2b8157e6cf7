//! Who keeps house: one replica at a time, as a rule.
//!
//! Losing the lease is normal, and two replicas that both believe to hold it waste work only: every
//! statement of the housekeeping repeats its own conditions, and those that delete name the term.

use std::time::{Duration, Instant};

use crate::domain::ids::{ReplicaId, Term};
use crate::store::leases::{LEADER, Leadership, LeadershipTerms};
use crate::store::{Store, StoreError};

/// A leader that dies is missed for as long as this.
const TERMS: LeadershipTerms =
    LeadershipTerms { ttl: Duration::from_mins(1), margin: Duration::from_secs(10) };
/// How often a lease is renewed: often enough that two failures in a row do no harm.
const RENEW_EVERY: Duration = Duration::from_secs(15);

/// This replica's part in the election.
#[derive(Debug)]
pub struct Election {
    store: Store,
    replica: ReplicaId,
    held: Option<Leadership>,
    renewed_at: Instant,
}

impl Election {
    /// Holds nothing yet.
    pub fn new(store: Store, replica: ReplicaId) -> Self {
        Self { store, replica, held: None, renewed_at: Instant::now() }
    }

    /// Gets the lease if it is free, and renews it when that is due; cheap in between. Says whether this
    /// replica leads. Long work asks again before each of its batches.
    pub async fn stand(&mut self) -> Result<bool, StoreError> {
        let now = Instant::now();
        if let Some(lease) = &mut self.held {
            if now.duration_since(self.renewed_at) < RENEW_EVERY && lease.is_trusted(now) {
                return Ok(true);
            }
            match self.store.renew_lease(lease, TERMS).await {
                Ok(true) => {
                    self.renewed_at = now;
                    return Ok(lease.is_trusted(Instant::now()));
                }
                Ok(false) => {
                    tracing::info!(leader.term = lease.term().0, "another replica keeps house now");
                    self.held = None;
                }
                // Until the trust ends, the lease is certainly still ours.
                Err(error) if !lease.is_trusted(now) => return Err(error),
                Err(_) => return Ok(true),
            }
        }
        self.held = self.store.acquire_lease(LEADER, self.replica, TERMS).await?;
        self.renewed_at = now;
        if let Some(lease) = &self.held {
            tracing::info!(leader.term = lease.term().0, "this replica keeps house now");
        }
        Ok(self.held.is_some())
    }

    /// The lease, while it can be trusted.
    pub fn lease(&self) -> Option<&Leadership> {
        self.held.as_ref().filter(|lease| lease.is_trusted(Instant::now()))
    }

    /// The term of the lease held.
    pub fn term(&self) -> Option<Term> {
        self.lease().map(Leadership::term)
    }

    /// Gives the lease up, so that a successor need not wait for its end.
    pub async fn resign(&mut self) -> Result<(), StoreError> {
        match self.held.take() {
            Some(lease) => self.store.resign_lease(lease).await,
            None => Ok(()),
        }
    }
}
