//! `digestd preview --serve` and the inbox's page, as a person has them open.

use std::sync::Arc;

use digestd::demo::inbox::InboxShelf;
use digestd::http::viewer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::backend::TestDatabase;
use crate::support::browser::Browser;
use crate::support::eventually;
use crate::support::fleet::{PATIENCE, config, migrate, relay};
use crate::support::process::Launch;
use crate::support::web::get;
use crate::support::world::{World, count};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_every_org_s_digest_and_follows_the_templates() {
    let database = TestDatabase::sqlite();
    migrate(&database).await;
    World::fill(&database, 3).await;
    let relay = relay().await;
    let templates = database.folder().join("templates");
    let exported = ["templates", "export", templates.to_str().expect("a path")].map(str::to_owned);
    let exported: Vec<&str> = exported.iter().map(String::as_str).collect();
    assert!(Launch::new(database.folder(), "export", &exported).start().exit(PATIENCE).await.success());
    let text = format!("{}\n[templates]\ndir = \"{}\"\n", config(&database, &relay), templates.display());
    let mut preview =
        Launch::new(database.folder(), "preview", &["preview", "--serve=127.0.0.1:0"]).config(&text).start();
    let url = eventually("the page's address", PATIENCE, async || {
        assert!(preview.ended().is_none(), "{}", preview.log());
        let output = preview.output();
        Some(output.split_whitespace().find(|word| word.starts_with("http://"))?.to_owned())
    })
    .await;

    let browser = Browser::start().await;
    browser.open(&url).await;
    assert_eq!(browser.title().await, "Preview – digestd");
    browser.must_be_accessible().await;
    browser.fill("#q", "org-1").await;
    browser.press("Find").await;
    assert_eq!(browser.run("return document.querySelectorAll('li').length").await, 1);
    browser.press("Org 1").await;
    assert!(browser.text("h1").await.starts_with("Org 1: weekly digest"));
    assert_eq!(
        browser.run("return [...document.querySelectorAll('iframe')].map(f => f.clientWidth)").await,
        serde_json::json!([600, 375])
    );
    for shown in ["admin-0@org-1.example", "kB of 95 kB", "A change", "List-Unsubscribe-Post"] {
        assert!(browser.text("main").await.contains(shown), "{shown}");
    }
    browser.must_be_accessible().await;
    browser.press("Dark").await;
    browser.must_be_accessible().await;
    browser.window(375, 800).await;
    assert_eq!(browser.overflow().await, 0);

    // Another reader's language, and then another template: the open page shows it by itself.
    browser.run("document.querySelector('[name=locale]').value = 'de'").await;
    browser.press("Show").await;
    assert!(browser.text("h1").await.contains("Wochenüberblick"));
    std::fs::write(templates.join("digest.subject.txt"), "Edited for {{ org.name }}").expect("a template");
    browser.shows("Edited for Org 1").await;
    std::fs::write(templates.join("digest.subject.txt"), "Broken {{ nonsense").expect("a template");
    browser.shows("compiling template digest.subject.txt").await;
    std::fs::write(templates.join("digest.subject.txt"), "Mended for {{ org.name }}").expect("a template");
    browser.shows("Mended for Org 1").await;

    // A page of the web that found out the port sees nothing.
    let address = url["http://".len()..].trim_end_matches('/').parse().expect("an address");
    assert_eq!(get(address, "/").await.status, 200);
    let named = crate::support::web::ask_as(address, "evil.example", "/").await;
    assert_eq!(named.status, 403);
    for table in ["sends", "outbox", "subscriptions"] {
        assert_eq!(count(&database, table, "1 = 1").await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_s_page_shows_the_mails_that_have_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let mail = |subject: &str| {
        format!(
            "Subject: {subject}\r\nTo: ann@example.org\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n\
             --b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nin words\r\n\
             --b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<style>@media (prefers-color-scheme: dark) {{ p {{ color: \
             rgb(1, 2, 3) }} }}</style><p>in colour</p><script>document.title = 'ran'</script>\r\n--b--\r\n"
        )
    };
    std::fs::write(folder.path().join("00001-a.eml"), mail("=?utf-8?Q?Gr=C3=BC=C3=9Fe?=")).expect("a mail");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let shelf = Arc::new(InboxShelf::new(folder.path().to_owned()));
    let stop = CancellationToken::new();
    let served = tokio::spawn(viewer::serve(listener, shelf, stop.clone()));

    let browser = Browser::start().await;
    browser.open(&url).await;
    browser.must_be_accessible().await;
    std::fs::write(folder.path().join("00002-b.eml"), mail("<b>newest</b>")).expect("a mail");
    browser.shows("<b>newest</b>").await;
    browser.press("Grüße").await;
    assert!(browser.text("main").await.contains("in words"));
    for (dark, colour) in [("", "rgb(0, 0, 0)"), ("1", "rgb(1, 2, 3)")] {
        browser.open(&format!("{url}/html?id=00001-a.eml&dark={dark}")).await;
        let found = browser.run("return getComputedStyle(document.querySelector('p')).color").await;
        assert_eq!((found.as_str(), browser.title().await.as_str()), (Some(colour), ""));
    }
    browser.open(&format!("{url}/mail?id=../../etc/passwd")).await;
    assert!(browser.text("main").await.contains("There is no such mail."));
    stop.cancel();
    served.await.expect("no panic").expect("a clean end");
}
