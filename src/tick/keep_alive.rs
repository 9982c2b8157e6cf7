//! Renewing claims while their work goes on.

use std::time::Duration;

use chrono::TimeDelta;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::domain::ids::{Epoch, SendId};
use crate::domain::send::Claim;
use crate::store::Store;

/// Renews claims at a third of their lease until [`KeepAlive::end`], or until it is dropped by a panic:
/// then nobody works on them any more.
pub(super) struct KeepAlive {
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl KeepAlive {
    pub fn start(store: &Store, claims: &[Claim], lease: TimeDelta) -> Self {
        let held: Vec<(SendId, Epoch)> = claims.iter().map(|claim| (claim.send, claim.epoch)).collect();
        let stop = CancellationToken::new();
        let task = tokio::spawn(renew(store.clone(), held, lease, stop.clone()));
        Self { stop: stop.drop_guard(), task }
    }

    /// Ends the renewing, letting a renewal under way finish.
    pub async fn end(self) {
        drop(self.stop);
        // The task ends by itself and cannot panic in a way that matters: claims merely expire.
        let _ = self.task.await;
    }
}

async fn renew(store: Store, mut held: Vec<(SendId, Epoch)>, lease: TimeDelta, stop: CancellationToken) {
    let third = lease.to_std().unwrap_or(Duration::from_secs(1)) / 3;
    while stop.run_until_cancelled(tokio::time::sleep(third)).await.is_some() {
        match store.renew(&held, lease).await {
            // What is missing is ended or superseded, and not to be renewed again.
            Ok(left) => held.retain(|(send, _)| left.contains(send)),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "claims could not be renewed");
            }
        }
        if held.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::store::ConnectOptions;
    use crate::store::connect::Target;

    // A tick that was dropped half-way left its renewal running: claims that nobody worked on were
    // kept alive for as long as the process lived. Killing ticks between two polls showed it.
    #[tokio::test]
    async fn a_renewal_ends_with_the_work_that_it_is_for() {
        let options = ConnectOptions {
            // Never opened: the first renewal is a third of the lease away.
            target: Target::Sqlite("/nowhere/digestd.db".into()),
            pool: 1,
            schema: String::new(),
            pgbouncer: false,
            clock: Clock::Database,
        };
        let store = Store::open(&options).unwrap();
        let keep_alive = KeepAlive::start(&store, &[], TimeDelta::hours(1));
        let renewal = keep_alive.task.abort_handle();
        drop(keep_alive);
        let ended = async {
            while !renewal.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    }
}
