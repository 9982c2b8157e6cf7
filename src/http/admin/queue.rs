//! The outbox: messages by state, org, week, address and age, and what may be done to them.

use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::desk::{Desk, Reply, Sent};
use super::fields::Fields;
use super::notice::{Act, Notice};
use super::paint::Part;
use super::trouble::Trouble;
use crate::domain::ids::MessageId;
use crate::domain::message::MessageState;
use crate::store::queue::{QueueAct, QueueFilter, Queued};
use crate::store::stats::UNFINISHED;

/// Messages on a page.
const PAGE: u32 = 100;

/// How long ago, as the filter offers it.
const AGES: [(&str, &str, TimeDelta); 4] = [
    ("1h", "an hour", TimeDelta::hours(1)),
    ("6h", "6 hours", TimeDelta::hours(6)),
    ("1d", "a day", TimeDelta::days(1)),
    ("3d", "3 days", TimeDelta::days(3)),
];

/// The filter's own word for every state there is.
const ANY: &str = "any";

#[derive(Debug, Serialize)]
struct Queue<'a> {
    filter: Filter<'a>,
    states: Vec<&'static str>,
    ages: Vec<(&'static str, &'static str)>,
    messages: Vec<Message>,
    next: Option<i64>,
    first: bool,
}

/// The filter as it was asked for.
#[derive(Debug, Serialize)]
struct Filter<'a> {
    state: &'a str,
    org: &'a str,
    week: &'a str,
    to: &'a str,
    older: &'a str,
}

/// A message as pages show it.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    pub id: i64,
    pub uid: String,
    pub org: String,
    pub week: String,
    pub user: String,
    pub address: String,
    pub state: String,
    pub reason: Option<String>,
    pub attempts: u32,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub expires_at: DateTime<Utc>,
    pub marked_at: Option<DateTime<Utc>>,
    pub resend: bool,
    pub note: Option<String>,
    pub created_at: DateTime<Utc>,
    pub settled_at: Option<DateTime<Utc>>,
    /// What may be done to it, by its state.
    pub acts: &'static [&'static str],
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(view(&desk)).await
}

async fn view(desk: &Desk) -> Reply {
    let query = &desk.query;
    let wanted = filter(query)?;
    // One more than is shown, to know whether there are more.
    let mut found = desk.store().list_queue(&wanted, query.after_message()?, PAGE + 1).await?;
    let more = found.len() > PAGE as usize;
    found.truncate(PAGE as usize);
    let field = |name| query.get(name).unwrap_or_default();
    let content = Queue {
        filter: Filter {
            state: field("state"),
            org: field("org"),
            week: field("week"),
            to: field("to"),
            older: field("older"),
        },
        states: MessageState::ALL.iter().map(|state| state.as_str()).collect(),
        ages: AGES.iter().map(|(name, text, _)| (*name, *text)).collect(),
        next: found.last().filter(|_| more).map(|message| message.id.0),
        messages: found.into_iter().map(message).collect(),
        first: query.get("after").is_none(),
    };
    Ok(desk.page(Part::Queue, "queue.html", &content))
}

/// Without a state, what is not settled: the settled ones are millions.
fn filter(query: &Fields) -> Result<QueueFilter, Trouble> {
    let states = match query.get("state") {
        None => UNFINISHED.to_vec(),
        Some(ANY) => Vec::new(),
        Some(_) => query.message_state()?.into_iter().collect(),
    };
    let older = query.get("older").map(|name| {
        let age = AGES.iter().find(|(known, ..)| *known == name);
        age.map(|(.., span)| *span).ok_or_else(|| Trouble::unusable("the age"))
    });
    Ok(QueueFilter {
        states,
        org: query.get("org").map(str::to_owned),
        week: query.key()?.map(|key| key.to_string()),
        to: query.to()?.map(|to| to.normal().to_owned()),
        older: older.transpose()?,
    })
}

pub(super) fn message(queued: Queued) -> Message {
    let acts: &[&str] = match MessageState::parse(&queued.state) {
        Some(MessageState::Pending | MessageState::Leased) => &["cancel"],
        Some(MessageState::Failed | MessageState::Expired | MessageState::Cancelled) => &["retry"],
        Some(MessageState::Uncertain) => &["accepted", "resend"],
        _ => &[],
    };
    Message {
        id: queued.id.0,
        uid: queued.uid,
        org: queued.org,
        week: queued.week,
        user: queued.user,
        address: queued.address,
        // A resend is put before the others by a moment in the past, which would only puzzle here.
        next_attempt_at: (queued.state == "pending").then(|| queued.next_attempt_at.max(queued.created_at)),
        state: queued.state,
        reason: queued.reason,
        attempts: queued.attempts,
        expires_at: queued.expires_at,
        marked_at: queued.marked_at,
        resend: queued.resend,
        note: queued.note,
        created_at: queued.created_at,
        settled_at: queued.settled_at,
        acts,
    }
}

/// Does something to the messages that are ticked.
pub(super) async fn act(sent: Sent) -> Response {
    sent.desk.answer(do_act(&sent)).await
}

async fn do_act(Sent { desk, fields }: &Sent) -> Reply {
    let ids = fields.messages()?;
    if ids.is_empty() {
        return Err(Trouble::unusable("which messages are meant; tick some, and choose again"));
    }
    let notice = act_on(desk, fields, &ids).await?;
    let filter: Vec<(&str, &str)> = ["state", "org", "week", "to", "older"]
        .iter()
        .filter_map(|name| Some((*name, fields.get(name)?)))
        .collect();
    Ok(Desk::back(&notice.on("/admin/queue", &filter)))
}

/// Does what a form asks for, and says what came of it.
pub(super) async fn act_on(desk: &Desk, fields: &Fields, ids: &[MessageId]) -> Result<Notice, Trouble> {
    let act =
        fields.get("act").and_then(Act::parse).ok_or_else(|| Trouble::unusable("what is to be done"))?;
    let office = &desk.office;
    let done = desk
        .store()
        .act_on_queue(
            match act {
                Act::Retry => QueueAct::Retry { live_for: office.max_age },
                Act::Cancel => QueueAct::Cancel,
                Act::Accepted => QueueAct::ResolveAccepted,
                Act::Resend => QueueAct::ResolveResend { max_attempts: office.max_attempts },
            },
            ids,
        )
        .await?;
    let (done, all) = (counted(done.len()), counted(ids.len()));
    tracing::info!(act = act.as_str(), messages = done, "Messages were changed through the admin pages");
    Ok(Notice::Acted { act, done, left: all.saturating_sub(done) })
}

fn counted(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
