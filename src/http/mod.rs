//! Health, metrics, one-click unsubscribe, admin pages. The only module that names the web framework.
//!
//! | route | what |
//! |---|---|
//! | `/healthz` | whether the loops move: [`health`] |
//! | `/readyz` | whether the database answers: [`health`] |
//! | `/metrics` | the numbers: [`scrape`] |
//! | `/u/{token}` | the unsubscribe page, and what one click posts to: [`unsubscribe`] |
//!
//! Only `/u/` is meant for the world; a proxy in front need not pass on anything else. Paths under it
//! hold tokens, so no path is ever logged or counted, only the route's pattern.

mod connections;
mod gate;
mod health;
mod page;
mod scrape;
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
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::domain::token::KeyRing;
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::store::Store;
use connections::Limited;
use gate::Gate;
use health::Readiness;
use page::Page;
use scrape::Scrape;

/// How long open requests may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// A one-click POST holds 26 bytes; as multipart a few hundred.
const MAX_BODY_BYTES: usize = 8 * 1024;

/// What the pages say of the sender.
#[derive(Debug, Clone)]
pub struct PageSettings {
    /// The product's name.
    pub product: String,
    /// The application's own page for e-mail settings.
    pub settings_url: Option<String>,
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
    gate: Gate,
    readiness: Readiness,
    scrape: Scrape,
}

impl HttpState {
    /// Brings together what the routes need.
    pub fn new(
        store: Store,
        keys: KeyRing,
        metrics: Metrics,
        progress: Progress,
        settings: PageSettings,
    ) -> Self {
        Self(Arc::new(Shared {
            store,
            keys,
            metrics,
            progress,
            page: Page::new(settings),
            gate: Gate::new(),
            readiness: Readiness::default(),
            scrape: Scrape::default(),
        }))
    }
}

/// Serves until `stop`, then lets open requests end for a while.
pub async fn serve(listener: TcpListener, state: HttpState, stop: CancellationToken) -> io::Result<()> {
    let served = axum::serve(Limited::new(listener), routes(state))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
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
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/u/{token}", get(unsubscribe::show).post(unsubscribe::act))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(state.clone(), finish))
        .with_state(state)
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
    let route = route_of(request.uri().path());
    let mut response = next.run(request).await;
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, state.0.page.policy());
    state.0.metrics.http_request(route, response.status().as_u16());
    response
}

fn route_of(path: &str) -> &'static str {
    match path {
        "/healthz" => "/healthz",
        "/readyz" => "/readyz",
        "/metrics" => "/metrics",
        _ if path.starts_with("/u/") => "/u/{token}",
        _ => "other",
    }
}
