//! A person with a browser, a mail, and enough of it.

use mail_parser::MessageParser;

use crate::support::backend::TestDatabase;
use crate::support::browser::Browser;
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, config, migrate, relay, replica_with, stop};
use crate::support::process::Launch;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{World, count};

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port()
}

/// Runs a command to its end, which must be a good one.
async fn command(database: &TestDatabase, relay: &SmtpServer, arguments: &[&str]) {
    let mut process =
        Launch::new(database.folder(), arguments[0], arguments).config(&config(database, relay)).start();
    assert!(process.exit(PATIENCE).await.success(), "{}\n{}", process.output(), process.log());
}

/// The link that a reader sees at the end of the mail.
fn link_in(mail: &[u8]) -> String {
    let message = MessageParser::default().parse(mail).expect("a mail");
    let html = message.body_html(0).expect("an HTML part");
    let (start, _) = html.split_once(">Unsubscribe</a>").expect("a way out");
    let (_, link) = start.rsplit_once("href=\"").expect("a link");
    link.split_once('"').expect("its end").0.to_owned()
}

/// Done with a real browser, a real daemon and a real SMTP dialogue: only so is it seen that the link, the page,
/// the row and the marker fit together.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_by_the_link_in_a_mail_gets_nothing_more_until_they_come_back() {
    let database = TestDatabase::postgres().await;
    migrate(&database).await;
    World::fill(&database, 1).await;
    let relay = relay().await;
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let changes = [
        ("DIGESTD__HTTP__LISTEN", &url["http://".len()..]),
        ("DIGESTD__PUBLIC_URL", &url),
        ("DIGESTD__DELIVERY__RETRY", "2s"),
    ];
    let mut replicas = [replica_with(&database, &relay, "replica", &changes)];
    relay.wait(PATIENCE, "the digest", |relay| relay.accepted().len() == 1).await;
    let link = link_in(&relay.take_accepted()[0].data);
    assert!(link.starts_with(&format!("{url}/u/")), "{link}");

    // Another digest is on its way, and the relay will not have it yet.
    relay.rescript(Script::new().always(At::Dot, [Act::reply("451 4.3.0 not now")]));
    command(&database, &relay, &["resend", "--org", "org-0"]).await;
    eventually("a message that was tried and waits", PATIENCE, async || {
        (count(&database, "outbox", "state = 'pending' AND attempts > 0").await == 1).then_some(())
    })
    .await;

    let browser = Browser::start().await;
    browser.open(&link).await;
    assert!(browser.text("main").await.contains("You get the weekly digest of Org 0 by e-mail."));
    browser.must_be_accessible().await;
    browser.press("Stop the weekly digest of Org 0").await;
    assert_eq!(browser.text("h1").await, "You are unsubscribed");
    browser.must_be_accessible().await;

    relay.rescript(Script::new());
    eventually("the waiting message is withheld", PATIENCE, async || {
        (count(&database, "outbox", "state = 'suppressed'").await == 1).then_some(())
    })
    .await;
    command(&database, &relay, &["resend", "--org", "org-0"]).await;
    eventually("nobody is left to send to", PATIENCE, async || {
        let nobody = count(&database, "outbox", "state = 'suppressed'").await == 2
            || count(&database, "sends", "state = 'skipped'").await == 1;
        nobody.then_some(())
    })
    .await;
    assert!(relay.take_accepted().is_empty(), "a mail after the unsubscribe");

    // Days later, by the same mail.
    browser.open(&link).await;
    browser.press("Get the weekly digest of Org 0 again").await;
    assert_eq!(browser.text("h1").await, "You are subscribed again");
    browser.must_be_accessible().await;
    command(&database, &relay, &["resend", "--org", "org-0"]).await;
    relay.wait(PATIENCE, "a digest again", |relay| relay.accepted().len() == 1).await;

    command(&database, &relay, &["audit"]).await;
    stop(&mut replicas).await;
    assert_eq!(relay.accepted().len(), 1);
    // The token opens this person's subscription to whoever has it.
    let token = link.rsplit_once('/').expect("a path").1;
    assert!(!replicas[0].log().contains(token), "{}", replicas[0].log());
}
