//! The search for an org.

use axum::response::Response;
use serde::Serialize;

use super::desk::{Desk, Reply};
use super::paint::Part;
use crate::domain::send::SendState;
use crate::store::overview::{FoundOrg, OrgFilter};

/// Orgs on a page.
const PAGE: u32 = 50;

#[derive(Debug, Serialize)]
struct Search<'a> {
    week: String,
    text: &'a str,
    state: &'a str,
    states: Vec<&'static str>,
    built_in: bool,
    orgs: Vec<Org>,
    /// The id that the next page begins after.
    next: Option<String>,
    first: bool,
}

#[derive(Debug, Serialize)]
struct Org {
    id: String,
    name: Option<String>,
    timezone: String,
    active: bool,
    state: Option<String>,
    reason: Option<String>,
    messages: i32,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(view(&desk)).await
}

async fn view(desk: &Desk) -> Reply {
    let ledger = &desk.office.ledger;
    let query = &desk.query;
    let week = match query.week()? {
        Some(week) => week,
        None => ledger.fallback.latest_slot(desk.now).week,
    };
    let state = query.send_state()?;
    let filter = OrgFilter { text: query.get("q").map(str::to_owned), state };
    let after = query.get("after").unwrap_or_default();
    let built_in = ledger.source.is_built_in();
    // One more than is shown, to know whether there are more.
    let mut found = ledger.store.find_orgs(built_in, week, &filter, after, PAGE + 1).await?;
    let more = found.len() > PAGE as usize;
    found.truncate(PAGE as usize);
    let next = found.last().filter(|_| more).map(|org| org.org.clone());
    let content = Search {
        week: week.to_string(),
        text: query.get("q").unwrap_or_default(),
        state: state.map_or("", SendState::as_str),
        states: SendState::ALL.iter().map(|state| state.as_str()).collect(),
        built_in,
        orgs: found.into_iter().map(org).collect(),
        next,
        first: after.is_empty(),
    };
    Ok(desk.page(Part::Orgs, "orgs.html", &content))
}

fn org(found: FoundOrg) -> Org {
    let FoundOrg { org: id, name, timezone, active, state, reason, messages } = found;
    Org { id, name, timezone, active, state, reason, messages }
}
