//! Messages, told.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::choice::{Filter, all};
use crate::cli::failure::Misuse;
use crate::cli::out;
use crate::domain::ids::MessageId;
use crate::lifecycle::Exit;
use crate::store::Store;
use crate::store::queue::{QueueEvent, Queued};

/// A message as JSON has it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    id: i64,
    uid: &'a str,
    org: &'a str,
    week: &'a str,
    user: &'a str,
    address: &'a str,
    state: &'a str,
    reason: Option<&'a str>,
    attempts: u32,
    next_attempt_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
    marked_at: Option<DateTime<Utc>>,
    resend: bool,
    note: Option<&'a str>,
    created_at: DateTime<Utc>,
    settled_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<ToldEvent<'a>>>,
}

#[derive(Debug, Serialize)]
struct ToldEvent<'a> {
    at: DateTime<Utc>,
    replica: Option<String>,
    phase: &'a str,
    outcome: &'a str,
    note: Option<&'a str>,
}

/// Prints the messages that a filter lets through.
pub(super) async fn list(store: &Store, filter: &Filter, limit: u32, json: bool) -> anyhow::Result<Exit> {
    // One more than is shown, to know whether there are more.
    let mut found = all(store, &filter.to_query(), limit.saturating_add(1)).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    if json {
        out::json(&found.iter().map(|message| told(message, None)).collect::<Vec<_>>())?;
    } else {
        found.iter().for_each(print_line);
    }
    if more {
        out::note("note: there are more; --limit prints them too");
    }
    Ok(Exit::Ok)
}

/// Prints one message with its history.
pub(super) async fn one(store: &Store, id: i64, json: bool) -> anyhow::Result<Exit> {
    let id = MessageId(id);
    let Some(message) = store.queued(id).await? else {
        return Err(Misuse::new(format!("there is no message {id}"))
            .hint("`digestd queue list` prints their ids")
            .into());
    };
    let events = store.message_events(id).await?;
    if json {
        out::json(&told(&message, Some(&events)))?;
        return Ok(Exit::Ok);
    }
    for (name, value) in fields(&message) {
        out::data(format_args!("{name:13} {value}"));
    }
    for event in &events {
        let by = event.replica.map_or_else(String::new, |replica| format!(" by {replica}"));
        let note = event.note.as_deref().filter(|note| !note.is_empty());
        let note = note.map_or_else(String::new, |note| format!(": {note}"));
        out::data(format_args!("{} {} at {}{by}{note}", event.at.to_rfc3339(), event.outcome, event.phase));
    }
    Ok(Exit::Ok)
}

fn fields(message: &Queued) -> Vec<(&'static str, String)> {
    let time = |at: Option<DateTime<Utc>>| at.map_or_else(|| "-".to_owned(), |at| at.to_rfc3339());
    vec![
        ("id", message.id.to_string()),
        ("X-Digestd-Id", message.uid.clone()),
        ("org", message.org.clone()),
        ("week", message.week.clone()),
        ("user", message.user.clone()),
        ("address", message.address.clone()),
        ("state", state(message)),
        ("attempts", message.attempts.to_string()),
        ("next attempt", time(waits(message))),
        ("expires", time(Some(message.expires_at))),
        ("marked", time(message.marked_at)),
        ("resend", if message.resend { "yes" } else { "no" }.to_owned()),
        ("enqueued", time(Some(message.created_at))),
        ("settled", time(message.settled_at)),
        ("note", message.note.clone().unwrap_or_else(|| "-".to_owned())),
    ]
}

fn print_line(message: &Queued) {
    out::data(format_args!(
        "{}\t{}\t{}\t{}\t{}\t{}",
        message.id,
        state(message),
        message.week,
        message.org,
        message.address,
        message.created_at.to_rfc3339()
    ));
}

fn state(message: &Queued) -> String {
    match &message.reason {
        Some(reason) => format!("{} ({reason})", message.state),
        None => message.state.clone(),
    }
}

/// When a message is tried next, if it waits for that.
fn waits(message: &Queued) -> Option<DateTime<Utc>> {
    (message.state == "pending").then_some(message.next_attempt_at)
}

fn told<'a>(message: &'a Queued, events: Option<&'a [QueueEvent]>) -> Told<'a> {
    let event = |event: &'a QueueEvent| ToldEvent {
        at: event.at,
        replica: event.replica.map(|replica| replica.to_string()),
        phase: &event.phase,
        outcome: &event.outcome,
        note: event.note.as_deref(),
    };
    Told {
        id: message.id.0,
        uid: &message.uid,
        org: &message.org,
        week: &message.week,
        user: &message.user,
        address: &message.address,
        state: &message.state,
        reason: message.reason.as_deref(),
        attempts: message.attempts,
        next_attempt_at: waits(message),
        expires_at: message.expires_at,
        marked_at: message.marked_at,
        resend: message.resend,
        note: message.note.as_deref(),
        created_at: message.created_at,
        settled_at: message.settled_at,
        history: events.map(|events| events.iter().map(event).collect()),
    }
}
