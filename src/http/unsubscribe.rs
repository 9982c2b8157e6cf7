//! One-click unsubscribe (RFC 8058) and the page behind the same link.
//!
//! GET and HEAD change nothing: mail gateways open every link. POST acts at once, without cookies,
//! log-in, redirect or second step, and may be repeated. It answers 200 only when the choice is stored.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::gate::Gate;
use super::page::{ACTION_ALL, ACTION_ORG, ACTION_RESUBSCRIBE, Done, Standing, Trouble};
use super::words::Language;
use super::{HttpState, Shared};
use crate::domain::text;
use crate::domain::token::{Opened, Scope, UNSUBSCRIBE_PATH};
use crate::metrics::OptOutChange;
use crate::store::StoreError;
use crate::store::opt_outs::Subscription;

/// How long one request may wait for the database; mailbox providers wait about ten seconds.
const PATIENCE: Duration = Duration::from_secs(8);
/// When to try again what could not be stored.
const RETRY_AFTER: Duration = Duration::from_mins(1);
/// As much of an org's name as the page shows.
const NAME_CHARS: usize = 80;
/// Where opt-outs of this page come from, in the table.
const SOURCE: &str = "link";

/// What a POST asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Unsubscribe(Scope),
    Resubscribe,
}

/// Shows the page; changes nothing.
pub(super) async fn show(State(state): State<HttpState>, uri: Uri, headers: HeaderMap) -> Response {
    answer(&state.0, &uri, &headers, |_| None).await
}

/// Does what the page's buttons or a mail program's one click ask for.
pub(super) async fn act(
    State(state): State<HttpState>,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match body {
        Ok(body) => {
            answer(&state.0, &uri, &headers, |opened| Some(action(&headers, &body, opened.scope))).await
        }
        Err(refused) => {
            let large = refused.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE;
            let trouble = if large { Trouble::TooLarge } else { Trouble::Unreadable };
            state.0.page.trouble(state.0.page.language(&headers), trouble)
        }
    }
}

async fn answer(
    shared: &Shared,
    uri: &Uri,
    headers: &HeaderMap,
    action: impl FnOnce(Opened) -> Option<Action>,
) -> Response {
    let language = shared.page.language(headers);
    let token = uri.path().rsplit_once(UNSUBSCRIBE_PATH).map_or("", |(_, token)| token);
    let Some(opened) = shared.keys.open(token) else {
        return shared.page.trouble(language, Trouble::UnknownLink);
    };
    if !shared.gate.admit() {
        return retry_later(shared.page.trouble(language, Trouble::TooMany), Gate::retry_after());
    }
    match timeout(PATIENCE, work(shared, language, opened, action(opened))).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            shared.metrics.store_error(error.class());
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "An unsubscribe link could not be served"
            );
            retry_later(shared.page.trouble(language, Trouble::Unavailable), RETRY_AFTER)
        }
        Err(_) => {
            tracing::warn!("An unsubscribe link could not be served in time");
            retry_later(shared.page.trouble(language, Trouble::Unavailable), RETRY_AFTER)
        }
    }
}

async fn work(
    shared: &Shared,
    language: &Language,
    opened: Opened,
    action: Option<Action>,
) -> Result<Response, StoreError> {
    let _turn = shared.gate.turn().await;
    let store = &shared.store;
    let Some(subscription) = store.subscription(opened.subscription).await? else {
        return Ok(shared.page.trouble(language, Trouble::UnknownLink));
    };
    let done = match action {
        None => Done::Nothing,
        Some(action) => {
            apply(shared, &subscription, action).await?;
            Done::Stored
        }
    };
    let scopes = store.scopes_opted_out(&subscription.address, &subscription.org).await?;
    // The name from the mail: the org may be gone, or known to the application's database only.
    let name = text::clean(&subscription.org_name);
    let name = Some(text::truncate(&name, NAME_CHARS)).filter(|name| !name.is_empty());
    Ok(shared.page.standing(language, Standing::of(name.as_deref(), &scopes), done))
}

async fn apply(shared: &Shared, subscription: &Subscription, action: Action) -> Result<(), StoreError> {
    let Subscription { org, address, .. } = subscription;
    let change = match action {
        Action::Unsubscribe(Scope::Org) => {
            shared.store.opt_out(address, Some(org), SOURCE).await?;
            OptOutChange::Org
        }
        Action::Unsubscribe(Scope::All) => {
            shared.store.opt_out(address, None, SOURCE).await?;
            OptOutChange::All
        }
        Action::Resubscribe => {
            shared.store.resubscribe(address, org).await?;
            OptOutChange::Resubscribed
        }
    };
    shared.metrics.opt_out_changed(change);
    tracing::info!(org.id = %org, change = ?change, "A choice made through an unsubscribe link was stored");
    Ok(())
}

/// Our own forms name an action. Whatever else arrives (what RFC 8058 prescribes, as a form or as
/// multipart, an empty body, something odd) is a click on “unsubscribe”.
fn action(headers: &HeaderMap, body: &[u8], scope: Scope) -> Action {
    let is_form = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    let fields = || body.split(|&byte| byte == b'&');
    let one_click = fields().any(|field| field.eq_ignore_ascii_case(b"List-Unsubscribe=One-Click"));
    if !is_form || one_click {
        return Action::Unsubscribe(scope);
    }
    // The values are words of ours, which no browser encodes.
    let named = fields().find_map(|field| field.strip_prefix(b"action="));
    match named.and_then(|value| std::str::from_utf8(value).ok()) {
        Some(ACTION_ORG) => Action::Unsubscribe(Scope::Org),
        Some(ACTION_ALL) => Action::Unsubscribe(Scope::All),
        Some(ACTION_RESUBSCRIBE) => Action::Resubscribe,
        _ => Action::Unsubscribe(scope),
    }
}

fn retry_later(mut response: Response, after: Duration) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, body: &str, expected: Action) {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())]);
        assert_eq!(action(&headers, body.as_bytes(), Scope::Org), expected, "{kind}: {body}");
    }

    #[test]
    fn only_our_own_form_can_ask_for_anything_but_the_link_s_own_scope() {
        const FORM: &str = "application/x-www-form-urlencoded";
        let click = Action::Unsubscribe(Scope::Org);
        check(FORM, "List-Unsubscribe=One-Click", click);
        check(FORM, "List-Unsubscribe=One-Click&action=resubscribe", click);
        check("multipart/form-data; boundary=x", "--x\r\n\r\naction=resubscribe", click);
        check("text/plain", "action=resubscribe", click);
        check("", "", click);
        check(FORM, "", click);
        check(FORM, "action=%00", click);
        check(FORM, "action=org", click);
        check(FORM, "action=all", Action::Unsubscribe(Scope::All));
        check("application/x-www-form-urlencoded;charset=UTF-8", "action=resubscribe", Action::Resubscribe);
    }
}
