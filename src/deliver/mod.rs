//! From the outbox to the relay.
//!
//! One leaser per replica feeds the connections through a short queue. A connection takes a message,
//! hands it over ([`attempt`]), and tells the [`journal`]. Whatever a dead replica has left behind is
//! settled by [`Deliver::sweep`] on any other.

pub mod attempt;
pub mod classify;
pub mod gate;
pub mod journal;
pub mod providers;
pub mod rules;
pub mod streak;

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::domain::address::{Address, AddressFault};
use crate::domain::ids::GuardOwner;
use crate::domain::message::{Disposition, Fence, Finished, Leased, MessageReason};
use crate::domain::retry::RetryPolicy;
use crate::faults::{self, Point};
use crate::guard::Guard;
use crate::mail::transport::{Connection, Transport};
use crate::metrics::Metrics;
use crate::progress::{Progress, Pulse};
use crate::source::{Member, Source};
use crate::store::outbox::{LeaseTerms, Swept};
use crate::store::suppressions::SuppressionTerms;
use crate::store::{Store, StoreError};
use attempt::Attempt;
use classify::RelayEffect;
use gate::Gate;
use journal::Journal;
use providers::Overrides;

/// Everything that delivery needs, the same for every connection of a replica.
#[derive(Debug)]
pub struct Deliver {
    /// The outbox.
    pub store: Store,
    /// Who is an admin right now.
    pub source: Source,
    /// The relay, or a folder.
    pub transport: Transport,
    /// The envelope sender.
    pub from: Address,
    /// Fingerprints across sends and installations.
    pub guard: Guard,
    /// The relay's state, shared by all replicas.
    pub gate: Gate,
    /// Markers and results.
    pub journal: Journal,
    /// How messages are leased.
    pub terms: LeaseTerms,
    /// When a message is tried again.
    pub policy: RetryPolicy,
    /// When failing addresses are left out; `None` while mail is redirected, which says nothing of them.
    pub suppression: Option<SuppressionTerms>,
    /// Whether uncertain messages are sent again by themselves.
    pub resend_uncertain: bool,
    /// What a provider means by its replies.
    pub overrides: Overrides,
    /// Connections of this replica.
    pub connections: usize,
    /// How often an empty outbox is looked at.
    pub poll: Duration,
    /// What is counted.
    pub metrics: Metrics,
}

/// Messages leased beyond the free connections, so that none waits for a round trip to the database.
/// Short, because what waits here is not seen by other replicas.
const LOOK_AHEAD_PER_CONNECTION: usize = 4;
/// Messages that each connection must have taken before more are leased: a lease is a commit, and has
/// to be worth one.
const LEASE_PER_CONNECTION: u32 = 2;
/// The longest time between two signs of life of a loop that is well, waits for the relay aside.
const LONGEST_STEP: Duration = Duration::from_mins(5);
/// How long the leaser waits for a free place before it looks at the relay's state again.
const LOOK_UP: Duration = Duration::from_secs(1);
/// Expired leases that one sweep settles at most.
const SWEEP_BATCH: u32 = 500;
/// The wait after the guard or the source could not be asked.
const HELD_BACK: TimeDelta = TimeDelta::seconds(30);
/// The wait of a message whose connection could not be made; the breaker waits longer.
const NO_CONNECTION: TimeDelta = TimeDelta::seconds(10);

/// Delivers until told to stop: `soft` takes no new leases, `hard` gives up waiting for replies.
pub async fn run(
    deliver: Arc<Deliver>,
    progress: Progress,
    soft: CancellationToken,
    hard: CancellationToken,
) {
    let patience = deliver.transport.hand_over_limit() * LEASE_PER_CONNECTION + LONGEST_STEP;
    let leasing = progress.watch("lease", patience);
    let sweeping = progress.watch("sweep", LONGEST_STEP);
    let (feed, queue) = mpsc::channel(deliver.places());
    let queue = Arc::new(Mutex::new(queue));
    let mut connections = tokio::task::JoinSet::new();
    for place in 0..deliver.connections {
        let (deliver, queue) = (Arc::clone(&deliver), Arc::clone(&queue));
        connections.spawn(keep_serving(deliver, place, queue, soft.clone(), hard.clone()));
    }
    let leaser = async {
        lease_loop(&deliver, feed, &leasing, &soft).await;
        // Every connection may be waiting for the relay, and none free to give back what nobody began.
        while let Some(message) = next_of(&queue).await {
            deliver.give_back_untried(&message).await;
        }
    };
    tokio::join!(leaser, sweep_loop(&deliver, &sweeping, &soft));
    while connections.join_next().await.is_some() {}
}

/// One connection's place: whoever panics in it is replaced, and its message's lease or marker tells the rest.
async fn keep_serving(
    deliver: Arc<Deliver>,
    place: usize,
    queue: Arc<Mutex<mpsc::Receiver<Leased>>>,
    soft: CancellationToken,
    hard: CancellationToken,
) {
    loop {
        let (deliver, queue) = (Arc::clone(&deliver), Arc::clone(&queue));
        let (soft, hard) = (soft.clone(), hard.clone());
        let served = tokio::spawn(async move {
            // After a hard stop the marker tells what was under way; whoever sweeps makes it uncertain.
            hard.run_until_cancelled(deliver.serve(place, &queue, &soft)).await;
        });
        let Err(panicked) = served.await else { return };
        tracing::error!(place, error = %panicked, "the task of a connection has panicked; another takes its place");
    }
}

/// The queue's next message; `None` once it is empty and the leaser has ended.
async fn next_of(queue: &Mutex<mpsc::Receiver<Leased>>) -> Option<Leased> {
    queue.lock().await.recv().await
}

async fn lease_loop(deliver: &Deliver, feed: mpsc::Sender<Leased>, pulse: &Pulse, stop: &CancellationToken) {
    let mut failures = 0;
    while !stop.is_cancelled() {
        // Waiting for free places, and not leasing beyond them.
        let worthwhile = deliver.usable_connections() * LEASE_PER_CONNECTION as usize;
        let places = (deliver.resting_places() + worthwhile).clamp(1, feed.max_capacity());
        let waiting = tokio::time::timeout(LOOK_UP, feed.reserve_many(places));
        match stop.run_until_cancelled(waiting).await {
            None | Some(Ok(Err(_))) => return,
            Some(Ok(Ok(places))) => drop(places),
            // Every connection may wait for a slow relay for long, and the state change meanwhile.
            Some(Err(_)) => {
                if let Err(error) = deliver.gate.refresh().await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the relay's state is unknown");
                }
                continue;
            }
        }
        let wait = match deliver.lease(feed.capacity()).await {
            Ok(leased) => {
                failures = 0;
                let empty = leased.is_empty();
                for message in leased {
                    // The places were counted above and this loop alone fills them.
                    if feed.send(message).await.is_err() {
                        return;
                    }
                }
                if empty { deliver.idle_wait() } else { Duration::ZERO }
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    failures,
                    "messages could not be leased"
                );
                deliver.poll * 2_u32.saturating_pow(failures.min(6))
            }
        };
        pulse.touch();
        if !wait.is_zero() {
            stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
    }
}

async fn sweep_loop(deliver: &Deliver, pulse: &Pulse, stop: &CancellationToken) {
    let third = deliver.terms.lease / 3;
    while stop.run_until_cancelled(tokio::time::sleep(third.min(deliver.poll * 5))).await.is_some() {
        match deliver.sweep().await {
            Ok(swept) if swept == Swept::default() => {}
            Ok(swept) => tracing::warn!(
                messages.returned = swept.returned,
                messages.uncertain = swept.uncertain,
                "leases of a lost replica were settled"
            ),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "expired leases could not be swept");
            }
        }
        pulse.touch();
    }
}

impl Deliver {
    /// Leases up to `places` messages, as many as the relay's state allows, and keeps only those whose
    /// recipients still are admins at the same address.
    pub async fn lease(&self, places: usize) -> Result<Vec<Leased>, StoreError> {
        self.metrics.set_connections(self.transport.open_connections());
        self.gate.refresh().await?;
        let wanted = places.saturating_sub(self.resting_places());
        let allowed = self.gate.allow(u32::try_from(wanted).unwrap_or(u32::MAX)).await?;
        if allowed == 0 {
            return Ok(Vec::new());
        }
        let batch = match self.store.lease_messages(allowed, self.terms).await {
            Ok(batch) => batch,
            Err(error) => {
                self.gate.leased(allowed, 0).await;
                return Err(error);
            }
        };
        self.metrics.messages_ended(&batch.ended);
        for (fence, error) in batch.broken {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a message cannot be read and is failed"
            );
            let disposition = Disposition::Failed(MessageReason::Corrupt);
            self.journal
                .record(Finished { fence, disposition, phase: "lease", note: error.to_string(), guard: None })
                .await;
        }
        if !batch.messages.is_empty() {
            faults::point(Point::AfterLease);
        }
        let members = self.still_members(batch.messages).await;
        self.gate.leased(allowed, members.len()).await;
        Ok(members)
    }

    /// How many messages this replica holds at most, those under way aside.
    pub fn places(&self) -> usize {
        self.connections * (1 + LOOK_AHEAD_PER_CONNECTION)
    }

    /// Connections that the relay's state lets be used now.
    fn usable_connections(&self) -> usize {
        self.connections.min(*self.gate.limit().borrow())
    }

    /// The places of the queue that are for connections which must rest now.
    fn resting_places(&self) -> usize {
        (self.connections - self.usable_connections()) * (1 + LOOK_AHEAD_PER_CONNECTION)
    }

    /// The wait when nothing could be leased: the pace's bucket holds one second's worth.
    fn idle_wait(&self) -> Duration {
        if self.gate.is_paced() { self.poll.min(Duration::from_secs(1)) } else { self.poll }
    }

    /// Settles what a lost replica has left behind, and sends uncertain messages again if that is wanted.
    pub async fn sweep(&self) -> Result<Swept, StoreError> {
        let swept = self.store.sweep_messages(SWEEP_BATCH).await?;
        self.metrics.swept_leases(swept.returned, swept.uncertain);
        if self.resend_uncertain {
            for id in self.store.resend_uncertain(self.terms.max_attempts, SWEEP_BATCH).await? {
                tracing::warn!(
                    message.id = %id,
                    "a message that may have been accepted is sent again, as the configuration says"
                );
            }
        }
        Ok(swept)
    }

    async fn still_members(&self, leased: Vec<Leased>) -> Vec<Leased> {
        if leased.is_empty() {
            return leased;
        }
        let orgs: Vec<&crate::domain::ids::OrgId> = leased.iter().map(|message| &message.org).collect();
        let members = match self.source.members(&orgs).await {
            Ok(members) => members,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    messages = leased.len(),
                    "who is an admin cannot be read; deliveries wait"
                );
                for message in leased {
                    let disposition = Disposition::Retry { after: HELD_BACK, charge: false };
                    self.finish(&message, disposition, "members", "the source could not be read").await;
                }
                return Vec::new();
            }
        };
        let mut kept = Vec::with_capacity(leased.len());
        for message in leased {
            // It may hold rows for this admin's eyes alone: whoever else has the address is not meant.
            let member = Member {
                org: message.org.clone(),
                user: message.user.clone(),
                address: Some(message.address.clone()),
            };
            if members.contains(&member) {
                kept.push(message);
            } else {
                let disposition = Disposition::Suppressed(MessageReason::NotAMember);
                self.finish(
                    &message,
                    disposition,
                    "members",
                    "no longer an active, opted-in admin at this address",
                )
                .await;
            }
        }
        kept
    }

    /// One connection's life: message after message, until the queue ends. Connection `place` rests
    /// while the relay allows no more than `place` connections.
    async fn serve(&self, place: usize, queue: &Mutex<mpsc::Receiver<Leased>>, soft: &CancellationToken) {
        let mut connection: Option<Connection> = None;
        let mut limit = self.gate.limit();
        loop {
            if *limit.borrow_and_update() <= place && !soft.is_cancelled() {
                if let Some(open) = connection.take() {
                    open.quit().await;
                }
                // The gate lives as long as we do, so the watch never ends; a stop ends the rest.
                soft.run_until_cancelled(limit.changed()).await;
                continue;
            }
            let next = tokio::select! {
                next = next_of(queue) => next,
                _ = limit.changed() => continue,
            };
            let Some(message) = next else { break };
            if soft.is_cancelled() {
                self.give_back_untried(&message).await;
            } else {
                self.try_one(&mut connection, message).await;
            }
        }
        if let Some(open) = connection {
            open.quit().await;
        }
    }

    async fn give_back_untried(&self, message: &Leased) {
        let disposition = Disposition::Retry { after: TimeDelta::zero(), charge: false };
        self.finish(message, disposition, "lease", "given back untried").await;
    }

    /// One message of the queue: delivered, unless its lease is not to be trusted any more after the wait
    /// there, or the relay's state has changed meanwhile.
    pub async fn try_one(&self, connection: &mut Option<Connection>, message: Leased) {
        if !self.gate.may_try(message.id) {
            self.give_back_untried(&message).await;
        } else if Instant::now() >= message.trusted_until {
            self.give_back_untried(&message).await;
            self.gate.report(RelayEffect::None, message.id, "").await;
        } else {
            self.deliver_one(connection, message).await;
        }
    }

    /// One message: attempt, decide, record.
    pub async fn deliver_one(&self, connection: &mut Option<Connection>, message: Leased) {
        let owner = GuardOwner::random();
        let mut fault = None;
        let (disposition, effect, phase, note) = match self.attempt(connection, &message, owner).await {
            Attempt::Asked(outcome) => {
                let verdict = classify::classify(&outcome, &self.overrides);
                let (disposition, effect) =
                    classify::decide(verdict, message.id, message.attempts, &self.policy);
                fault = classify::address_fault(verdict, &disposition);
                self.metrics.handed_over(&disposition);
                log_outcome(&message, &disposition, outcome.phase().as_str());
                (disposition, effect, outcome.phase().as_str(), outcome.note())
            }
            Attempt::NotOurs => {
                tracing::info!(message.id = %message.id, "a message was not ours to send any more");
                self.gate.report(RelayEffect::None, message.id, "").await;
                return;
            }
            Attempt::Duplicate => {
                let disposition = Disposition::Suppressed(MessageReason::Duplicate);
                (disposition, RelayEffect::None, "guard", "sent before".to_owned())
            }
            Attempt::HeldBack(why) => {
                let disposition = Disposition::Retry { after: HELD_BACK, charge: false };
                (disposition, RelayEffect::None, "guard", why.to_owned())
            }
            Attempt::NoConnection(failure) => {
                let disposition = Disposition::Retry { after: NO_CONNECTION, charge: false };
                (disposition, classify::relay_effect(&failure), failure.phase.as_str(), failure.error)
            }
        };
        self.metrics.set_connections(self.transport.open_connections());
        let accepted = disposition == Disposition::Accepted;
        let fence: Fence = message.fence();
        self.journal
            .record(Finished { fence, disposition, phase, note: note.clone(), guard: Some(owner) })
            .await;
        self.note_address(&message, fault, accepted, &note).await;
        self.gate.report(effect, message.id, &note).await;
    }

    /// Keeps the count of an address's failures. Losing one is no harm: the next digest fails again.
    async fn note_address(&self, message: &Leased, fault: Option<AddressFault>, accepted: bool, note: &str) {
        let Some(terms) = self.suppression else { return };
        let noted = match fault {
            Some(fault) => self.store.note_address_failure(&message.to, fault, terms, "relay", note).await,
            None if accepted && message.failed_before => {
                self.store.forgive_address(&message.to).await.map(|()| false)
            }
            None => return,
        };
        match noted {
            Ok(false) => {}
            Ok(true) => tracing::warn!(
                message.id = %message.id, org.id = %message.org, user.id = %message.user,
                "an address is left out from now on, because it failed too often"
            ),
            Err(error) => tracing::warn!(
                message.id = %message.id, error = &error as &dyn std::error::Error,
                "an address's failures could not be counted"
            ),
        }
    }

    async fn finish(&self, message: &Leased, disposition: Disposition, phase: &'static str, note: &str) {
        let fence: Fence = message.fence();
        self.journal.record(Finished { fence, disposition, phase, note: note.to_owned(), guard: None }).await;
    }
}

fn log_outcome(message: &Leased, disposition: &Disposition, phase: &'static str) {
    let (id, org, attempt) = (message.id, &message.org, message.attempts + 1);
    match disposition {
        Disposition::Accepted => {
            tracing::debug!(message.id = %id, org.id = %org, attempt, "the relay accepted a message");
        }
        Disposition::Uncertain => tracing::error!(
            message.id = %id, org.id = %org, attempt,
            "a message may or may not have been accepted; it is held until somebody settles it"
        ),
        other => tracing::info!(
            message.id = %id, org.id = %org, attempt, phase, state = %other.state(),
            "a message was not accepted"
        ),
    }
}
