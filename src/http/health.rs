//! For the orchestrator: restart me (`/healthz`), send me nothing (`/readyz`).

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::HttpState;
use crate::progress::LoopHealth;
use crate::store::{Store, migrate};

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer holds, so that no number of probes becomes a number of queries.
const HOLDS: Duration = Duration::from_secs(1);

/// The last answer to “does the database answer?”, and when it was given.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, Result<(), String>)>>);

impl Readiness {
    async fn ask(&self, store: &Store) -> Result<(), String> {
        // Whoever comes meanwhile waits for the same answer.
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < HOLDS
        {
            return answer.clone();
        }
        let answer = look(store).await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// A newer schema is fine: migrations keep the release before them running.
async fn look(store: &Store) -> Result<(), String> {
    match timeout(PATIENCE, store.schema_version()).await {
        Err(_) => Err(format!("the database has not answered within {} s", PATIENCE.as_secs())),
        // The error's own text names operations of ours only, never a host or a user.
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(version)) if version < migrate::known_version() => {
            Err("the schema is not up to date".to_owned())
        }
        Ok(Ok(_)) => Ok(()),
    }
}

/// 200 while every loop makes progress, else 503; says for each loop how it is doing.
///
/// The database being away does not stop the loops' progress, so that replicas are not restarted for it.
pub(super) async fn healthz(State(state): State<HttpState>) -> impl IntoResponse {
    let report = state.0.progress.report();
    let status = if report.iter().any(LoopHealth::is_stalled) {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let lines: Vec<String> = report.iter().map(ToString::to_string).collect();
    (status, format!("{}\n", lines.join("\n")))
}

/// 200 when the database answers and has our schema, else 503 with the reason.
pub(super) async fn readyz(State(state): State<HttpState>) -> impl IntoResponse {
    match state.0.readiness.ask(&state.0.store).await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}
