//! The records of a file, one at a time: files may be larger than memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use super::cells::{self, Cell};
use super::columns::{self, Column};
use super::{Format, Problem};
use crate::store::import::ImportRow;

/// The longest record in bytes. A quotation mark that is never closed makes one record of the
/// rest of the file, which must not end up in memory.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// How much is read from the file at once.
const BUFFER_BYTES: usize = 1 << 16;

/// A row whose every cell was parsed.
#[derive(Debug)]
pub(super) struct Record {
    /// The line on which it starts, from 1.
    pub line: u64,
    /// What is to be written.
    pub row: ImportRow,
}

/// A file being read.
pub(super) struct Records {
    columns: &'static [Column],
    source: Source,
    meter: Arc<Meter>,
    /// A record that was read but not wanted yet.
    kept: Option<Record>,
    ended: bool,
}

enum Source {
    Csv(Csv),
    JsonLines(JsonLines),
}

/// The line on which a record starts, and the record; or what is wrong with it as a whole.
type Numbered<T> = (u64, Result<T, String>);
/// The cells of a record by their place among the columns.
type Cells = Vec<(usize, Cell)>;

impl Records {
    /// Opens a file. The inner error is what is wrong with its beginning.
    pub fn open(
        path: &Path,
        format: Format,
        columns: &'static [Column],
    ) -> io::Result<Result<Self, Vec<Problem>>> {
        let meter = Arc::new(Meter::default());
        let file = Metered { file: File::open(path)?, meter: Arc::clone(&meter) };
        meter.allow(MAX_RECORD_BYTES);
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        match reader.fill_buf()? {
            [0xef, 0xbb, 0xbf, ..] => reader.consume(3),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                return Ok(Err(vec![Problem::on(1, "the file is UTF-16; save it as UTF-8")]));
            }
            _ => {}
        }
        let source = match format {
            Format::JsonLines => Source::JsonLines(JsonLines { columns, reader, line: 0 }),
            Format::Csv => match Csv::open(reader, columns)? {
                Ok(csv) => Source::Csv(csv),
                Err(problems) => return Ok(Err(problems)),
            },
        };
        Ok(Ok(Self { columns, source, meter, kept: None, ended: false }))
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.meter.read.load(Ordering::Relaxed)
    }

    /// The next record, or all that is wrong with it; `None` at the end of the file.
    pub fn next(&mut self) -> io::Result<Option<Result<Record, Vec<Problem>>>> {
        if self.ended {
            return Ok(None);
        }
        self.meter.allow(MAX_RECORD_BYTES);
        let (line, next) = match &mut self.source {
            Source::Csv(csv) => (csv.reader.get_ref().line + 1, csv.next()),
            Source::JsonLines(json) => (json.line + 1, json.next()),
        };
        match next {
            Ok(Some((line, Ok(cells)))) => Ok(Some(self.parse(line, &cells))),
            Ok(Some((line, Err(message)))) => Ok(Some(Err(vec![Problem::on(line, message)]))),
            Ok(None) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                self.ended = true;
                let message = format!(
                    "a record of more than {MAX_RECORD_BYTES} bytes starts here; is a quotation mark missing?"
                );
                Ok(Some(Err(vec![Problem::on(line, message)])))
            }
            Err(error) => Err(error),
        }
    }

    /// The next record, unless `stop` says that it belongs to a later chunk; then it is kept for the
    /// next call.
    pub fn next_unless(
        &mut self,
        stop: impl FnOnce(&Record) -> bool,
    ) -> io::Result<Option<Result<Record, Vec<Problem>>>> {
        let next = match self.kept.take() {
            Some(kept) => Some(Ok(kept)),
            None => self.next()?,
        };
        match next {
            Some(Ok(record)) if stop(&record) => {
                self.kept = Some(record);
                Ok(None)
            }
            next => Ok(next),
        }
    }

    fn parse(&self, line: u64, cells: &Cells) -> Result<Record, Vec<Problem>> {
        let mut row = Map::new();
        let mut problems = Vec::new();
        for (place, column) in self.columns.iter().enumerate() {
            let cell = cells.iter().find(|(at, _)| *at == place).map(|(_, cell)| cell);
            let value = match cell {
                None if column.required => Err("is missing".to_owned().into()),
                Some(Cell::Empty) if column.required => Err("must not be empty".to_owned().into()),
                None => continue,
                // A truth value cannot be unset, so an empty cell says nothing about it.
                Some(Cell::Empty) if column.kind == cells::Kind::Bool => continue,
                Some(Cell::Empty) => Ok(Value::Null),
                Some(cell) => cells::parse(column.kind, cell),
            };
            match value {
                Ok(value) => drop(row.insert(column.name.to_owned(), value)),
                Err(fault) => problems.push(Problem { line, column: Some(column.name), fault }),
            }
        }
        if problems.is_empty() { Ok(Record { line, row: ImportRow(row) }) } else { Err(problems) }
    }
}

/// Comma-separated values (RFC 4180), with a line of column names.
struct Csv {
    reader: csv::Reader<OneLineAtATime>,
    /// Which column stands at each place of the file.
    places: Vec<usize>,
}

impl Csv {
    fn open(
        reader: BufReader<Metered>,
        columns: &'static [Column],
    ) -> io::Result<Result<Self, Vec<Problem>>> {
        let reader = OneLineAtATime { reader, line: 1, line_ended: false };
        let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(reader);
        let mut csv = Self { reader, places: Vec::new() };
        let Some((line, names)) = csv.record()? else {
            return Ok(Err(vec![Problem::on(1, "the file is empty; its first line must name the columns")]));
        };
        Ok(match names {
            Ok(names) => columns::header(columns, line, &names).map(|places| Self { places, ..csv }),
            Err(message) => Err(vec![Problem::on(line, message)]),
        })
    }

    fn next(&mut self) -> io::Result<Option<Numbered<Cells>>> {
        let Some((line, cells)) = self.record()? else { return Ok(None) };
        let expected = self.places.len();
        let cells = cells.and_then(|cells| {
            if cells.len() != expected {
                return Err(format!(
                    "has {} cells, but the first line names {expected} columns",
                    cells.len()
                ));
            }
            let cell = |text: String| if text.is_empty() { Cell::Empty } else { Cell::Text(text) };
            Ok(self.places.iter().copied().zip(cells.into_iter().map(cell)).collect())
        });
        Ok(Some((line, cells)))
    }

    /// One record, its cells trimmed.
    fn record(&mut self) -> io::Result<Option<Numbered<Vec<String>>>> {
        let mut record = csv::ByteRecord::new();
        if !self.reader.read_byte_record(&mut record).map_err(reading)? {
            return Ok(None);
        }
        let line_feeds = |cell: &[u8]| cell.split(|byte| *byte == b'\n').count() - 1;
        let inner = u64::try_from(record.iter().map(line_feeds).sum::<usize>()).unwrap_or(0);
        let line = self.reader.get_ref().line.saturating_sub(inner);
        let cells = csv::StringRecord::from_byte_record(record)
            .map(|record| record.iter().map(|cell| cell.trim().to_owned()).collect())
            .map_err(|_| "is not UTF-8".to_owned());
        Ok(Some((line, cells)))
    }
}

/// Hands a file over line by line, so that the number of the line on which a record ends is known.
/// The parser's own count points at blank lines before a record.
struct OneLineAtATime {
    reader: BufReader<Metered>,
    /// The line of the byte handed over last, from 1.
    line: u64,
    line_ended: bool,
}

impl Read for OneLineAtATime {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.reader.fill_buf()?;
        let end = ready.iter().position(|byte| *byte == b'\n').map_or(ready.len(), |at| at + 1);
        let size = end.min(buffer.len());
        let Some((target, source)) = buffer.get_mut(..size).zip(ready.get(..size)) else { return Ok(0) };
        target.copy_from_slice(source);
        if size > 0 {
            self.line += u64::from(self.line_ended);
            self.line_ended = source.ends_with(b"\n");
        }
        self.reader.consume(size);
        Ok(size)
    }
}

/// Bytes as they come cannot be wrong in any other way than by not coming.
fn reading(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// One JSON object a line.
struct JsonLines {
    columns: &'static [Column],
    reader: BufReader<Metered>,
    line: u64,
}

impl JsonLines {
    fn next(&mut self) -> io::Result<Option<Numbered<Cells>>> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            self.line += 1;
            if self.reader.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some((self.line, self.cells(bytes.trim_ascii()))));
            }
        }
    }

    fn cells(&self, bytes: &[u8]) -> Result<Cells, String> {
        let object: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| {
            if error.is_data() {
                "is not a JSON object; each line must be one, such as {\"id\": \"7\"}".to_owned()
            } else {
                format!("is not JSON: {}", without_line(&error))
            }
        })?;
        object
            .into_iter()
            .map(|(name, value)| columns::find(self.columns, &name).map(|place| (place, cell(value))))
            .collect()
    }
}

fn cell(value: Value) -> Cell {
    match value {
        Value::Null => Cell::Empty,
        Value::Bool(value) => Cell::Bool(value),
        Value::Number(number) => Cell::Number(number.to_string()),
        Value::String(text) if text.trim().is_empty() => Cell::Empty,
        Value::String(text) => Cell::Text(text.trim().to_owned()),
        Value::Array(_) | Value::Object(_) => Cell::Nested,
    }
}

/// The parser counts lines within the one that it was given; the column is what helps.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text);
    format!("{reason} at column {}", error.column())
}

/// How much of a file has been read, and how much more may be before the next record.
#[derive(Debug, Default)]
struct Meter {
    read: AtomicU64,
    limit: AtomicU64,
}

impl Meter {
    fn allow(&self, bytes: u64) {
        let slack = u64::try_from(2 * BUFFER_BYTES).unwrap_or(bytes);
        self.limit.store(self.read.load(Ordering::Relaxed) + bytes + slack, Ordering::Relaxed);
    }
}

/// A file whose reading is measured.
struct Metered {
    file: File,
    meter: Arc<Meter>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.meter.read.load(Ordering::Relaxed) >= self.meter.limit.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.file.read(buffer)?;
        self.meter.read.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        Ok(read)
    }
}
