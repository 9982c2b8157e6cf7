//! The fingerprint check across sends and installations.
//!
//! A fingerprint is taken after the marker and before the first body byte, in one step, with the long
//! TTL: taken earlier, a thawed owner's reservation would suppress a mail that nobody sent. A definite
//! refusal gives it back; acceptance and uncertainty keep it.
//!
//! # Who may pass a fingerprint that is held
//!
//! A message whose fingerprint could not be given back (the guard was down just then) must pass at its
//! next try, and a copy of the same row in a restored database must not. The two look alike: same row
//! id, same uid, and the copy's token will rise to the very numbers that the original has used. So the
//! holder's name is neither of these but random, made anew for each hand-over ([`GuardOwner`]), and
//! written into the ledger together with the hand-over's refusal, in one transaction. A held fingerprint
//! passes if **the row's own ledger says that the holder was refused**. A backup cannot hold that for
//! the hand-over that was accepted: had the backup known its outcome, the row would be final in it.
//!
//! One remembered name would not do: a take whose answer was lost may or may not stand, and while the
//! guard is down there may be several such in a row. The ledger has them all.
//!
//! A resend takes the fingerprint from anybody and keeps it even when refused: the hand-over that it
//! repeats may have been accepted, and a restored copy must go on finding it.

#[cfg(feature = "redis")]
pub mod redis;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::GuardOwner;
use crate::domain::message::Leased;
use crate::metrics::{GuardResult, Metrics};
use crate::store::guard::Wish;
use crate::store::{Store, StoreError};

/// The check, or none.
#[derive(Debug, Clone)]
pub enum Guard {
    /// The unique keys of the outbox are all there is.
    Off,
    /// Fingerprints are taken before each body.
    On(Arc<Watch>),
}

/// How the guard behaves.
#[derive(Debug, Clone, Copy)]
pub struct GuardTerms {
    /// How long a fingerprint is kept.
    pub ttl: Duration,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// Whether messages go without an answer.
    pub open: bool,
}

/// Where fingerprints are kept.
#[derive(Debug)]
pub enum Memory {
    /// In our own database.
    Sql,
    /// In Redis.
    #[cfg(feature = "redis")]
    Redis(Box<redis::RedisMemory>),
}

/// A guard at work.
#[derive(Debug)]
pub struct Watch {
    /// Where fingerprints are kept.
    pub memory: Memory,
    /// The outbox and its ledger.
    pub store: Store,
    /// How it behaves.
    pub terms: GuardTerms,
    /// What is counted.
    pub metrics: Metrics,
}

/// What the guard says of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The fingerprint is ours: the body may leave.
    Go,
    /// Somebody has sent this digest to this address before.
    Duplicate,
    /// The guard cannot be asked, and is configured to stop deliveries then.
    Closed,
}

/// Why the guard gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Our own database did not answer.
    #[error("asking the database")]
    Store(#[from] StoreError),
    /// Redis did not answer, or not as expected.
    #[cfg(feature = "redis")]
    #[error("asking Redis")]
    Redis(#[from] ::redis::RedisError),
    /// Somebody holds the fingerprint, and our own database does not say whether he may be passed.
    #[error("looking up the holder of a fingerprint")]
    Ledger(#[source] Box<dyn Error + Send + Sync>),
    /// The time was up.
    #[error("no answer within {0:?}")]
    TooLate(Duration),
}

impl Guard {
    /// Takes the fingerprint for a hand-over. Never waits longer than the configured time.
    pub async fn take(&self, message: &Leased, owner: GuardOwner) -> Taken {
        match self {
            Self::Off => Taken::Go,
            Self::On(watch) => watch.take(message, owner).await,
        }
    }

    /// Gives the fingerprint back after a definite refusal, so that the retry may go. If it fails, the
    /// ledger will tell the retry that the holder was refused.
    pub async fn give_back(&self, message: &Leased, owner: GuardOwner) {
        match self {
            Self::On(watch) if !message.resend => watch.give_back(message, owner).await,
            _ => {}
        }
    }
}

impl Watch {
    async fn take(&self, message: &Leased, owner: GuardOwner) -> Taken {
        let wish = Wish {
            fingerprint: message.fingerprint.clone(),
            owner,
            message: message.id,
            resend: message.resend,
            ttl: self.terms.ttl,
        };
        let until = Instant::now() + self.terms.timeout;
        let answer = match &self.memory {
            Memory::Sql => self.in_time(until, async { Ok(self.store.take_fingerprint(&wish).await?) }).await,
            #[cfg(feature = "redis")]
            Memory::Redis(redis) => self.take_from_redis(redis, &wish, until).await,
        };
        let (taken, counted) = match answer {
            Ok(true) => (Taken::Go, GuardResult::Fresh),
            Ok(false) => (Taken::Duplicate, GuardResult::Duplicate),
            // That somebody holds it is known; only the proof that it may pass is missing.
            Err(GuardError::Ledger(error)) => {
                log_unavailable(message, &*error);
                (Taken::Closed, GuardResult::UnavailableClosed)
            }
            Err(error) => {
                log_unavailable(message, &error);
                if self.terms.open {
                    (Taken::Go, GuardResult::UnavailableOpen)
                } else {
                    (Taken::Closed, GuardResult::UnavailableClosed)
                }
            }
        };
        self.metrics.guard(counted);
        taken
    }

    /// One command as a rule. Only where somebody holds the fingerprint is the ledger asked about him,
    /// and only from him is it taken then: if it changed hands meanwhile, it stays where it is.
    #[cfg(feature = "redis")]
    async fn take_from_redis(
        &self,
        redis: &redis::RedisMemory,
        wish: &Wish,
        until: Instant,
    ) -> Result<bool, GuardError> {
        let Some(holder) = self.in_time(until, redis.take(wish)).await? else { return Ok(true) };
        let proof = async {
            self.store
                .was_refused(wish.message, &holder)
                .await
                .map_err(|error| GuardError::Ledger(error.into()))
        };
        let refused = match self.in_time(until, proof).await {
            Err(GuardError::TooLate(limit)) => Err(GuardError::Ledger(GuardError::TooLate(limit).into())),
            answer => answer,
        };
        if !refused? {
            return Ok(false);
        }
        self.in_time(until, redis.take_over(wish, &holder)).await
    }

    async fn give_back(&self, message: &Leased, owner: GuardOwner) {
        let until = Instant::now() + self.terms.timeout;
        let fingerprint = &message.fingerprint;
        let answer = match &self.memory {
            Memory::Sql => {
                let asked = async { Ok(self.store.give_fingerprint_back(fingerprint, owner).await?) };
                self.in_time(until, asked).await
            }
            #[cfg(feature = "redis")]
            Memory::Redis(redis) => self.in_time(until, redis.give_back(fingerprint, owner)).await,
        };
        if let Err(error) = answer {
            tracing::warn!(
                message.id = %message.id, org.id = %message.org, error = &error as &dyn Error,
                "a fingerprint could not be given back; the retry will find the refusal in the ledger"
            );
        }
    }

    async fn in_time<T>(
        &self,
        until: Instant,
        asked: impl Future<Output = Result<T, GuardError>>,
    ) -> Result<T, GuardError> {
        let answer = tokio::time::timeout_at(until, asked).await;
        #[cfg(feature = "redis")]
        if let (Err(_), Memory::Redis(redis)) = (&answer, &self.memory) {
            redis.forget_connection();
        }
        answer.unwrap_or(Err(GuardError::TooLate(self.terms.timeout)))
    }
}

fn log_unavailable(message: &Leased, error: &(dyn Error + 'static)) {
    tracing::warn!(message.id = %message.id, org.id = %message.org, error, "the guard cannot be asked");
}
