//! The application's word against an unsubscribe link's: the later one holds.

use super::Tick;
use crate::domain::digest::DigestInput;
use crate::store::StoreError;
use crate::store::opt_outs::OptIn;

/// Opt-ins that are compared in one statement.
const BATCH: usize = 1_000;

impl Tick {
    /// Takes back opt-outs of an org's digest that are older than the admin's opt-in to it, before the
    /// messages are enqueued, which heeds those that are left. An opt-out of everything stays.
    pub(super) async fn heed_opt_ins(
        &self,
        inputs: impl Iterator<Item = &DigestInput>,
    ) -> Result<(), StoreError> {
        let opt_ins: Vec<OptIn<'_>> = inputs.flat_map(opt_ins_of).collect();
        for batch in opt_ins.chunks(BATCH) {
            let overruled = self.store.overrule_opt_outs(batch).await?;
            if overruled > 0 {
                tracing::info!(
                    opt_outs = overruled,
                    "opt-outs are overruled by later opt-ins of the application"
                );
            }
        }
        Ok(())
    }
}

fn opt_ins_of(input: &DigestInput) -> impl Iterator<Item = OptIn<'_>> {
    input.recipients.iter().filter_map(|recipient| {
        let (address, at) = (recipient.address.as_ref().ok()?, recipient.opted_in_at?);
        Some(OptIn { address: address.normal(), org: &input.org, at })
    })
}
