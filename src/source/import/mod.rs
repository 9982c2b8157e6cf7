//! Filling the built-in directory from CSV and JSON Lines files.
//!
//! A file is read twice. The first pass checks every cell and touches no database, so that a file
//! with faults is refused with all of them told, and SQLite's one writer is not held meanwhile. The
//! second pass writes in one transaction, chunk by chunk.

mod cells;
mod columns;
mod reader;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::domain::zone::ZoneError;
use crate::store::import::{Import, ImportCount, ImportRow, ImportTable};
use crate::store::{Store, StoreError};
use columns::Column;
use reader::{Record, Records};

/// How many rows go to the database at once.
const CHUNK_ROWS: usize = 1_000;
/// How many problems are kept; the others are counted.
pub const SHOWN_PROBLEMS: usize = 20;
/// How many bytes or rows pass between two reports of progress.
const REPORT_EVERY_ROWS: u64 = 1_000;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values (RFC 4180), the first line naming the columns.
    Csv,
    /// One JSON object a line.
    JsonLines,
}

impl Format {
    /// The format that a file's name ends in.
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" | "jsonlines" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The first pass has read this many bytes.
    Checked(u64),
    /// The second pass has written `rows` of `all`.
    Written {
        /// Rows written.
        rows: u64,
        /// Rows in the file.
        all: u64,
    },
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line on which the record starts, from 1.
    pub line: u64,
    /// The column, where it is about one.
    pub column: Option<&'static str>,
    /// What is wrong and what would be right.
    pub fault: Fault,
}

/// What is wrong with a cell or a record. Put into words only if it is shown: to find the zone that
/// was meant takes a while, and all rows of a large file may be at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// In words that never quote an address.
    Text(String),
    /// Not a zone.
    Zone(ZoneError),
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Zone(error) => error.fmt(f),
        }
    }
}

impl Problem {
    fn on(line: u64, text: impl Into<String>) -> Self {
        Self { line, column: None, fault: Fault::Text(text.into()) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) => write!(f, "line {}, {column}: {}", self.line, self.fault),
            None => write!(f, "line {}: {}", self.line, self.fault),
        }
    }
}

/// Why nothing of a file was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file holds faults.
    #[error("nothing was imported: {0}")]
    Refused(Problems),
    /// The database did not take it.
    #[error("nothing was imported")]
    Store(#[from] StoreError),
}

/// The faults of a file, in its order: the first ones, and how many more there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    /// The first [`SHOWN_PROBLEMS`].
    pub shown: Vec<Problem>,
    /// How many follow.
    pub more: u64,
}

impl Problems {
    fn add(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            if self.shown.len() < SHOWN_PROBLEMS {
                self.shown.push(problem);
            } else {
                self.more += 1;
            }
        }
    }

    fn refuse(self) -> Result<(), ImportError> {
        if self.shown.is_empty() { Ok(()) } else { Err(ImportError::Refused(self)) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], 0) = (self.shown.as_slice(), self.more) {
            return only.fmt(f);
        }
        let all = self.more + u64::try_from(self.shown.len()).unwrap_or(0);
        write!(f, "the file has {all} faults")?;
        self.shown.iter().try_for_each(|problem| write!(f, "\n  {problem}"))?;
        if self.more > 0 { write!(f, "\n  and {} more", self.more) } else { Ok(()) }
    }
}

/// Imports a file: all of it, or nothing.
///
/// A row whose id is known replaces what stands there, but keeps the columns that the file does not
/// have. Where an id stands in the file twice, the later line counts.
pub async fn import(
    store: &Store,
    table: ImportTable,
    path: &Path,
    format: Format,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<ImportCount, ImportError> {
    let file = ImportFile { path, format, columns: columns::columns(table) };
    let all = file.check(&mut progress)?;
    let mut import = store.begin_import().await?;
    let mut records = file.open()?;
    let mut problems = Problems::default();
    let mut rows = 0;
    loop {
        let chunk = file.chunk(&mut records, &mut problems)?;
        if chunk.is_empty() {
            break;
        }
        rows += u64::try_from(chunk.len()).unwrap_or(0);
        if table != ImportTable::Orgs {
            problems.add(unknown_orgs(&mut import, &chunk).await?);
        }
        // After the first fault nothing will be kept, so that only the faults matter from here.
        if problems.shown.is_empty() {
            let chunk: Vec<ImportRow> = chunk.into_iter().map(|record| record.row).collect();
            import.write(table, &chunk).await?;
        }
        progress(Progress::Written { rows, all });
    }
    problems.refuse()?;
    Ok(import.commit().await?)
}

async fn unknown_orgs(import: &mut Import, chunk: &[Record]) -> Result<Vec<Problem>, StoreError> {
    let orgs: Vec<&str> = chunk.iter().map(|record| text(record, "org_id")).collect();
    let unknown = import.unknown_orgs(&orgs).await?;
    Ok(unknown
        .into_iter()
        .filter_map(|place| chunk.get(place))
        .map(|record| Problem {
            line: record.line,
            column: Some("org_id"),
            fault: format!("there is no org “{}”; import the orgs first", text(record, "org_id")).into(),
        })
        .collect())
}

fn text<'a>(record: &'a Record, column: &str) -> &'a str {
    record.row.0.get(column).and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// A file and what its columns must be.
struct ImportFile<'a> {
    path: &'a Path,
    format: Format,
    columns: &'static [Column],
}

impl ImportFile<'_> {
    fn open(&self) -> Result<Records, ImportError> {
        let opened = Records::open(self.path, self.format, self.columns).map_err(|e| self.unreadable(e))?;
        opened.map_err(|found| {
            let mut problems = Problems::default();
            problems.add(found);
            ImportError::Refused(problems)
        })
    }

    /// The first pass. Returns the number of rows.
    fn check(&self, progress: &mut impl FnMut(Progress)) -> Result<u64, ImportError> {
        let mut records = self.open()?;
        let mut problems = Problems::default();
        let mut rows = 0;
        while let Some(record) = records.next().map_err(|e| self.unreadable(e))? {
            rows += 1;
            if let Err(found) = record {
                problems.add(found);
            }
            if rows % REPORT_EVERY_ROWS == 0 {
                progress(Progress::Checked(records.bytes()));
            }
        }
        problems.refuse()?;
        Ok(rows)
    }

    /// The next rows, none of them with the same id as another. Faults are possible here too: the
    /// file may have changed since it was checked.
    fn chunk(&self, records: &mut Records, problems: &mut Problems) -> Result<Vec<Record>, ImportError> {
        let mut chunk: Vec<Record> = Vec::new();
        let mut ids = HashSet::new();
        while chunk.len() < CHUNK_ROWS {
            match records
                .next_unless(|record| ids.contains(text(record, "id")))
                .map_err(|e| self.unreadable(e))?
            {
                Some(Ok(record)) => {
                    ids.insert(text(&record, "id").to_owned());
                    chunk.push(record);
                }
                Some(Err(found)) => problems.add(found),
                None => break,
            }
        }
        Ok(chunk)
    }

    fn unreadable(&self, source: io::Error) -> ImportError {
        ImportError::Read { path: self.path.to_owned(), source }
    }
}
