//! Where requests of the admin pages are let in: nothing behind it is reached without a session, and no
//! form without the token of its page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::time::timeout;

use super::Office;
use super::fields::Fields;
use super::notice::Notice;
use super::paint::{self, Frame, Part};
use super::session::{Holder, Session};
use super::trouble::Trouble;
use crate::store::Store;

/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// A page, or why there is none.
pub(super) type Reply = Result<Response, Trouble>;

/// A request of somebody who is signed in.
pub(super) struct Desk {
    /// What the pages work with.
    pub office: Arc<Office>,
    /// The deciding time when the request came.
    pub now: DateTime<Utc>,
    /// The link's query.
    pub query: Fields,
    form_token: String,
}

/// A form of somebody who is signed in, sent from a page of ours.
pub(super) struct Sent {
    pub desk: Desk,
    pub fields: Fields,
}

impl Desk {
    pub(super) fn store(&self) -> &Store {
        &self.office.ledger.store
    }

    /// Does the work of a page: two at a time, since delivery needs the database more, and not for ever.
    pub(super) async fn answer(&self, work: impl Future<Output = Reply>) -> Response {
        let in_turn = async {
            let _turn = self.office.turns.acquire().await;
            work.await
        };
        match timeout(PATIENCE, in_turn).await {
            Ok(Ok(response)) => response,
            Ok(Err(trouble)) => trouble.into_response(),
            Err(_) => {
                tracing::warn!("An admin page could not be served in time");
                Trouble::Unavailable.into_response()
            }
        }
    }

    /// Shows a page.
    pub(super) fn page(&self, part: Part, name: &str, content: &impl Serialize) -> Response {
        let notice = Notice::of(&self.query).map(|notice| notice.to_string());
        paint::page(name, &Frame { part, form_token: &self.form_token, notice }, content)
    }

    /// After a form: back to a page, so that a reload sends nothing again.
    pub(super) fn back(path: &str) -> Response {
        Redirect::to(path).into_response()
    }
}

impl FromRequestParts<Arc<Office>> for Desk {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, office: &Arc<Office>) -> Result<Self, Trouble> {
        let signed_out = || {
            if matches!(parts.method, Method::GET | Method::HEAD) {
                let asked = parts.uri.path_and_query().map_or("", |asked| asked.as_str());
                Trouble::SignIn(asked.to_owned())
            } else {
                Trouble::SignedOut
            }
        };
        let session = session(office, &parts.headers).filter(|session| session.holder == Holder::Operator);
        let session = session.ok_or_else(signed_out)?;
        let now = deciding_now(&office.ledger.store).await?;
        if !session.is_live(now) {
            return Err(signed_out());
        }
        let query = Fields::of_query(&parts.uri)?;
        let form_token = office.keys.form_token(&session);
        Ok(Self { office: Arc::clone(office), now, query, form_token })
    }
}

impl FromRequest<Arc<Office>> for Sent {
    type Rejection = Trouble;

    async fn from_request(request: Request, office: &Arc<Office>) -> Result<Self, Trouble> {
        let (mut parts, body) = request.into_parts();
        let desk = Desk::from_request_parts(&mut parts, office).await?;
        let fields = own_form(office, Request::from_parts(parts, body)).await?;
        Ok(Self { desk, fields })
    }
}

/// The fields of a form that belongs to the session of its own request.
pub(super) async fn own_form(office: &Office, request: Request) -> Result<Fields, Trouble> {
    let headers = request.headers();
    // What every browser of today says of a request's origin; a proxy passes it on unchanged.
    let elsewhere = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    let session = session(office, headers).ok_or(Trouble::Forged)?;
    if elsewhere {
        return Err(Trouble::Forged);
    }
    let fields = Fields::of_form(request).await?;
    let given = fields.get("form").unwrap_or_default();
    if office.keys.is_form_token(&session, given) { Ok(fields) } else { Err(Trouble::Forged) }
}

/// The session of whoever asks, signed in or not.
pub(super) fn session(office: &Office, headers: &HeaderMap) -> Option<Session> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .find_map(|value| office.keys.open(value))
}

/// The database's time.
pub(super) async fn deciding_now(store: &Store) -> Result<DateTime<Utc>, Trouble> {
    match timeout(PATIENCE, store.now()).await {
        Ok(now) => Ok(now?),
        Err(_) => Err(Trouble::Unavailable),
    }
}
