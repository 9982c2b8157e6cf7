//! A real Postfix as the relay: its own log and queue against the ledger.

use std::collections::BTreeSet;

use chrono::TimeDelta;

use super::outage::{becomes, deliver_to, drain, with_messages_to};
use crate::support::backend::TestDatabase;
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, config_to, migrate, stop};
use crate::support::postfix::{LOGIN, Postfix, greylist};
use crate::support::process::Launch;
use crate::support::world::{World, number};

/// Who was accepted by the ledger, or ended in another state.
async fn in_state(database: &TestDatabase, state: &str) -> BTreeSet<String> {
    let query = format!("SELECT address, COUNT(*) FROM {{}}outbox WHERE state = '{state}' GROUP BY address");
    crate::support::world::numbers(database, &query).await.into_iter().map(|(address, _)| address).collect()
}

both_databases! {
    /// Limits, greylisting, refusals and a queue that cannot go on, one after the other, on a clock of the test's.
    async fn what_postfix_has_queued_is_what_the_ledger_calls_accepted(database: TestDatabase) {
        let policy = greylist().await;
        let postfix = Postfix::start(&[
            "smtpd_client_message_rate_limit = 15",
            "smtpd_error_sleep_time = 0",
            &format!(
                "smtpd_recipient_restrictions = check_recipient_access inline:{{ \
                 {{gone@plain.example = 550 5.1.1 no such user}} }}, \
                 check_policy_service inet:127.0.0.1:{policy}, permit_sasl_authenticated, reject"
            ),
        ])
        .await;
        let mut addresses: Vec<_> = (0..24).map(|n| format!("admin-{n}@plain.example")).collect();
        addresses.extend((0..6).map(|n| format!("admin-{n}@away.example")));
        addresses.extend((0..6).map(|n| format!("admin-{n}@grey.example")));
        addresses.push("gone@plain.example".to_owned());
        let store = with_messages_to(&database, &addresses).await;
        eventually("nothing waits any more", PATIENCE, async || {
            drain(&deliver_to(&store, postfix.settings(LOGIN.1))).await;
            // Its limit is on real time, our retries are on the test's.
            store.clock().advance(TimeDelta::minutes(3));
            let waiting = "SELECT COUNT(*) FROM digestd.outbox WHERE state IN ('pending', 'leased', 'sending')";
            (number(&database, waiting).await == 0).then_some(())
        })
        .await;
        becomes(&database, "accepted", 36).await;
        assert_eq!(in_state(&database, "failed").await, BTreeSet::from(["gone@plain.example".to_owned()]));

        let queued = postfix.queued().await;
        let taken: BTreeSet<_> = queued.iter().map(|message| message.to.clone()).collect();
        assert_eq!(queued.len(), taken.len(), "nobody twice: {queued:?}");
        assert_eq!(taken, in_state(&database, "accepted").await);
        // Responsibility has passed on, whatever becomes of it there.
        let stuck = queued.iter().filter(|message| message.status == "deferred");
        assert!(stuck.clone().all(|message| message.to.ends_with("@away.example")), "{queued:?}");
        assert_eq!(stuck.count(), 6);

        let log = postfix.log();
        assert!(log.contains("rate limit exceeded"), "{log}");
        // A limit is about us, a wait about the recipient, a refusal about the mailbox.
        let charged = "SELECT COUNT(*) FROM digestd.outbox WHERE attempts > 0";
        assert_eq!(number(&database, charged).await, 7);
        let greylisted = log.lines().filter(|line| line.contains("greylisted, come back later"));
        assert_eq!(greylisted.count(), 6, "each once: five minutes are enough\n{log}");
        assert!(store.relay("relay").await.expect("a state").throttled_at.is_some(), "it was told to slow down");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_deliver_through_a_postfix_with_a_login_and_a_limit() {
    let database = TestDatabase::postgres().await;
    migrate(&database).await;
    let world = World::fill(&database, 24).await;
    let postfix = Postfix::start(&["smtpd_client_message_rate_limit = 20"]).await;
    let ca = database.folder().join("ca.pem");
    std::fs::write(&ca, postfix.ca()).expect("a file");
    let start = |name: &str| {
        let changes = [
            ("DIGESTD__RELAY__TLS_CA_FILE", ca.to_str().expect("a path")),
            ("DIGESTD__RELAY__USERNAME", LOGIN.0),
            ("DIGESTD__RELAY__PASSWORD", LOGIN.1),
            ("DIGESTD__RELAY__TIMEOUTS__TLS", "5s"),
            ("DIGESTD__RELAY__TIMEOUTS__GREETING", "5s"),
            ("DIGESTD__RELAY__TIMEOUTS__LOGIN", "5s"),
            ("DIGESTD__RELAY__TIMEOUTS__ENVELOPE", "5s"),
            ("DIGESTD__DELIVERY__RETRY", "1s"),
            ("DIGESTD__DELIVERY__LEASE", "40s"),
        ];
        let launch =
            Launch::new(database.folder(), name, &["run"]).config(&config_to(&database, &postfix.url()));
        changes.iter().fold(launch, |launch, (name, value)| launch.env(name, value)).start()
    };
    let mut replicas = [start("replica-0"), start("replica-1")];
    let counts = world.settled(&database, PATIENCE).await;
    stop(&mut replicas).await;
    let queued = postfix.queued().await;
    assert_eq!(world.check_accepted(&counts, queued.into_iter().map(|message| message.to)), 0);
    assert_eq!(counts.messages("accepted"), i64::try_from(world.expected.len()).expect("a count"));
    assert!(postfix.log().contains("rate limit exceeded"), "{}", postfix.log());
    assert_eq!(number(&database, "SELECT SUM(attempts) FROM digestd.outbox").await, 0, "a limit is about us");
}
