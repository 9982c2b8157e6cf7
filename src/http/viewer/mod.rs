//! A page for looking at mails: those of a preview, or those in an inbox.
//!
//! It shows other people's data to whoever reaches it, so it is for this host: it answers no request that
//! calls the host by a name, as a page of the web that knows the port would.

pub mod mime;
mod page;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use page::Pages;

/// Where the mails come from.
pub trait Shelf: Send + Sync + 'static {
    /// What all of it is, for the heading.
    fn title(&self) -> String;

    /// What can be looked at, where a word of it holds `wanted`.
    fn list<'a>(&'a self, wanted: &'a str) -> BoxFuture<'a, Result<List, ShelfError>>;

    /// One mail. `None`: there is no such mail.
    fn mail<'a>(&'a self, choice: &'a Choice) -> BoxFuture<'a, Result<Option<Mail>, ShelfError>>;

    /// Changes whenever a page may look different.
    fn version(&self) -> BoxFuture<'_, u64>;
}

/// Why there is nothing to show, in words for the page: whoever sees it is the one to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShelfError(pub String);

/// Some of what there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct List {
    /// In an order that does not change by itself.
    pub entries: Vec<Entry>,
    /// Whether there is more than these.
    pub more: bool,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// By which it is asked for.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// What else there is to know.
    pub detail: String,
}

/// Which mail, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// The entry.
    pub id: String,
    /// Who reads it; empty for the first.
    pub reader: String,
    /// In which language; empty for the reader's own.
    pub locale: String,
    /// Whether the reader's screen is dark: any text says so.
    pub dark: String,
}

/// A mail and how else it could be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mail {
    /// The whole message.
    pub bytes: Vec<u8>,
    /// Whoever else gets one.
    pub readers: Vec<String>,
    /// The languages that there are.
    pub locales: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Search {
    q: String,
}

#[derive(Clone)]
struct Viewer {
    shelf: Arc<dyn Shelf>,
    pages: Arc<Pages>,
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, shelf: Arc<dyn Shelf>, stop: CancellationToken) -> io::Result<()> {
    let viewer = Viewer { shelf, pages: Arc::new(Pages::new()) };
    let routes = Router::new()
        .route("/", get(list))
        .route("/mail", get(mail))
        .route("/html", get(html))
        .route("/eml", get(eml))
        .route("/version", get(version))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .layer(middleware::from_fn(guard))
        .with_state(viewer);
    let served = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        ended = served.into_future() => ended,
        // A browser that keeps its connection open keeps nobody else from stopping.
        () = stop.cancelled() => Ok(()),
    }
}

async fn list(State(viewer): State<Viewer>, Query(search): Query<Search>) -> Response {
    let version = viewer.shelf.version().await;
    let found = viewer.shelf.list(search.q.trim()).await;
    viewer.pages.list(&viewer.shelf.title(), &search.q, found, version)
}

async fn mail(State(viewer): State<Viewer>, Query(choice): Query<Choice>) -> Response {
    let version = viewer.shelf.version().await;
    let found = viewer.shelf.mail(&choice).await;
    viewer.pages.mail(&viewer.shelf.title(), &choice, found, version)
}

/// The HTML part alone, for the frames.
async fn html(State(viewer): State<Viewer>, Query(choice): Query<Choice>) -> Response {
    match viewer.shelf.mail(&choice).await {
        Ok(Some(mail)) => page::part(&mail, !choice.dark.is_empty()),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error.0).into_response(),
    }
}

async fn eml(State(viewer): State<Viewer>, Query(choice): Query<Choice>) -> Response {
    match viewer.shelf.mail(&choice).await {
        Ok(Some(mail)) => {
            const NAME: &str = "attachment; filename=\"mail.eml\"";
            let headers = [(header::CONTENT_TYPE, "message/rfc822"), (header::CONTENT_DISPOSITION, NAME)];
            (headers, mail.bytes).into_response()
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error.0).into_response(),
    }
}

async fn version(State(viewer): State<Viewer>) -> String {
    viewer.shelf.version().await.to_string()
}

/// Refuses a request by a name of the web that points here (DNS rebinding), and says on every answer that
/// it is nobody else's.
async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_ours) {
        return (StatusCode::FORBIDDEN, "call this host by its address or as localhost\n").into_response();
    }
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn is_ours(host: &str) -> bool {
    let without_port = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    without_port == "localhost" || without_port.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_addresses_and_localhost_are_ours() {
        for host in ["127.0.0.1:8090", "localhost", "localhost:1", "[::1]:8090", "10.1.2.3"] {
            assert!(is_ours(host), "{host}");
        }
        for host in ["evil.example", "evil.example:8090", "127.0.0.1.evil.example", "", "[evil]"] {
            assert!(!is_ours(host), "{host}");
        }
    }
}
