//! Opening the application's databases, to read and to write back, and checking them at the start.

use std::time::Duration;

use super::AppError;
use crate::config::Config;
use crate::source::builtin::BuiltIn;
use crate::source::operator::Operator;
use crate::source::operator::write_back::WriteBack;
use crate::source::{Source, SourceError};
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
    // Boxed here and below, so that a start is no large future.
    check("the source", Box::pin(source.check())).await?;
    Ok(source)
}

/// Where people's choices are written back to, if anywhere.
pub fn write_back_of(config: &Config) -> Result<Option<WriteBack>, AppError> {
    let opened = config.opt_out.write_back.as_ref().map(|(url, sql)| WriteBack::open(url, sql));
    Ok(opened.transpose()?)
}

/// The same, checked at the start, and written down for whoever stores an opt-out.
pub(super) async fn checked_write_back(
    config: &Config,
    store: &Store,
) -> Result<Option<WriteBack>, AppError> {
    let write_back = write_back_of(config)?;
    if let Some(write_back) = &write_back {
        check("the database of opt_out.url", Box::pin(write_back.check())).await?;
    }
    store.set_write_back(write_back.is_some()).await?;
    Ok(write_back)
}

async fn check(what: &str, asked: impl Future<Output = Result<(), SourceError>>) -> Result<(), AppError> {
    match tokio::time::timeout(SOURCE_CHECK, asked).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_transient() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "{what} does not answer yet");
        }
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => tracing::warn!("{what} has not answered in {SOURCE_CHECK:?}; the start goes on"),
    }
    Ok(())
}
