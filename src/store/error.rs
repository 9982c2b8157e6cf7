//! What can go wrong with a database, and what that means.

use sqlx::error::ErrorKind;

/// An operation of the store that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or could not be reached.
    #[error("the database failed while {doing}")]
    Database {
        /// What we were doing.
        doing: &'static str,
        /// The driver's error.
        source: sqlx::Error,
    },
    /// No connection came about.
    #[error("no connection to the database came about")]
    Connect(#[source] sqlx::Error),
    /// A row holds what our code never writes.
    #[error("table {table}, row {id}: column {column} holds a value that digestd does not know")]
    Inconsistent {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's id, as text.
        id: String,
    },
    /// The schema is from a newer release.
    #[error("the schema has migration {found}, newer than {known}, the newest that this release knows")]
    NewerSchema {
        /// The newest migration applied.
        found: i64,
        /// The newest migration known.
        known: i64,
    },
    /// The schema is older and `database.migrate` is `check`.
    #[error("the schema lacks {missing} migration(s); run `digestd migrate` first")]
    OlderSchema {
        /// How many migrations are not applied.
        missing: usize,
    },
    /// A lock file beside an SQLite database could not be used.
    #[error("cannot lock {path}")]
    Lock {
        /// The lock file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another process has held the migration lock for too long.
    #[error("another process has held the migration lock for {waited_secs} s{holder}")]
    MigrationLock {
        /// How long we have waited.
        waited_secs: u64,
        /// Who holds it, where the database tells.
        holder: String,
    },
}

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Worth trying again soon: a lost connection, a deadlock, a busy file.
    Transient,
    /// Trying again changes nothing.
    Permanent,
}

impl StoreError {
    /// Names what we were doing, for `map_err`.
    pub(super) fn doing(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }

    /// The database did not answer in time.
    pub(crate) fn late(doing: &'static str) -> Self {
        Self::Database { doing, source: sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()) }
    }

    /// Names the column that holds an unknown value.
    pub(crate) fn inconsistent(
        table: &'static str,
        column: &'static str,
        id: impl std::fmt::Display,
    ) -> Self {
        Self::Inconsistent { table, column, id: id.to_string() }
    }

    /// What the error means for the caller. Nobody else looks at SQLSTATE.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Database { source, .. } | Self::Connect(source) => class_of(source),
            Self::MigrationLock { .. } => ErrorClass::Transient,
            _ => ErrorClass::Permanent,
        }
    }
}

/// Whether an error of any database is worth another try soon.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    class_of(error) == ErrorClass::Transient
}

fn class_of(error: &sqlx::Error) -> ErrorClass {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
            ErrorClass::Transient
        }
        sqlx::Error::Database(database) if database.kind() == ErrorKind::Other => {
            match database.code().as_deref() {
                Some(code) if transient_code(code) => ErrorClass::Transient,
                _ => ErrorClass::Permanent,
            }
        }
        _ => ErrorClass::Permanent,
    }
}

/// PostgreSQL: connection trouble (08, 57P0x, 53300), serialization and deadlock (40), lock timeouts
/// (55P03), a session ended because it stood still (25P03, 57P05), a statement planned before another replica's migration (0A000), read-only after a fail-over
/// (25006). SQLite: busy (5), locked (6) and their extended codes, which keep the primary in the low byte.
fn transient_code(code: &str) -> bool {
    const POSTGRES: [&str; 11] =
        ["57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01", "55P03", "25P03", "0A000", "25006"];
    if code.len() == 5 && (code.starts_with("08") || POSTGRES.contains(&code)) {
        return true;
    }
    matches!(code.parse::<u32>().map(|n| n & 0xff), Ok(5 | 6)) && code.len() < 5
}

#[cfg(test)]
mod tests {
    use super::transient_code;

    #[test]
    fn busy_files_and_lost_connections_are_worth_another_try() {
        for code in ["5", "261", "517", "6", "08006", "57P01", "57P05", "25P03", "40P01"] {
            assert!(transient_code(code), "{code}");
        }
        for code in ["1", "19", "2067", "42703", "23505"] {
            assert!(!transient_code(code), "{code}");
        }
    }
}
