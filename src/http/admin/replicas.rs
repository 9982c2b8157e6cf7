//! Who runs, and how far each one's clock is off.

use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::desk::{Desk, Reply};
use super::paint::Part;
use crate::heartbeat;
use crate::ledger::words::span;

/// A clock that is further off misleads whoever reads that host's logs.
const ODD_CLOCK_MS: u64 = 1000;

#[derive(Debug, Serialize)]
struct Replicas {
    now: DateTime<Utc>,
    replicas: Vec<Replica>,
}

#[derive(Debug, Serialize)]
struct Replica {
    id: String,
    host: String,
    version: String,
    up: String,
    seen: String,
    clock_offset_ms: String,
    clock_is_odd: bool,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(view(&desk)).await
}

async fn view(desk: &Desk) -> Reply {
    let replicas = desk.store().live_replicas(heartbeat::EVERY * 4).await?;
    let replicas = replicas.into_iter().map(|replica| {
        let offset = replica.clock_offset.num_milliseconds();
        Replica {
            id: replica.id.to_string(),
            host: replica.host,
            version: replica.version,
            up: span(desk.now - replica.started_at),
            seen: span(desk.now - replica.seen_at),
            clock_offset_ms: format!("{offset:+}"),
            clock_is_odd: offset.unsigned_abs() > ODD_CLOCK_MS,
        }
    });
    let content = Replicas { now: desk.now, replicas: replicas.collect() };
    Ok(desk.page(Part::Replicas, "replicas.html", &content))
}
