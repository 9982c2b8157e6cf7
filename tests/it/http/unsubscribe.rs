//! One click, and the page behind the same link.

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::domain::token::{KeyRing, Scope, SubscriptionRef};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{claim_id, draft, due_orgs, monday, store, terms};
use crate::support::web::Web;

const ONE_CLICK: &str = "List-Unsubscribe=One-Click";

/// A store in which Ann has got mail from `org-0000` and `org-0001`, and a server.
pub(super) async fn world(database: &TestDatabase) -> (Store, Web) {
    let store = store(database).await;
    let claims =
        store.claim(&due_orgs(2, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
    let batch = claims
        .into_iter()
        .map(|claim| Enqueue { drafts: vec![draft(&claim, "ann@example.org")], claim })
        .collect();
    store.enqueue(batch, TimeDelta::hours(48)).await.expect("enqueued");
    let web = Web::start(&store).await;
    (store, web)
}

/// What keeps the first org's digest from Ann.
async fn opted_out(store: &Store) -> Vec<Scope> {
    let ann = Address::parse("ann@example.org").expect("an address");
    store.scopes_opted_out(&ann, &OrgId::parse("org-0000").expect("an id")).await.expect("a look")
}

both_databases! {
    async fn opening_the_link_changes_nothing_and_one_click_does(database: TestDatabase) {
        // Mail gateways open every link on delivery; some systems have unsubscribed whole teams by that.
        let (store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        for method in ["GET", "GET", "HEAD", "GET"] {
            let page = web.ask(method, &path, &[], b"").await;
            assert_eq!(page.status, 200);
            assert_eq!(page.body.is_empty(), method == "HEAD");
            assert_eq!(opted_out(&store).await, []);
        }
        for _ in 0..2 {
            let page = web.post(&path, ONE_CLICK).await;
            assert_eq!(page.status, 200);
            assert!(page.body.contains("You are unsubscribed"), "{}", page.body);
            assert!(!page.headers.contains_key("location") && !page.headers.contains_key("set-cookie"));
            assert_eq!(opted_out(&store).await, [Scope::Org]);
        }
    }

    async fn whatever_a_mail_program_posts_unsubscribes(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        let ann = Address::parse("ann@example.org").expect("an address");
        let org = OrgId::parse("org-0000").expect("an id");
        let multipart = "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n";
        let bodies = [
            ("application/x-www-form-urlencoded", ONE_CLICK),
            ("application/x-www-form-urlencoded", ""),
            ("multipart/form-data; boundary=b", multipart),
            ("multipart/form-data", ""),
            ("text/plain", "\u{0}\u{1}garbage"),
            ("application/json", "{}"),
            ("", ""),
        ];
        for (kind, body) in bodies {
            store.resubscribe(&ann, &org).await.expect("removed");
            assert_eq!(web.ask("POST", &path, &[("content-type", kind)], body.as_bytes()).await.status, 200);
            assert_eq!(opted_out(&store).await, [Scope::Org], "{kind}: {body}");
        }
        store.resubscribe(&ann, &org).await.expect("removed");
        assert_eq!(web.ask("POST", &path, &[], b"").await.status, 200);
        assert_eq!(opted_out(&store).await, [Scope::Org]);
    }

    /// Filters against forged forms refused the clicks of mailbox providers, who send no cookie and come from
    /// elsewhere. And links arrive with what others have hung on to them.
    async fn a_click_counts_wherever_it_comes_from_and_however_it_is_sent(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        let ann = Address::parse("ann@example.org").expect("an address");
        let org = OrgId::parse("org-0000").expect("an id");
        let form = "content-type: application/x-www-form-urlencoded\r\ncontent-length: 26\r\n";
        let chunked = "content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked\r\n";
        let from_elsewhere = format!(
            "{form}origin: https://mail.example\r\nreferer: https://mail.example/\r\nsec-fetch-site: cross-site\r\n\
             sec-fetch-mode: no-cors\r\ncookie: session=1; csrf=2\r\n"
        );
        let requests = [
            format!("POST {path} HTTP/1.1\r\nhost: x\r\n{from_elsewhere}\r\n{ONE_CLICK}"),
            format!("POST {path} HTTP/1.1\r\nhost: x\r\norigin: null\r\n{form}\r\n{ONE_CLICK}"),
            format!("POST {path}?utm_source=digest&x=%00 HTTP/1.1\r\nhost: x\r\n{form}\r\n{ONE_CLICK}"),
            format!("POST {path} HTTP/1.1\r\nhost: x\r\n{chunked}\r\n1a\r\n{ONE_CLICK}\r\n0\r\n\r\n"),
            format!("POST {path} HTTP/1.0\r\n{form}\r\n{ONE_CLICK}"),
        ];
        for request in requests {
            store.resubscribe(&ann, &org).await.expect("removed");
            let request = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
            let answer = web.raw(request.as_bytes()).await.expect("an answer");
            assert_eq!(answer.status, 200, "{request}");
            assert_eq!(opted_out(&store).await, [Scope::Org], "{request}");
        }
        // And a look stays a look.
        store.resubscribe(&ann, &org).await.expect("removed");
        let look = web.get(&format!("{path}?List-Unsubscribe=One-Click&action=all")).await;
        assert_eq!((look.status, opted_out(&store).await), (200, vec![]));
    }

    /// Behind a proxy that passes the whole path on, every link in every mail led nowhere.
    async fn a_link_works_whether_a_proxy_takes_the_public_path_off_or_passes_it_on(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let link = web.path("org-0000", "ann@example.org", Scope::Org);
        let whole = format!("/weekly/mail{link}");
        assert_eq!((web.get(&whole).await.status, opted_out(&store).await), (200, vec![]));
        assert_eq!(web.post(&whole, ONE_CLICK).await.status, 200);
        assert_eq!(opted_out(&store).await, [Scope::Org]);
        assert_eq!(web.post(&link, "action=resubscribe").await.status, 200);
        for stray in [format!("/weekly{link}"), format!("/weekly/mail/u{link}"), "/weekly/mail/metrics".to_owned()] {
            assert_eq!(web.post(&stray, ONE_CLICK).await.status, 404, "{stray}");
        }
        assert_eq!(opted_out(&store).await, []);
        let counted = web.metrics.prometheus_text();
        assert!(counted.contains("/u/{token}") && !counted.contains("weekly"), "{counted}");
    }

    /// The page shows a name that somebody else has chosen.
    async fn a_hostile_name_does_nothing_on_the_page(database: TestDatabase) {
        let store = store(&database).await;
        let claim = store.claim(&due_orgs(1, monday()), claim_id(), terms(ReplicaId::random())).await.expect("a claim").remove(0);
        let mut draft = draft(&claim, "ann@example.org");
        draft.org_name = format!("<script>alert(1)</script>\"'\u{202e}\r\n<a href=//evil.example>{}", "x".repeat(5000));
        store.enqueue(vec![Enqueue { claim, drafts: vec![draft] }], TimeDelta::hours(48)).await.expect("enqueued");
        let web = Web::start(&store).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        for page in [web.get(&path).await, web.post(&path, ONE_CLICK).await] {
            assert_eq!(page.status, 200);
            let body = page.body;
            assert!(body.contains("&lt;script&gt;alert(1)"), "{body}");
            assert!(!body.contains("<script") && !body.contains("<a href=//") && !body.contains('\u{202e}'), "{body}");
            assert!(body.len() < 10_000, "{}", body.len());
        }
    }

    async fn the_page_s_buttons_choose_the_scope_and_take_it_back(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        let page = web.get(&path).await;
        assert!(page.body.contains("value=\"org\"") && page.body.contains("value=\"all\""), "{}", page.body);
        let page = web.post(&path, "action=all").await;
        assert!(page.body.contains("no more digests from here"), "{}", page.body);
        assert_eq!(opted_out(&store).await, [Scope::All]);
        let page = web.post(&path, "action=resubscribe").await;
        assert!(page.body.contains("You are subscribed again"), "{}", page.body);
        assert_eq!(opted_out(&store).await, []);
        web.post(&path, "action=org").await;
        assert_eq!(opted_out(&store).await, [Scope::Org]);
    }

    async fn a_link_for_all_digests_unsubscribes_from_all_by_one_click(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let path = web.path("org-0001", "ann@example.org", Scope::All);
        assert_eq!(web.post(&path, ONE_CLICK).await.status, 200);
        assert_eq!(opted_out(&store).await, [Scope::All]);
    }

    async fn forged_broken_and_unknown_links_look_the_same_and_change_nothing(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let good = web.path("org-0000", "ann@example.org", Scope::Org);
        let foreign = KeyRing::new(&["f".repeat(32).into()]).expect("a key");
        let org = OrgId::parse("org-0000").expect("an id");
        let forged = foreign.sign(SubscriptionRef::derive(&org, "ann@example.org"), Scope::Org).link("");
        let never_sent = web.path("org-0000", "nobody@example.org", Scope::Org);
        let cut = good[..good.len() - 1].to_owned();
        let mut pages = Vec::new();
        for path in [forged, never_sent, cut, format!("{good}A"), "/u/x".to_owned(), "/u/%ff%00".to_owned()] {
            let shown = web.get(&path).await;
            let posted = web.post(&path, ONE_CLICK).await;
            assert_eq!((shown.status, posted.status), (404, 404), "{path}");
            pages.extend([shown.body, posted.body]);
        }
        pages.dedup();
        assert_eq!(pages.len(), 1, "one page for all of them");
        assert!(store.list_opt_outs(None, 10).await.expect("a page").is_empty());
    }

    async fn pages_keep_to_themselves(database: TestDatabase) {
        let (_store, web) = world(&database).await;
        let page = web.get(&web.path("org-0000", "ann@example.org", Scope::Org)).await;
        let header = |name: &str| page.headers.get(name).map_or("", String::as_str);
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("x-robots-tag"), "noindex, nofollow");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"), "{policy}");
        assert!(!page.body.contains("ann@") && !page.body.contains("http://") && !page.body.contains("<script"));
        insta::assert_snapshot!("page", page.body);
    }

    async fn the_page_speaks_the_browser_s_language(database: TestDatabase) {
        let (_store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        let german = web.ask("GET", &path, &[("accept-language", "fr;q=0.9, de-AT")], b"").await;
        assert!(german.body.contains("<html lang=\"de\" dir=\"ltr\">") && german.body.contains("Abbestellen?"));
        let arabic = web.ask("GET", &path, &[("accept-language", "ar")], b"").await;
        assert!(arabic.body.contains("<html lang=\"ar\" dir=\"rtl\">"), "{}", arabic.body);
    }

    async fn what_could_not_be_stored_is_not_called_stored(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        store.close().await;
        for answer in [web.post(&path, ONE_CLICK).await, web.get(&path).await] {
            assert_eq!(answer.status, 503);
            assert_eq!(answer.headers.get("retry-after").map(String::as_str), Some("60"));
            assert!(!answer.body.contains("unsubscribed"), "{}", answer.body);
        }
    }

    async fn a_body_larger_than_any_form_is_refused(database: TestDatabase) {
        let (store, web) = world(&database).await;
        let path = web.path("org-0000", "ann@example.org", Scope::Org);
        let answer = web.post(&path, &"x".repeat(9000)).await;
        assert_eq!(answer.status, 413);
        assert_eq!(opted_out(&store).await, []);
    }
}
