//! `/metrics`: this process's numbers, and those that are read from the tables.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{HttpState, Shared};
use crate::store::stats::Stats;

/// How old the numbers read from the tables may be at least before they are read again.
const FRESH: Duration = Duration::from_secs(5);
/// Reading them may take up this share of the time: one part in twenty.
const SHARE: u32 = 20;
/// How long reading them may take. A scraper waits ten seconds as a rule.
const PATIENCE: Duration = Duration::from_secs(8);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// When the tables were read last.
#[derive(Debug, Default)]
pub(super) struct Scrape(Mutex<Reading>);

#[derive(Debug, Default)]
struct Reading {
    /// When numbers came last.
    read_at: Option<Instant>,
    /// Before this nothing is read.
    not_before: Option<Instant>,
}

/// The numbers in whichever text format is asked for.
pub(super) async fn metrics(State(state): State<HttpState>, headers: HeaderMap) -> impl IntoResponse {
    let shared = &state.0;
    // Held until the text is written, so that nobody sees half of a reading.
    let mut reading = shared.scrape.0.lock().await;
    if reading.not_before.is_none_or(|at| Instant::now() >= at) {
        read_tables(shared, &mut reading).await;
    }
    // Before the first reading the process's own age is what there is.
    let age = reading.read_at.map_or(Duration::MAX, |at| at.elapsed());
    shared.metrics.set_stats_age(age.min(shared.progress.age()));
    for health in shared.progress.report() {
        shared.metrics.set_loop_idle(health.name, health.idle);
    }
    let wanted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if wanted.contains("application/openmetrics-text") {
        ([(header::CONTENT_TYPE, OPEN_METRICS)], shared.metrics.open_metrics())
    } else {
        ([(header::CONTENT_TYPE, PROMETHEUS)], shared.metrics.prometheus_text())
    }
}

/// Reads the tables; when they cannot be read, the last numbers stay and grow old.
async fn read_tables(shared: &Shared, reading: &mut Reading) {
    let started = Instant::now();
    match timeout(PATIENCE, shared.store.stats()).await {
        Ok(Ok(stats)) => {
            show(shared, &stats);
            reading.read_at = Some(Instant::now());
        }
        Ok(Err(error)) => {
            shared.metrics.store_error(error.class());
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The numbers in the tables could not be read"
            );
        }
        Err(_) => tracing::warn!("The numbers in the tables could not be read in time"),
    }
    let pause = FRESH.max(started.elapsed() * SHARE);
    reading.not_before = Some(Instant::now() + pause);
}

fn show(shared: &Shared, stats: &Stats) {
    let metrics = &shared.metrics;
    metrics.set_sends(stats.sends.iter().map(|s| (s.week.as_str(), s.state, s.count)));
    for (state, n) in &stats.messages {
        metrics.set_outbox(*state, *n);
    }
    metrics.set_oldest_pending(stats.oldest_due);
    metrics.set_opt_outs(stats.opt_outs);
    metrics.set_write_backs(stats.write_backs);
}
