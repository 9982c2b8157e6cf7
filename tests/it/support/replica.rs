//! A replica inside the test: the real parts, whose steps the test takes by itself.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use chrono::TimeDelta;
use digestd::app::{cleanup_of, deliver_of, gate_settings, key_ring, open_store, source_of, tick_of};
use digestd::cleanup::Cleanup;
use digestd::cleanup::close::Closed;
use digestd::cleanup::election::Election;
use digestd::clock::Clock;
use digestd::config::Config;
use digestd::deliver::Deliver;
use digestd::deliver::gate::{Gate, GateSettings};
use digestd::deliver::journal::MarkAnswer;
use digestd::domain::ids::{GuardOwner, MessageId, ReplicaId, Token};
use digestd::domain::message::{Fence, Leased};
use digestd::mail::transport::Connection;
use digestd::metrics::Metrics;
use digestd::progress::{Progress, Pulse};
use digestd::store::Store;
use digestd::store::replicas::Heartbeat;
use digestd::tick::sweep::Scope;
use digestd::tick::{Tick, TickReport};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::eventually;

/// Messages leased at once.
const LEASED: usize = 16;

/// The parts of one replica, put together as a process does it, without its loops.
pub struct Replica {
    pub store: Store,
    pub tick: Tick,
    pub deliver: Deliver,
    pub metrics: Metrics,
    cleanup: Cleanup,
    election: Election,
    gate: GateSettings,
    connection: Option<Connection>,
    journal: JoinHandle<()>,
    pulse: Pulse,
    stop: CancellationToken,
}

impl Replica {
    /// Boots on a migrated database.
    pub async fn boot(config: &Config, clock: &Clock) -> Self {
        let id = ReplicaId::random();
        let store = open_store(config, clock.clone()).expect("a URL of ours");
        let metrics = Metrics::new();
        let keys = key_ring(config, &store).await.expect("the installation's key");
        let source = source_of(config, &store).expect("the built-in directory");
        let tick = tick_of(config, &store, source.clone(), keys, id, &metrics).await.expect("a tick");
        let (deliver, journal) = deliver_of(config, &store, source.clone(), id, &metrics).expect("delivery");
        let cleanup = cleanup_of(config, &store, source, None, &metrics).await.expect("housekeeping");
        let election = Election::new(store.clone(), id);
        let gate = gate_settings(&config.relay, id);
        let pulse = Progress::new().watch("steps", std::time::Duration::MAX);
        let stop = CancellationToken::new();
        Self {
            store,
            tick,
            deliver,
            metrics,
            cleanup,
            election,
            gate,
            connection: None,
            journal,
            pulse,
            stop,
        }
    }

    /// What ends its journal where it stands.
    pub fn journal(&self) -> AbortHandle {
        self.journal.abort_handle()
    }

    /// One look for due orgs.
    pub async fn sweep(&self, scope: Scope) -> TickReport {
        self.tick.sweep(scope, &self.pulse, &self.stop).await.expect("a sweep")
    }

    /// Takes over what others have left.
    pub async fn rescue(&self) -> TickReport {
        self.tick.rescue(&self.pulse, &self.stop).await.expect("a rescue")
    }

    /// Leases messages as the gate allows.
    pub async fn lease(&self) -> Vec<Leased> {
        self.deliver.lease(self.deliver.places().max(LEASED)).await.expect("a lease")
    }

    /// Settles lost leases, then delivers whatever is due until nothing is.
    pub async fn deliver(&mut self) {
        // The gate believes the relay's state for a second of real time, in which hours pass here.
        self.deliver.gate = Gate::new(self.store.clone(), self.gate.clone(), self.metrics.clone());
        self.deliver.sweep().await.expect("a sweep of leases");
        let mut delivered = false;
        loop {
            let leased = self.lease().await;
            if leased.is_empty() {
                break;
            }
            delivered = true;
            for message in leased {
                if self.deliver.gate.may_try(message.id) {
                    self.deliver.deliver_one(&mut self.connection, message).await;
                }
            }
        }
        if delivered {
            // The journal writes in order: an answer about no message means that all results are written.
            let nothing = Fence { id: MessageId(-1), token: Token(0) };
            let answer = self.deliver.journal.mark(nothing, GuardOwner::random()).await;
            assert!(matches!(answer, MarkAnswer::Superseded), "{answer:?}");
        }
    }

    /// Looks for due orgs, takes over, delivers and keeps house, as the loops do: what fails is left for the
    /// next time.
    pub async fn go_round(&mut self) {
        let (pulse, stop) = (&self.pulse, &self.stop);
        drop(self.tick.sweep(Scope::Everything, pulse, stop).await);
        drop(self.tick.rescue(pulse, stop).await);
        self.try_to_deliver().await;
        if self.election.stand().await.is_ok_and(|leads| leads) {
            let (election, pulse, stop) = (&mut self.election, &self.pulse, &self.stop);
            drop(self.cleanup.count_ends().await);
            drop(self.cleanup.close_weeks(election, pulse, stop).await);
            drop(self.cleanup.count_unsettled(election, pulse, stop).await);
            drop(self.cleanup.delete_old(election, pulse, stop).await);
        }
    }

    /// Delivers what can be delivered, and waits until all of it is recorded.
    pub async fn try_to_deliver(&mut self) {
        self.deliver.gate = Gate::new(self.store.clone(), self.gate.clone(), self.metrics.clone());
        let beat = Heartbeat {
            replica: self.gate.replica,
            host: "here".to_owned(),
            version: "test",
            clock_offset: TimeDelta::zero(),
            connections: 4,
        };
        drop(self.store.heartbeat(&beat).await);
        drop(self.deliver.sweep().await);
        while let Ok(leased) = self.deliver.lease(LEASED).await
            && !leased.is_empty()
        {
            for message in leased {
                self.deliver.try_one(&mut self.connection, message).await;
            }
        }
        let nothing = Fence { id: MessageId(-1), token: Token(0) };
        // Lost as long as the journal has something left to try again; each lost one is one more to take back.
        eventually("a journal that has written everything", Duration::from_mins(1), async || {
            let answer = self.deliver.journal.mark(nothing, GuardOwner::random()).await;
            matches!(answer, MarkAnswer::Superseded).then_some(())
        })
        .await;
    }

    /// Keeps house, if this replica leads. Says what was closed.
    pub async fn keep_house(&mut self) -> Closed {
        if !self.election.stand().await.expect("an election") {
            return Closed::default();
        }
        self.cleanup.count_ends().await.expect("ends of commands");
        let (election, pulse, stop) = (&mut self.election, &self.pulse, &self.stop);
        let closed = self.cleanup.close_weeks(election, pulse, stop).await.expect("closed weeks");
        self.cleanup.count_unsettled(election, pulse, stop).await.expect("a count");
        self.cleanup.delete_old(election, pulse, stop).await.expect("deletions");
        closed
    }

    /// Ends as a killed process does: nothing new is written. Returns once the database has answered
    /// whatever it had been asked before.
    pub async fn die(self) {
        self.journal.abort();
        drop((self.tick, self.deliver, self.connection, self.cleanup, self.election));
        // Aborted, so an error is what it ends with.
        drop(self.journal.await);
        self.store.close().await;
    }

    /// Ends as a stopped process does. Everything that was to be recorded is.
    pub async fn stop(self) {
        drop((self.tick, self.deliver, self.connection, self.cleanup, self.election));
        self.journal.await.expect("no panic in the journal");
        self.store.close().await;
    }
}

/// Runs a step up to its `polls`th wait and then drops it where it stands. Says whether it ended before.
/// A journal dies with it, before it can hear that the step was dropped.
pub async fn broken_off(step: impl Future, polls: usize, journal: Option<AbortHandle>) -> bool {
    let mut step = pin!(step);
    let mut left = polls;
    let ended = std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        step.as_mut().poll(context).map(|_| true)
    })
    .await;
    if let Some(journal) = journal.filter(|_| !ended) {
        journal.abort();
    }
    ended
}
