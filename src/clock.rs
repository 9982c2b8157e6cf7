//! The one clock of decisions: the database's, or one that a test gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

/// Where “now” comes from.
///
/// Every statement takes “the given now, else the database's”. Production gives none, so
/// that a replica with a wrong clock decides nothing by it.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The database's clock, read inside each statement.
    Database,
    /// A clock that moves only when told to; shared by its clones.
    Manual(Arc<AtomicI64>),
    /// The host's clock moved by a fixed span: the demo's Monday morning.
    Shifted(TimeDelta),
}

impl Clock {
    /// A manual clock that stands at `start`.
    pub fn manual(start: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.timestamp_millis())))
    }

    /// The now to give to a statement; `None` leaves it to the database.
    pub fn given(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Database => None,
            Self::Manual(millis) => DateTime::from_timestamp_millis(millis.load(Ordering::SeqCst)),
            Self::Shifted(by) => Some(host_now() + *by),
        }
    }

    /// Moves a manual clock. Other clocks cannot be moved.
    pub fn advance(&self, by: TimeDelta) {
        if let Self::Manual(millis) = self {
            millis.fetch_add(by.num_milliseconds(), Ordering::SeqCst);
        }
    }

    /// Sets a manual clock. Other clocks cannot be set.
    pub fn set(&self, to: DateTime<Utc>) {
        if let Self::Manual(millis) = self {
            millis.store(to.timestamp_millis(), Ordering::SeqCst);
        }
    }
}

/// The host's clock in whole milliseconds. For measuring its offset from the database's and
/// for the demo; nothing is decided by it.
#[expect(clippy::disallowed_methods, reason = "the one home of the host's clock")]
pub fn host_now() -> DateTime<Utc> {
    let now = Utc::now();
    DateTime::from_timestamp_millis(now.timestamp_millis()).unwrap_or(now)
}
