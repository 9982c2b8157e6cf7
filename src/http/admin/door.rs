//! Signing in and out.

use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Serialize;

use super::Office;
use super::desk::{Sent, deciding_now, own_form, session};
use super::fields::Fields;
use super::links::{link, own_path};
use super::paint;
use super::session::{Holder, Session};
use super::trouble::Trouble;
use crate::http::connections::Peer;

const LOG_IN: &str = "/admin/login";

#[derive(Debug, Serialize)]
struct LogIn<'a> {
    form_token: String,
    next: &'a str,
    problem: Option<&'static str>,
}

/// The log-in page, for whoever wanted another one.
pub(super) fn path_to(asked: &str) -> String {
    match own_path(asked) {
        "/admin" => LOG_IN.to_owned(),
        next => link(LOG_IN, &[("next", next)]),
    }
}

/// Shows the log-in.
pub(super) async fn show(
    State(office): State<Arc<Office>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let query = Fields::of_query(&uri)?;
    let next = own_path(query.get("next").unwrap_or_default());
    let now = deciding_now(&office.ledger.store).await?;
    let known = session(&office, &headers).filter(|session| session.is_live(now));
    if known.as_ref().is_some_and(|session| session.holder == Holder::Operator) {
        return Ok(Redirect::to(next).into_response());
    }
    // One cookie for several tabs.
    let visitor = known.unwrap_or_else(|| office.keys.issue(Holder::Visitor, now));
    Ok(log_in(&office, &visitor, next, StatusCode::OK, None))
}

/// Looks at a token.
pub(super) async fn enter(
    State(office): State<Arc<Office>>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
) -> Result<Response, Trouble> {
    let now = deciding_now(&office.ledger.store).await?;
    let Some(visitor) = session(&office, request.headers()).filter(|session| session.is_live(now)) else {
        let visitor = office.keys.issue(Holder::Visitor, now);
        let problem = "The browser has not kept our cookie, or the page was open for too long. These pages need \
                       HTTPS, or a browser on the same machine.";
        return Ok(log_in(&office, &visitor, "/admin", StatusCode::FORBIDDEN, Some(problem)));
    };
    let fields = own_form(&office, request).await?;
    if let Some(left) = office.strikes.locked(peer) {
        return Err(Trouble::Locked(left));
    }
    let next = own_path(fields.get("next").unwrap_or_default());
    if !office.keys.is_token(fields.get("token").unwrap_or_default()) {
        office.strikes.wrong(peer);
        tracing::warn!("Somebody tried to open the admin pages with a wrong token");
        let problem = Some("That is not the token.");
        return Ok(log_in(&office, &visitor, next, StatusCode::FORBIDDEN, problem));
    }
    office.strikes.right(peer);
    tracing::info!("Somebody has signed in to the admin pages");
    let operator = office.keys.issue(Holder::Operator, now);
    Ok(with_cookie(Redirect::to(next).into_response(), &operator.set_cookie()))
}

/// Ends the session of this browser.
pub(super) async fn leave(_sent: Sent) -> Response {
    with_cookie(Redirect::to(LOG_IN).into_response(), &Session::remove_cookie())
}

fn log_in(
    office: &Office,
    visitor: &Session,
    next: &str,
    status: StatusCode,
    problem: Option<&'static str>,
) -> Response {
    let content = LogIn { form_token: office.keys.form_token(visitor), next, problem };
    with_cookie(paint::bare(status, "login.html", &content), &visitor.set_cookie())
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    // A cookie of ours is ASCII, so the value is valid; without it there is no session.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
