//! `digestd status`.

mod words;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use serde::Serialize;

use super::{Global, out, session};
use crate::app;
use crate::config::Config;
use crate::domain::message::MessageReason;
use crate::domain::week::SendKey;
use crate::heartbeat;
use crate::lifecycle::Exit;
use crate::store::Store;
use crate::store::stats::Tally;

/// How far back resends are counted.
const RESEND_DAYS: TimeDelta = TimeDelta::days(7);
/// How many of the coming slots are shown.
const NEXT_SLOTS: usize = 3;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Everything that stands in a status.
#[derive(Debug, Serialize)]
struct Status {
    now: DateTime<Utc>,
    database: String,
    schema_version: i64,
    replicas: Vec<ReplicaStatus>,
    week: String,
    sends: Vec<Counted>,
    /// Resends of the last days.
    resends: Vec<Counted>,
    messages: Vec<Counted>,
    /// Messages of the week, by final state and reason.
    week_messages: Vec<Counted>,
    oldest_due_seconds: i64,
    relay: RelayStatus,
    next_slots: Vec<NextSlot>,
}

#[derive(Debug, Serialize)]
struct ReplicaStatus {
    id: String,
    host: String,
    version: String,
    started_at: DateTime<Utc>,
    seen_at: DateTime<Utc>,
    clock_offset_ms: i64,
}

#[derive(Debug, Serialize)]
struct Counted {
    #[serde(skip_serializing_if = "Option::is_none")]
    week: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    count: u64,
}

#[derive(Debug, Serialize)]
struct RelayStatus {
    url: String,
    breaker: &'static str,
    paused: bool,
    reason: Option<String>,
    /// What the relay or the system said then.
    note: Option<String>,
    open_until: Option<DateTime<Utc>>,
    rate_factor: f64,
}

#[derive(Debug, Serialize)]
struct NextSlot {
    week: String,
    at: DateTime<Utc>,
    local: String,
    offset_seconds: i32,
    timezone: String,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let status = read(&config, &store).await?;
    if arguments.json {
        out::json(&status)?;
    } else {
        out::data(words::tell(&status));
    }
    Ok(Exit::Ok)
}

async fn read(config: &Config, store: &Store) -> anyhow::Result<Status> {
    let now = store.now().await?;
    let stats = store.stats().await?;
    let schedule = &config.schedule.default;
    let week = schedule.latest_slot(now).week;
    let relay = store.relay(&app::relay_name(&config.relay)).await?;
    let replicas = store.live_replicas(heartbeat::EVERY * 4).await?;
    Ok(Status {
        now,
        database: store.kind().to_string(),
        schema_version: store.schema_version().await?,
        replicas: replicas
            .into_iter()
            .map(|replica| ReplicaStatus {
                id: replica.id.to_string(),
                host: replica.host,
                version: replica.version,
                started_at: replica.started_at,
                seen_at: replica.seen_at,
                clock_offset_ms: replica.clock_offset.num_milliseconds(),
            })
            .collect(),
        week: week.to_string(),
        sends: stats
            .sends
            .into_iter()
            .map(|sends| Counted {
                week: Some(sends.week),
                state: sends.state.as_str(),
                reason: None,
                count: sends.count,
            })
            .collect(),
        resends: store
            .recent_resends(RESEND_DAYS)
            .await?
            .into_iter()
            .map(|(state, count)| Counted { week: None, state: state.as_str(), reason: None, count })
            .collect(),
        messages: stats
            .messages
            .into_iter()
            .map(|(state, count)| Counted { week: None, state: state.as_str(), reason: None, count })
            .collect(),
        week_messages: store
            .week_messages(SendKey::Week(week))
            .await?
            .into_iter()
            .map(|Tally { state, reason, count }| Counted {
                week: None,
                state: state.as_str(),
                reason: reason.map(MessageReason::as_str),
                count,
            })
            .collect(),
        oldest_due_seconds: stats.oldest_due.num_seconds(),
        relay: RelayStatus {
            url: config.relay.url.to_string(),
            breaker: relay.breaker.as_str(),
            paused: relay.paused,
            reason: relay.reason,
            note: relay.note,
            open_until: relay.open_until,
            rate_factor: relay.rate_factor,
        },
        next_slots: next_slots(config, now),
    })
}

/// The slots of orgs that have no schedule of their own.
fn next_slots(config: &Config, now: DateTime<Utc>) -> Vec<NextSlot> {
    let schedule = &config.schedule.default;
    schedule
        .upcoming(now)
        .take(NEXT_SLOTS)
        .map(|slot| schedule.local_slot(slot))
        .map(|local| NextSlot {
            week: local.slot.week.to_string(),
            at: local.slot.at,
            local: local.local.format("%a %Y-%m-%d %H:%M").to_string(),
            offset_seconds: local.offset_seconds,
            timezone: schedule.zone.to_string(),
        })
        .collect()
}
