//! What changes between the making of a mail and its hand-over: who may have it, and what it would say by then.

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::message::Leased;

use crate::support::backend::TestDatabase;
use crate::support::engine::{Engine, Rows, mails};
use crate::support::fixtures::{give_back, lease_terms, monday, store};
use crate::support::world::{Counts, numbers};

/// The same directory, read as an application's own database.
fn as_an_application(database: &TestDatabase) -> String {
    let postgres = database.url.starts_with("postgres");
    let (schema, asked) = if postgres { ("digestd.", "= ANY(:org_ids)") } else { ("", "IN (:org_ids)") };
    format!(
        "[source]\nurl = \"{}\"\n\
         recipients = \"SELECT o.id AS org_id, o.name AS org_name, o.timezone, a.id AS user_id, a.email \
         FROM {schema}orgs AS o JOIN {schema}admins AS a ON a.org_id = o.id \
         WHERE o.active AND a.active AND a.weekly_digest\"\n\
         [[section]]\nname = \"news\"\ntitle = \"News\"\n\
         sql = \"SELECT org_id, title FROM {schema}activity WHERE org_id {asked}\"\n",
        database.url
    )
}

/// Two admins in each of eleven orgs; by the time of the hand-over something has happened to ten of them.
async fn ends_of(database: &TestDatabase, lines: &str) -> (Vec<String>, usize) {
    let store = store(database).await;
    let mut rows = Rows::new(database);
    let orgs = [
        "bounced",
        "closed",
        "deleted",
        "disabled",
        "everything",
        "left",
        "moved",
        "recased",
        "removed",
        "stays",
        "switched",
    ];
    for org in orgs {
        rows.simple(org, monday() - TimeDelta::days(2)).admin(
            &format!("{org}-b"),
            org,
            &format!("b@{org}.example"),
        );
    }
    rows.write(database).await;
    let engine = Engine::with(database, &store, lines).await;
    assert_eq!(engine.sweep().await.messages, 22);

    Rows::new(database)
        .statement("UPDATE {}admins SET active = FALSE WHERE id = 'disabled-a'")
        .statement("UPDATE {}admins SET weekly_digest = FALSE WHERE id = 'switched-a'")
        .statement("DELETE FROM {}admins WHERE id = 'deleted-a'")
        .statement("UPDATE {}admins SET email = 'new@moved.example' WHERE id = 'moved-a'")
        .statement("UPDATE {}admins SET email = 'A@Recased.Example' WHERE id = 'recased-a'")
        .statement("UPDATE {}orgs SET active = FALSE WHERE id = 'closed'")
        .statement("DELETE FROM {}activity WHERE org_id = 'removed'")
        .statement("DELETE FROM {}admins WHERE org_id = 'removed'")
        .statement("DELETE FROM {}orgs WHERE id = 'removed'")
        .write(database)
        .await;
    let address = |org: &str| Address::parse(&format!("A@{org}.example")).expect("an address");
    store.suppress(&address("bounced"), "cli", None).await.expect("suppressed");
    store
        .opt_out(&address("left"), Some(&OrgId::parse("left").expect("an id")), "link")
        .await
        .expect("stored");
    store.opt_out(&address("everything"), None, "link").await.expect("stored");
    engine.deliver(database).await;

    let query = "SELECT address || ' ' || COALESCE(reason, state), COUNT(*) FROM {}outbox WHERE state <> 'accepted' GROUP BY 1 ORDER BY 1";
    let ends = numbers(database, query).await.into_iter().map(|(text, _)| text).collect();
    assert_eq!(Counts::read(database).await.messages("suppressed"), 11);
    (ends, mails(database).len())
}

const ENDS: [&str; 11] = [
    "a@bounced.example suppressed",
    "a@closed.example not_a_member",
    "a@deleted.example not_a_member",
    "a@disabled.example not_a_member",
    "a@everything.example opted_out",
    "a@left.example opted_out",
    "a@moved.example not_a_member",
    "a@removed.example not_a_member",
    "a@switched.example not_a_member",
    "b@closed.example not_a_member",
    "b@removed.example not_a_member",
];

async fn leased(store: &digestd::store::Store) -> Vec<Leased> {
    store.lease_messages(10, lease_terms(ReplicaId::random())).await.expect("leases").messages
}

both_databases! {
    /// A weekly mail that was switched off, and one of an account that was closed, went out all the same: both
    /// were looked at when mails were made and not when they left.
    async fn whoever_may_not_have_it_any_more_when_it_leaves_gets_nothing(database: TestDatabase) {
        let (ends, mails) = ends_of(&database, "").await;
        assert_eq!((ends, mails), (ENDS.map(str::to_owned).to_vec(), 11));
    }

    /// The same with an application's own database.
    async fn whoever_has_left_the_application_when_it_leaves_gets_nothing(database: TestDatabase) {
        let lines = as_an_application(&database);
        let (ends, mails) = ends_of(&database, &lines).await;
        assert_eq!((ends, mails), (ENDS.map(str::to_owned).to_vec(), 11));
    }

    /// It may hold what only the one who left was to read.
    async fn a_mail_made_for_one_who_has_left_reaches_nobody_else_at_the_address(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        rows.simple("acme", monday() - TimeDelta::days(2)).admin("acme-b", "acme", "A@ACME.example");
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.messages, 1);
        Rows::new(&database)
            .statement("DELETE FROM {}admins WHERE id = (SELECT user_id FROM {}outbox)")
            .write(&database)
            .await;
        engine.deliver(&database).await;
        assert_eq!((mails(&database).len(), Counts::read(&database).await.messages("suppressed")), (0, 1));
    }

    /// Not to know who may have a mail is no reason to send it, nor to drop it.
    async fn while_nobody_can_say_who_may_have_it_nothing_leaves_and_nothing_is_lost(database: TestDatabase) {
        let store = store(&database).await;
        Rows::new(&database).simple("acme", monday() - TimeDelta::days(2)).write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.messages, 1);
        Rows::new(&database).statement("ALTER TABLE {}admins RENAME TO admins_away").write(&database).await;
        for _ in 0..50 {
            engine.deliver(&database).await;
            store.clock().advance(TimeDelta::minutes(1));
        }
        assert_eq!((mails(&database).len(), Counts::read(&database).await.messages("pending")), (0, 1));
        Rows::new(&database).statement("ALTER TABLE {}admins_away RENAME TO admins").write(&database).await;
        engine.deliver(&database).await;
        assert_eq!(mails(&database).len(), 1);
    }

    /// A retry built the message anew, with other numbers and another id; two mails differed, and nothing that
    /// compares them could tell that they were one.
    async fn a_retry_hands_over_the_bytes_of_the_first_try(database: TestDatabase) {
        let store = store(&database).await;
        Rows::new(&database).simple("acme", monday() - TimeDelta::days(2)).write(&database).await;
        assert_eq!(Engine::new(&database, &store).await.sweep().await.messages, 1);
        let first = leased(&store).await.remove(0);
        give_back(&store, &[first.fence()], TimeDelta::zero()).await;

        Rows::new(&database)
            .statement("UPDATE {}orgs SET name = 'Another name', locale = 'de'")
            .statement("UPDATE {}admins SET name = 'Somebody', email = 'A@ACME.example'")
            .statement("UPDATE {}activity SET title = 'Late news'")
            .write(&database)
            .await;
        store.clock().advance(TimeDelta::hours(3));
        let lines = "[brand]\nproduct = \"Another product\"\n";
        let other = Engine::with(&database, &store, lines).await;
        assert_eq!((other.sweep().await.won, other.rescue().await.won), (0, 0));
        let again = leased(&store).await.remove(0);
        assert_eq!((again.id, &again.uid, &again.to), (first.id, &first.uid, &first.to));
        assert!(again.bytes == first.bytes, "the bytes have changed");
        give_back(&store, &[again.fence()], TimeDelta::zero()).await;
        other.deliver(&database).await;
        let sent = mails(&database);
        assert_eq!(sent.len(), 1);
        assert!(sent[0].contains(&String::from_utf8(first.bytes).expect("ASCII")), "{}", sent[0]);
    }
}
