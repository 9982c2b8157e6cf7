//! One hand-over: envelope and marker side by side, then the guard, then the body.

use std::time::Instant;

use super::Deliver;
use super::journal::{MarkAnswer, Marker};
use crate::domain::ids::GuardOwner;
use crate::domain::message::Leased;
use crate::domain::reply::{HandOver, RelayFailure};
use crate::faults::{self, Point};
use crate::guard::Taken;
use crate::mail::transport::Connection;

/// How one hand-over ended.
#[derive(Debug)]
pub enum Attempt {
    /// The relay was asked; this is what came of it.
    Asked(HandOver),
    /// Nothing left, and the message's row is final or somebody else's.
    NotOurs,
    /// Nothing left, because the guard knows the digest.
    Duplicate,
    /// Nothing left, because the guard cannot be asked or our time was over: to be tried again.
    HeldBack(&'static str),
    /// Nothing left, because no connection could be had.
    NoConnection(RelayFailure),
}

impl Deliver {
    /// Hands one message over on a connection, which is gone afterwards unless it can be used again.
    /// `owner` is the hand-over's name for the guard.
    pub async fn attempt(
        &self,
        connection: &mut Option<Connection>,
        message: &Leased,
        owner: GuardOwner,
    ) -> Attempt {
        let mut open = match self.ready(connection.take()).await {
            Ok(open) => open,
            Err(failure) => return Attempt::NoConnection(failure),
        };
        let size = message.bytes.len();
        let marker_asked_at = Instant::now();
        let (envelope, answer) = tokio::join!(
            open.envelope(&self.from, &message.to, size),
            self.journal.mark(message.fence(), owner)
        );
        let mut marker = match answer {
            MarkAnswer::Sending(marker) => marker,
            // The relay may be waiting for a body that must not come: the connection is dropped.
            MarkAnswer::Superseded | MarkAnswer::Suppressed | MarkAnswer::Lost => return Attempt::NotOurs,
        };
        faults::point(Point::AfterMarker);
        let envelope = match envelope {
            // The relay had closed an idle connection: the same envelope on a fresh one.
            Err(HandOver::Broken { stale: true, .. }) => match self.transport.connect().await {
                Ok(fresh) => {
                    open = fresh;
                    open.envelope(&self.from, &message.to, size).await
                }
                Err(failure) => {
                    marker.spend();
                    return Attempt::NoConnection(failure);
                }
            },
            other => other,
        };
        let attempt = match envelope {
            Err(refused) => Attempt::Asked(refused),
            Ok(()) => self.body(&mut open, message, &mut marker, (owner, marker_asked_at)).await,
        };
        // What came of it is recorded next.
        marker.spend();
        if let Attempt::Asked(_) = attempt {
            self.metrics.hand_over_took(marker_asked_at.elapsed());
            *connection = Some(open).filter(Connection::reusable);
        }
        attempt
    }

    /// Guard, then body. From its first byte on the marker is spent.
    async fn body(
        &self,
        open: &mut Connection,
        message: &Leased,
        marker: &mut Marker,
        (owner, marker_asked_at): (GuardOwner, Instant),
    ) -> Attempt {
        match self.guard.take(message, owner).await {
            Taken::Go => {}
            Taken::Duplicate => return Attempt::Duplicate,
            Taken::Closed => return Attempt::HeldBack("the guard cannot be asked"),
        }
        // The marker has extended the lease past the hand-over's limit by one lease, within which the
        // body must begin. A process that was frozen here may find its message with somebody else.
        if marker_asked_at.elapsed() >= self.terms.lease {
            self.guard.give_back(message, owner).await;
            return Attempt::HeldBack("the lease was too old to begin the body");
        }
        faults::point(Point::BeforeBody);
        marker.spend();
        let outcome = open.body(&message.bytes, &message.uid).await;
        faults::point(Point::AfterReply);
        if matches!(outcome, HandOver::Refused { .. } | HandOver::Broken { .. }) {
            self.guard.give_back(message, owner).await;
        }
        Attempt::Asked(outcome)
    }

    async fn ready(&self, connection: Option<Connection>) -> Result<Connection, RelayFailure> {
        match connection {
            Some(open) if open.reusable() => Ok(open),
            Some(spent) => {
                spent.quit().await;
                self.transport.connect().await
            }
            None => self.transport.connect().await,
        }
    }
}
