//! The registry's content: what each metric is called and what it means.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::{ClaimResult, Counters, GuardResult, Inner, OptOutChange, class_name};
use crate::store::ErrorClass;

/// The labels of one series.
pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// A tick over settled weeks takes milliseconds, one over a full Monday minutes.
const TICK_BUCKETS: [f64; 10] = [0.01, 0.05, 0.2, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0];
/// RFC 5321 §4.5.3.2.6 lets a relay take ten minutes to answer the final dot.
const HAND_OVER_BUCKETS: [f64; 11] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0, 300.0, 600.0];

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises; starts at zero with the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
}

impl MetricKind {
    /// The name in the text formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric as the documentation shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The name in queries, with the unit in it and `_total` after a counter.
    pub name: String,
    /// The kind.
    pub kind: MetricKind,
    /// The labels' names.
    pub labels: &'static [&'static str],
    /// The meaning, without a full stop.
    pub help: &'static str,
}

/// Registers and describes in one step, so that the two cannot differ.
#[derive(Default)]
pub(super) struct Registrar {
    registry: Registry,
    described: Vec<Described>,
}

impl Registrar {
    fn add<M: Metric + Clone>(
        &mut self,
        (name, kind): (&str, MetricKind),
        labels: &'static [&'static str],
        help: &'static str,
        metric: M,
    ) -> M {
        self.registry.register(name, help, metric.clone());
        let suffix = if kind == MetricKind::Counter { "_total" } else { "" };
        self.described.push(Described { name: format!("{name}{suffix}"), kind, labels, help });
        metric
    }

    fn counter(&mut self, name: &str, help: &'static str) -> Counter {
        self.add((name, MetricKind::Counter), &[], help, Counter::default())
    }

    fn counters<const N: usize>(
        &mut self,
        name: &str,
        labels: &'static [&'static str; N],
        help: &'static str,
    ) -> Counters<N> {
        self.add((name, MetricKind::Counter), labels, help, Family::default())
    }

    fn gauge(&mut self, name: &str, help: &'static str) -> Gauge {
        self.add((name, MetricKind::Gauge), &[], help, Gauge::default())
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        labels: &'static [&'static str; N],
        help: &'static str,
    ) -> Family<Labels<N>, Gauge> {
        self.add((name, MetricKind::Gauge), labels, help, Family::default())
    }

    fn seconds(&mut self, name: &str, help: &'static str) -> Gauge<f64, AtomicU64> {
        self.add((name, MetricKind::Gauge), &[], help, Gauge::default())
    }

    fn ratios(
        &mut self,
        name: &str,
        labels: &'static [&'static str; 1],
        help: &'static str,
    ) -> Family<Labels<1>, Gauge<f64, AtomicU64>> {
        self.add((name, MetricKind::Gauge), labels, help, Family::default())
    }

    fn histogram(&mut self, name: &str, help: &'static str, buckets: &[f64]) -> Histogram {
        self.add((name, MetricKind::Histogram), &[], help, Histogram::new(buckets.iter().copied()))
    }
}

/// Everything registered. The order here is the order of the documentation.
#[rustfmt::skip]
pub(super) fn inner() -> Inner {
    let mut r = Registrar::default();
    let inner = Inner {
        claims: r.counters("digestd_claims", &["result"],
            "Sends that this replica tried to claim: won, lost to another, or taken over after an expired lease"),
        sends_settled: r.counters("digestd_sends_settled", &["state", "reason"],
            "Sends that this replica has brought from claimed to another state"),
        sends: r.gauges("digestd_sends", &["week", "state"],
            "Sends in the table, for the weeks that still have slots in reach"),
        unsettled_orgs: r.gauge("digestd_unsettled_orgs",
            "Eligible orgs past their slot whose send is not settled or not there, as last counted by the leader"),
        missed: r.counter("digestd_missed",
            "Sends that this replica has written down as missed"),
        slots_swept: r.counter("digestd_slots_swept",
            "Slots whose candidates this replica has all had answered"),
        tick: r.histogram("digestd_tick_duration_seconds",
            "How long a tick took, from its start to its end", &TICK_BUCKETS),
        messages_settled: r.counters("digestd_messages_settled", &["state", "reason"],
            "Messages that this replica has brought to a final state, and, by the leader, those that commands have"),
        outbox: r.gauges("digestd_outbox_messages", &["state"],
            "Messages in the table that are not in a final state"),
        oldest_pending: r.seconds("digestd_oldest_pending_seconds",
            "How long the message that is next in line has been due; zero when none is due"),
        hand_overs: r.counters("digestd_hand_overs", &["outcome"],
            "Hand-overs to a relay that this replica has ended, by what became of the message"),
        hand_over: r.histogram("digestd_hand_over_duration_seconds",
            "How long a hand-over took, from its envelope to the relay's answer", &HAND_OVER_BUCKETS),
        swept_leases: r.counters("digestd_swept_leases", &["result"],
            "Expired leases that this replica has settled: returned to pending, or uncertain"),
        connections: r.gauge("digestd_relay_connections",
            "Connections to relays that this replica has open"),
        relay_state: r.gauges("digestd_relay_state", &["relay", "state"],
            "1 for what the relay's breaker is: closed lets everything through, open and paused nothing, half_open one message"),
        relay_opened: r.counters("digestd_relay_opened", &["relay"],
            "How often this replica has opened a relay's breaker"),
        relay_rate: r.ratios("digestd_relay_rate_factor", &["relay"],
            "The share of the configured pace at which the relay is used; below 1 after it has asked for less"),
        guard: r.counters("digestd_guard", &["result"],
            "Answers of the guard to this replica; unavailable_open let the message go, unavailable_closed kept it"),
        opt_outs: r.gauge("digestd_opt_outs",
            "Opt-outs in the table, an address once for each org and once for all"),
        opt_out_changes: r.counters("digestd_opt_out_changes", &["change"],
            "Changes stored by this replica through unsubscribe links"),
        write_backs: r.gauge("digestd_opt_out_write_backs",
            "Opt-outs and re-subscriptions that wait to be written to the application by opt_out.sql"),
        replicas_live: r.gauge("digestd_replicas_live",
            "Replicas heard of lately, this one included"),
        leader: r.gauge("digestd_leader",
            "1 while this replica does the housekeeping"),
        deleted: r.counters("digestd_deleted_rows", &["table"],
            "Rows that retention has deleted through this replica"),
        clock_offset: r.seconds("digestd_clock_offset_seconds",
            "How far this host's clock is ahead of the database's"),
        loop_idle: r.ratios("digestd_loop_idle_seconds", &["loop"],
            "How long a loop of this replica has made no progress"),
        store_errors: r.counters("digestd_store_errors", &["class"],
            "Operations on the database that failed; transient ones are tried again"),
        stats_age: r.seconds("digestd_stats_age_seconds",
            "How old the numbers are that are read from the tables"),
        http_requests: r.counters("digestd_http_requests", &["route", "status"],
            "Requests answered, by the route's pattern"),
        info: r.gauges("digestd_info", &["version", "tzdb"],
            "Always 1; the labels are the release and the release of its zone rules"),
        registry: Registry::default(),
        catalogue: Vec::new(),
    };
    start_at_zero(&inner);
    Inner { registry: r.registry, catalogue: r.described, ..inner }
}

/// A rate over a counter is right only if the counter was there before its first count.
fn start_at_zero(inner: &Inner) {
    for result in ClaimResult::ALL {
        let _ = inner.claims.get_or_create(&[result.label()]);
    }
    for result in GuardResult::ALL {
        let _ = inner.guard.get_or_create(&[result.label()]);
    }
    for change in OptOutChange::ALL {
        let _ = inner.opt_out_changes.get_or_create(&[change.label()]);
    }
    for outcome in ["accepted", "retry", "failed", "uncertain", "suppressed"] {
        let _ = inner.hand_overs.get_or_create(&[("outcome", outcome.into())]);
    }
    for result in ["returned", "uncertain"] {
        let _ = inner.swept_leases.get_or_create(&[("result", result.into())]);
    }
    for class in [ErrorClass::Transient, ErrorClass::Permanent] {
        let _ = inner.store_errors.get_or_create(&[("class", class_name(class).into())]);
    }
}
