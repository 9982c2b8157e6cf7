//! Every metric: its name, unit, labels and meaning in one place.
//!
//! The registry is a value, so that two apps in one test do not count into each other. Metrics
//! in `docs/metrics.md` are compared with [`Metrics::catalogue`] by a test.

mod catalogue;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use chrono::TimeDelta;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use catalogue::Labels;
pub use catalogue::{Described, MetricKind};

use crate::domain::ends::Ends;
use crate::domain::message::{Disposition, MessageReason, MessageState};
use crate::domain::send::{SendReason, SendState};
use crate::store::ErrorClass;

/// The registry and everything in it. Cheap to clone; clones share the numbers.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Seconds = Gauge<f64, AtomicU64>;

struct Inner {
    registry: Registry,
    catalogue: Vec<Described>,
    claims: Counters<1>,
    sends_settled: Counters<2>,
    sends: Gauges<2>,
    unsettled_orgs: Gauge,
    missed: Counter,
    slots_swept: Counter,
    tick: Histogram,
    messages_settled: Counters<2>,
    outbox: Gauges<1>,
    oldest_pending: Seconds,
    hand_overs: Counters<1>,
    hand_over: Histogram,
    swept_leases: Counters<1>,
    connections: Gauge,
    relay_state: Gauges<2>,
    relay_opened: Counters<1>,
    relay_rate: Family<Labels<1>, Seconds>,
    guard: Counters<1>,
    opt_outs: Gauge,
    write_backs: Gauge,
    opt_out_changes: Counters<1>,
    replicas_live: Gauge,
    leader: Gauge,
    deleted: Counters<1>,
    clock_offset: Seconds,
    loop_idle: Family<Labels<1>, Seconds>,
    store_errors: Counters<1>,
    stats_age: Seconds,
    http_requests: Counters<2>,
    info: Gauges<2>,
}

/// How a try to claim a send ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimResult {
    /// This replica's insert won.
    Won,
    /// Somebody else has the send.
    Lost,
    /// An expired claim was taken over.
    TakenOver,
}

/// What the guard said of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardResult {
    /// Not seen before.
    Fresh,
    /// Handed over before: suppressed.
    Duplicate,
    /// The guard did not answer, and the policy lets the message go.
    UnavailableOpen,
    /// The guard did not answer, and the policy keeps the message.
    UnavailableClosed,
}

/// What a relay lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayCondition {
    /// Everything: the breaker is closed.
    Closed,
    /// Nothing: the breaker is open.
    Open,
    /// One message, to see.
    HalfOpen,
    /// Nothing: an operator has paused it.
    Paused,
}

/// What somebody did on the unsubscribe page or by one click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptOutChange {
    /// No more of this org's digest.
    Org,
    /// No more digests at all.
    All,
    /// Digests again.
    Resubscribed,
}

impl Metrics {
    /// A registry of its own, all counters with a closed set of labels at zero.
    pub fn new() -> Self {
        Self(Arc::new(catalogue::inner()))
    }

    /// Tries to claim sends.
    pub fn claims(&self, result: ClaimResult, n: usize) {
        count(&self.0.claims, &[result.label()], n);
    }

    /// Sends that this replica has brought to a state other than `claimed`.
    pub fn sends_settled(&self, state: SendState, reason: Option<SendReason>, n: usize) {
        let reason = reason.map_or("", SendReason::as_str);
        count(&self.0.sends_settled, &[("state", state.as_str().into()), ("reason", reason.into())], n);
    }

    /// Orgs past their slot without a send.
    pub fn set_unsettled_orgs(&self, n: usize) {
        self.0.unsettled_orgs.set(clamp(n));
    }

    /// Sends written down as missed.
    pub fn missed(&self, n: usize) {
        self.0.missed.inc_by(wide(n));
    }

    /// Slots whose candidates have all been answered.
    pub fn slots_swept(&self, n: usize) {
        self.0.slots_swept.inc_by(wide(n));
    }

    /// One tick, from its start to its end.
    pub fn tick_took(&self, took: Duration) {
        self.0.tick.observe(took.as_secs_f64());
    }

    /// Messages that have come to their end, in whatever way: each statement that ends messages says which.
    pub fn messages_ended(&self, ends: &Ends) {
        for ((state, reason), n) in ends.iter() {
            let reason = reason.map_or("", MessageReason::as_str);
            let labels = [("state", state.as_str().into()), ("reason", reason.into())];
            self.0.messages_settled.get_or_create(&labels).inc_by(n);
        }
    }

    /// The end of a hand-over, before it is recorded.
    pub fn handed_over(&self, disposition: &Disposition) {
        count(&self.0.hand_overs, &[("outcome", outcome(disposition).into())], 1);
    }

    /// One hand-over, from its envelope to the relay's answer.
    pub fn hand_over_took(&self, took: Duration) {
        self.0.hand_over.observe(took.as_secs_f64());
    }

    /// Expired leases: back to `pending`, or `uncertain`.
    pub fn swept_leases(&self, returned: u64, uncertain: u64) {
        self.0.swept_leases.get_or_create(&[("result", "returned".into())]).inc_by(returned);
        self.0.swept_leases.get_or_create(&[("result", "uncertain".into())]).inc_by(uncertain);
    }

    /// Connections to relays that this replica has open.
    pub fn set_connections(&self, n: usize) {
        self.0.connections.set(clamp(n));
    }

    /// What a relay lets through.
    pub fn set_relay(&self, relay: &str, now: RelayCondition) {
        for condition in RelayCondition::ALL {
            let labels = [("relay", Cow::Owned(relay.to_owned())), condition.label()];
            self.0.relay_state.get_or_create(&labels).set(i64::from(condition == now));
        }
    }

    /// How fast a relay is used: 1 is the configured pace.
    pub fn set_relay_rate(&self, relay: &str, factor: f64) {
        self.0.relay_rate.get_or_create(&[("relay", Cow::Owned(relay.to_owned()))]).set(factor);
    }

    /// This replica has opened a relay's breaker.
    pub fn relay_opened(&self, relay: &str) {
        self.0.relay_opened.get_or_create(&[("relay", Cow::Owned(relay.to_owned()))]).inc();
    }

    /// The guard's answer.
    pub fn guard(&self, result: GuardResult) {
        count(&self.0.guard, &[result.label()], 1);
    }

    /// A change by an unsubscribe link.
    pub fn opt_out_changed(&self, change: OptOutChange) {
        count(&self.0.opt_out_changes, &[change.label()], 1);
    }

    /// Replicas heard of lately.
    pub fn set_replicas_live(&self, n: usize) {
        self.0.replicas_live.set(clamp(n));
    }

    /// Whether this replica is the leader.
    pub fn set_leader(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    /// Rows that retention has deleted.
    pub fn deleted(&self, table: &'static str, n: u64) {
        self.0.deleted.get_or_create(&[("table", table.into())]).inc_by(n);
    }

    /// How far this host's clock is ahead of the database's.
    pub fn set_clock_offset(&self, offset: TimeDelta) {
        self.0.clock_offset.set(seconds(offset));
    }

    /// An operation of the store that failed.
    pub fn store_error(&self, class: ErrorClass) {
        count(&self.0.store_errors, &[("class", class_name(class).into())], 1);
    }

    /// An answered request. `route` is the route's pattern, never the path: paths hold tokens.
    pub fn http_request(&self, route: &'static str, status: u16) {
        count(&self.0.http_requests, &[("route", route.into()), ("status", status.to_string().into())], 1);
    }

    /// Which release runs, with which zone rules.
    pub fn set_info(&self, version: &'static str, tzdb: &str) {
        let labels = [("version", version.into()), ("tzdb", Cow::Owned(tzdb.to_owned()))];
        self.0.info.get_or_create(&labels).set(1);
    }

    /// How long a loop has made no progress. Set at each scrape.
    pub fn set_loop_idle(&self, name: &'static str, idle: Duration) {
        self.0.loop_idle.get_or_create(&[("loop", name.into())]).set(idle.as_secs_f64());
    }

    /// Sends of the running weeks; replaces all that was set before. Set at each scrape.
    pub fn set_sends<'a>(&self, counts: impl IntoIterator<Item = (&'a str, SendState, u64)>) {
        self.0.sends.clear();
        for (week, state, n) in counts {
            let labels = [("week", Cow::Owned(week.to_owned())), ("state", state.as_str().into())];
            self.0.sends.get_or_create(&labels).set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    /// Unfinished messages in a state. Set at each scrape.
    pub fn set_outbox(&self, state: MessageState, n: u64) {
        let gauge = self.0.outbox.get_or_create(&[("state", state.as_str().into())]);
        gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// How long the message that is next in line has been due. Set at each scrape.
    pub fn set_oldest_pending(&self, due_for: TimeDelta) {
        self.0.oldest_pending.set(seconds(due_for));
    }

    /// Opt-outs in the table. Set at each scrape.
    pub fn set_opt_outs(&self, n: u64) {
        self.0.opt_outs.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Choices that wait to be written to the application. Set at each scrape.
    pub fn set_write_backs(&self, n: u64) {
        self.0.write_backs.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// How old the numbers read from the tables are. Set at each scrape.
    pub fn set_stats_age(&self, age: Duration) {
        self.0.stats_age.set(age.as_secs_f64());
    }

    /// Every metric that there is.
    pub fn catalogue(&self) -> &[Described] {
        &self.0.catalogue
    }

    /// The numbers in the `OpenMetrics` text format, version 1.0.0.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.0.registry);
        text
    }

    /// The numbers in the Prometheus text format, version 0.0.4.
    pub fn prometheus_text(&self) -> String {
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = prometheus_client::encoding::prometheus_text::encode(&mut text, &self.0.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metrics({} metrics)", self.0.catalogue.len())
    }
}

/// A closed set of values of one label.
macro_rules! label {
    ($type:ident, $key:literal, $($variant:ident => $text:literal),+) => {
        impl $type {
            const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            const fn label(self) -> (&'static str, Cow<'static, str>) {
                ($key, Cow::Borrowed(self.as_str()))
            }
        }
    };
}

label!(ClaimResult, "result", Won => "won", Lost => "lost", TakenOver => "taken_over");
label!(GuardResult, "result", Fresh => "fresh", Duplicate => "duplicate",
    UnavailableOpen => "unavailable_open", UnavailableClosed => "unavailable_closed");
label!(RelayCondition, "state", Closed => "closed", Open => "open", HalfOpen => "half_open", Paused => "paused");
label!(OptOutChange, "change", Org => "org", All => "all", Resubscribed => "resubscribed");

const fn outcome(disposition: &Disposition) -> &'static str {
    match disposition {
        Disposition::Retry { .. } => "retry",
        other => other.state().as_str(),
    }
}

const fn class_name(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient => "transient",
        ErrorClass::Permanent => "permanent",
    }
}

fn count<const N: usize>(counters: &Counters<N>, labels: &Labels<N>, n: usize) {
    counters.get_or_create(labels).inc_by(wide(n));
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn clamp(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn seconds(delta: TimeDelta) -> f64 {
    delta.as_seconds_f64()
}
