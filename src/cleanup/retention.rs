//! Deleting what has been kept for long enough.

use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use super::election::Election;
use super::{Cleanup, CleanupError};
use crate::progress::Pulse;
use crate::store::retention::Leftover;

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

impl Cleanup {
    /// One round over everything, batch by batch, as long as this replica leads.
    pub async fn delete_old(
        &self,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<Deleted, CleanupError> {
        let mut deleted = Deleted::default();
        self.delete_sends(&mut deleted, election, pulse, stop).await?;
        self.walk_bodies(&mut deleted, election, pulse, stop).await?;
        self.walk_attempts(&mut deleted, election, pulse, stop).await?;
        for (what, keep) in [
            // The guard's own time to live is long enough; nothing is added to it.
            (Leftover::Fingerprints, TimeDelta::zero()),
            (Leftover::Replicas, self.keep.replicas),
            (Leftover::Slots, self.keep_sends()),
        ] {
            self.delete_leftovers(what, keep, &mut deleted, election, pulse, stop).await?;
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

    fn keep_sends(&self) -> TimeDelta {
        self.keep.sends.max(MIN_SENDS)
    }

    async fn delete_sends(
        &self,
        deleted: &mut Deleted,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), CleanupError> {
        for _ in 0..BATCHES {
            let Some(lease) = may_go_on(election, pulse, stop).await? else { break };
            let (sends, messages) = self.store.delete_sends(self.keep_sends(), SENDS, lease).await?;
            self.metrics.deleted("sends", sends);
            self.metrics.deleted("outbox", messages);
            deleted.sends += sends;
            deleted.messages += messages;
            if sends < u64::from(SENDS) {
                break;
            }
        }
        Ok(())
    }

    async fn walk_bodies(
        &self,
        deleted: &mut Deleted,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), CleanupError> {
        let mut after = 0;
        for _ in 0..BATCHES {
            let Some(lease) = may_go_on(election, pulse, stop).await? else { break };
            let walk = self.store.delete_bodies(self.keep.bodies, after, ROWS, lease).await?;
            self.metrics.deleted("bodies", walk.deleted);
            deleted.bodies += walk.deleted;
            after = walk.last;
            if walk.finished {
                break;
            }
        }
        Ok(())
    }

    async fn walk_attempts(
        &self,
        deleted: &mut Deleted,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), CleanupError> {
        let mut after = 0;
        for _ in 0..BATCHES {
            let Some(lease) = may_go_on(election, pulse, stop).await? else { break };
            let walk = self.store.delete_attempts(self.keep.attempts, after, ROWS, lease).await?;
            self.metrics.deleted("attempts", walk.deleted);
            deleted.attempts += walk.deleted;
            after = walk.last;
            if walk.finished {
                break;
            }
        }
        Ok(())
    }

    async fn delete_leftovers(
        &self,
        what: Leftover,
        keep: TimeDelta,
        deleted: &mut Deleted,
        election: &mut Election,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<(), CleanupError> {
        for _ in 0..BATCHES {
            let Some(lease) = may_go_on(election, pulse, stop).await? else { break };
            let rows = self.store.delete_leftovers(what, keep, ROWS, lease).await?;
            self.metrics.deleted(what.table(), rows);
            deleted.leftovers += rows;
            if rows < u64::from(ROWS) {
                break;
            }
        }
        Ok(())
    }
}

/// The lease to delete under, unless it is lost or the replica is to stop.
async fn may_go_on<'a>(
    election: &'a mut Election,
    pulse: &Pulse,
    stop: &CancellationToken,
) -> Result<Option<&'a crate::store::leases::Leadership>, CleanupError> {
    pulse.touch();
    if stop.is_cancelled() || !election.stand().await? {
        return Ok(None);
    }
    Ok(election.lease())
}
