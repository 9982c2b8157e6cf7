//! How much of the relay this replica may use: the breaker, the pace and the connection cap, all of
//! them shared with the other replicas through the database.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::watch;

use super::classify::RelayEffect;
use super::streak::PolicyStreak;
use crate::domain::ids::{MessageId, ReplicaId};
use crate::metrics::{Metrics, RelayCondition};
use crate::store::relays::{Breaker, Openings, PaceLimits, RelayState};
use crate::store::{Store, StoreError};

/// Failures in a row that open the breaker.
const FAILURES: u32 = 5;
/// An open breaker stays open for at most so many probe intervals.
const LONGEST_INTERVALS: u32 = 10;
/// How long a prober has before another replica may probe.
const PROBE_PATIENCE: Duration = Duration::from_mins(2);
/// How long the relay's state is believed without asking again.
const BELIEF: Duration = Duration::from_secs(1);
/// Complaints within this span count once.
const COMPLAINTS: Duration = Duration::from_secs(10);
/// A quiet span after which a tenth of the rate comes back.
const QUIET: Duration = Duration::from_secs(30);
/// After the breaker closes, the connections in use double each time this has passed.
const RAMP_STEP: TimeDelta = TimeDelta::seconds(5);
/// How long a new replica leaves a limited number of connections to the others, so that they have made
/// room for it: they believe what they know for a second, and a hand-over under way is finished.
const NEWCOMER: TimeDelta = TimeDelta::seconds(5);
/// A replica that was silent for this long has no share of the connections.
const SILENCE: Duration = Duration::from_secs(45);

/// What a gate is told at the start.
#[derive(Debug, Clone)]
pub struct GateSettings {
    /// The relay's name in the database.
    pub relay: String,
    /// Who we are.
    pub replica: ReplicaId,
    /// Connections that this replica may open.
    pub connections: usize,
    /// Connections that all replicas may open together, if that is limited.
    pub connections_total: Option<usize>,
    /// Pace and quota of all replicas together.
    pub pace: PaceLimits,
    /// Between two probes of a relay that does not work.
    pub probe_interval: Duration,
}

/// The relay's state as far as this replica knows, and its share of it.
#[derive(Debug)]
pub struct Gate {
    store: Store,
    settings: GateSettings,
    metrics: Metrics,
    local: Mutex<Local>,
    /// Connections that may be in use right now, for the connections to watch.
    limit: watch::Sender<usize>,
}

/// What this replica may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Deliver.
    Flow,
    /// Deliver nothing: the breaker is open, or an operator has paused the relay.
    Stopped,
    /// Deliver one message, on behalf of all replicas.
    Probe(Probe),
}

/// How far a probe has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// A message may be leased for it.
    ToLease,
    /// One is leased; a connection may take it.
    ToTry,
    /// A connection tries this one; only its outcome is the probe's.
    Trying(MessageId),
}

#[derive(Debug)]
struct Local {
    read_at: Option<Instant>,
    mode: Mode,
    /// Whether the database counts no failure that an acceptance would end.
    healthy: bool,
    /// The share of the pace that is used.
    rate_factor: f64,
    streak: PolicyStreak,
}

impl Gate {
    /// A gate that knows nothing yet.
    pub fn new(store: Store, settings: GateSettings, metrics: Metrics) -> Self {
        let local = Local {
            read_at: None,
            mode: Mode::Stopped,
            healthy: false,
            rate_factor: 1.0,
            streak: PolicyStreak::default(),
        };
        let (limit, _) = watch::channel(settings.connections);
        Self { store, settings, metrics, local: Mutex::new(local), limit }
    }

    /// How many of this replica's connections may be in use.
    pub fn limit(&self) -> watch::Receiver<usize> {
        self.limit.subscribe()
    }

    /// Whether messages may have to wait for the pace.
    pub fn is_paced(&self) -> bool {
        self.settings.pace != PaceLimits::default()
    }

    /// How many of `want` messages may be leased now, by what [`Self::refresh`] has read.
    pub async fn allow(&self, want: u32) -> Result<u32, StoreError> {
        if want == 0 {
            return Ok(0);
        }
        let rate_factor = {
            let mut local = self.local();
            match local.mode {
                Mode::Flow => local.rate_factor,
                Mode::Probe(Probe::ToLease) => {
                    local.mode = Mode::Probe(Probe::ToTry);
                    return Ok(1);
                }
                Mode::Stopped | Mode::Probe(_) => return Ok(0),
            }
        };
        if !self.is_paced() {
            return Ok(want);
        }
        let pace = self.settings.pace;
        let pace = PaceLimits { per_second: pace.per_second.map(|rate| rate * rate_factor), ..pace };
        self.store.take_pace(&self.settings.relay, want, pace).await
    }

    /// Of what was allowed, so much is there to be tried: the rest of the pace is given back, and a
    /// probe that had no message waits for one.
    pub async fn leased(&self, allowed: u32, there: usize) {
        let probing = {
            let mut local = self.local();
            let probing = matches!(local.mode, Mode::Probe(_));
            if there == 0 && local.mode == Mode::Probe(Probe::ToTry) {
                local.mode = Mode::Probe(Probe::ToLease);
            }
            probing
        };
        let unused = allowed.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        if unused == 0 || probing || !self.is_paced() {
            return;
        }
        if let Err(error) = self.store.return_pace(&self.settings.relay, unused).await {
            // The day's count is a little too high then; the next second's pace is not touched by it.
            tracing::warn!(error = &error as &dyn std::error::Error, "unused pace could not be given back");
        }
    }

    /// Whether a connection may try the message that it holds. If not, it gives the message back.
    pub fn may_try(&self, message: MessageId) -> bool {
        let mut local = self.local();
        match local.mode {
            Mode::Flow => true,
            Mode::Probe(Probe::ToTry) => {
                local.mode = Mode::Probe(Probe::Trying(message));
                true
            }
            Mode::Stopped | Mode::Probe(_) => false,
        }
    }

    /// Takes note of what one hand-over or connection told about the relay. A failure to write it down
    /// is logged and forgotten: the next outcome tells the same.
    pub async fn report(&self, effect: RelayEffect, message: MessageId, note: &str) {
        let (probing, healthy, streak_full) = {
            let mut local = self.local();
            let probing = local.mode == Mode::Probe(Probe::Trying(message));
            if probing && effect == RelayEffect::None {
                // The message never came to the relay: the next one is the probe.
                local.mode = Mode::Probe(Probe::ToLease);
            }
            (probing, local.healthy, local.streak.note(effect, message))
        };
        let relay = &self.settings.relay;
        let written = match effect {
            RelayEffect::Healthy | RelayEffect::Answered if healthy && !probing => Ok(()),
            RelayEffect::Healthy | RelayEffect::Answered => self.works(probing).await,
            RelayEffect::Pause(kind) => self.open(kind.as_str(), note).await,
            RelayEffect::PolicyRefusal if streak_full || probing => self.open("policy", note).await,
            RelayEffect::PolicyRefusal | RelayEffect::None => Ok(()),
            RelayEffect::Failing | RelayEffect::Throttled if probing => self.open("failing", note).await,
            RelayEffect::Failing => self.failing(note).await,
            RelayEffect::Throttled => self.store.relay_throttled(relay, COMPLAINTS).await.map(|slowed| {
                if slowed {
                    tracing::warn!(relay, "the relay asks to slow down; the rate is halved");
                }
            }),
        };
        if let Err(error) = written {
            tracing::warn!(
                relay,
                error = &error as &dyn std::error::Error,
                "the relay's state could not be written"
            );
        }
    }

    async fn works(&self, probe: bool) -> Result<(), StoreError> {
        if self.store.relay_healthy(&self.settings.relay, probe).await? {
            tracing::info!(relay = self.settings.relay, "the relay works again");
        }
        let mut local = self.local();
        local.healthy = true;
        local.read_at = None;
        if probe {
            local.mode = Mode::Flow;
        }
        Ok(())
    }

    async fn failing(&self, note: &str) -> Result<(), StoreError> {
        self.local().healthy = false;
        let opened = self.store.relay_failing(&self.settings.relay, FAILURES, self.spans(), note).await?;
        if let Some(openings) = opened {
            self.stopped("failing", openings);
        }
        Ok(())
    }

    async fn open(&self, reason: &'static str, note: &str) -> Result<(), StoreError> {
        let opened = self.store.relay_open(&self.settings.relay, reason, self.spans(), note).await;
        if let Ok(Some(openings)) = opened {
            self.stopped(reason, openings);
        }
        let mut local = self.local();
        local.mode = Mode::Stopped;
        local.healthy = false;
        opened.map(drop)
    }

    /// An error by the one replica that opens the breaker, and a warning after each probe that fails; while it is
    /// open nothing is logged per message.
    fn stopped(&self, reason: &'static str, openings: Openings) {
        self.local().mode = Mode::Stopped;
        self.metrics.relay_opened(&self.settings.relay);
        let relay = &self.settings.relay;
        if openings.is_first() {
            tracing::error!(
                relay,
                reason,
                "the relay does not work; deliveries wait and one message at a time is tried"
            );
        } else {
            tracing::warn!(relay, reason, "the relay still does not work; another message is tried later");
        }
    }

    fn spans(&self) -> (Duration, Duration) {
        let interval = self.settings.probe_interval;
        (interval, interval * LONGEST_INTERVALS)
    }

    /// Reads the shared state if what is known is old, and decides this replica's part.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let fresh = self.local().read_at.is_some_and(|at| at.elapsed() < BELIEF);
        if fresh {
            return Ok(());
        }
        let relay = &self.settings.relay;
        let state = self.store.relay(relay).await?;
        self.metrics.set_relay(relay, condition(&state));
        self.metrics.set_relay_rate(relay, state.rate_factor);
        let mode = match (state.paused, state.breaker) {
            (true, _) => Mode::Stopped,
            (false, Breaker::Closed) => Mode::Flow,
            (false, Breaker::Open | Breaker::HalfOpen) => {
                let mine = self.store.relay_probe(relay, self.settings.replica, PROBE_PATIENCE).await?;
                if mine { Mode::Probe(Probe::ToLease) } else { Mode::Stopped }
            }
        };
        if state.rate_factor < 1.0 {
            self.store.relay_recover(relay, QUIET).await?;
        }
        let limit = if mode == Mode::Flow { self.connections(&state).await? } else { 1 };
        self.limit.send_if_modified(|now| std::mem::replace(now, limit) != limit);
        let mut local = self.local();
        local.read_at = Some(Instant::now());
        local.rate_factor = state.rate_factor;
        local.healthy = state.breaker == Breaker::Closed && state.failures == 0;
        // A probe under way goes on whatever the row says; it ends by its own outcome.
        if !(matches!(local.mode, Mode::Probe(_))
            && mode == Mode::Stopped
            && state.breaker == Breaker::HalfOpen)
        {
            local.mode = mode;
        }
        Ok(())
    }

    /// This replica's share of the connections, less after a complaint and right after a re-opening.
    async fn connections(&self, state: &RelayState) -> Result<usize, StoreError> {
        let share = match self.settings.connections_total {
            None => self.settings.connections,
            Some(total) => self.share_of(total, state.now).await?.min(self.settings.connections),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of at most a few dozen connections"
        )]
        let slowed = (share as f64 * state.rate_factor).ceil() as usize;
        // A closing that is still to come was written before the database's clock was set back.
        let closed = state.closed_at.filter(|at| *at <= state.now);
        let steps = closed.map_or(16, |at| (state.now - at).num_seconds() / RAMP_STEP.num_seconds());
        let ramp = 1_usize << steps.clamp(0, 16);
        Ok(slowed.min(ramp))
    }

    async fn share_of(&self, total: usize, now: DateTime<Utc>) -> Result<usize, StoreError> {
        let live = self.store.live_replicas(SILENCE).await?;
        let place = live.iter().position(|replica| replica.id == self.settings.replica);
        Ok(place.map_or(0, |place| {
            // `now` was read before the list, so a start may lie a little behind it.
            let new = live.len() > 1 && (now - live[place].started_at).abs() < NEWCOMER;
            if new { 0 } else { total / live.len() + usize::from(place < total % live.len()) }
        }))
    }

    fn local(&self) -> std::sync::MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a relay lets through, as `/metrics` has it.
const fn condition(state: &RelayState) -> RelayCondition {
    match (state.paused, state.breaker) {
        (true, _) => RelayCondition::Paused,
        (false, Breaker::Closed) => RelayCondition::Closed,
        (false, Breaker::Open) => RelayCondition::Open,
        (false, Breaker::HalfOpen) => RelayCondition::HalfOpen,
    }
}
