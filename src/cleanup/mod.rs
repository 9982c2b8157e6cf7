//! Housekeeping by one replica: closing weeks, deleting old rows, the dead-man signal, opt-outs for the
//! application.
//!
//! The [`election`] saves work; nothing correct rests on it. Each step may run on any replica, on two at
//! once, and again.

pub mod close;
pub mod election;
pub mod late;
pub mod retention;
pub mod write_back;

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use crate::domain::due::DueRules;
use crate::domain::schedule::WeeklySchedule;
use crate::metrics::Metrics;
use crate::progress::{Progress, Pulse};
use crate::source::operator::write_back::WriteBack;
use crate::source::{Source, SourceError};
use crate::store::{Store, StoreError};
use election::Election;
use retention::Keep;

/// Everything that housekeeping needs.
#[derive(Debug)]
pub struct Cleanup {
    /// All rows.
    pub store: Store,
    /// Who is owed digests.
    pub source: Source,
    /// Which slots belong to an org.
    pub rules: DueRules,
    /// The configured schedule, for orgs whose own zone is none.
    pub fallback: WeeklySchedule,
    /// How long after its start an unsettled slot raises the alarm.
    pub late_alarm: TimeDelta,
    /// How often unsettled orgs are counted.
    pub count_every: Duration,
    /// How long rows are kept.
    pub keep: Keep,
    /// Where people's choices are written back to, if anywhere.
    pub write_back: Option<WriteBack>,
    /// What is counted.
    pub metrics: Metrics,
}

/// A step that could not be finished; the next round does.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// All rows.
    #[error("the state database failed")]
    Store(#[from] StoreError),
    /// Who is owed digests.
    #[error("the source failed")]
    Source(#[from] SourceError),
}

/// Candidates per page.
const PAGE: u32 = 500;
/// Between two looks at the lease and at what is to be done.
const EVERY: Duration = Duration::from_secs(15);
/// Between two rounds of deleting.
const DELETE_EVERY: Duration = Duration::from_mins(10);
/// The longest time between two signs of life of a loop that is well: it gives one after each batch.
const LONGEST_STEP: Duration = Duration::from_mins(10);

/// Keeps house while this replica leads, until told to stop.
pub async fn run(cleanup: Cleanup, mut election: Election, progress: Progress, stop: CancellationToken) {
    let pulse = progress.watch("cleanup", LONGEST_STEP);
    let mut agenda = Agenda::default();
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        if let Err(error) = cleanup.round(&mut election, &mut agenda, &pulse, &stop).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "housekeeping failed; whoever comes next tries it again"
            );
        }
        pulse.touch();
    }
    // Whoever comes next otherwise waits for the lease to expire.
    let _ = election.resign().await;
}

/// What is due next, by this process's monotonic clock.
#[derive(Debug, Default)]
pub struct Agenda {
    count_at: Option<Instant>,
    delete_at: Option<Instant>,
}

/// Whether a job's time has come; if so, its next time is set.
fn is_due(at: &mut Option<Instant>, every: Duration) -> bool {
    let now = Instant::now();
    let due = at.is_none_or(|at| at <= now);
    if due {
        *at = Some(now + every);
    }
    due
}

impl Cleanup {
    /// Counts the messages that commands have ended, which have no metrics of their own.
    pub async fn count_ends(&self) -> Result<(), CleanupError> {
        self.metrics.messages_ended(&self.store.take_uncounted_ends().await?);
        Ok(())
    }

    /// One round, if this replica leads. One that fails gives the lead up: what cannot be done here, for want
    /// of a way to the source, say, another replica may be able to do.
    pub async fn round(
        &self,
        election: &mut Election,
        agenda: &mut Agenda,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), CleanupError> {
        let done = self.work(election, agenda, pulse, stop).await;
        if done.is_err() {
            self.metrics.set_leader(false);
            // The first error is the one to tell; where this one fails too, the lease expires.
            let _ = election.resign().await;
        }
        done
    }

    async fn work(
        &self,
        election: &mut Election,
        agenda: &mut Agenda,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), CleanupError> {
        let leads = election.stand().await?;
        self.metrics.set_leader(leads);
        if !leads {
            return Ok(());
        }
        self.count_ends().await?;
        self.write_back(pulse, stop).await?;
        self.close_weeks(election, pulse, stop).await?;
        if is_due(&mut agenda.count_at, self.count_every) {
            self.count_unsettled(election, pulse, stop).await?;
        }
        if is_due(&mut agenda.delete_at, DELETE_EVERY) {
            self.delete_old(election, pulse, stop).await?;
        }
        Ok(())
    }
}
