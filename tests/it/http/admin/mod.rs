//! The admin pages, asked as a browser asks.

mod changes;
mod hostile;
mod pages;
mod sign_in;

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::ids::{MessageId, ReplicaId};
use digestd::domain::message::{
    Disposition, Draft, DraftContent, Finished, Leased, MessageReason, MessageState,
};
use digestd::domain::send::Claim;
use digestd::http::{AdminSettings, Doors};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use digestd::store::queue::QueueFilter;
use digestd::store::replicas::Heartbeat;
use uuid::Uuid;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{
    RELAY, claim_id, directory, draft, due_org, lease_terms, ledger, monday, store, terms,
};
use crate::support::web::{Answer, Web};
use crate::support::world::execute;

const TOKEN: &str = "a token that nobody guesses";

/// A mail with both parts, and with what a frame must not run.
const BODY: &str = "Subject: =?utf-8?Q?Acme=27s_<week>?=\r\nX-Digestd-Id: 0af1\r\n\
    Content-Type: multipart/alternative; boundary=\"b1\"\r\n\r\n\
    --b1\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nplain <b>words</b>\r\n\
    --b1\r\nContent-Type: text/html; charset=utf-8\r\n\r\n\
    <p style=\"color:red\">rendered words</p><script>alert(1)</script>\r\n--b1--\r\n";

/// A Monday morning with a message in every state that a person cares for, and a server with its pages.
struct Office {
    store: Store,
    web: Web,
    /// By the part of the address before the @.
    failed: MessageId,
    uncertain: MessageId,
    accepted: MessageId,
    pending: MessageId,
}

async fn office(database: &TestDatabase) -> Office {
    let store = store(database).await;
    directory(
        database,
        &[
            ("acme", "Europe/Berlin", "name = 'Acme <script>alert(1)</script> & Sons'"),
            ("globex", "Asia/Tokyo", "name = 'Globex'"),
            ("initech", "Europe/Berlin", "name = 'Initech'"),
        ],
    )
    .await;
    let admins = ["bob", "cid", "dora"].map(|name| {
        let prefix = if database.url.starts_with("postgres") { "digestd." } else { "" };
        format!(
            "INSERT INTO {prefix}admins (id, org_id, email) VALUES ('{name}', 'acme', '{name}@acme.example');"
        )
    });
    execute(database, admins.concat()).await;
    let me = ReplicaId(Uuid::from_u128(7));
    let beat = Heartbeat {
        replica: me,
        host: "web-1".to_owned(),
        version: "0.1.0",
        clock_offset: TimeDelta::milliseconds(-2500),
        connections: 1,
    };
    store.heartbeat(&beat).await.expect("a beat");
    let claim = claim(&store, "acme", me).await;
    let drafts = ["ann", "bob", "cid", "dora"].iter().map(|name| mail(&claim, name)).collect();
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    // The last one is still to come.
    let leased = store.lease_messages(3, lease_terms(me)).await.expect("leases").messages;
    let fences: Vec<_> = leased.iter().map(Leased::fence).collect();
    store.mark_messages(&fences, Duration::from_mins(10)).await.expect("markers");
    store.clock().advance(TimeDelta::minutes(70));
    let results = [
        (Disposition::Failed(MessageReason::Refused), "550 5.1.1 no <such> user"),
        (Disposition::Uncertain, "the relay fell silent"),
        (Disposition::Accepted, "250 2.0.0 ok"),
    ];
    let finished: Vec<Finished> = leased
        .iter()
        .zip(results)
        .map(|(lease, (disposition, note))| Finished {
            fence: lease.fence(),
            disposition,
            phase: "dot",
            note: note.to_owned(),
            guard: None,
        })
        .collect();
    assert_eq!(store.record_results(&finished, me).await.expect("recorded").len(), 3);
    let waiting = QueueFilter { states: vec![MessageState::Pending], ..QueueFilter::default() };
    let pending = store.list_queue(&waiting, None, 1).await.expect("a list")[0].id;
    let web = serve(&store).await;
    Office { store, web, failed: leased[0].id, uncertain: leased[1].id, accepted: leased[2].id, pending }
}

async fn serve(store: &Store) -> Web {
    let admin = AdminSettings {
        token: TOKEN.into(),
        ledger: ledger(store),
        relay: RELAY.to_owned(),
        max_age: TimeDelta::hours(48),
        max_attempts: 8,
    };
    Web::start_with(store, Doors { admin: Some(admin), bounces: None }).await
}

async fn claim(store: &Store, org: &str, replica: ReplicaId) -> Claim {
    let due = due_org(org, monday());
    store.claim(&[due], claim_id(), terms(replica)).await.expect("no error").pop().expect("a claim")
}

fn mail(claim: &Claim, name: &str) -> Draft {
    let address = format!("{name}@{}.example", claim.org);
    let plain = draft(claim, &address);
    let DraftContent::Message { fingerprint, .. } = plain.content else { panic!("a message") };
    let content = DraftContent::Message {
        to: Address::parse(&address).expect("an address"),
        bytes: BODY.as_bytes().to_vec(),
        fingerprint,
    };
    Draft { content, ..plain }
}

/// A browser as far as it matters here: it keeps our cookie and sends a page's forms back.
struct Browser<'a> {
    web: &'a Web,
    cookie: String,
}

impl<'a> Browser<'a> {
    /// One that has signed in.
    async fn signed_in(web: &'a Web) -> Self {
        let mut browser = Self { web, cookie: String::new() };
        let answer = browser.sign_in(TOKEN, "/admin/login").await;
        assert_eq!((answer.status, answer.headers["location"].as_str()), (303, "/admin"));
        browser
    }

    /// Opens the log-in and sends it with a token.
    async fn sign_in(&mut self, token: &str, path: &str) -> Answer {
        let page = self.get(path).await;
        self.keep(&page);
        let mut form = fields(&page.body, "/admin/login");
        form.push(("token".to_owned(), token.to_owned()));
        let answer = self.send("/admin/login", &form).await;
        self.keep(&answer);
        answer
    }

    fn keep(&mut self, answer: &Answer) {
        if let Some(cookie) = answer.headers.get("set-cookie") {
            self.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.web.ask("GET", path, &[("cookie", &self.cookie)], b"").await
    }

    /// Sends a form of a page, with some fields more; follows to the page after it.
    async fn submit(&self, page: &str, action: &str, more: &[(&str, &str)]) -> Answer {
        let shown = self.get(page).await;
        assert_eq!(shown.status, 200, "{}", shown.body);
        let mut form = fields(&shown.body, action);
        form.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let answer = self.send(action, &form).await;
        if answer.status != 303 {
            return answer;
        }
        self.get(&answer.headers["location"]).await
    }

    async fn send(&self, path: &str, form: &[(String, String)]) -> Answer {
        let body: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let headers = [
            ("cookie", self.cookie.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
            ("sec-fetch-site", "same-origin"),
        ];
        self.web.ask("POST", path, &headers, body.join("&").as_bytes()).await
    }
}

/// The hidden fields of a page's form.
fn fields(page: &str, action: &str) -> Vec<(String, String)> {
    let start = page
        .find(&format!("method=\"post\" action=\"{action}\""))
        .unwrap_or_else(|| panic!("no form for {action} in {page}"));
    let form = page[start..].split("</form>").next().expect("a form");
    let attribute = |tag: &str, name: &str| {
        let rest = tag.split_once(&format!(" {name}=\""))?.1;
        Some(rest.split_once('"')?.0.replace("&amp;", "&").replace("&#x2f;", "/"))
    };
    form.split("<input type=\"hidden\"")
        .skip(1)
        .map(|tag| tag.split('>').next().unwrap_or_default())
        .filter_map(|tag| Some((attribute(tag, "name")?, attribute(tag, "value")?)))
        .collect()
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

/// Every page, with what it needs.
fn every_page(office: &Office) -> Vec<String> {
    [
        "/admin",
        "/admin?week=2026-W27",
        "/admin/orgs",
        "/admin/org?id=acme&week=2026-W28",
        "/admin/resend?org=acme&week=2026-W28",
        "/admin/queue",
        "/admin/relay",
        "/admin/replicas",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        format!("/admin/message?id={}", office.failed),
        format!("/admin/message/mail?id={}", office.failed),
    ])
    .collect()
}
