//! What a bounce processor posts.

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::http::{BounceSettings, Doors};
use digestd::store::Store;
use digestd::store::suppressions::{Suppression, SuppressionTerms};

use crate::support::fixtures::store;
use crate::support::web::{Answer, Web};

const TOKEN: &str = "a token of the bounce processor";
const TERMS: SuppressionTerms =
    SuppressionTerms { hard_after: 1, soft_after: 3, soft_decay: TimeDelta::days(90) };

async fn serve(store: &Store) -> Web {
    let bounces = BounceSettings { token: TOKEN.into(), terms: TERMS };
    Web::start_with(store, Doors { admin: None, bounces: Some(bounces) }).await
}

async fn post(web: &Web, token: &str, body: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    web.ask("POST", "/bounces", &[("authorization", &authorization)], body.as_bytes()).await
}

async fn known(store: &Store, address: &str) -> Option<Suppression> {
    let address = Address::parse(address).expect("an address");
    store.suppression_of(&address).await.expect("a look")
}

both_databases! {
    // Any bounce blocked an address, and many were temporary; the feature was rolled back
    // (GoogleChrome/chromium-dashboard, pull request 5864).
    async fn a_permanent_bounce_leaves_an_address_out_and_a_temporary_one_does_not(database: TestDatabase) {
        let store = store(&database).await;
        let web = serve(&store).await;
        let body = r#"{"address":"Ann@Acme.example","kind":"hard","code":"5.1.1","message":"0af1"}
{"address":"bob@acme.example","kind":"soft","code":"4.2.2"}
"#;
        let answer = post(&web, TOKEN, body).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "{\"counted\":2,\"suppressed\":1}\n"));
        let ann = known(&store, "ann@acme.example").await.expect("known");
        assert!(ann.suppressed && ann.hard_failures == 1 && ann.source == "http");
        assert_eq!(ann.note.as_deref(), Some("bounced: 5.1.1, message 0af1"));
        let bob = known(&store, "bob@acme.example").await.expect("known");
        assert!(!bob.suppressed && bob.soft_failures == 1);
    }

    async fn temporary_bounces_add_up_until_they_are_too_many_or_too_old(database: TestDatabase) {
        let store = store(&database).await;
        let web = serve(&store).await;
        let soft = "[{\"address\":\"bob@acme.example\",\"kind\":\"soft\"}]";
        post(&web, TOKEN, soft).await;
        post(&web, TOKEN, soft).await;
        store.clock().advance(TimeDelta::days(91));
        for suppressed in [0, 0, 1] {
            let answer = post(&web, TOKEN, soft).await;
            assert_eq!(answer.body, format!("{{\"counted\":1,\"suppressed\":{suppressed}}}\n"));
        }
    }

    async fn a_complaint_leaves_an_address_out_at_once(database: TestDatabase) {
        let store = store(&database).await;
        let web = serve(&store).await;
        post(&web, TOKEN, "{\"address\":\"ann@acme.example\",\"kind\":\"complaint\"}").await;
        let ann = known(&store, "ann@acme.example").await.expect("known");
        assert!(ann.suppressed && ann.note.as_deref() == Some("complained"));
    }

    async fn a_body_with_a_mistake_counts_nothing(database: TestDatabase) {
        let store = store(&database).await;
        let web = serve(&store).await;
        let body = "{\"address\":\"ann@acme.example\",\"kind\":\"hard\"}\n{\"address\":\"bob\",\"kind\":\"hard\"}\n";
        let answer = post(&web, TOKEN, body).await;
        assert_eq!(answer.status, 422);
        assert!(answer.body.contains("nothing was counted") && answer.body.contains("2: an address has the form"), "{}", answer.body);
        assert!(known(&store, "ann@acme.example").await.is_none());
        assert_eq!(post(&web, TOKEN, &"x".repeat(300_000)).await.status, 413);
        assert_eq!(post(&web, TOKEN, "\u{0}").await.status, 422);
        assert_eq!(post(&web, TOKEN, "").await.status, 200);
    }

    async fn only_the_token_opens_the_endpoint(database: TestDatabase) {
        let store = store(&database).await;
        let web = serve(&store).await;
        let body = "{\"address\":\"ann@acme.example\",\"kind\":\"hard\"}";
        for headers in [vec![], vec![("authorization", "Basic YTpi")], vec![("authorization", "Bearer")]] {
            let answer = web.ask("POST", "/bounces", &headers, body.as_bytes()).await;
            assert_eq!((answer.status, answer.headers["www-authenticate"].as_str()), (401, "Bearer"));
        }
        assert_eq!(web.get("/bounces").await.status, 405);
        for _ in 0..3 {
            assert_eq!(post(&web, "a wrong one", body).await.status, 401);
        }
        let locked = post(&web, TOKEN, body).await;
        assert_eq!(locked.status, 429);
        assert!(locked.headers.contains_key("retry-after"));
        assert!(known(&store, "ann@acme.example").await.is_none());
        // Without a token there is no such endpoint.
        assert_eq!(Web::start(&store).await.ask("POST", "/bounces", &[], b"").await.status, 404);
    }

    async fn what_could_not_be_counted_is_to_be_sent_again(database: TestDatabase) {
        let store = store(&database).await;
        let web = serve(&store).await;
        store.close().await;
        let answer = post(&web, TOKEN, "{\"address\":\"ann@acme.example\",\"kind\":\"hard\"}").await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "{\"counted\":0,\"suppressed\":0}\n"));
        assert_eq!(answer.headers["retry-after"], "60");
    }
}
