//! Deleting what has been kept for long enough.

use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use super::election::Election;
use super::{Cleanup, CleanupError};
use crate::progress::Pulse;
use crate::store::leases::Leadership;
use crate::store::retention::{Leftover, Walk};

/// How long rows are kept after they are of no more use.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// Bodies of messages in a final state.
    pub bodies: TimeDelta,
    /// Attempts.
    pub attempts: TimeDelta,
    /// Sends with their messages, and slots. Never less than [`MIN_SENDS`].
    pub sends: TimeDelta,
    /// Replicas not heard of.
    pub replicas: TimeDelta,
}

/// Sends are what keeps a week from being sent again: a replica that was frozen or a backup that was
/// restored must still find them.
pub const MIN_SENDS: TimeDelta = TimeDelta::days(35);

/// Narrow rows per statement: some milliseconds of one writer's time.
const ROWS: u32 = 1_000;
/// Sends per transaction; each takes its messages with it.
const SENDS: u32 = 200;
/// Batches of one kind in one round; the next round goes on.
const BATCHES: u32 = 200;

/// What one round has deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Bodies.
    pub bodies: u64,
    /// Attempts, those that went with their messages aside.
    pub attempts: u64,
    /// Sends.
    pub sends: u64,
    /// Messages, with their sends.
    pub messages: u64,
    /// Rows of the guard, of replicas and of slots.
    pub leftovers: u64,
}

/// One kind of rows, in the order in which they go.
#[derive(Debug, Clone, Copy)]
enum Rows {
    Sends,
    Bodies,
    Attempts,
    Leftovers(Leftover),
}

impl Rows {
    const ALL: [Self; 6] = [
        Self::Sends,
        Self::Bodies,
        Self::Attempts,
        Self::Leftovers(Leftover::Fingerprints),
        Self::Leftovers(Leftover::Replicas),
        Self::Leftovers(Leftover::Slots),
    ];
}

/// What one batch has deleted, and where the next begins, if there is one.
struct Batch {
    deleted: Deleted,
    next: Option<i64>,
}

impl Cleanup {
    /// One round over everything, batch by batch, as long as this replica leads.
    pub async fn delete_old(
        &self,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<Deleted, CleanupError> {
        let mut deleted = Deleted::default();
        for rows in Rows::ALL {
            let mut after = Some(0);
            for _ in 0..BATCHES {
                let Some(from) = after else { break };
                let Some(lease) = may_go_on(election, pulse, stop).await? else { break };
                let batch = self.delete_batch(rows, from, lease).await?;
                deleted.add(batch.deleted);
                after = batch.next;
            }
        }
        self.store.checkpoint().await?;
        if deleted != Deleted::default() {
            tracing::info!(
                deleted.sends,
                deleted.messages,
                deleted.bodies,
                deleted.attempts,
                deleted.leftovers,
                "old rows are deleted"
            );
        }
        Ok(deleted)
    }

    async fn delete_batch(&self, rows: Rows, after: i64, lease: &Leadership) -> Result<Batch, CleanupError> {
        let none = Deleted::default();
        let walked = |walk: Walk| (!walk.finished).then_some(walk.last);
        Ok(match rows {
            Rows::Sends => {
                let (sends, messages) = self.store.delete_sends(self.keep_sends(), SENDS, lease).await?;
                self.metrics.deleted("sends", sends);
                self.metrics.deleted("outbox", messages);
                let next = (sends == u64::from(SENDS)).then_some(0);
                Batch { deleted: Deleted { sends, messages, ..none }, next }
            }
            Rows::Bodies => {
                let walk = self.store.delete_bodies(self.keep.bodies, after, ROWS, lease).await?;
                self.metrics.deleted("bodies", walk.deleted);
                Batch { deleted: Deleted { bodies: walk.deleted, ..none }, next: walked(walk) }
            }
            Rows::Attempts => {
                let walk = self.store.delete_attempts(self.keep.attempts, after, ROWS, lease).await?;
                self.metrics.deleted("attempts", walk.deleted);
                Batch { deleted: Deleted { attempts: walk.deleted, ..none }, next: walked(walk) }
            }
            Rows::Leftovers(what) => {
                let leftovers = self.store.delete_leftovers(what, self.keep_of(what), ROWS, lease).await?;
                self.metrics.deleted(what.table(), leftovers);
                let next = (leftovers == u64::from(ROWS)).then_some(0);
                Batch { deleted: Deleted { leftovers, ..none }, next }
            }
        })
    }

    fn keep_sends(&self) -> TimeDelta {
        self.keep.sends.max(MIN_SENDS)
    }

    fn keep_of(&self, what: Leftover) -> TimeDelta {
        match what {
            // The guard's own time to live is long enough; nothing is added to it.
            Leftover::Fingerprints => TimeDelta::zero(),
            Leftover::Replicas => self.keep.replicas,
            Leftover::Slots => self.keep_sends(),
        }
    }
}

impl Deleted {
    fn add(&mut self, other: Self) {
        self.bodies += other.bodies;
        self.attempts += other.attempts;
        self.sends += other.sends;
        self.messages += other.messages;
        self.leftovers += other.leftovers;
    }
}

/// The lease to delete under, unless it is lost or the replica is to stop.
async fn may_go_on<'a>(
    election: &'a mut Election,
    pulse: &Pulse,
    stop: &CancellationToken,
) -> Result<Option<&'a Leadership>, CleanupError> {
    pulse.touch();
    if stop.is_cancelled() || !election.stand().await? {
        return Ok(None);
    }
    Ok(election.lease())
}
