//! Opening the source, and checking it at the start.

use std::time::Duration;

use super::AppError;
use crate::config::Config;
use crate::source::Source;
use crate::source::builtin::BuiltIn;
use crate::source::operator::Operator;
use crate::store::Store;

/// How long a start waits for the source to be checked.
const SOURCE_CHECK: Duration = Duration::from_secs(10);

/// Where orgs, admins and content come from.
pub fn source_of(config: &Config, store: &Store) -> Result<Source, AppError> {
    let schedule = &config.schedule.default;
    Ok(match &config.source {
        Some(source) => Source::Operator(Operator::open(source, &config.sections, schedule)?),
        None => Source::BuiltIn(BuiltIn::new(store.clone(), schedule.weekday, schedule.time)),
    })
}

/// Checks the source once, at the start. What cannot work ends the start; what is only away does not, as
/// digests wait for it.
pub(super) async fn checked(config: &Config, store: &Store) -> Result<Source, AppError> {
    let source = source_of(config, store)?;
    match tokio::time::timeout(SOURCE_CHECK, source.check()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_transient() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the source does not answer yet");
        }
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => tracing::warn!("the source has not answered in {SOURCE_CHECK:?}; the start goes on"),
    }
    Ok(source)
}
