//! How a command that failed ends: words, a hint, an exit code.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::out;
use crate::app::AppError;
use crate::config::ConfigError;
use crate::demo::inbox::InboxError;
use crate::domain::zone::ZoneError;
use crate::lifecycle::Exit;
use crate::render::TemplateError;
use crate::source::SourceError;
use crate::source::import::ImportError;
use crate::store::{ErrorClass, StoreError};

/// Arguments that can be parsed and make no sense here.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Misuse {
    message: String,
    hint: Option<&'static str>,
}

impl Misuse {
    /// Says what is wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Says what would be right.
    pub fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

/// A file named on the command line that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct NoInput {
    path: PathBuf,
    source: io::Error,
}

/// The text of a file named on the command line.
pub fn read_input(path: &Path) -> Result<String, NoInput> {
    std::fs::read_to_string(path).map_err(|source| NoInput { path: path.to_owned(), source })
}

/// Tells the person what went wrong; returns the code to end with.
pub fn report(error: &anyhow::Error) -> Exit {
    out::note(words(error));
    exit(error)
}

/// The error, its causes, and what to do.
fn words(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors repeat their source in their own words; once is enough.
        if !said.contains(&cause) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  caused by: {cause}");
        }
        said = cause;
    }
    if let Some(hint) = hint(error) {
        let _ = write!(text, "\nhint: {hint}");
    }
    text
}

/// The first error of a type in the chain.
fn find<T: std::error::Error + 'static>(error: &anyhow::Error) -> Option<&T> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

fn exit(error: &anyhow::Error) -> Exit {
    if find::<ConfigError>(error).is_some() || find::<TemplateError>(error).is_some() {
        return Exit::Config;
    }
    if find::<Misuse>(error).is_some() {
        return Exit::Usage;
    }
    if find::<NoInput>(error).is_some() {
        return Exit::Data;
    }
    if find::<InboxError>(error).is_some() {
        return Exit::Unavailable;
    }
    if let Some(import) = find::<ImportError>(error)
        && matches!(import, ImportError::Read { .. } | ImportError::Refused(_))
    {
        return Exit::Data;
    }
    if find::<ZoneError>(error).is_some() {
        return Exit::Data;
    }
    match find::<StoreError>(error) {
        Some(StoreError::OlderSchema { .. } | StoreError::NewerSchema { .. }) => return Exit::Config,
        Some(store) if store.class() == ErrorClass::Transient => return Exit::Unavailable,
        // A wrong password, a database that does not exist, a folder that is missing.
        Some(StoreError::Connect(_)) => return Exit::Config,
        _ => {}
    }
    match find::<AppError>(error) {
        Some(AppError::Unavailable(..) | AppError::Listen(..)) => Exit::Unavailable,
        Some(AppError::Store(_) | AppError::Panicked(_)) | None => Exit::Internal,
        Some(_) => Exit::Config,
    }
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(misuse) = find::<Misuse>(error) {
        return misuse.hint;
    }
    if let Some(AppError::Unavailable(..)) = find::<AppError>(error) {
        return Some("start the database, or wait longer by database.start_timeout");
    }
    if let Some(AppError::Listen(..)) = find::<AppError>(error) {
        return Some("another process may hold the port; http.listen chooses another");
    }
    if let Some(store) = find::<StoreError>(error) {
        return store_hint(store);
    }
    if find::<SourceError>(error).is_some() {
        return Some("`digestd check` tries the source by itself");
    }
    match find::<ImportError>(error)? {
        ImportError::Refused(_) => Some("correct the file and import it again; nothing of it was kept"),
        _ => None,
    }
}

/// What helps with a database error.
pub fn store_hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::OlderSchema { .. } => Some("`digestd migrate` brings the schema up to date"),
        StoreError::NewerSchema { .. } => {
            Some("a newer release has run here; run that one, or a restored backup")
        }
        StoreError::Connect(_) => Some("is the database running, and is database.url right?"),
        StoreError::Database { .. } if error.class() == ErrorClass::Transient => {
            Some("the database went away or was busy; trying again may be enough")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes_and_what_to_do() {
        let error = Err::<(), _>(StoreError::OlderSchema { missing: 2 }).context("looking for the org acme");
        let error = error.unwrap_err();
        assert_eq!(
            words(&error),
            "error: looking for the org acme\n  \
             caused by: the schema lacks 2 migration(s); run `digestd migrate` first\n\
             hint: `digestd migrate` brings the schema up to date"
        );
        assert_eq!(exit(&error), Exit::Config);
    }

    #[test]
    fn every_kind_of_failure_has_its_exit_code() {
        let config = crate::config::Config::parse("tikc = 1", []).unwrap_err();
        assert_eq!(exit(&config.into()), Exit::Config);
        assert_eq!(exit(&Misuse::new("no").into()), Exit::Usage);
        assert_eq!(exit(&anyhow::anyhow!("a surprise")), Exit::Internal);
        let read = ImportError::Read { path: "x.csv".into(), source: std::io::ErrorKind::NotFound.into() };
        assert_eq!(exit(&read.into()), Exit::Data);
        let missing = read_input(Path::new("/nowhere/left.txt")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read /nowhere/left.txt");
        assert_eq!(exit(&missing.into()), Exit::Data);
    }
}
