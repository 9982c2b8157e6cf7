//! Commands about mails: opt-outs, templates, and the one mail that is a test.

use std::fs;

use crate::cli::{acme, digestd, json, well};
use crate::support::fleet::{PATIENCE, relay};
use crate::support::process::Launch;

both_databases! {
    async fn opt_outs_are_added_listed_removed_and_imported(database: TestDatabase) {
        acme(&database).await;
        assert_eq!(well(&database, &["optout", "add", " Ann@ACME.example", "--org", "acme"]).await, "opted out\n");
        fs::write(database.folder().join("left.txt"), "bert@acme.example\ncy@acme.example, acme\n").expect("a file");
        assert_eq!(well(&database, &["optout", "import", "left.txt"]).await, "imported 2 opt-outs\n");
        let listed = json(&well(&database, &["optout", "list", "--json"]).await);
        let shown: Vec<_> = listed.as_array().expect("a list").iter().map(|row| (row["address"].clone(), row["org"].clone())).collect();
        assert_eq!(shown, [
            ("ann@acme.example".into(), "acme".into()),
            ("bert@acme.example".into(), serde_json::Value::Null),
            ("cy@acme.example".into(), "acme".into()),
        ]);
        assert_eq!(well(&database, &["optout", "remove", "ann@acme.example", "--org", "acme"]).await, "removed\n");
        let again = digestd(&database, &["optout", "remove", "ann@acme.example", "--org", "acme"]).await;
        assert_eq!(again.code, 64);
        fs::write(database.folder().join("bad.txt"), "bert@acme.example\nnobody\n").expect("a file");
        let bad = digestd(&database, &["optout", "import", "bad.txt"]).await;
        assert!(bad.code == 64 && bad.err.contains("line 2"), "{bad:?}");
    }

    async fn a_test_mail_is_real_and_marked_and_leaves_no_trace(database: TestDatabase) {
        acme(&database).await;
        let relay = relay().await;
        let before = json(&well(&database, &["status", "--json"]).await);
        let arguments = ["send-test", "--org", "acme", "--week", "2026-W28", "--to", "me@example.com"];
        let mut process = Launch::new(database.folder(), "send-test", &arguments)
            .env("DIGESTD__DATABASE__URL", &database.url)
            .env("DIGESTD__RELAY__URL", &format!("smtp+plaintext://127.0.0.1:{}", relay.port()))
            .env("DIGESTD__RELAY__FROM", "digest@example.com")
            .env("DIGESTD__PUBLIC_URL", "http://127.0.0.1:9/")
            .start();
        let status = process.exit(PATIENCE).await;
        assert!(status.success() && process.output().starts_with("accepted: 250"), "{} {}", process.output(), process.log());
        let accepted = relay.accepted();
        assert_eq!(accepted.iter().map(|mail| mail.to.as_str()).collect::<Vec<_>>(), ["me@example.com"]);
        assert!(String::from_utf8_lossy(&accepted[0].data).contains("Subject: [Test]"));
        let after = json(&well(&database, &["status", "--json"]).await);
        for part in ["sends", "resends", "messages", "week_messages"] {
            assert_eq!(before[part], after[part], "{part}");
        }
    }

    async fn templates_are_exported_and_checked(database: TestDatabase) {
        let written = well(&database, &["templates", "export", "mine"]).await;
        assert!(written.contains("mine/digest.html"), "{written}");
        assert_eq!(digestd(&database, &["templates", "export", "mine"]).await.code, 64);
        let checked = well(&database, &["templates", "check"]).await;
        assert!(checked.starts_with("ok: ") && checked.contains("ar"), "{checked}");
        fs::write(database.folder().join("mine/digest.txt"), "{{ nothing.such }}").expect("a file");
        let mut process = Launch::new(database.folder(), "check", &["templates", "check"])
            .env("DIGESTD__TEMPLATES__DIR", "mine")
            .start();
        let status = process.exit(PATIENCE).await;
        assert!(!status.success() && process.log().contains("digest.txt"), "{}", process.log());
    }
}
