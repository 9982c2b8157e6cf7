//! `/bounces`: what a bounce processor has learnt of addresses, counted as if the relay had said it.
//!
//! The body is JSON Lines, one object a line, or one JSON array of them:
//!
//! ```json
//! {"address": "ann@acme.example", "kind": "hard", "code": "5.1.1", "message": "0af1…"}
//! ```
//!
//! `kind` is `hard` (there is no such mailbox), `soft` (anything that may pass) or `complaint`; `code` and
//! `message` (the `X-Digestd-Id`) are kept as a note. Nothing is counted of a body that has a mistake in it.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::HttpState;
use super::admin::Keys;
use super::connections::Peer;
use super::strikes::Strikes;
use crate::domain::address::{Address, AddressFault};
use crate::store::suppressions::SuppressionTerms;
use crate::store::{Store, StoreError};

/// The largest body.
pub(super) const MAX_BYTES: usize = 256 * 1024;
/// The most bounces in one body: each is a statement of its own.
const MAX_BOUNCES: usize = 1000;
/// Mistakes told before the rest is only counted.
const MISTAKES_TOLD: usize = 20;
/// How long the database may take over one body.
const PATIENCE: Duration = Duration::from_secs(25);
/// When to try again what could not be stored.
const RETRY_AFTER: Duration = Duration::from_mins(1);
/// Where these suppressions come from, in the table.
const SOURCE: &str = "http";

/// What bounces are let in by, and what they do.
#[derive(Debug)]
pub struct BounceSettings {
    /// The bearer token.
    pub token: SecretString,
    /// When a failing address is left out.
    pub terms: SuppressionTerms,
}

/// The settings, ready for work.
pub(super) struct Desk {
    keys: Keys,
    strikes: Strikes,
    terms: SuppressionTerms,
}

/// A bounce as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    address: String,
    kind: Kind,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Hard,
    Soft,
    Complaint,
}

/// A bounce that can be counted.
#[derive(Debug)]
struct Bounce {
    address: Address,
    kind: Kind,
    note: String,
}

#[derive(Debug, Default, Serialize)]
struct Counted {
    /// Bounces counted, from the first on.
    counted: usize,
    /// Those whose address gets nothing from now on, or did not before.
    suppressed: usize,
}

#[derive(Debug, Serialize)]
struct Refused {
    error: &'static str,
    mistakes: Vec<String>,
}

impl Desk {
    pub(super) fn new(settings: &BounceSettings) -> Self {
        Self { keys: Keys::new(&settings.token), strikes: Strikes::default(), terms: settings.terms }
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// Counts a body of bounces.
pub(super) async fn take(
    State(state): State<HttpState>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Some(desk) = &state.0.bounces else { return StatusCode::NOT_FOUND.into_response() };
    if let Err(refused) = let_in(desk, peer, &headers) {
        return *refused;
    }
    let body = match body {
        Ok(body) => body,
        Err(refused) => return refuse(refused.into_response().status(), "the body was not read", Vec::new()),
    };
    let bounces = match parse(&body) {
        Ok(bounces) => bounces,
        Err(mistakes) => {
            return refuse(StatusCode::UNPROCESSABLE_ENTITY, "nothing was counted", mistakes);
        }
    };
    let mut counted = Counted::default();
    let answered = timeout(PATIENCE, count(&state.0.store, desk.terms, &bounces, &mut counted)).await;
    tracing::info!(bounces = counted.counted, suppressed = counted.suppressed, "Bounces were counted");
    match answered {
        Ok(Ok(())) => json(StatusCode::OK, &counted),
        Ok(Err(error)) => {
            state.0.metrics.store_error(error.class());
            tracing::warn!(error = &error as &dyn std::error::Error, "Bounces could not be counted");
            try_later(json(StatusCode::SERVICE_UNAVAILABLE, &counted), RETRY_AFTER)
        }
        Err(_) => try_later(json(StatusCode::SERVICE_UNAVAILABLE, &counted), RETRY_AFTER),
    }
}

fn let_in(desk: &Desk, peer: IpAddr, headers: &HeaderMap) -> Result<(), Box<Response>> {
    if let Some(left) = desk.strikes.locked(peer) {
        let refused = refuse(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens", Vec::new());
        return Err(Box::new(try_later(refused, left + Duration::from_secs(1))));
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|given| {
        let (scheme, token) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    if token.is_some_and(|token| desk.keys.is_token(token)) {
        desk.strikes.right(peer);
        return Ok(());
    }
    desk.strikes.wrong(peer);
    let mut refused = refuse(StatusCode::UNAUTHORIZED, "the bearer token is missing or wrong", Vec::new());
    refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refused))
}

/// One after the other: what is counted is said even if the database goes away in between.
async fn count(
    store: &Store,
    terms: SuppressionTerms,
    bounces: &[Bounce],
    counted: &mut Counted,
) -> Result<(), StoreError> {
    for Bounce { address, kind, note } in bounces {
        let left_out = match kind {
            Kind::Hard => {
                store.note_address_failure(address, AddressFault::Hard, terms, SOURCE, note).await?
            }
            Kind::Soft => {
                store.note_address_failure(address, AddressFault::Soft, terms, SOURCE, note).await?
            }
            Kind::Complaint => {
                store.suppress(address, SOURCE, Some(note)).await?;
                true
            }
        };
        counted.counted += 1;
        counted.suppressed += usize::from(left_out);
    }
    Ok(())
}

/// Every bounce of a body, or every mistake in it.
fn parse(body: &[u8]) -> Result<Vec<Bounce>, Vec<String>> {
    let text = std::str::from_utf8(body).map_err(|_| vec!["the body is not UTF-8".to_owned()])?;
    let text = text.trim_start_matches('\u{feff}');
    let read: Vec<(usize, Result<Written, serde_json::Error>)> = if text.trim_start().starts_with('[') {
        let items: Vec<serde_json::Value> =
            serde_json::from_str(text).map_err(|error| vec![error.to_string()])?;
        items.into_iter().map(serde_json::from_value).enumerate().collect()
    } else {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines.map(|(at, line)| (at, serde_json::from_str(line))).collect()
    };
    if read.len() > MAX_BOUNCES {
        return Err(vec![format!("{} bounces in one body; at most {MAX_BOUNCES}", read.len())]);
    }
    let (mut bounces, mut mistakes) = (Vec::new(), Vec::new());
    for (at, written) in read {
        match written.map_err(|error| error.to_string()).and_then(bounce) {
            Ok(bounce) => bounces.push(bounce),
            Err(mistake) => mistakes.push(format!("{}: {mistake}", at + 1)),
        }
    }
    if mistakes.is_empty() {
        return Ok(bounces);
    }
    let more = mistakes.len().saturating_sub(MISTAKES_TOLD);
    mistakes.truncate(MISTAKES_TOLD);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
    Err(mistakes)
}

fn bounce(written: Written) -> Result<Bounce, String> {
    let Written { address, kind, code, message } = written;
    let address = Address::parse(&address).map_err(|error| error.to_string())?;
    let said = [code, message.map(|message| format!("message {message}"))];
    let said = said.into_iter().flatten().collect::<Vec<_>>().join(", ");
    // What the database keeps is one line of text.
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let what = match kind {
        Kind::Hard | Kind::Soft => "bounced",
        Kind::Complaint => "complained",
    };
    let note = if said.is_empty() { what.to_owned() } else { format!("{what}: {said}") };
    Ok(Bounce { address, kind, note })
}

fn refuse(status: StatusCode, error: &'static str, mistakes: Vec<String>) -> Response {
    json(status, &Refused { error, mistakes })
}

fn json(status: StatusCode, content: &impl Serialize) -> Response {
    let text = serde_json::to_string(content).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

fn try_later(mut response: Response, after: Duration) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(body: &str) -> Vec<(Kind, String)> {
        let bounces = parse(body.as_bytes()).unwrap();
        bounces.into_iter().map(|bounce| (bounce.kind, bounce.note)).collect()
    }

    #[test]
    fn lines_and_an_array_say_the_same() {
        let lines = r#"{"address":"ann@x.example","kind":"hard","code":"5.1.1","message":"0af1"}

{"address":"bob@x.example","kind":"soft"}
"#;
        let array = r#" [{"address":"ann@x.example","kind":"hard","code":"5.1.1","message":"0af1"},
            {"address":"bob@x.example","kind":"soft"}]"#;
        let expected =
            [(Kind::Hard, "bounced: 5.1.1, message 0af1".to_owned()), (Kind::Soft, "bounced".to_owned())];
        assert_eq!(kinds(lines), expected);
        assert_eq!(kinds(array), expected);
        assert!(kinds("").is_empty());
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let body = "{\"address\":\"x\",\"kind\":\"hard\"}\n{\"address\":\"a@x.example\",\"kind\":\"odd\"}\nnonsense\n";
        let mistakes = parse(body.as_bytes()).unwrap_err();
        assert_eq!(mistakes.len(), 3);
        assert!(mistakes[0].starts_with("1: an address has the form"), "{mistakes:?}");
        assert!(mistakes[1].starts_with("2: unknown variant `odd`"), "{mistakes:?}");
        assert!(parse(b"\xff").is_err() && parse(b"[").is_err());
        assert_eq!(parse("x\n".repeat(30).as_bytes()).unwrap_err().len(), MISTAKES_TOLD + 1);
        let many = "{\"address\":\"a@x.example\",\"kind\":\"soft\"}\n".repeat(MAX_BOUNCES + 1);
        assert_eq!(parse(many.as_bytes()).unwrap_err().len(), 1);
    }
}
