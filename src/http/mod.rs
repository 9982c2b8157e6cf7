//! Health, metrics, one-click unsubscribe, admin pages. The only module that names the web framework.
//!
//! | route | what |
//! |---|---|
//! | `/healthz` | whether the loops move: [`health`] |
//! | `/readyz` | whether the database answers: [`health`] |
//! | `/metrics` | the numbers: [`scrape`] |
//! | `/u/{token}`, also below the path of `public_url` | the unsubscribe page, and what one click posts to: [`unsubscribe`] |
//! | `/bounces` | what a bounce processor has learnt, where a token is configured: [`bounces`] |
//! | `/admin` | the operator's pages, where a token is configured: [`admin`] |
//!
//! Only `/u/` is meant for the world; a proxy in front need not pass on anything else. Paths under it
//! hold tokens, so no path is ever logged or counted, only the route's pattern.

mod admin;
mod bounces;
mod connections;
mod gate;
mod health;
mod page;
mod scrape;
mod strikes;
mod unsubscribe;
pub mod viewer;
mod words;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::domain::token::KeyRing;
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::store::Store;
pub use admin::AdminSettings;
use admin::Office;
pub use bounces::BounceSettings;
use connections::{Limited, Peer};
use gate::Gate;
use health::Readiness;
use page::Page;
use scrape::Scrape;

/// How long open requests may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// A one-click POST holds 26 bytes; as multipart a few hundred. Bounces and the admin's forms have their own.
const MAX_BODY_BYTES: usize = 8 * 1024;

/// What the pages say of the sender.
#[derive(Debug, Clone)]
pub struct PageSettings {
    /// The product's name.
    pub product: String,
    /// The application's own page for e-mail settings.
    pub settings_url: Option<String>,
    /// Where recipients reach us: the links in mails begin with it.
    pub public_url: String,
}

impl PageSettings {
    /// The path in `public_url`, without a slash at its end. A proxy may take it off, or pass it on.
    fn path(&self) -> String {
        let rest = self.public_url.split_once("://").map_or("", |(_, rest)| rest);
        let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().trim_end_matches('/');
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%".contains(&b);
        if path.bytes().all(plain) { path.to_owned() } else { String::new() }
    }
}

/// What the routes work with. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    keys: KeyRing,
    metrics: Metrics,
    progress: Progress,
    page: Page,
    path: String,
    gate: Gate,
    readiness: Readiness,
    scrape: Scrape,
    bounces: Option<bounces::Desk>,
    admin: Option<Arc<Office>>,
}

/// What is served to those who know a token; nothing where none is configured.
#[derive(Debug, Default)]
pub struct Doors {
    /// The operator's pages.
    pub admin: Option<AdminSettings>,
    /// The endpoint for bounce processors.
    pub bounces: Option<BounceSettings>,
}

impl HttpState {
    /// Brings together what the routes need.
    pub fn new(
        store: Store,
        keys: KeyRing,
        metrics: Metrics,
        progress: Progress,
        settings: PageSettings,
        doors: Doors,
    ) -> Self {
        Self(Arc::new(Shared {
            store,
            keys,
            metrics,
            progress,
            path: settings.path(),
            page: Page::new(settings),
            gate: Gate::new(),
            readiness: Readiness::default(),
            scrape: Scrape::default(),
            bounces: doors.bounces.as_ref().map(bounces::Desk::new),
            admin: doors.admin.map(|admin| Arc::new(Office::new(admin))),
        }))
    }
}

/// Serves until `stop`, then lets open requests end for a while.
pub async fn serve(listener: TcpListener, state: HttpState, stop: CancellationToken) -> io::Result<()> {
    let routes = routes(state).into_make_service_with_connect_info::<Peer>();
    let served =
        axum::serve(Limited::new(listener), routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    let out_of_time = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = served.into_future() => ended,
        () = out_of_time => Ok(()),
    }
}

fn routes(state: HttpState) -> Router {
    let mut routes = Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/u/{token}", get(unsubscribe::show).post(unsubscribe::act));
    if !state.0.path.is_empty() {
        let below = format!("{}/u/{{token}}", state.0.path);
        routes = routes.route(&below, get(unsubscribe::show).post(unsubscribe::act));
    }
    let mut routes = routes.layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    if state.0.bounces.is_some() {
        let limit = DefaultBodyLimit::max(bounces::MAX_BYTES);
        routes = routes.route("/bounces", post(bounces::take).layer(limit));
    }
    let mut routes = routes.with_state(state.clone());
    if let Some(office) = &state.0.admin {
        routes = routes.merge(admin::routes(Arc::clone(office)));
    }
    routes
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .layer(middleware::from_fn_with_state(state, finish))
}

/// Counts each answer and adds the headers that every answer has. Nothing here is for caches, search
/// engines, frames or referrers.
async fn finish(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    const ALWAYS: [(HeaderName, &str); 4] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
    ];
    let path = request.uri().path();
    let route =
        route_of(path.strip_prefix(&state.0.path).filter(|rest| rest.starts_with("/u/")).unwrap_or(path));
    let mut response = next.run(request).await;
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // The admin pages have a policy of their own.
    response.headers_mut().entry(header::CONTENT_SECURITY_POLICY).or_insert_with(|| state.0.page.policy());
    state.0.metrics.http_request(route, response.status().as_u16());
    response
}

fn route_of(path: &str) -> &'static str {
    match path {
        "/healthz" => "/healthz",
        "/readyz" => "/readyz",
        "/metrics" => "/metrics",
        "/bounces" => "/bounces",
        "/admin/login" => "/admin/login",
        _ if path == "/admin" || path.starts_with("/admin/") => "/admin",
        _ if path.starts_with("/u/") => "/u/{token}",
        _ => "other",
    }
}
