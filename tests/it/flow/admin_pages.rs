//! An operator with a browser, a real daemon, and a Monday that did not go well.

use std::fs;
use std::path::Path;

use crate::support::backend::TestDatabase;
use crate::support::browser::Browser;
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, migrate, relay, replica_with, stop};
use crate::support::smtp_server::{Act, At, Script};
use crate::support::world::{Counts, World, count};

const TOKEN: &str = "a token that nobody guesses";
const FAILED: &str = "admin-1@org-1.example";
const UNCERTAIN: &str = "admin-2@org-2.example";

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port()
}

/// Looks at the page as it is: by axe in the light and in the dark, on a phone, and as a picture to look at.
async fn look(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/pictures");
    fs::create_dir_all(&folder).expect("a folder");
    for (look, dark, width) in [("light", false, 1000), ("dark", true, 1000), ("phone", false, 340)] {
        browser.dark(dark).await;
        browser.window(width, 800).await;
        browser.must_be_accessible().await;
        assert_eq!(browser.overflow().await, 0, "{name} in the {look}");
        fs::write(folder.join(format!("admin-{name}-{look}.png")), browser.picture().await)
            .expect("a picture");
    }
    browser.dark(false).await;
    browser.window(1000, 800).await;
}

async fn until(database: &TestDatabase, what: &str, state: &str, messages: i64) {
    eventually(what, PATIENCE, async || {
        (Counts::read(database).await.messages(state) == messages).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_settles_pauses_and_sends_again_in_a_browser() {
    let database = TestDatabase::postgres().await;
    migrate(&database).await;
    World::fill(&database, 3).await;
    let relay = relay().await;
    relay.rescript(
        Script::new().offer("PIPELINING").to(FAILED, At::Rcpt, [Act::reply("550 5.1.1 no such user")]).to(
            UNCERTAIN,
            At::Dot,
            [Act::Accept, Act::Close],
        ),
    );
    let token = database.folder().join("admin-token");
    fs::write(&token, TOKEN).expect("a token");
    let listen = format!("127.0.0.1:{}", free_port());
    let changes = [
        ("DIGESTD__HTTP__LISTEN", listen.as_str()),
        ("DIGESTD__ADMIN__TOKEN_FILE", &token.display().to_string()),
        // One refusal is not to leave the address out for ever.
        ("DIGESTD__SUPPRESSION__HARD_AFTER", "10"),
    ];
    let mut replicas = [replica_with(&database, &relay, "replica", &changes)];
    until(&database, "four accepted messages", "accepted", 4).await;
    until(&database, "one that the relay refused", "failed", 1).await;
    until(&database, "one that nobody knows of", "uncertain", 1).await;
    relay.rescript(Script::new().offer("PIPELINING"));

    let browser = Browser::start().await;
    let at = |path: &str| format!("http://{listen}{path}");
    sign_in(&browser, &at("/admin")).await;
    look(&browser, "week").await;

    // Find an org, and read its story.
    go(&browser, "Orgs", "Orgs by id").await;
    browser.fill("#q", "Org 1").await;
    browser.press("Search").await;
    browser.shows("What became of the org with exactly the id “Org 1”?").await;
    look(&browser, "orgs").await;
    go(&browser, "org-1", "Enqueued for 2 recipients: 1 accepted, 1 failed.").await;
    let story = browser.text("main").await;
    assert!(story.contains("550 5.1.1 no such user"), "{story}");
    look(&browser, "org").await;

    // Retry the failed message, from the queue.
    go(&browser, "Queue", "With the chosen messages").await;
    choose(&browser, "failed", FAILED).await;
    browser.click("input[name=id]").await;
    look(&browser, "queue").await;
    go(&browser, "Try again", "1 message: will be tried again.").await;
    until(&database, "the message that was tried again", "accepted", 5).await;
    assert_eq!(relay.accepted().iter().filter(|mail| mail.to == FAILED).count(), 1);

    // Settle the uncertain one, from its own page.
    go(&browser, "Queue", "With the chosen messages").await;
    choose(&browser, "uncertain", UNCERTAIN).await;
    browser.click("tbody th a").await;
    browser.shows("It may or may not have been accepted.").await;
    let frame = browser.run("return document.querySelector('iframe').getAttribute('sandbox')").await;
    assert_eq!(frame, "");
    look(&browser, "message").await;
    go(&browser, "It was accepted", "1 message: settled as accepted.").await;
    assert_eq!(Counts::read(&database).await.messages("uncertain"), 0);

    // Pause, ask for a resend, see it wait, let it go.
    go(&browser, "Relay", "Working.").await;
    go(&browser, "Pause deliveries of all replicas", "Paused by an operator.").await;
    look(&browser, "relay").await;
    browser.open(&at("/admin/org?id=org-0")).await;
    go(&browser, "Send this digest once more …", "Yes, send it once more").await;
    look(&browser, "resend").await;
    browser.click("#confirm").await;
    go(&browser, "Send", "The digest will be sent once more.").await;
    until(&database, "the resend in the outbox", "pending", 1).await;
    let before = relay.accepted().len();
    browser.open(&at("/admin/relay")).await;
    browser.shows("1 message waits.").await;
    go(&browser, "Let deliveries go on", "Working.").await;
    until(&database, "the resend at the relay", "accepted", 7).await;
    assert_eq!(relay.accepted().len(), before + 1);
    assert_eq!(relay.accepted().iter().filter(|mail| mail.to == "admin-0@org-0.example").count(), 2);
    assert_eq!(count(&database, "sends", "week_key LIKE 'manual-%' AND state = 'enqueued'").await, 1);

    // Each reader is spoken to in person and has a way out, the resend's too.
    for mail in relay.accepted() {
        let data = String::from_utf8_lossy(&mail.data).replace("\r\n ", " ");
        let to = data.lines().find(|line| line.starts_with("To:")).expect("a reader");
        assert!(to.contains(&mail.to), "{to}");
        assert!(
            data.contains("List-Unsubscribe:")
                && data.contains("List-Unsubscribe-Post: List-Unsubscribe=One-Click")
        );
    }

    go(&browser, "Replicas", "Running replicas;").await;
    look(&browser, "replicas").await;
    go(&browser, "Sign out", "The token of admin.token_file").await;
    browser.open(&at("/admin/queue")).await;
    assert_eq!(browser.text("h1").await, "Sign in");
    let log = replicas[0].log();
    assert!(!log.contains(TOKEN) && !log.contains("@org-"), "{log}");
    stop(&mut replicas).await;
}

/// A wrong token first, then the right one; by the keyboard as far as it goes.
async fn sign_in(browser: &Browser, page: &str) {
    browser.open(page).await;
    assert_eq!(browser.title().await, "Sign in – digestd");
    look(browser, "sign-in").await;
    browser.fill("#token", "a token that somebody guesses").await;
    go(browser, "Sign in", "That is not the token.").await;
    browser.must_be_accessible().await;
    browser.fill("#token", &format!("{TOKEN}\n")).await;
    browser.shows("Waiting now, of all weeks").await;
    let seen = browser.run("return document.cookie").await;
    assert_eq!(seen, "", "scripts see no cookie");
}

/// Filters the queue by a state.
async fn choose(browser: &Browser, state: &str, address: &str) {
    browser.run(&format!("document.querySelector('#state').value = '{state}'")).await;
    browser.press("Show").await;
    let script = "return location.search + document.querySelector('main').innerText";
    eventually("the queue of that state", PATIENCE, async || {
        let shown = browser.run(script).await;
        let shown = shown.as_str().unwrap_or_default();
        (shown.contains(&format!("state={state}")) && shown.contains(address)).then_some(())
    })
    .await;
}

/// Presses a button or a link, and waits for what the next page shows.
async fn go(browser: &Browser, label: &str, shows: &str) {
    browser.press(label).await;
    browser.shows(shows).await;
}
