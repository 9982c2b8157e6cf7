//! Taking over what a dead replica has left behind, and resends that nobody has begun.

use tokio_util::sync::CancellationToken;

use super::{Tick, TickError, TickReport};
use crate::domain::ids::ClaimId;
use crate::domain::send::{SendReason, SendState};
use crate::metrics::ClaimResult;
use crate::progress::Pulse;
use crate::store::sends::Ending;

/// Claims taken over at once. Few, because each is worked alone.
const BATCH: u32 = 8;

impl Tick {
    /// Takes over expired claims until there are none, or until told to stop. Each is worked alone, so
    /// that an org that kills the process uses up its own attempts and nobody else's.
    pub async fn rescue(&self, pulse: &Pulse, stop: &CancellationToken) -> Result<TickReport, TickError> {
        let mut report = TickReport::default();
        while !stop.is_cancelled() {
            let taken = self.store.take_over(BATCH, ClaimId::random(), self.terms).await?;
            if taken.is_empty() {
                break;
            }
            self.metrics.claims(ClaimResult::TakenOver, taken.len());
            let now = self.store.now().await?;
            for one in taken {
                report.won += 1;
                if now >= one.give_up_at {
                    let ending = Ending {
                        claim: one.claim,
                        state: SendState::Failed,
                        reason: SendReason::TooLate,
                        detail: None,
                    };
                    report.add(self.end(vec![ending]).await);
                } else {
                    report.add(self.work_alone(one.claim).await);
                }
                pulse.touch();
            }
        }
        Ok(report)
    }
}
