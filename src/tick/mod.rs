//! Who is due, and handing over to the outbox.
//!
//! Two loops, the same on every replica: [`sweep`] looks for open slots and claims the orgs in
//! them; [`rescue`] takes over what a dead replica has left behind. Both end in [`work`].

pub mod drafts;
mod keep_alive;
mod opt_ins;
pub mod rescue;
mod sheet;
pub mod sweep;
pub mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::domain::due::DueRules;
use crate::domain::schedule::WeeklySchedule;
use crate::metrics::Metrics;
use crate::progress::{Progress, Pulse};
use crate::source::{Source, SourceError};
use crate::store::sends::ClaimTerms;
use crate::store::{Store, StoreError};
use drafts::Drafter;

/// Everything that a tick needs, the same for every tick of a replica.
#[derive(Debug)]
pub struct Tick {
    /// Sends and messages.
    pub store: Store,
    /// Orgs, admins and content.
    pub source: Source,
    /// Data to messages.
    pub drafter: Arc<Drafter>,
    /// How claims are held.
    pub terms: ClaimTerms,
    /// When an org is due.
    pub rules: DueRules,
    /// The configured schedule, for orgs whose own zone is none.
    pub fallback: WeeklySchedule,
    /// How much at once, how often again.
    pub limits: Limits,
    /// What is counted.
    pub metrics: Metrics,
    /// Held by the batch of a sweep that asks the application: one at a time, however many are under way.
    pub gathering: Mutex<()>,
}

/// Bounds of a tick.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Orgs per claim.
    pub claim_batch: u32,
    /// Own gatherings of one org before its send is failed.
    pub max_attempts: u32,
    /// The wait after an org's first failed attempt; it doubles with each.
    pub retry_delay: TimeDelta,
    /// How long the gathering of a batch or of one org may take.
    pub gather_timeout: Duration,
    /// How long a message may wait for the relay before it expires.
    pub max_age: TimeDelta,
    /// Whether a week without content is sent, as a quiet week, or skipped.
    pub send_empty: bool,
}

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TickReport {
    /// Candidates read.
    pub candidates: u64,
    /// Orgs claimed or taken over.
    pub won: u64,
    /// Claims that somebody else had won.
    pub lost: u64,
    /// Sends enqueued.
    pub enqueued: u64,
    /// Messages put into the outbox.
    pub messages: u64,
    /// Sends skipped.
    pub skipped: u64,
    /// Sends failed.
    pub failed: u64,
    /// Sends to be tried again later.
    pub postponed: u64,
    /// Writes refused because somebody else had taken over.
    pub superseded: u64,
}

impl TickReport {
    fn add(&mut self, other: Self) {
        self.candidates += other.candidates;
        self.won += other.won;
        self.lost += other.lost;
        self.enqueued += other.enqueued;
        self.messages += other.messages;
        self.skipped += other.skipped;
        self.failed += other.failed;
        self.postponed += other.postponed;
        self.superseded += other.superseded;
    }
}

/// A step that could not be finished. What it had claimed stays claimed and is taken over.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    /// Sends and messages.
    #[error("the state database failed")]
    Store(#[from] StoreError),
    /// Orgs, admins and content.
    #[error("the source failed")]
    Source(#[from] SourceError),
}

/// How often the loops look, and how long they wait after a failure.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    /// Between two ticks.
    pub interval: Duration,
    /// Between two full looks at every candidate.
    pub resweep: Duration,
    /// A number of this replica's own, to keep replicas out of step.
    pub jitter: u64,
}

/// The longest time between two signs of life of a loop that is well: it gives one after each batch.
const LONGEST_STEP: Duration = Duration::from_mins(10);
/// The longest wait after repeated failures.
const MAX_BACK_OFF: Duration = Duration::from_mins(1);

/// Ticks until told to stop. Never ends on an error: the database may come back.
pub async fn run(tick: Arc<Tick>, rhythm: Rhythm, progress: Progress, stop: CancellationToken) {
    let (sweeping, rescuing) = (progress.watch("tick", LONGEST_STEP), progress.watch("rescue", LONGEST_STEP));
    tokio::join!(sweep_loop(&tick, rhythm, &sweeping, &stop), rescue_loop(&tick, rhythm, &rescuing, &stop));
}

async fn sweep_loop(tick: &Tick, rhythm: Rhythm, pulse: &Pulse, stop: &CancellationToken) {
    let mut failures = 0;
    let mut resweep_at = Instant::now();
    let mut wait = spread(rhythm, 0, rhythm.interval);
    while !stopped(wait, stop).await {
        let full = Instant::now() >= resweep_at;
        let began = Instant::now();
        let scope = if full { sweep::Scope::Everything } else { sweep::Scope::OpenSlots };
        match tick.sweep(scope, pulse, stop).await {
            Ok(report) => {
                failures = 0;
                if full {
                    resweep_at = Instant::now() + rhythm.resweep;
                }
                log_report("tick finished", report);
            }
            Err(error) => {
                failures += 1;
                log_failure(&error, failures);
            }
        }
        tick.metrics.tick_took(began.elapsed());
        pulse.touch();
        wait = back_off(rhythm, failures);
    }
}

async fn rescue_loop(tick: &Tick, rhythm: Rhythm, pulse: &Pulse, stop: &CancellationToken) {
    let mut failures = 0;
    let mut wait = spread(rhythm, 1, rhythm.interval);
    while !stopped(wait, stop).await {
        match tick.rescue(pulse, stop).await {
            Ok(report) => {
                failures = 0;
                log_report("expired claims taken over", report);
            }
            Err(error) => {
                failures += 1;
                log_failure(&error, failures);
            }
        }
        pulse.touch();
        wait = back_off(rhythm, failures);
    }
}

/// Waits; true if it is time to stop.
async fn stopped(wait: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(wait) => false,
    }
}

/// A part of `whole` that differs from replica to replica and from round to round.
fn spread(rhythm: Rhythm, round: u32, whole: Duration) -> Duration {
    let mixed = rhythm.jitter.rotate_left(round * 7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    whole.mul_f64(f64::from(u32::try_from(mixed >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

/// The interval, give or take a tenth; doubled with each failure in a row.
fn back_off(rhythm: Rhythm, failures: u32) -> Duration {
    let interval = rhythm.interval.mul_f64(0.9) + spread(rhythm, failures + 2, rhythm.interval.mul_f64(0.2));
    (interval * 2_u32.saturating_pow(failures.min(16))).min(MAX_BACK_OFF.max(rhythm.interval))
}

fn log_report(what: &str, report: TickReport) {
    if report == (TickReport { candidates: report.candidates, ..TickReport::default() }) {
        tracing::debug!(candidates = report.candidates, "{what}: nothing to do");
        return;
    }
    tracing::info!(
        sends.won = report.won,
        sends.lost = report.lost,
        sends.enqueued = report.enqueued,
        sends.skipped = report.skipped,
        sends.failed = report.failed,
        sends.postponed = report.postponed,
        sends.superseded = report.superseded,
        messages = report.messages,
        "{what}"
    );
}

fn log_failure(error: &TickError, failures: u32) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        failures,
        "a tick failed; it will be tried again"
    );
}
