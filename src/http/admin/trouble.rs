//! Why a page does not show what was asked for, in words.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Serialize;

use super::paint;
use crate::ledger::LedgerError;
use crate::source::SourceError;
use crate::store::StoreError;

/// When to come again after the database did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Why.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nobody is signed in; afterwards the browser goes on to the given path.
    SignIn(String),
    /// A form came from somebody who is not signed in any more.
    SignedOut,
    /// A form was not made for this session, or was sent by another site.
    Forged,
    /// There is no such thing.
    NotFound(String),
    /// What was sent cannot be understood.
    Unusable(String),
    /// A form larger than any of ours.
    TooLarge,
    /// Too many wrong guesses.
    Locked(Duration),
    /// The database or the source did not answer.
    Unavailable,
}

/// What the page of a trouble shows.
#[derive(Debug, Serialize)]
struct Told {
    title: &'static str,
    problem: String,
    sign_in: bool,
}

impl Trouble {
    pub(super) fn unusable(what: &str) -> Self {
        Self::Unusable(what.to_owned())
    }

    /// A failure of what the page is read from. It is logged here, and shown without detail.
    pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error, "An admin page could not be served");
        Self::Unavailable
    }

    fn told(&self) -> (StatusCode, Told) {
        let (status, title, problem) = match self {
            Self::SignIn(_) | Self::SignedOut => (
                StatusCode::FORBIDDEN,
                "You are signed out",
                "Nothing was changed. Sign in, and do it again.".to_owned(),
            ),
            Self::Forged => (
                StatusCode::FORBIDDEN,
                "That form was not from here",
                "Nothing was changed. Open the page again and send its form from there.".to_owned(),
            ),
            Self::NotFound(what) => (StatusCode::NOT_FOUND, "Not found", what.clone()),
            Self::Unusable(what) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "That cannot be understood",
                format!("Nothing was changed. Not understood: {what}."),
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "That was too much at once",
                "Nothing was changed. Choose fewer at a time.".to_owned(),
            ),
            Self::Locked(left) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many wrong tokens",
                format!("Try again in {} seconds.", left.as_secs() + 1),
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The database does not answer",
                "Try again in a moment. The log says more.".to_owned(),
            ),
        };
        (status, Told { title, problem, sign_in: matches!(self, Self::SignedOut) })
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::failed(&error)
    }
}

impl From<LedgerError> for Trouble {
    fn from(error: LedgerError) -> Self {
        Self::failed(&error)
    }
}

impl From<SourceError> for Trouble {
    fn from(error: SourceError) -> Self {
        Self::failed(&error)
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        if let Self::SignIn(next) = &self {
            return Redirect::to(&super::door::path_to(next)).into_response();
        }
        let (status, told) = self.told();
        let mut response = paint::bare(status, "trouble.html", &told);
        let retry = match self {
            Self::Locked(left) => Some(left.as_secs() + 1),
            Self::Unavailable => Some(RETRY_AFTER.as_secs()),
            _ => None,
        };
        if let Some(seconds) = retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
