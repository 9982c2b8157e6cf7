//! One org's story: what `digestd explain` tells.

use axum::response::Response;
use serde::Serialize;

use super::desk::{Desk, Reply, Sent};
use super::notice::Notice;
use super::paint::Part;
use super::trouble::Trouble;
use crate::domain::send::SendState;
use crate::ledger::story::Story;
use crate::ledger::whom::Whom;
use crate::resend::GIVE_UP;

#[derive(Debug, Serialize)]
struct Org {
    story: Story,
    /// The week's send ended without messages, and may be tried again.
    may_reopen: bool,
    /// The week's digest has been due, and may be sent once more.
    may_resend: bool,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(Box::pin(view(&desk))).await
}

async fn view(desk: &Desk) -> Reply {
    let org = desk.query.org("id")?;
    let to = desk.query.get("to").map(Whom::new);
    let story = desk.office.ledger.explain(&org, desk.query.week()?, to.as_ref()).await?;
    if story.slot.is_none() && story.sends.is_empty() {
        return Err(Trouble::NotFound(story.outcome));
    }
    let ended = |state: SendState| {
        story.sends.first().is_some_and(|send| send.key == story.week && send.state == state.as_str())
    };
    let content = Org {
        may_reopen: ended(SendState::Failed) || ended(SendState::Missed),
        may_resend: story.slot.as_ref().is_some_and(|slot| slot.at <= story.now),
        story,
    };
    Ok(desk.page(Part::Orgs, "org.html", &content))
}

/// Tries a send again that failed or was missed.
pub(super) async fn reopen(sent: Sent) -> Response {
    sent.desk.answer(do_reopen(&sent)).await
}

async fn do_reopen(Sent { desk, fields }: &Sent) -> Reply {
    let org = fields.org("id")?;
    let week = fields.week()?.ok_or_else(|| Trouble::unusable("a form without a week"))?;
    let mut reopened = Vec::new();
    for state in [SendState::Failed, SendState::Missed] {
        reopened.extend(desk.store().reopen(week, Some(&org), state, GIVE_UP, 1).await?);
    }
    let notice = if reopened.is_empty() { Notice::NotReopened } else { Notice::Reopened };
    let query = [("id", org.as_str()), ("week", &week.to_string())];
    Ok(Desk::back(&notice.on("/admin/org", &query)))
}
