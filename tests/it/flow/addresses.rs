//! What becomes of addresses: left out when the relay says they are bad, replaced in staging.

use std::collections::BTreeSet;
use std::time::Duration;

use digestd::clock::Clock;
use mail_parser::MessageParser;

use crate::support::backend::Kind;
use crate::support::fixtures::open;
use crate::support::fleet::{PATIENCE, config, migrate, relay, replica};
use crate::support::process::{Launch, Signal};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{World, execute};

both_databases! {
    async fn an_address_without_a_mailbox_is_left_out_and_its_org_is_not(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 4).await;
        let bad = "admin-0@org-1.example";
        let script = Script::new()
            .to(bad, At::Rcpt, [Act::reply("550 5.1.1 no such user")])
            .to("admin-0@org-2.example", At::Rcpt, [Act::reply("550 5.5.0 not like this")]);
        let relay = SmtpServer::start(script).await;
        let mut replica = replica(&database, &relay, "replica", None);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(counts.messages("failed"), 2, "{counts:?}");
        assert_eq!(relay.accepted().len(), world.expected.len() - 2);
        replica.signal(Signal::Terminate);
        assert!(replica.exit(PATIENCE).await.success());
        let store = open(&database, Clock::Database);
        let known = store.list_suppressions(None, true, 10).await.expect("a list");
        let known: Vec<_> = known.iter().map(|row| (row.address.as_str(), row.suppressed, row.hard_failures, row.soft_failures)).collect();
        assert_eq!(known, [(bad, true, 1, 0), ("admin-0@org-2.example", false, 0, 1)]);
        assert!(!replica.log().contains(bad), "{}", replica.log());
    }

    // Elsewhere every weekly report went to whoever came first in the alphabet, and disabled accounts got theirs.
    async fn each_mail_is_the_mail_of_the_one_it_is_addressed_to(database: TestDatabase) {
        migrate(&database).await;
        let mut world = World::fill(&database, 8).await;
        let admins = if database.kind == Kind::Postgres { "digestd.admins" } else { "admins" };
        execute(
            &database,
            format!("UPDATE {admins} SET name = 'Reader ' || id; UPDATE {admins} SET active = FALSE WHERE id = '3-2';"),
        )
        .await;
        assert!(world.expected.remove(&("org-3".to_owned(), "admin-2@org-3.example".to_owned())));
        let relay = relay().await;
        let mut replica = replica(&database, &relay, "replica", None);
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        replica.signal(Signal::Terminate);
        assert!(replica.exit(PATIENCE).await.success());
        let mut links = BTreeSet::new();
        for accepted in relay.accepted() {
            let mail = MessageParser::default().parse(&accepted.data).expect("a mail");
            let to = mail.to().and_then(|to| to.first()).expect("a recipient");
            assert_eq!(to.address(), Some(accepted.to.as_str()));
            let (admin, org) = accepted.to.split_once("@org-").expect("an address of the world's");
            let id = format!("{}-{}", org.trim_end_matches(".example"), admin.trim_start_matches("admin-"));
            assert_eq!(to.name(), Some(format!("Reader {id}").as_str()));
            let link = mail.header_raw("List-Unsubscribe").expect("the header").to_owned();
            assert!(links.insert(link), "two readers have one link");
        }
        assert_eq!(links.len(), world.expected.len());
    }

    async fn redirected_mails_all_go_to_one_address_and_name_the_real_one(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 4).await;
        let relay = relay().await;
        let text = config(&database, &relay).replace("[delivery]", "[delivery]\nredirect_to = \"staging@example.com\"");
        let mut replica = Launch::new(database.folder(), "replica", &["run"]).config(&text).start();
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(counts.messages("accepted"), i64::try_from(world.expected.len()).expect("a count"));
        replica.signal(Signal::Terminate);
        assert!(replica.exit(PATIENCE).await.success());
        relay.wait(Duration::from_secs(5), "all connections are closed", |relay| relay.open() == 0).await;
        let mut named = Vec::new();
        for mail in relay.accepted() {
            assert_eq!(mail.to, "staging@example.com");
            let text = String::from_utf8(mail.data).expect("text");
            let to = text.lines().find(|line| line.starts_with("To: ")).expect("the header");
            assert!(to.contains("staging@example.com") && !to.contains("@org-"), "{to}");
            let line = text.lines().find_map(|line| line.strip_prefix("X-Digestd-Original-To: "));
            named.push(line.expect("the header").to_owned());
        }
        named.sort_unstable();
        let mut expected: Vec<String> = world.expected.iter().map(|(_, address)| address.clone()).collect();
        expected.sort_unstable();
        assert_eq!(named, expected);
    }
}
