//! A digest sent once more: first a page that says what would happen, then its form.

use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::desk::{Desk, Reply, Sent};
use super::fields::Fields;
use super::notice::Notice;
use super::paint::Part;
use super::trouble::Trouble;
use crate::domain::address::Address;
use crate::domain::ids::OrgId;
use crate::domain::week::WeekKey;
use crate::resend;

/// How long the confirmation may stay open. The moment that it was opened becomes the resend's key, so that
/// a form sent twice asks once.
const OPEN_FOR: TimeDelta = TimeDelta::hours(1);

#[derive(Debug, Serialize)]
struct Confirm<'a> {
    org: &'a str,
    week: String,
    first_day: String,
    last_day: String,
    to: &'a str,
    asked_at: i64,
    now: DateTime<Utc>,
}

/// The org and the week that a page or a form is about.
struct Wanted {
    week: WeekKey,
    resend: resend::Resend,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(Box::pin(view(&desk))).await
}

async fn view(desk: &Desk) -> Reply {
    let wanted = wanted(desk, &desk.query, desk.now).await?;
    let content = Confirm {
        org: wanted.resend.org.as_str(),
        week: wanted.week.to_string(),
        first_day: wanted.resend.period.first.to_string(),
        last_day: wanted.resend.period.last.to_string(),
        to: wanted.resend.only.as_ref().map_or("", Address::normal),
        asked_at: desk.now.timestamp_millis(),
        now: desk.now,
    };
    Ok(desk.page(Part::Orgs, "resend.html", &content))
}

/// Asks for the resend that was confirmed.
pub(super) async fn ask(sent: Sent) -> Response {
    sent.desk.answer(Box::pin(do_ask(&sent))).await
}

async fn do_ask(Sent { desk, fields }: &Sent) -> Reply {
    let asked_at = fields.moment("asked_at")?;
    if asked_at > desk.now || asked_at + OPEN_FOR < desk.now {
        return Err(Trouble::unusable("a confirmation that was open for more than an hour; open it again"));
    }
    if fields.get("confirm") != Some("yes") {
        return Err(Trouble::unusable("a resend that was not confirmed; tick the box"));
    }
    let wanted = wanted(desk, fields, asked_at).await?;
    let resend = &wanted.resend;
    if !resend.reaches_somebody(&desk.office.ledger.source).await? {
        let whom = if resend.only.is_some() { "with this address" } else { "who wants the digest" };
        return Err(Trouble::Unusable(format!("a resend to nobody: the org has no active admin {whom}")));
    }
    let notice = match resend.ask(desk.store()).await? {
        Some((send, _)) => {
            tracing::info!(org.id = %resend.org, send.id = %send, "A resend was asked for through the admin pages");
            Notice::Resent
        }
        None => Notice::ResentBefore,
    };
    let query = [("id", resend.org.as_str()), ("week", &wanted.week.to_string())];
    Ok(Desk::back(&notice.on("/admin/org", &query)))
}

async fn wanted(desk: &Desk, fields: &Fields, asked_at: DateTime<Utc>) -> Result<Wanted, Trouble> {
    let ledger = &desk.office.ledger;
    let org: OrgId = fields.org("org")?;
    let unknown = || Trouble::NotFound(format!("There is no active org “{org}”."));
    let schedule = ledger.source.schedule(&org).await?.ok_or_else(unknown)?;
    let schedule = schedule.map_err(|error| Trouble::Unusable(format!("the org's time zone: {error}")))?;
    let slot = match fields.week()? {
        Some(week) => schedule.slot_in(week),
        None => schedule.latest_slot(desk.now),
    };
    if slot.at > desk.now {
        return Err(Trouble::Unusable(format!(
            "a resend of {}, whose digest has not been due yet",
            slot.week
        )));
    }
    let period = ledger.rules.period.of(&schedule, slot.week);
    let resend = resend::Resend { org, period, asked_at, only: fields.to()? };
    Ok(Wanted { week: slot.week, resend })
}
