//! Putting together what looks back: housekeeping, the ledger, and the doors to it over HTTP.

use std::time::Duration;

use super::{AppError, relay_name, source_of};
use crate::cleanup::Cleanup;
use crate::cleanup::retention::Keep;
use crate::config::{Config, FirstStart};
use crate::domain::due::DueRules;
use crate::http::{AdminSettings, BounceSettings, Doors};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::source::Source;
use crate::source::operator::write_back::WriteBack;
use crate::store::Store;
use crate::store::suppressions::SuppressionTerms;

/// Which slots belong to an org, for whoever asks about slots of the past. What was missed before this
/// installation, or before it could catch up, is not of its making.
pub async fn due_rules(config: &Config, store: &Store) -> Result<DueRules, AppError> {
    let installed_at = store.installed_at().await?;
    let catch_up = config.schedule.catch_up;
    let not_before = match config.schedule.first_start {
        FirstStart::Wait => installed_at,
        FirstStart::CatchUp => installed_at - catch_up,
    };
    Ok(DueRules { catch_up, not_before: Some(not_before), period: config.digest.period })
}

/// What tells the stories of orgs and audits weeks.
pub async fn ledger_of(config: &Config, store: &Store) -> Result<Ledger, AppError> {
    Ok(Ledger {
        store: store.clone(),
        source: source_of(config, store)?,
        rules: due_rules(config, store).await?,
        fallback: config.schedule.default.clone(),
        relay: relay_name(&config.relay),
        max_attempts: config.claim.max_attempts,
    })
}

/// What keeps house.
pub async fn cleanup_of(
    config: &Config,
    store: &Store,
    source: Source,
    write_back: Option<WriteBack>,
    metrics: &Metrics,
) -> Result<Cleanup, AppError> {
    let rules = due_rules(config, store).await?;
    let retention = &config.retention;
    Ok(Cleanup {
        store: store.clone(),
        source,
        rules,
        fallback: config.schedule.default.clone(),
        late_alarm: config.schedule.late_alarm,
        count_every: config.tick.resweep.to_std().unwrap_or(Duration::from_mins(15)),
        keep: Keep {
            bodies: retention.bodies,
            attempts: retention.attempts,
            sends: retention.sends,
            replicas: retention.replicas,
        },
        write_back,
        metrics: metrics.clone(),
    })
}

/// When a failing address is left out.
pub(super) fn suppression_terms(config: &Config) -> SuppressionTerms {
    SuppressionTerms {
        hard_after: config.suppression.hard_after,
        soft_after: config.suppression.soft_after,
        soft_decay: config.suppression.soft_decay,
    }
}

/// What HTTP serves to those who know a token.
pub(super) async fn doors_of(config: &Config, store: &Store) -> Result<Doors, AppError> {
    let admin = match &config.admin_token {
        None => None,
        Some(token) => Some(AdminSettings {
            token: token.clone(),
            ledger: ledger_of(config, store).await?,
            relay: relay_name(&config.relay),
            max_age: config.delivery.max_age,
            max_attempts: config.delivery.max_attempts,
        }),
    };
    let bounces = config
        .suppression
        .token
        .as_ref()
        .map(|token| BounceSettings { token: token.clone(), terms: suppression_terms(config) });
    Ok(Doors { admin, bounces })
}
