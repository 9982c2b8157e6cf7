//! Markers and results, written in groups.
//!
//! Every connection of a replica sends its marks and results here. Whatever is waiting is committed
//! together, results before marks, so that a connection's next marker commits with or after its
//! previous result: a killed replica leaves at most as many uncertain messages as it had connections.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tokio::sync::{mpsc, oneshot};

use crate::domain::ids::{GuardOwner, ReplicaId};
use crate::domain::message::{Disposition, Fence, Finished};
use crate::faults::{self, Point};
use crate::metrics::Metrics;
use crate::store::results::{Marked, Written};
use crate::store::{Store, StoreError};

/// Entries committed together at most.
const BATCH: usize = 256;
/// Entries that may wait; beyond it the connections wait.
const WAITING: usize = 1024;
/// How long a write may take. A connection that is stalled would hold up every hand-over otherwise;
/// what it did after all is harmless, because each write names token and state.
const WRITE_LIMIT: Duration = Duration::from_secs(20);
/// How long results are tried again once the process is to end. It ends earlier at its own deadline.
const FAREWELL: Duration = Duration::from_mins(1);
/// Between two tries then.
const FAREWELL_RETRY: Duration = Duration::from_millis(500);
/// The longest wait between two tries to record results.
const MAX_BACK_OFF: Duration = Duration::from_secs(10);

/// What became of a marker.
#[derive(Debug)]
pub enum MarkAnswer {
    /// Set: the body may leave.
    Sending(Marker),
    /// The recipient has left or is suppressed: nothing may leave, the row is final.
    Suppressed,
    /// The lease is somebody else's by now: nothing may leave.
    Superseded,
    /// Nobody knows whether it was set: nothing may leave. The journal takes it back.
    Lost,
}

/// A marker that is set, or may be. Dropped before it is [spent](Self::spend), as a hard stop and a panic
/// do, it is taken back: nothing has left, so the message need not become uncertain.
#[derive(Debug)]
pub struct Marker {
    journal: Journal,
    fence: Fence,
    guard: GuardOwner,
    spent: bool,
}

impl Marker {
    /// From here on the body may have left, or what became of the message is recorded.
    pub fn spend(&mut self) {
        self.spent = true;
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        if !self.spent {
            let finished = Finished { guard: Some(self.guard), ..taken_back(self.fence) };
            // Where the journal is full or gone, whoever sweeps makes the message uncertain, as after a kill.
            let _ = self.journal.entries.try_send(Entry::Record(finished));
        }
    }
}

/// What the database said of a marker.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Set,
    Suppressed,
    Superseded,
    /// Unknown; the journal takes it back.
    Lost,
}

#[derive(Debug)]
enum Entry {
    Mark(Fence, oneshot::Sender<Answer>),
    Record(Finished),
}

/// A handle for the connections. The journal ends when the last handle is gone and all is written.
#[derive(Debug, Clone)]
pub struct Journal {
    entries: mpsc::Sender<Entry>,
}

impl Journal {
    /// Starts the journal's task. `hand_over` is how far a marker extends its lease.
    pub fn start(
        store: Store,
        replica: ReplicaId,
        hand_over: Duration,
        metrics: Metrics,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (entries, waiting) = mpsc::channel(WAITING);
        let writer = Writer { store, replica, hand_over, metrics, unrecorded: Vec::new(), failures: 0 };
        (Self { entries }, tokio::spawn(writer.run(waiting)))
    }

    /// Sets a marker; `guard` is the hand-over's name for the guard.
    pub async fn mark(&self, fence: Fence, guard: GuardOwner) -> MarkAnswer {
        // Dropped after `wait`: the writer then knows that a marker taken back need not be set.
        let mut marker = Marker { journal: self.clone(), fence, guard, spent: false };
        let (answer, wait) = oneshot::channel();
        let answer = match self.entries.send(Entry::Mark(fence, answer)).await {
            Ok(()) => wait.await.unwrap_or(Answer::Lost),
            Err(_) => Answer::Lost,
        };
        if let Answer::Set = answer {
            return MarkAnswer::Sending(marker);
        }
        marker.spend();
        match answer {
            Answer::Suppressed => MarkAnswer::Suppressed,
            Answer::Superseded => MarkAnswer::Superseded,
            Answer::Set | Answer::Lost => MarkAnswer::Lost,
        }
    }

    /// Records a result, now or as soon as the database is back. Nothing fallible lies between a
    /// relay's answer and this.
    pub async fn record(&self, finished: Finished) {
        if let Err(mpsc::error::SendError(Entry::Record(finished))) =
            self.entries.send(Entry::Record(finished)).await
        {
            log_lost(&finished);
        }
    }
}

struct Writer {
    store: Store,
    replica: ReplicaId,
    hand_over: Duration,
    metrics: Metrics,
    /// Results that the database has not confirmed yet, oldest first.
    unrecorded: Vec<Finished>,
    failures: u32,
}

impl Writer {
    async fn run(mut self, mut waiting: mpsc::Receiver<Entry>) {
        let mut entries = Vec::new();
        loop {
            if self.unrecorded.is_empty() {
                if waiting.recv_many(&mut entries, BATCH).await == 0 {
                    return;
                }
            } else if !self.wait_to_retry(&mut waiting, &mut entries).await {
                return;
            }
            self.write(&mut entries).await;
        }
    }

    /// Waits for new entries or for the time to try again. False: no entries will come any more and
    /// the last try has failed.
    async fn wait_to_retry(&mut self, waiting: &mut mpsc::Receiver<Entry>, entries: &mut Vec<Entry>) -> bool {
        let back_off = (Duration::from_millis(100) * 2_u32.saturating_pow(self.failures)).min(MAX_BACK_OFF);
        let retry_at = Instant::now() + back_off;
        loop {
            let wait = retry_at.saturating_duration_since(Instant::now());
            match tokio::time::timeout(wait, waiting.recv_many(entries, BATCH)).await {
                Err(_) => return true,
                // Marks cannot wait for the database; their connections would time out.
                Ok(got) if got > 0 => self.refuse_marks(entries),
                Ok(_) => return self.farewell().await,
            }
        }
    }

    /// No entries will come any more: tries until the results are written, or it has taken too long.
    async fn farewell(&mut self) -> bool {
        let give_up_at = Instant::now() + FAREWELL;
        while Instant::now() < give_up_at {
            if self.commit(&[]).await.is_ok() {
                return false;
            }
            tokio::time::sleep(FAREWELL_RETRY).await;
        }
        self.unrecorded.drain(..).for_each(|finished| log_lost(&finished));
        false
    }

    fn refuse_marks(&mut self, entries: &mut Vec<Entry>) {
        for entry in entries.drain(..) {
            match entry {
                Entry::Record(finished) => self.unrecorded.push(finished),
                Entry::Mark(fence, answer) => {
                    // Whoever is gone takes it back, too.
                    if answer.send(Answer::Lost).is_ok() {
                        self.unrecorded.push(taken_back(fence));
                    }
                }
            }
        }
    }

    async fn write(&mut self, entries: &mut Vec<Entry>) {
        let mut marks = Vec::new();
        for entry in entries.drain(..) {
            match entry {
                Entry::Record(finished) => self.unrecorded.push(finished),
                // Whoever asked is gone, and has asked for the marker to be taken back.
                Entry::Mark(_, answer) if answer.is_closed() => {}
                Entry::Mark(fence, answer) => marks.push((fence, answer)),
            }
        }
        faults::point(Point::Journal);
        let fences: Vec<Fence> = marks.iter().map(|(fence, _)| *fence).collect();
        match self.commit(&fences).await {
            Ok(written) => {
                self.unrecorded.clear();
                self.failures = 0;
                for (fence, answer) in marks {
                    let found =
                        written.marked.iter().find(|(id, _)| *id == fence.id).map(|(_, marked)| *marked);
                    // Nobody may wait any more: then the marker is on its way back.
                    let _ = answer.send(match found {
                        Some(Marked::Sending) => Answer::Set,
                        Some(Marked::Suppressed) => Answer::Suppressed,
                        None => Answer::Superseded,
                    });
                }
            }
            Err(error) => {
                self.failures += 1;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    results = self.unrecorded.len(),
                    markers = fences.len(),
                    "markers and results could not be written; results are kept and tried again"
                );
                entries.extend(marks.into_iter().map(|(fence, answer)| Entry::Mark(fence, answer)));
                self.refuse_marks(entries);
            }
        }
    }

    /// Writes what is unrecorded, with markers, and counts the messages that end by it. After a failure,
    /// whose answer may have been lost, also those that had ended by that.
    async fn commit(&self, fences: &[Fence]) -> Result<Written, StoreError> {
        let again = self.failures > 0;
        let written =
            self.store.record_and_mark(&self.unrecorded, fences, self.replica, self.hand_over, again);
        let written = tokio::time::timeout(WRITE_LIMIT, written).await;
        let written =
            written.unwrap_or_else(|_| Err(StoreError::late("recording results and setting markers")))?;
        self.metrics.messages_ended(&written.ended);
        Ok(written)
    }
}

/// A marker whose answer was lost: the message was not tried, whether it was set or not.
fn taken_back(fence: Fence) -> Finished {
    Finished {
        fence,
        disposition: Disposition::Retry { after: TimeDelta::zero(), charge: false },
        phase: "marker",
        note: "the database did not confirm the marker; nothing was sent".to_owned(),
        guard: None,
    }
}

fn log_lost(finished: &Finished) {
    tracing::error!(
        message.id = %finished.fence.id, outcome = %finished.disposition.state(),
        "a result could not be recorded before the process ended; the message will show as uncertain"
    );
}
