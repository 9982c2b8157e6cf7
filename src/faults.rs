//! Crash and freeze points for the tests, and a line to the database that fails when a test wants it to. With
//! the feature `faults` off, which every release build has off, they are nothing.

/// Where a process may be told to die or to freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A batch is claimed, nothing gathered.
    AfterClaim,
    /// Messages are inserted, the transaction is not committed.
    BeforeEnqueueCommit,
    /// The enqueue is committed.
    AfterEnqueue,
    /// Messages are leased, nothing has left.
    AfterLease,
    /// The marker is committed, the body has not left.
    AfterMarker,
    /// Envelope, marker and guard agree, and the time was looked at: the body is about to leave.
    BeforeBody,
    /// The relay has answered, nothing is recorded.
    AfterReply,
    /// Markers and results are about to be written.
    Journal,
}

/// Stops here if `DIGESTD_FAULT` names this point: `after_marker` dies at once and without clean-up,
/// `freeze:after_marker` stands still at its first arrival, until somebody lets it go on, and
/// `panic:after_marker` panics at its first arrival.
#[cfg(feature = "faults")]
#[expect(clippy::disallowed_methods, reason = "a test's switch, absent from release builds")]
pub fn point(point: Point) {
    let name = match point {
        Point::AfterClaim => "after_claim",
        Point::BeforeEnqueueCommit => "before_enqueue_commit",
        Point::AfterEnqueue => "after_enqueue",
        Point::AfterLease => "after_lease",
        Point::AfterMarker => "after_marker",
        Point::BeforeBody => "before_body",
        Point::AfterReply => "after_reply",
        Point::Journal => "journal",
    };
    let Ok(wanted) = std::env::var("DIGESTD_FAULT") else { return };
    if wanted == name {
        std::process::abort();
    }
    if wanted.strip_prefix("freeze:") == Some(name) && is_first() {
        // By the shell's `kill`: the crate forbids the unsafe call that a signal needs. Some thread has to run
        // for the signal to be heard; this one waits for the shell, and that until it surely was.
        let _ = std::process::Command::new("sh").args(["-c", "kill -s STOP $PPID; sleep 1"]).status();
    }
    assert!(wanted.strip_prefix("panic:") != Some(name) || !is_first(), "a test asked for this panic");
}

/// Whether no thread has come this far before.
#[cfg(feature = "faults")]
fn is_first() -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ARRIVED: AtomicBool = AtomicBool::new(false);
    !ARRIVED.swap(true, Ordering::SeqCst)
}

/// Nothing.
#[cfg(not(feature = "faults"))]
#[inline]
pub fn point(_: Point) {}

/// The line to the database. Every request of the store goes over it.
#[derive(Debug, Clone, Default)]
pub struct Line {
    #[cfg(feature = "faults")]
    plan: std::sync::Arc<std::sync::Mutex<Plan>>,
}

/// A request that is on its way.
#[derive(Debug)]
#[must_use = "a request has an answer"]
pub struct Request {
    #[cfg(feature = "faults")]
    answer_lost: bool,
}

#[cfg(not(feature = "faults"))]
impl Line {
    /// Sends a request.
    #[inline]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "with the feature it can fail")]
    pub(crate) fn ask(&self, _from: &'static str) -> Result<Request, sqlx::Error> {
        Ok(Request {})
    }
}

impl Request {
    /// What the answer says, if it arrives.
    #[inline]
    #[cfg_attr(not(feature = "faults"), expect(clippy::unused_self, reason = "with the feature it is asked"))]
    pub(crate) fn answered<T>(self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        #[cfg(feature = "faults")]
        if self.answer_lost && answer.is_ok() {
            return Err(lost());
        }
        answer
    }
}

/// What is lost of a request.
#[cfg(feature = "faults")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The request: the database never hears of it.
    Request,
    /// The answer: what was asked for is done, and nobody hears of it.
    Answer,
}

/// What has been asked, and what is to be lost.
#[cfg(feature = "faults")]
#[derive(Debug, Default)]
struct Plan {
    asked: Vec<&'static str>,
    lose: Lose,
}

/// What is to be lost, and of which request.
#[cfg(feature = "faults")]
#[derive(Debug, Default)]
enum Lose {
    #[default]
    Nothing,
    Once(usize, Loss),
    AllFrom(&'static str),
}

#[cfg(feature = "faults")]
impl Line {
    /// Begins to count anew, and loses something of the request that then is the `nth`, from 0 on.
    pub fn lose(&self, nth: usize, loss: Loss) {
        *self.plan() = Plan { asked: Vec::new(), lose: Lose::Once(nth, loss) };
    }

    /// Begins to count anew, and loses every request that comes from this place in the source.
    pub fn lose_all_from(&self, place: &'static str) {
        *self.plan() = Plan { asked: Vec::new(), lose: Lose::AllFrom(place) };
    }

    /// Loses nothing any more.
    pub fn mend(&self) {
        self.plan().lose = Lose::Nothing;
    }

    /// Where in the source each request since the last count came from, in order: `file:line`.
    pub fn asked(&self) -> Vec<&'static str> {
        self.plan().asked.clone()
    }

    pub(crate) fn ask(&self, from: &'static str) -> Result<Request, sqlx::Error> {
        let mut plan = self.plan();
        let loss = match plan.lose {
            Lose::Once(nth, loss) if nth == plan.asked.len() => Some(loss),
            Lose::AllFrom(place) if place == from => Some(Loss::Request),
            _ => None,
        };
        plan.asked.push(from);
        match loss {
            Some(Loss::Request) => Err(lost()),
            _ => Ok(Request { answer_lost: loss.is_some() }),
        }
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(feature = "faults")]
fn lost() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())
}
