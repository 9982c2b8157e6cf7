//! How much of the relay this replica may use: the breaker, the pace and the connection cap, all of
//! them shared with the other replicas through the database.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tokio::sync::watch;

use super::classify::RelayEffect;
use super::streak::PolicyStreak;
use crate::domain::ids::{MessageId, ReplicaId};
use crate::store::relays::{Breaker, PaceLimits, RelayState};
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
    /// A connection tries it.
    Trying,
}

#[derive(Debug)]
struct Local {
    read_at: Option<Instant>,
    mode: Mode,
    /// Whether the database counts no failure that an acceptance would end.
    healthy: bool,
    streak: PolicyStreak,
}

impl Gate {
    /// A gate that knows nothing yet.
    pub fn new(store: Store, settings: GateSettings) -> Self {
        let local =
            Local { read_at: None, mode: Mode::Stopped, healthy: false, streak: PolicyStreak::default() };
        let (limit, _) = watch::channel(settings.connections);
        Self { store, settings, local: Mutex::new(local), limit }
    }

    /// How many of this replica's connections may be in use.
    pub fn limit(&self) -> watch::Receiver<usize> {
        self.limit.subscribe()
    }

    /// How many of `want` messages may be leased now.
    pub async fn allow(&self, want: u32) -> Result<u32, StoreError> {
        self.refresh().await?;
        let probe = {
            let mut local = self.local();
            match local.mode {
                Mode::Flow => false,
                Mode::Probe(Probe::ToLease) => {
                    local.mode = Mode::Probe(Probe::ToTry);
                    true
                }
                Mode::Stopped | Mode::Probe(_) => return Ok(0),
            }
        };
        if probe {
            return Ok(1);
        }
        if self.settings.pace == PaceLimits::default() {
            return Ok(want);
        }
        self.store.take_pace(&self.settings.relay, want, self.settings.pace).await
    }

    /// Nothing was there to be leased: a probe that had no message waits for one.
    pub fn nothing_leased(&self) {
        let mut local = self.local();
        if local.mode == Mode::Probe(Probe::ToTry) {
            local.mode = Mode::Probe(Probe::ToLease);
        }
    }

    /// Whether a connection may try the message that it holds. If not, it gives the message back.
    pub fn may_try(&self) -> bool {
        let mut local = self.local();
        match local.mode {
            Mode::Flow => true,
            Mode::Probe(Probe::ToTry) => {
                local.mode = Mode::Probe(Probe::Trying);
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
            let probing = local.mode == Mode::Probe(Probe::Trying);
            (probing, local.healthy, local.streak.note(effect, message))
        };
        let relay = &self.settings.relay;
        let written = match effect {
            RelayEffect::Healthy | RelayEffect::Answered if healthy && !probing => Ok(()),
            RelayEffect::Healthy | RelayEffect::Answered => self.works().await,
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

    async fn works(&self) -> Result<(), StoreError> {
        if self.store.relay_healthy(&self.settings.relay).await? {
            tracing::info!(relay = self.settings.relay, "the relay works again");
        }
        let mut local = self.local();
        local.healthy = true;
        local.read_at = None;
        if local.mode == Mode::Probe(Probe::Trying) {
            local.mode = Mode::Flow;
        }
        Ok(())
    }

    async fn failing(&self, note: &str) -> Result<(), StoreError> {
        self.local().healthy = false;
        let opened = self.store.relay_failing(&self.settings.relay, FAILURES, self.spans(), note).await?;
        if opened {
            self.stopped("failing");
        }
        Ok(())
    }

    async fn open(&self, reason: &'static str, note: &str) -> Result<(), StoreError> {
        let opened = self.store.relay_open(&self.settings.relay, reason, self.spans(), note).await;
        if *opened.as_ref().unwrap_or(&false) {
            self.stopped(reason);
        }
        let mut local = self.local();
        local.mode = Mode::Stopped;
        local.healthy = false;
        opened.map(drop)
    }

    /// Says it once, on the edge; while the breaker is open nothing is logged per message.
    fn stopped(&self, reason: &'static str) {
        self.local().mode = Mode::Stopped;
        tracing::error!(
            relay = self.settings.relay,
            reason,
            "the relay does not work; deliveries wait and one message at a time is tried"
        );
    }

    fn spans(&self) -> (Duration, Duration) {
        let interval = self.settings.probe_interval;
        (interval, interval * LONGEST_INTERVALS)
    }

    /// Reads the shared state if what is known is old, and decides this replica's part.
    async fn refresh(&self) -> Result<(), StoreError> {
        let fresh = self.local().read_at.is_some_and(|at| at.elapsed() < BELIEF);
        if fresh {
            return Ok(());
        }
        let relay = &self.settings.relay;
        let state = self.store.relay(relay).await?;
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
            Some(total) => self.share_of(total).await?.min(self.settings.connections),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of at most a few dozen connections"
        )]
        let slowed = (share as f64 * state.rate_factor).ceil() as usize;
        let steps = state.closed_at.map_or(16, |at| (state.now - at).num_seconds() / RAMP_STEP.num_seconds());
        let ramp = 1_usize << steps.clamp(0, 16);
        Ok(slowed.min(ramp))
    }

    async fn share_of(&self, total: usize) -> Result<usize, StoreError> {
        let live = self.store.live_replicas(SILENCE).await?;
        let Some(place) = live.iter().position(|replica| replica.id == self.settings.replica) else {
            return Ok(0);
        };
        Ok(total / live.len() + usize::from(place < total % live.len()))
    }

    fn local(&self) -> std::sync::MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
