//! Choices that go back to the application.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Cleanup;
use crate::progress::Pulse;
use crate::source::operator::write_back::Choice;
use crate::store::StoreError;

/// Choices taken at once.
const BATCH: u32 = 20;
/// How long one round may take before the other jobs have their turn.
const ROUND: Duration = Duration::from_mins(1);

/// What a round has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenBack {
    /// Choices that the application has now.
    pub written: u64,
    /// Choices that could not be written, and wait.
    pub waiting: u64,
}

impl Cleanup {
    /// Writes waiting choices to the application. What it does not take waits, longer each time, and
    /// is never dropped.
    pub async fn write_back(
        &self,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) -> Result<WrittenBack, StoreError> {
        let mut done = WrittenBack::default();
        let Some(application) = &self.write_back else { return Ok(done) };
        let started = Instant::now();
        while !stop.is_cancelled() && started.elapsed() < ROUND {
            let choices = self.store.take_choices(BATCH).await?;
            let last = choices.len() < BATCH as usize;
            for choice in choices {
                let said = Choice {
                    org: &choice.org,
                    user: &choice.user,
                    address: &choice.address,
                    opted_out: choice.opted_out,
                    at: choice.at,
                };
                match application.write(&said).await {
                    Ok(()) => {
                        self.store.choice_written(&choice).await?;
                        done.written += 1;
                    }
                    Err(error) => {
                        done.waiting += 1;
                        tracing::warn!(
                            org.id = %choice.org, user.id = %choice.user, attempt = choice.attempts,
                            error = &error as &dyn std::error::Error,
                            "an opt-out could not be written to the application; it will be tried again"
                        );
                        // A database that is away is so for the next one too.
                        if error.is_transient() {
                            return Ok(done);
                        }
                    }
                }
                pulse.touch();
            }
            if last {
                break;
            }
        }
        Ok(done)
    }
}
