//! Says that this replica lives, and measures how far its clock is off.

use std::time::Duration;

use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, host_now};
use crate::metrics::Metrics;
use crate::progress::Pulse;
use crate::store::replicas::Heartbeat;
use crate::store::{Store, StoreError};

/// Between two heartbeats. Three may be missed before the others take a replica for gone.
pub const EVERY: Duration = Duration::from_secs(15);
/// A clock that is further off than this is worth a warning. Nothing is decided by it; logs and
/// certificates suffer.
const TOLERATED: TimeDelta = TimeDelta::seconds(5);

/// Beats until told to stop, then says goodbye.
pub async fn run(store: Store, mut beat: Heartbeat, metrics: Metrics, pulse: Pulse, stop: CancellationToken) {
    let mut warned = false;
    loop {
        match once(&store, &mut beat, &metrics).await {
            Ok(()) => {
                let off = beat.clock_offset.abs() > TOLERATED;
                if off && !warned {
                    tracing::warn!(
                        clock.offset_ms = beat.clock_offset.num_milliseconds(),
                        "this host's clock differs from the database's; decisions follow the database"
                    );
                }
                warned = off;
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a heartbeat could not be sent");
            }
        }
        pulse.touch();
        if stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            break;
        }
    }
    // The others notice a missing goodbye by the missing heartbeats.
    let _ = store.goodbye(beat.replica).await;
}

async fn once(store: &Store, beat: &mut Heartbeat, metrics: &Metrics) -> Result<(), StoreError> {
    if matches!(store.clock(), Clock::Database) {
        let asked_at = host_now();
        let database = store.now().await?;
        let answered_at = host_now();
        // The database read its clock somewhere between the two; the middle is off by half of it at most.
        beat.clock_offset = asked_at + (answered_at - asked_at) / 2 - database;
        metrics.set_clock_offset(beat.clock_offset);
    }
    store.heartbeat(beat).await?;
    metrics.set_replicas_live(store.live_replicas(EVERY * 4).await?.len());
    Ok(())
}
