//! Every end that a message can come to, counted where it happens.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use digestd::clock::Clock;
use digestd::config::Config;
use digestd::domain::address::Address;
use digestd::domain::ids::{MessageId, OrgId};
use digestd::domain::message::MessageReason;
use digestd::store::Store;
use digestd::store::queue::{QueueAct, QueueFilter};
use digestd::tick::sweep::Scope;

use crate::support::backend::TestDatabase;
use crate::support::counters::{ended_messages, every_end_is_counted};
use crate::support::engine::Rows;
use crate::support::fixtures::monday;
use crate::support::fleet::{config, migrate};
use crate::support::replica::Replica;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

/// One admin for each end.
const ADMINS: [&str; 14] = [
    "well", "refused", "spent", "old", "out", "bounced", "left", "stopped", "unmade", "gone", "twice",
    "torn", "back", "unsure",
];

fn address(name: &str) -> Address {
    Address::parse(&format!("{name}@acme.example")).expect("an address")
}

async fn relay() -> SmtpServer {
    let script = Script::new()
        .to("refused@acme.example", At::Rcpt, [Act::reply("550 5.1.1 no such user")])
        .to("unsure@acme.example", At::Dot, [Act::Close]);
    SmtpServer::start(script).await
}

/// Two replicas that would mail everybody, if it were not for a template that one name breaks.
async fn replicas(database: &TestDatabase, relay: &SmtpServer) -> (Replica, Replica) {
    let templates = database.folder().join("templates");
    std::fs::create_dir_all(&templates).expect("a folder");
    let text = include_str!("../../../templates/digest.txt");
    let broken = format!("{{% if recipient.name == \"unmade\" %}}{{{{ 1 // 0 }}}}{{% endif %}}\n{text}");
    std::fs::write(templates.join("digest.txt"), broken).expect("a template");
    let lines = format!("[templates]\ndir = \"{}\"\n\n[guard]\nbackend = \"sql\"\n", templates.display());
    let config = format!("{}\n{lines}", config(database, relay));
    let config = Config::parse(&config, []).expect("a configuration of ours");
    let clock = Clock::manual(monday());
    (Replica::boot(&config, &clock).await, Replica::boot(&config, &clock).await)
}

async fn acme(database: &TestDatabase) {
    let mut rows = Rows::new(database);
    rows.org("acme", "Acme", "Europe/Berlin");
    for name in ADMINS {
        rows.admin(name, "acme", address(name).normal());
        rows.statement(&format!("UPDATE {{}}admins SET name = '{name}' WHERE id = '{name}'"));
    }
    rows.admin("nowhere", "acme", "nowhere at acme");
    rows.activity("1", "acme", "News", monday() - TimeDelta::days(2));
    rows.write(database).await;
}

async fn find(store: &Store, name: &str) -> MessageId {
    let filter = QueueFilter { to: Some(address(name).normal().to_owned()), ..QueueFilter::default() };
    store.list_queue(&filter, None, 1).await.expect("a list").first().expect("a message").id
}

/// What happens to the messages between their enqueueing and their hand-over.
async fn befall(database: &TestDatabase, store: &Store) {
    let mut rows = Rows::new(database);
    let past = rows.time(monday() - TimeDelta::hours(1));
    let (future, of) = (rows.time(monday() + TimeDelta::days(30)), "WHERE address = ");
    rows.statement(&format!("UPDATE {{}}outbox SET attempts = 8 {of}'spent@acme.example'"))
        .statement(&format!("UPDATE {{}}outbox SET expires_at = {past} {of}'old@acme.example'"))
        .statement("UPDATE {}admins SET active = FALSE WHERE id = 'gone'")
        .statement(&format!(
            "INSERT INTO {{}}fingerprints (fingerprint, owner, expires_at) \
             SELECT fingerprint, 'another', {future} FROM {{}}outbox {of}'twice@acme.example'"
        ))
        .statement(&format!(
            "DELETE FROM {{}}bodies WHERE message_id IN (SELECT id FROM {{}}outbox {of}'torn@acme.example')"
        ))
        .write(database)
        .await;
    let acme = OrgId::parse("acme").expect("an id");
    store.opt_out(&address("left"), Some(&acme), "link").await.expect("an opt-out");
    store.suppress(&address("stopped"), "http", None).await.expect("a suppression");
    let back = find(store, "back").await;
    assert_eq!(store.act_on_queue(QueueAct::Cancel, &[back]).await.expect("cancelled"), [back]);
}

both_databases! {
    /// The counter of ended messages knew only what ended in a hand-over. Whatever was too old, suppressed,
    /// unusable from the start or taken back was in no metric, and dashboards showed fewer messages than
    /// there were.
    async fn every_end_of_a_message_is_counted_where_it_happens(database: TestDatabase) {
        migrate(&database).await;
        acme(&database).await;
        let relay = relay().await;
        let (mut first, mut second) = replicas(&database, &relay).await;
        let acme = OrgId::parse("acme").expect("an id");
        first.store.opt_out(&address("out"), Some(&acme), "link").await.expect("an opt-out");
        first.store.suppress(&address("bounced"), "http", None).await.expect("a suppression");

        assert_eq!(first.sweep(Scope::Everything).await.messages, ADMINS.len() as u64 + 1);
        every_end_is_counted(&database, &[&first.metrics, &second.metrics]).await;
        befall(&database, &first.store).await;
        second.deliver().await;
        let unsure = find(&first.store, "unsure").await;
        let settled = first.store.act_on_queue(QueueAct::ResolveAccepted, &[unsure]).await;
        assert_eq!(settled.expect("settled"), [unsure]);
        first.keep_house().await;

        every_end_is_counted(&database, &[&first.metrics, &second.metrics]).await;
        let ends = ended_messages(&database).await;
        assert_eq!(ends.values().sum::<i64>(), i64::try_from(ADMINS.len()).expect("a count") + 1, "{ends:?}");
        let reasons: BTreeSet<&str> = ends.keys().filter_map(|labels| labels.split('"').nth(1)).collect();
        let all: BTreeSet<&str> = MessageReason::ALL.into_iter().map(MessageReason::as_str).chain([""]).collect();
        assert_eq!(reasons, all);
        // Nothing is left to be counted a second time.
        first.keep_house().await;
        every_end_is_counted(&database, &[&first.metrics, &second.metrics]).await;
        first.stop().await;
        second.stop().await;
    }
}
