//! The line to the database. With the feature `faults` a test can let it lose a request or an answer; without, as
//! in every release build, it does nothing.

/// Every request of the store goes over it.
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
    From(&'static str, usize),
}

#[cfg(feature = "faults")]
impl Line {
    /// Begins to count anew, and loses something of the request that then is the `nth`, from 0 on.
    pub fn lose(&self, nth: usize, loss: Loss) {
        *self.plan() = Plan { asked: Vec::new(), lose: Lose::Once(nth, loss) };
    }

    /// Begins to count anew, and loses the first `times` requests that come from this place in the source.
    pub fn lose_from(&self, place: &'static str, times: usize) {
        *self.plan() = Plan { asked: Vec::new(), lose: Lose::From(place, times) };
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
        let nth = plan.asked.len();
        let loss = match &mut plan.lose {
            Lose::Once(which, loss) if *which == nth => Some(*loss),
            Lose::From(place, left) if *place == from && *left > 0 => {
                *left -= 1;
                Some(Loss::Request)
            }
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
