//! The door: who gets in, and how a session ends.

use chrono::TimeDelta;

use super::{Browser, TOKEN, every_page, fields, office, serve};
use crate::support::fixtures::store;

both_databases! {
    async fn the_token_opens_a_session_and_the_cookie_is_for_this_alone(database: TestDatabase) {
        let office = office(&database).await;
        let mut browser = Browser { web: &office.web, cookie: String::new() };
        let page = browser.get("/admin/queue?state=failed").await;
        assert_eq!((page.status, page.headers["location"].as_str()), (303, "/admin/login?next=%2Fadmin%2Fqueue%3Fstate%3Dfailed"));
        let entered = browser.sign_in(TOKEN, &page.headers["location"]).await;
        assert_eq!((entered.status, entered.headers["location"].as_str()), (303, "/admin/queue?state=failed"));
        let cookie = &entered.headers["set-cookie"];
        assert!(cookie.ends_with("; Path=/admin; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains("token"), "{cookie}");
        assert_eq!(browser.get("/admin/queue?state=failed").await.status, 200);
        // Whoever is in already is not asked again.
        assert_eq!(browser.get("/admin/login").await.headers["location"], "/admin");
    }

    async fn nothing_is_shown_or_changed_without_a_session(database: TestDatabase) {
        let office = office(&database).await;
        let mut visitor = Browser { web: &office.web, cookie: String::new() };
        let login = visitor.get("/admin/login").await;
        visitor.keep(&login);
        let form = fields(&login.body, "/admin/login");
        let stranger = Browser { web: &office.web, cookie: "digestd_admin=AAAA".to_owned() };
        for path in every_page(&office) {
            for browser in [&visitor, &stranger] {
                let page = browser.get(&path).await;
                assert_eq!(page.status, 303, "{path}");
                assert!(page.headers["location"].starts_with("/admin/login"), "{path}");
                assert!(!page.body.contains("acme"), "{path}");
            }
        }
        for path in ["/admin/org", "/admin/resend", "/admin/queue", "/admin/message", "/admin/relay", "/admin/logout"] {
            // The log-in's own form token is no key to anything else.
            let mut form = form.clone();
            form.push(("act".to_owned(), "pause".to_owned()));
            for browser in [&visitor, &stranger] {
                let answer = browser.send(path, &form).await;
                assert_eq!(answer.status, 403, "{path}");
                assert!(answer.body.contains("You are signed out"), "{}", answer.body);
            }
        }
        assert!(!office.store.relay(super::RELAY).await.expect("a relay").paused);
    }

    async fn wrong_tokens_open_nothing_and_lock_the_door_for_a_while(database: TestDatabase) {
        let office = office(&database).await;
        let inside = Browser::signed_in(&office.web).await;
        let mut guessing = Browser { web: &office.web, cookie: String::new() };
        for _ in 0..6 {
            let answer = guessing.sign_in("a token that somebody guesses", "/admin/login").await;
            assert_eq!(answer.status, 403);
            assert!(answer.body.contains("That is not the token."), "{}", answer.body);
            assert!(!answer.body.contains("somebody guesses"));
        }
        let answer = guessing.sign_in(TOKEN, "/admin/login").await;
        assert_eq!(answer.status, 429);
        let wait: u64 = answer.headers["retry-after"].parse().expect("seconds");
        assert!((25..=31).contains(&wait), "{wait}");
        // Whoever is in stays in.
        assert_eq!(inside.get("/admin").await.status, 200);
    }

    async fn a_session_ends_with_the_sign_out_or_after_eight_hours(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let form = fields(&browser.get("/admin").await.body, "/admin/logout");
        let left = browser.send("/admin/logout", &form).await;
        assert_eq!((left.status, left.headers["location"].as_str()), (303, "/admin/login"));
        assert!(left.headers["set-cookie"].starts_with("digestd_admin=; Path=/admin; Max-Age=0;"));
        office.store.clock().advance(TimeDelta::hours(8));
        assert_eq!(browser.get("/admin").await.status, 303);
    }

    async fn every_replica_opens_a_session_of_another(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser::signed_in(&office.web).await;
        let other = serve(&office.store).await;
        let moved = Browser { web: &other, cookie: browser.cookie.clone() };
        assert_eq!(moved.get("/admin").await.status, 200);
        let page = moved.submit("/admin/relay", "/admin/relay", &[("act", "pause")]).await;
        assert!(page.body.contains("Deliveries are paused."), "{}", page.body);
    }

    async fn a_browser_that_keeps_no_cookies_is_told_so(database: TestDatabase) {
        let office = office(&database).await;
        let browser = Browser { web: &office.web, cookie: String::new() };
        let form = vec![("token".to_owned(), TOKEN.to_owned())];
        let answer = browser.send("/admin/login", &form).await;
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("has not kept our cookie"), "{}", answer.body);
    }

    async fn without_a_configured_token_there_are_no_pages(database: TestDatabase) {
        let web = crate::support::web::Web::start(&store(&database).await).await;
        for path in ["/admin", "/admin/", "/admin/login", "/admin/relay"] {
            for method in ["GET", "POST"] {
                let answer = web.ask(method, path, &[], b"").await;
                assert_eq!((answer.status, answer.body.as_str()), (404, "not found\n"), "{method} {path}");
            }
        }
    }
}
