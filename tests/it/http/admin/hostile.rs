//! What nobody of good will sends: no 5xx, no change, no words of a stranger's on a page of ours.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use super::{Browser, RELAY, every_page, fields, office};
use crate::support::scale;

const POSTS: [&str; 6] =
    ["/admin/org", "/admin/resend", "/admin/queue", "/admin/message", "/admin/relay", "/admin/logout"];

both_databases! {
    async fn a_form_without_the_token_of_its_session_changes_nothing(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let other = Browser::signed_in(&office.web).await;
        let foreign = fields(&other.get("/admin/relay").await.body, "/admin/relay");
        let mut login = Browser { web: &office.web, cookie: String::new() };
        let page = login.get("/admin/login").await;
        login.keep(&page);
        let of_login = fields(&page.body, "/admin/login");
        for path in POSTS {
            for mut form in [Vec::new(), vec![("form".to_owned(), "AAAA".to_owned())], foreign.clone(), of_login.clone()] {
                form.push(("act".to_owned(), "pause".to_owned()));
                let answer = browser.send(path, &form).await;
                assert_eq!(answer.status, 403, "{path}");
                assert!(answer.body.contains("That form was not from here"), "{}", answer.body);
            }
        }
        assert!(!office.store.relay(RELAY).await.expect("a relay").paused);
    }

    async fn a_form_that_another_site_sends_changes_nothing(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let form = fields(&browser.get("/admin/relay").await.body, "/admin/relay");
        let token = &form.iter().find(|(name, _)| name == "form").expect("a token").1;
        let body = format!("form={token}&act=pause");
        for site in ["cross-site", "same-site", "odd"] {
            let headers = [
                ("cookie", browser.cookie.as_str()),
                ("content-type", "application/x-www-form-urlencoded"),
                ("sec-fetch-site", site),
            ];
            let answer = office.web.ask("POST", "/admin/relay", &headers, body.as_bytes()).await;
            assert_eq!(answer.status, 403, "{site}");
        }
        assert!(!office.store.relay(RELAY).await.expect("a relay").paused);
    }

    async fn odd_values_are_refused_in_words(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        for query in [
            "/admin?week=2026-W54",
            "/admin?week=%00",
            "/admin/orgs?state=odd",
            "/admin/orgs?q=%00",
            "/admin/orgs?week=x",
            "/admin/org",
            "/admin/org?id=",
            "/admin/org?id=%01",
            "/admin/queue?state=odd",
            "/admin/queue?older=99y",
            "/admin/queue?after=x",
            "/admin/queue?to=x",
            "/admin/queue?week=manual-x",
            "/admin/message",
            "/admin/message?id=x",
            "/admin/message?id=99999999999999999999",
            "/admin/resend",
        ] {
            let page = browser.get(query).await;
            assert_eq!(page.status, 422, "{query}: {}", page.body);
            assert!(page.body.contains("Not understood:"), "{query}");
        }
        for path in ["/admin?week=0000-W01", "/admin?week=9999-W52", "/admin/org?id=acme&week=9999-W52",
            "/admin/org?id=acme&week=0001-W01", "/admin/queue?week=manual-8210266876799999", "/admin/message?id=-9223372036854775808",
            "/admin/orgs?week=0000-W01&after=%F4%8F%BF%BF", "/admin?notice=%3Cb%3E", "/admin?notice=retry&done=99999999999&left=-1"] {
            let page = browser.get(path).await;
            assert!(matches!(page.status, 200 | 404), "{path}: {} {}", page.status, page.body);
            // A notice is one of ours, or none.
            assert!(!page.body.contains("role=\"status\"") || path.contains("notice=retry"), "{path}");
        }
        let large = "x".repeat(40_000);
        let form = vec![("form".to_owned(), large)];
        assert_eq!(browser.send("/admin/relay", &form).await.status, 413);
    }

    async fn each_route_answers_its_methods_only(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        for path in every_page(&office).iter().map(String::as_str).chain(POSTS) {
            for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
                let answer = office.web.ask(method, path, &[("cookie", &browser.cookie)], b"").await;
                assert_eq!(answer.status, 405, "{method} {path}");
            }
            let head = office.web.ask("HEAD", path, &[("cookie", &browser.cookie)], b"").await;
            assert!(head.status < 500 && head.body.is_empty(), "HEAD {path}");
        }
    }

    async fn no_request_makes_the_server_fail(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let form = fields(&browser.get("/admin/relay").await.body, "/admin/relay");
        let token = form.iter().find(|(name, _)| name == "form").expect("a token").1.clone();
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let names = "(id|org|week|to|state|older|after|q|act|confirm|asked_at|next|notice|done|left|token|form)";
        let values = prop_oneof![
            "[!-~]{0,20}", "%[0-9A-F]{2}(%[0-9A-F]{2}){0,8}", "-?[0-9]{1,22}", "[0-9]{4}-W[0-9]{2}",
            "manual-[0-9]{1,19}", "acme", "ann@acme.example", "(retry|cancel|accepted|resend|pause|resume|any|failed|yes)",
            "\\PC{0,20}",
        ];
        let pairs = proptest::collection::vec((names, values), 0..5);
        let paths = prop_oneof![
            proptest::sample::select(vec!["/admin", "/admin/login", "/admin/message/mail", "/admin/orgs", "/admin/replicas"]),
            proptest::sample::select(POSTS[..5].to_vec()),
        ];
        for _ in 0..scale(200, 10_000) {
            let path = paths.new_tree(&mut runner).expect("a path").current();
            let pairs = pairs.new_tree(&mut runner).expect("fields").current();
            let text: Vec<String> = pairs.iter().map(|(name, value)| {
                // As a browser would, where it cannot stand in a request line.
                let value: String = value.chars().map(|c| if c.is_ascii_graphic() && c != '#' { c.to_string() } else { super::encoded(&c.to_string()) }).collect();
                format!("{name}={value}")
            }).collect();
            let text = text.join("&");
            let shown = office.web.ask("GET", &format!("{path}?{text}"), &[("cookie", &browser.cookie)], b"").await;
            assert!(shown.status < 500, "GET {path}?{text}: {} {}", shown.status, shown.body);
            if path == "/admin/login" {
                continue;
            }
            let headers = [("cookie", browser.cookie.as_str()), ("content-type", "application/x-www-form-urlencoded")];
            let sent = office.web.ask("POST", path, &headers, format!("form={token}&{text}").as_bytes()).await;
            assert!(sent.status < 500, "POST {path} {text}: {} {}", sent.status, sent.body);
        }
        assert_eq!(browser.get("/admin").await.status, 200);
    }

    async fn while_the_database_is_away_the_pages_say_so(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        office.store.close().await;
        for path in every_page(&office) {
            let page = browser.get(&path).await;
            assert_eq!(page.status, 503, "{path}");
            assert_eq!(page.headers["retry-after"], "30");
            assert!(page.body.contains("The database does not answer"), "{}", page.body);
        }
    }
}
