//! A relay that is away or slow, step by step on a clock of the test's.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use digestd::deliver::Deliver;
use digestd::deliver::gate::{Gate, GateSettings};
use digestd::deliver::journal::Journal;
use digestd::deliver::providers::Overrides;
use digestd::domain::address::Address;
use digestd::domain::ids::ReplicaId;
use digestd::domain::retry::RetryPolicy;
use digestd::guard::Guard;
use digestd::mail::transport::{SmtpRelay, SmtpSettings, TlsMode, Transport};
use digestd::metrics::Metrics;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::outbox::LeaseTerms;
use digestd::store::relays::{Breaker, PaceLimits};

use crate::support::backend::TestDatabase;
use crate::support::counters::values;
use crate::support::fixtures::{
    claim_id, draft, due_orgs, give_back, lease_terms, monday, source, store, terms,
};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{execute, number};

const RELAY: &str = "relay";
const CONNECTIONS: usize = 4;

/// A store with `count` pending messages to admins of one org.
async fn with_messages(database: &TestDatabase, count: usize) -> Store {
    let addresses: Vec<_> = (0..count).map(|n| format!("admin-{n}@example.org")).collect();
    with_messages_to(database, &addresses).await
}

/// A store with a pending message to each of these admins of one org.
pub(super) async fn with_messages_to(database: &TestDatabase, addresses: &[String]) -> Store {
    let store = store(database).await;
    let table = |name: &str| {
        if database.url.starts_with("sqlite") { name.to_owned() } else { format!("digestd.{name}") }
    };
    let mut script = format!(
        "INSERT INTO {} (id, name, timezone) VALUES ('org-0000', 'Org', 'Europe/Berlin');",
        table("orgs")
    );
    for address in addresses {
        let _ = write!(
            script,
            "INSERT INTO {} (id, org_id, email, name) VALUES ('{address}', 'org-0000', '{address}', 'A');",
            table("admins")
        );
    }
    execute(database, script).await;
    let claim = store
        .claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random()))
        .await
        .expect("a claim")
        .remove(0);
    let drafts = addresses.iter().map(|address| draft(&claim, address)).collect();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    store
}

/// A replica's delivery, as it is right after its start: it knows nothing about the relay yet.
fn deliver(store: &Store, port: u16) -> Deliver {
    deliver_to(store, SmtpSettings::new("127.0.0.1", port, TlsMode::Plaintext))
}

/// The same with settings of one's own for the relay.
pub(super) fn deliver_to(store: &Store, smtp: SmtpSettings) -> Deliver {
    let replica = ReplicaId::random();
    let settings = GateSettings {
        relay: RELAY.to_owned(),
        replica,
        connections: CONNECTIONS,
        connections_total: None,
        pace: PaceLimits::default(),
        probe_interval: Duration::from_mins(1),
    };
    let metrics = Metrics::new();
    let (journal, _) = Journal::start(store.clone(), replica, Duration::from_mins(15), metrics.clone());
    Deliver {
        store: store.clone(),
        source: source(store),
        transport: Transport::Smtp(SmtpRelay::new(smtp).expect("settings")),
        from: Address::parse("digest@example.org").expect("an address"),
        guard: Guard::Off,
        gate: Gate::new(store.clone(), settings, metrics.clone()),
        journal,
        terms: lease_terms(replica),
        policy: RetryPolicy::default(),
        suppression: None,
        resend_uncertain: false,
        overrides: Overrides::NONE,
        connections: CONNECTIONS,
        poll: Duration::from_secs(1),
        metrics,
    }
}

/// Leases and tries until nothing may be leased any more; how many were tried.
pub(super) async fn drain(deliver: &Deliver) -> usize {
    let mut connection = None;
    let mut tried = 0;
    loop {
        let leased = deliver.lease(deliver.places()).await.expect("leases");
        if leased.is_empty() {
            return tried;
        }
        for message in leased {
            if deliver.gate.may_try(message.id) {
                deliver.deliver_one(&mut connection, message).await;
                tried += 1;
            } else {
                give_back(&deliver.store, &[message.fence()], TimeDelta::zero()).await;
            }
        }
    }
}

/// So many messages are in a state; the journal may still be writing.
pub(super) async fn becomes(database: &TestDatabase, state: &str, wanted: usize) {
    let wanted = i64::try_from(wanted).expect("a count");
    let query = format!("SELECT COUNT(*) FROM digestd.outbox WHERE state = '{state}'");
    crate::support::eventually(&format!("{wanted} {state}"), Duration::from_secs(20), async || {
        (number(database, &query).await == wanted).then_some(())
    })
    .await;
}

both_databases! {
    /// A flat retry used up all attempts of every message in an outage of half an hour.
    async fn an_hour_without_the_relay_costs_no_message_an_attempt(database: TestDatabase) {
        const MESSAGES: usize = 1000;
        let store = with_messages(&database, MESSAGES).await;
        let relay = SmtpServer::start(Script::new().offer("PIPELINING")).await;
        let (port, addr) = (relay.port(), relay.addr().to_string());
        drop(relay);
        let mut tried = 0;
        for _ in 0..60 {
            // A replica is started anew each minute, so that it believes nothing old.
            tried += drain(&deliver(&store, port)).await;
            store.clock().advance(TimeDelta::minutes(1));
            store.sweep_messages(500).await.expect("a sweep");
        }
        becomes(&database, "pending", MESSAGES).await;
        assert_eq!(number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await, 0);
        // Five failures open the breaker; after 1, 2, 3 … and at most 10 minutes one message is tried.
        assert!((8..=20).contains(&tried), "{tried} tries in an hour");
        assert_eq!(store.relay(RELAY).await.expect("a state").breaker, Breaker::Open);

        let relay = SmtpServer::start_on(&addr, Script::new().offer("PIPELINING")).await;
        store.clock().advance(TimeDelta::minutes(11));
        let prober = deliver(&store, port);
        let mut probe = prober.lease(prober.places()).await.expect("a lease");
        assert_eq!(probe.len(), 1, "one message is the probe");
        let probe = probe.remove(0);
        assert!(prober.gate.may_try(probe.id));
        prober.deliver_one(&mut None, probe).await;
        // One connection, then two, then four.
        for (after, allowed) in [(0, 1), (5, 2), (5, 4)] {
            store.clock().advance(TimeDelta::seconds(after));
            let started = deliver(&store, port);
            started.gate.refresh().await.expect("a state");
            assert_eq!(*started.gate.limit().borrow(), allowed, "connections");
        }
        drain(&deliver(&store, port)).await;
        becomes(&database, "accepted", MESSAGES).await;
        assert_eq!(relay.accepted().len(), MESSAGES);
    }

    /// A relay's complaint about speed was taken for a failure of the mail.
    async fn a_relay_that_complains_of_speed_gets_fewer_connections_until_it_is_quiet(database: TestDatabase) {
        let store = with_messages(&database, 20).await;
        let throttled = [Act::reply("454 4.7.0 Throttling failure: maximum sending rate exceeded")];
        let relay = SmtpServer::start(Script::new().offer("PIPELINING").times(3, At::Dot, throttled)).await;
        drain(&deliver(&store, relay.port())).await;
        becomes(&database, "accepted", 17).await;
        assert_eq!(number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await, 0);
        let state = store.relay(RELAY).await.expect("a state");
        assert!((state.rate_factor - 0.5).abs() < 0.01, "three complaints at once count once: {state:?}");
        let mut limits = Vec::new();
        for _ in 0..7 {
            let started = deliver(&store, relay.port());
            started.gate.refresh().await.expect("a state");
            limits.push(*started.gate.limit().borrow());
            store.clock().advance(TimeDelta::seconds(30));
        }
        assert_eq!((limits[0], limits[6]), (2, CONNECTIONS), "{limits:?}");
        assert!(limits.is_sorted(), "{limits:?}");
        drain(&deliver(&store, relay.port())).await;
        becomes(&database, "accepted", 20).await;
    }

    /// An alarm on the breaker rests on a gauge that nobody had ever set.
    async fn the_metrics_tell_what_the_relay_lets_through_and_how_it_is_used(database: TestDatabase) {
        let store = with_messages(&database, 20).await;
        let relay = SmtpServer::start(Script::new()).await;
        let (port, addr) = (relay.port(), relay.addr().to_string());
        drop(relay);
        let label = |state: &str| format!("relay=\"{RELAY}\",state=\"{state}\"");
        let states = |deliver: &Deliver| {
            let mut on = values(&deliver.metrics.prometheus_text(), "digestd_relay_state");
            on.retain(|_, value| *value == 1);
            on.into_keys().collect::<Vec<_>>()
        };
        let first = deliver(&store, port);
        first.gate.refresh().await.expect("a state");
        assert_eq!(states(&first), [label("closed")]);
        drain(&first).await;
        let opened = values(&first.metrics.prometheus_text(), "digestd_relay_opened_total");
        assert_eq!(opened.into_values().collect::<Vec<_>>(), [1]);
        let second = deliver(&store, port);
        second.gate.refresh().await.expect("a state");
        assert_eq!(states(&second), [label("open")]);
        store.relay_pause(RELAY, true).await.expect("paused");
        let third = deliver(&store, port);
        third.gate.refresh().await.expect("a state");
        assert_eq!(states(&third), [label("paused")]);

        store.relay_pause(RELAY, false).await.expect("goes on");
        store.clock().advance(TimeDelta::minutes(11));
        let relay = SmtpServer::start_on(&addr, Script::new().offer("PIPELINING")).await;
        let fourth = deliver(&store, port);
        drain(&fourth).await;
        let text = fourth.metrics.prometheus_text();
        let accepted = relay.accepted().len();
        assert!(accepted > 0, "nothing was accepted");
        assert!(text.contains(&format!("digestd_hand_over_duration_seconds_count {accepted}\n")), "{text}");
        assert!(text.contains("digestd_relay_connections 1\n"), "the last connection is kept for more: {text}");
        assert!(text.contains(&format!("digestd_relay_rate_factor{{relay=\"{RELAY}\"}} 1.0\n")), "{text}");
    }

    async fn only_a_probe_closes_an_open_breaker(database: TestDatabase) {
        let store = store(&database).await;
        let spans = (Duration::from_mins(1), Duration::from_mins(10));
        store.relay(RELAY).await.expect("a row");
        assert!(store.relay_open(RELAY, "auth", spans, "").await.expect("opened").is_some());
        // What was under way when it opened may still be accepted.
        assert!(!store.relay_healthy(RELAY, false).await.expect("no error"));
        assert_eq!(store.relay(RELAY).await.expect("a state").breaker, Breaker::Open);
        store.clock().advance(TimeDelta::minutes(1));
        assert!(store.relay_probe(RELAY, ReplicaId::random(), Duration::from_mins(2)).await.expect("a probe"));
        assert!(!store.relay_probe(RELAY, ReplicaId::random(), Duration::from_mins(2)).await.expect("no second"));
        assert!(store.relay_healthy(RELAY, true).await.expect("closed"));
        assert_eq!(store.relay(RELAY).await.expect("a state").breaker, Breaker::Closed);
    }

    /// A probe that fell on a message which may not be sent blocked deliveries for two minutes.
    async fn a_probe_that_meets_nobody_to_send_to_takes_the_next_message(database: TestDatabase) {
        let store = with_messages(&database, 3).await;
        let relay = SmtpServer::start(Script::new().offer("PIPELINING")).await;
        store.relay(RELAY).await.expect("a row");
        store.relay_open(RELAY, "auth", (Duration::from_mins(1), Duration::from_mins(10)), "").await.expect("opened");
        let to = Address::parse("admin-0@example.org").expect("an address");
        store.opt_out(&to, None, "test").await.expect("an opt-out");
        store.clock().advance(TimeDelta::minutes(1));
        let deliver = deliver(&store, relay.port());
        drain(&deliver).await;
        becomes(&database, "suppressed", 1).await;
        becomes(&database, "accepted", 2).await;
        assert_eq!(relay.accepted().len(), 2, "the second message was the probe, and closed the breaker");
    }

    /// A message that had waited behind slow ones was handed over under a lease that others could have.
    async fn a_lease_that_is_not_to_be_trusted_any_more_is_given_back_untried(database: TestDatabase) {
        let store = with_messages(&database, 1).await;
        let relay = SmtpServer::start(Script::new().offer("PIPELINING")).await;
        let late = deliver(&store, relay.port());
        let mut message = late.lease(1).await.expect("a lease").remove(0);
        message.trusted_until = Instant::now();
        late.try_one(&mut None, message).await;
        becomes(&database, "pending", 1).await;
        assert_eq!(relay.commands(), Vec::<String>::new(), "the relay was not even connected to");
        assert_eq!(number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await, 0);
        let message = late.lease(1).await.expect("a lease").remove(0);
        late.try_one(&mut None, message).await;
        becomes(&database, "accepted", 1).await;
    }

    /// Digests were dropped when the relay's own next hop was away for a night.
    async fn a_night_of_refusals_for_now_loses_no_message(database: TestDatabase) {
        let store = with_messages(&database, 10).await;
        let away = [Act::reply("451 4.4.1 the next hop does not answer")];
        let relay = SmtpServer::start(Script::new().offer("PIPELINING").always(At::Dot, away)).await;
        let patient = || {
            let deliver = deliver(&store, relay.port());
            let terms = LeaseTerms { max_attempts: deliver.policy.max_attempts(), ..deliver.terms };
            Deliver { terms, ..deliver }
        };
        for _ in 0..8 * 12 {
            drain(&patient()).await;
            store.clock().advance(TimeDelta::minutes(5));
        }
        becomes(&database, "pending", 10).await;
        // After 1, 6, 21, 51 minutes, 2, 4 and 8 hours, give or take.
        let asked = relay.commands().iter().filter(|line| line.starts_with("RCPT")).count();
        assert!((60..=80).contains(&asked), "{asked} tries in eight hours");
        relay.rescript(Script::new().offer("PIPELINING"));
        store.clock().advance(TimeDelta::hours(5));
        drain(&patient()).await;
        becomes(&database, "accepted", 10).await;
        assert_eq!(relay.accepted().len(), 10);
    }

    /// A few dozen messages were tried thousands of times, because nothing counted the tries.
    async fn a_relay_that_says_421_for_ever_is_asked_a_bounded_number_of_times(database: TestDatabase) {
        const MESSAGES: usize = 10;
        let store = with_messages(&database, MESSAGES).await;
        let script = Script::new().offer("PIPELINING").always(At::Rcpt, [Act::reply("421 4.3.2 go away"), Act::Close]);
        let relay = SmtpServer::start(script).await;
        let attempts = usize::try_from(lease_terms(ReplicaId::random()).max_attempts).expect("a count");
        let mut tried = 0;
        for _ in 0..49 * 6 {
            tried += drain(&deliver(&store, relay.port())).await;
            store.clock().advance(TimeDelta::minutes(10));
        }
        let ended = "SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('failed', 'expired')";
        assert_eq!(number(&database, ended).await, i64::try_from(MESSAGES).expect("a count"));
        let most = number(&database, "SELECT MAX(attempts) FROM digestd.outbox").await;
        assert!(most <= i64::try_from(attempts).expect("a count"), "{most} attempts");
        assert!((MESSAGES..=MESSAGES * attempts).contains(&tried), "{tried} tries in two days");
        assert_eq!(relay.accepted().len(), 0);
    }
}
