//! The relay's state, and the operator's pause.

use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::desk::{Desk, Reply, Sent};
use super::notice::Notice;
use super::paint::Part;
use super::trouble::Trouble;

#[derive(Debug, Serialize)]
struct Relay<'a> {
    name: &'a str,
    breaker: &'static str,
    paused: bool,
    reason: Option<String>,
    note: Option<String>,
    failures: u32,
    open_until: Option<DateTime<Utc>>,
    closed_at: Option<DateTime<Utc>>,
    throttled_at: Option<DateTime<Utc>>,
    percent: u32,
    pending: u64,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(view(&desk)).await
}

async fn view(desk: &Desk) -> Reply {
    let name = desk.office.relay.as_str();
    let relay = desk.store().relay(name).await?;
    let stats = desk.store().stats().await?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share between 0 and 1, shown as whole per cents"
    )]
    let percent = (relay.rate_factor.clamp(0.0, 1.0) * 100.0).round() as u32;
    let content = Relay {
        name,
        breaker: relay.breaker.as_str(),
        paused: relay.paused,
        reason: relay.reason,
        note: relay.note,
        failures: relay.failures,
        open_until: relay.open_until,
        closed_at: relay.closed_at,
        throttled_at: relay.throttled_at,
        percent,
        pending: stats.messages_in(crate::domain::message::MessageState::Pending),
    };
    Ok(desk.page(Part::Relay, "relay.html", &content))
}

/// Pauses deliveries of all replicas, or lets them go on.
pub(super) async fn act(sent: Sent) -> Response {
    sent.desk.answer(do_act(&sent)).await
}

async fn do_act(Sent { desk, fields }: &Sent) -> Reply {
    let (paused, notice) = match fields.get("act") {
        Some("pause") => (true, Notice::Paused),
        Some("resume") => (false, Notice::Resumed),
        _ => return Err(Trouble::unusable("what is to be done")),
    };
    desk.store().relay_pause(&desk.office.relay, paused).await?;
    tracing::info!(paused, "Deliveries were paused or resumed through the admin pages");
    Ok(Desk::back(&notice.on("/admin/relay", &[])))
}
