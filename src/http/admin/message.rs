//! One message: where it is, what has happened to it, and what it looks like.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::desk::{Desk, Reply, Sent};
use super::paint::Part;
use super::queue::{Message, act_on, message};
use super::trouble::Trouble;
use crate::http::viewer::mime;

/// The mail's own frame: its styles, and nothing that runs, loads, submits or leaves the frame.
const MAIL_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; \
                           base-uri 'none'; frame-ancestors 'self'";
/// A text part longer than this is cut: it is there to be looked at.
const MAX_TEXT_CHARS: usize = 50_000;

#[derive(Debug, Serialize)]
struct Detail {
    message: Message,
    events: Vec<Event>,
    mail: Option<Mail>,
}

#[derive(Debug, Serialize)]
struct Event {
    at: DateTime<Utc>,
    replica: Option<String>,
    phase: String,
    outcome: String,
    note: Option<String>,
}

/// What is shown of the bytes.
#[derive(Debug, Serialize)]
struct Mail {
    headers: Vec<(&'static str, String)>,
    text: Option<String>,
    html: bool,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(view(&desk)).await
}

async fn view(desk: &Desk) -> Reply {
    let (store, id) = (desk.store(), desk.query.message()?);
    let queued = store.queued(id).await?.ok_or_else(|| unknown(id.0))?;
    let events = store.message_events(id).await?;
    let content = Detail {
        message: message(queued),
        events: events
            .into_iter()
            .map(|event| Event {
                at: event.at,
                replica: event.replica.map(|replica| replica.to_string()),
                phase: event.phase,
                outcome: event.outcome,
                note: event.note.filter(|note| !note.is_empty()),
            })
            .collect(),
        mail: store.message_bytes(id).await?.map(|bytes| read(&bytes)),
    };
    Ok(desk.page(Part::Queue, "message.html", &content))
}

fn unknown(id: i64) -> Trouble {
    Trouble::NotFound(format!("There is no message {id}. Its send may have been deleted by retention."))
}

/// The rendered mail by itself, for the frame.
pub(super) async fn mail(desk: Desk) -> Response {
    desk.answer(bytes(&desk)).await
}

async fn bytes(desk: &Desk) -> Reply {
    let id = desk.query.message()?;
    let gone = || Trouble::NotFound("The bytes of this message are not kept any more.".to_owned());
    let bytes = desk.store().message_bytes(id).await?.ok_or_else(gone)?;
    let html = mime::html(&bytes).ok_or_else(gone)?;
    let mut response = Html(html).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(MAIL_POLICY));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    Ok(response)
}

fn read(bytes: &[u8]) -> Mail {
    let header = |name| Some((name, mime::words(&mime::header(bytes, name)?)));
    let text = mime::text(bytes).map(|text| String::from_utf8_lossy(&text).into_owned());
    Mail {
        headers: ["From", "To", "Subject", "Date", "Message-ID", "X-Digestd-Id"]
            .into_iter()
            .filter_map(header)
            .collect(),
        text: text.map(|text| text.chars().take(MAX_TEXT_CHARS).collect()),
        html: mime::html(bytes).is_some(),
    }
}

/// Does something to this message.
pub(super) async fn act(sent: Sent) -> Response {
    sent.desk.answer(do_act(&sent)).await
}

async fn do_act(Sent { desk, fields }: &Sent) -> Reply {
    let id = fields.message()?;
    if desk.store().queued(id).await?.is_none() {
        return Err(unknown(id.0));
    }
    let notice = act_on(desk, fields, &[id]).await?;
    Ok(Desk::back(&notice.on("/admin/message", &[("id", &id.to_string())])))
}
