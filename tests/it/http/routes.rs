//! Every method on every route, and what nobody asked for: no 5xx, nothing that is not bounded.

use digestd::domain::token::Scope;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use crate::support::fixtures::store;
use crate::support::scale;
use crate::support::web::Web;

both_databases! {
    async fn each_route_answers_its_methods_only(database: TestDatabase) {
        let web = Web::start(&store(&database).await).await;
        let link = web.path("acme", "ann@example.org", Scope::Org);
        let cases = [
            ("/healthz", "GET HEAD", 200),
            ("/readyz", "GET HEAD", 200),
            ("/metrics", "GET HEAD", 200),
            // A good signature over a subscription that there never was.
            (link.as_str(), "GET HEAD POST", 404),
            ("/", "", 404),
            ("/u/", "", 404),
            ("/u/a/b", "", 404),
            ("/admin", "", 404),
        ];
        for (path, methods, status) in cases {
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
                let answer = web.ask(method, path, &[], b"").await;
                let known = methods.is_empty() || methods.split(' ').any(|m| m == method);
                assert_eq!(answer.status, if known { status } else { 405 }, "{method} {path}");
                assert_eq!(answer.headers["cache-control"], "no-store");
                if !known {
                    let allowed = answer.headers["allow"].replace(',', " ");
                    assert!(methods.split(' ').all(|m| allowed.split(' ').any(|a| a == m)), "{allowed}");
                }
            }
        }
        let text = web.metrics.prometheus_text();
        assert!(!text.contains(&link), "a path with a token was counted by its name");
    }

    async fn odd_requests_are_never_a_fault_of_the_server(database: TestDatabase) {
        let web = Web::start(&store(&database).await).await;
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let requests = (
            prop_oneof![Just("GET"), Just("POST"), Just("HEAD"), Just("PUT"), Just("X")],
            prop_oneof![
                "/u/[!-~]{0,80}",
                "/u/[A-Za-z0-9_-]{48}",
                "/[!-~]{0,60}",
                "/(metrics|healthz|readyz)[?/%][!-~]{0,20}",
            ],
            prop_oneof![Just("application/x-www-form-urlencoded"), Just("multipart/form-data; boundary=x"), Just("x")],
            proptest::collection::vec(any::<u8>(), 0..200),
        );
        for _ in 0..scale(150, 5000) {
            let (method, path, kind, body) = requests.new_tree(&mut runner).expect("a request").current();
            let mut bytes = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            )
            .into_bytes();
            bytes.extend(body);
            // What is no HTTP at all is answered by 400 or by closing.
            if let Some(answer) = web.raw(&bytes).await {
                assert!(answer.status < 500, "{method} {path}: {answer:?}");
            }
        }
        assert_eq!(web.get("/healthz").await.status, 200);
    }
}
