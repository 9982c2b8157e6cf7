//! What the pages show.

use digestd::domain::ids::ReplicaId;
use digestd::store::enqueue::Enqueue;

use super::{Browser, claim, every_page, office};
use crate::support::fixtures::directory;
use crate::support::world::execute;

/// A page without its style sheet, for snapshots.
fn shown(page: &str) -> String {
    let (before, rest) = page.split_once("<style>").expect("a style");
    let (_, after) = rest.split_once("</style>").expect("its end");
    let mut text = format!("{before}{after}");
    while let Some((before, rest)) = text.clone().split_once("name=\"form\" value=\"") {
        let (_, after) = rest.split_once('"').expect("its end");
        text = format!("{before}name=\"form\"{after}");
    }
    text
}

both_databases! {
    async fn the_pages_read_well(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        for (name, path) in [
            ("week", "/admin".to_owned()),
            ("orgs", "/admin/orgs?q=e".to_owned()),
            ("org", "/admin/org?id=acme&week=2026-W28".to_owned()),
            ("queue", "/admin/queue?state=any".to_owned()),
            ("message", format!("/admin/message?id={}", office.uncertain)),
            ("relay", "/admin/relay".to_owned()),
            ("replicas", "/admin/replicas".to_owned()),
            ("resend", "/admin/resend?org=acme".to_owned()),
        ] {
            let page = browser.get(&path).await;
            assert_eq!(page.status, 200, "{path}: {}", page.body);
            insta::assert_snapshot!(name, shown(&page.body));
        }
    }

    async fn every_page_keeps_to_itself_and_escapes_what_others_wrote(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        for path in every_page(&office) {
            let page = browser.get(&path).await;
            assert_eq!(page.status, 200, "{path}");
            assert_eq!(page.headers["cache-control"], "no-store", "{path}");
            assert_eq!(page.headers["referrer-policy"], "no-referrer", "{path}");
            assert_eq!(page.headers["x-content-type-options"], "nosniff", "{path}");
            let policy = &page.headers["content-security-policy"];
            assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
            if path.contains("/mail") {
                assert!(policy.starts_with("sandbox; ") && policy.contains("frame-ancestors 'self'"), "{policy}");
                continue;
            }
            assert!(policy.contains("style-src 'sha256-") && policy.contains("frame-ancestors 'none'"), "{policy}");
            for word in ["<script", "http://", "https://", " style=", "javascript:", "src=\"//"] {
                assert!(!page.body.contains(word), "{path} holds {word}");
            }
            assert!(page.body.contains("<html lang=\"en\">") && page.body.contains("<h1>"), "{path}");
        }
        let story = browser.get("/admin/org?id=acme&week=2026-W28").await.body;
        assert!(story.contains("Acme &lt;script&gt;alert(1)&lt;") && story.contains("550 5.1.1 no &lt;such&gt; user"), "{story}");
    }

    async fn the_mail_is_shown_in_a_frame_that_runs_nothing(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let page = browser.get(&format!("/admin/message?id={}", office.accepted)).await;
        assert!(page.body.contains(&format!("<iframe sandbox src=\"/admin/message/mail?id={}\"", office.accepted)));
        assert!(page.body.contains("plain &lt;b&gt;words&lt;") && page.body.contains("Acme&#x27;s &lt;week&gt;"), "{}", page.body);
        let mail = browser.get(&format!("/admin/message/mail?id={}", office.accepted)).await;
        assert!(mail.body.contains("rendered words"));
        assert_eq!(mail.headers["content-type"], "text/html; charset=utf-8");
        let policy = &mail.headers["content-security-policy"];
        assert!(!policy.contains("allow-") && !policy.contains("script-src") && !policy.contains("img-src"), "{policy}");
    }

    async fn orgs_are_found_by_a_part_of_id_or_name_and_by_state(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        directory(&database, &[("100%", "Europe/Berlin", "name = 'Österreich'"), ("under_score", "UTC", "active = FALSE")]).await;
        let found = async |query: &str| -> Vec<String> {
            let page = browser.get(&format!("/admin/orgs?{query}")).await;
            assert_eq!(page.status, 200);
            let links = page.body.split("<th scope=\"row\" class=\"any\"><a href=\"/admin/org?id=").skip(1);
            links.map(|link| link.split("\">").nth(1).unwrap_or_default().split('<').next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(found("").await.len(), 5);
        assert_eq!(found("q=GLOB").await, ["globex"]);
        assert_eq!(found("q=sons").await, ["acme"]);
        assert_eq!(found("q=%25").await, ["100%"]);
        assert_eq!(found("q=_").await, ["under_score"]);
        assert_eq!(found("q=%C3%96sterr").await, ["100%"]);
        assert_eq!(found("state=enqueued").await, ["acme"]);
        assert_eq!(found("state=enqueued&week=2026-W27").await, [""; 0]);
        assert_eq!(found("q=nobody").await, [""; 0]);
        assert_eq!(found("after=acme").await.len(), 3);
    }

    /// Whoever looked for an org's week was led to another week, and whoever looked for a settled message by its
    /// address was told that there was none.
    async fn a_search_keeps_its_week_and_offers_the_settled_messages(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let found = browser.get("/admin/orgs?q=acme&week=2026-W27").await.body;
        assert!(found.contains("<a href=\"/admin/org?id=acme&amp;week=2026-W27\">What became of"), "{found}");
        let none = browser.get("/admin/queue?state=&to=nobody%40acme.example").await.body;
        assert!(none.contains("No message was found that is not settled."), "{none}");
        let (_, rest) = none.split_once("<a href=\"/admin/queue?").expect("a link to every state");
        let link = rest.split('"').next().expect("a link").replace("&amp;", "&");
        let settled = browser.get(&format!("/admin/queue?{link}")).await.body;
        assert!(settled.contains("<p>No message was found.</p>") && settled.contains("value=\"nobody@acme.example\""), "{settled}");
    }

    /// A resend seemed to have its next try a minute before it was asked for.
    async fn a_resend_is_not_said_to_be_tried_before_it_was_enqueued(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let claim = claim(&office.store, "initech", ReplicaId::random()).await;
        let drafts = vec![crate::support::fixtures::draft(&claim, "a@initech.example")];
        office.store.enqueue(vec![Enqueue { claim, drafts }], chrono::TimeDelta::hours(48)).await.expect("enqueued");
        let outbox = if database.url.starts_with("postgres") { "digestd.outbox" } else { "outbox" };
        let past = crate::support::fixtures::instant(&database, "2026-07-01T00:00:00Z".parse().expect("a time"));
        execute(&database, format!("UPDATE {outbox} SET next_attempt_at = {past} WHERE org_id = 'initech';")).await;
        let queue = browser.get("/admin/queue?org=initech").await.body;
        assert!(queue.contains("a@initech.example") && !queue.contains("2026-07-01"), "{queue}");
    }

    async fn long_lists_are_turned_page_by_page(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let ids: Vec<String> = (0..60).map(|n| format!("org-{n:03}")).collect();
        directory(&database, &ids.iter().map(|id| (id.as_str(), "UTC", "")).collect::<Vec<_>>()).await;
        let first = browser.get("/admin/orgs?q=org-").await;
        assert!(first.body.contains("org-049") && !first.body.contains("org-050") && !first.body.contains("The first page"));
        let second = browser.get("/admin/orgs?q=org-&after=org-049").await;
        assert!(second.body.contains("org-059") && !second.body.contains("The next page"), "{}", second.body);

        let claim = claim(&office.store, "initech", ReplicaId::random()).await;
        let drafts = (0..120).map(|n| crate::support::fixtures::draft(&claim, &format!("a{n}@initech.example"))).collect();
        office.store.enqueue(vec![Enqueue { claim, drafts }], chrono::TimeDelta::hours(48)).await.expect("enqueued");
        let first = browser.get("/admin/queue?org=initech").await;
        assert_eq!(first.body.matches("name=\"id\"").count(), 100);
        let (_, rest) = first.body.split_once("<a href=\"/admin/queue?").expect("a next page");
        let next = rest.split('"').next().expect("a link").replace("&amp;", "&");
        let second = browser.get(&format!("/admin/queue?{next}")).await;
        assert_eq!(second.body.matches("name=\"id\"").count(), 20, "{next}");
    }

    async fn what_is_not_there_is_said_to_be_not_there(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        for (path, words) in [
            ("/admin/org?id=nobody", "Nobody knows an org “nobody”"),
            ("/admin/resend?org=nobody", "There is no active org “nobody”"),
            ("/admin/message?id=999999", "There is no message 999999"),
            ("/admin/message/mail?id=999999", "not kept any more"),
            ("/admin/nowhere", "There is no such page"),
            ("/admin/", "There is no such page"),
        ] {
            let page = browser.get(path).await;
            assert_eq!(page.status, 404, "{path}");
            assert!(page.body.contains(words), "{path}: {}", page.body);
        }
        let bodies = if database.url.starts_with("postgres") { "digestd.bodies" } else { "bodies" };
        execute(&database, format!("DELETE FROM {bodies};")).await;
        let page = browser.get(&format!("/admin/message?id={}", office.accepted)).await;
        assert!(page.body.contains("Its bytes are not kept any more."), "{}", page.body);
    }
}
