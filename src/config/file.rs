//! The TOML file: every key with its line, every mistake in one pass.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeArray, DeTable, DeValue};

use super::keys::{self, Key};
use super::kind::Kind;
use super::layer::{Entry, Layer, RawSection};
use super::problem::{Problem, nearest};
use super::table::{SECTION_KEYS, TABLES};

/// What a file says.
#[derive(Debug, Default)]
pub struct File {
    /// The values of known keys.
    pub layer: Layer,
    /// The `[[section]]` tables.
    pub sections: Vec<RawSection>,
    /// The `[headers]` table.
    pub headers: BTreeMap<String, Entry>,
    /// Whether parts of it could not be read.
    pub incomplete: bool,
}

/// Reads a file. What is wrong goes to `problems`; the rest is returned.
pub fn read(path: &Path, problems: &mut Vec<Problem>) -> File {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&name, &text, problems),
        Err(error) => {
            let problem = Problem::new(&name, None, format!("the file cannot be read: {error}"));
            problems.push(
                problem.hint("name it by --config or DIGESTD_CONFIG; without either, the defaults hold"),
            );
            File { incomplete: true, ..File::default() }
        }
    }
}

/// Parses a file's text; `name` is for origins.
pub fn parse(name: &str, text: &str, problems: &mut Vec<Problem>) -> File {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { name, text, file: File::default(), problems: Vec::new() };
    reader.table("", table.get_ref());
    let Reader { mut file, problems: mut found, .. } = reader;
    if !errors.is_empty() {
        file.incomplete = true;
        let mut syntax: Vec<Problem> = errors.iter().map(|error| syntax_problem(name, text, error)).collect();
        // One mistake on a line makes several errors; the first is the telling one.
        syntax.dedup_by(|later, first| later.origin == first.origin);
        // What the parser guessed on a broken line would only confuse.
        found.retain(|problem| syntax.iter().all(|s| s.origin != problem.origin));
        problems.extend(syntax);
    }
    problems.append(&mut found);
    file
}

/// The parser's own rendering shows the line, which may hold a password; its message does not.
fn syntax_problem(name: &str, text: &str, error: &toml::de::Error) -> Problem {
    let origin = error.span().map(|span| origin(name, text, span.start));
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    Problem::new("TOML syntax", origin.as_deref(), message)
}

fn origin(name: &str, text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    format!("{name}:{}", before.matches('\n').count() + 1)
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    file: File,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn origin(&self, span: &Range<usize>) -> String {
        origin(self.name, self.text, span.start)
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = keys::join(prefix, name.get_ref());
            let origin = self.origin(&name.span());
            match (path.as_str(), value.get_ref()) {
                ("section", DeValue::Array(sections)) => self.sections(sections),
                ("section", _) => self.wrong(&path, &origin, "expected [[section]], with two brackets"),
                ("headers", DeValue::Table(headers)) => self.headers(headers),
                (_, DeValue::Table(inner)) if keys::is_table(&path) => self.table(&path, inner),
                (_, _) if path == "headers" || keys::is_table(&path) => {
                    self.wrong(&path, &origin, &format!("expected a table: [{path}], then its keys"));
                }
                (_, value) => self.value(&path, origin, value),
            }
        }
    }

    fn value(&mut self, path: &str, origin: String, value: &DeValue<'_>) {
        let Some((key, twin)) = keys::find(path) else {
            self.problems.push(unknown(path, &origin, matches!(value, DeValue::Table(_))));
            return;
        };
        match text_of(key, if twin { Kind::Path } else { key.kind }, value) {
            Ok(text) => self.file.layer.set(path, Entry { text, origin }),
            Err(message) => self.wrong(path, &origin, &message),
        }
    }

    fn headers(&mut self, table: &DeTable<'_>) {
        for (name, value) in table {
            let origin = self.origin(&name.span());
            match value.get_ref().as_str() {
                Some(text) => {
                    self.file.headers.insert(name.to_string(), Entry { text: text.to_owned(), origin });
                }
                None => {
                    self.wrong(&keys::join("headers", name.get_ref()), &origin, "expected text in quotes");
                }
            }
        }
    }

    fn sections(&mut self, array: &DeArray<'_>) {
        for (index, section) in array.iter().enumerate() {
            let origin = self.origin(&section.span());
            let mut values = BTreeMap::new();
            let path = format!("section[{}]", index + 1);
            let Some(table) = section.get_ref().as_table() else {
                self.wrong(&path, &origin, "expected [[section]], then its keys");
                continue;
            };
            for (name, value) in table {
                let path = keys::join(&path, name.get_ref());
                let origin = self.origin(&name.span());
                let Some(key) = SECTION_KEYS.iter().find(|key| key.path == name.get_ref()) else {
                    let known = SECTION_KEYS.iter().map(|key| key.path);
                    self.problems.push(guess(&path, &origin, name.get_ref(), "", known));
                    continue;
                };
                match text_of(key, key.kind, value.get_ref()) {
                    Ok(text) => {
                        values.insert(name.to_string(), Entry { text, origin });
                    }
                    Err(message) => self.wrong(&path, &origin, &message),
                }
            }
            self.file.sections.push(RawSection { origin, values });
        }
    }

    fn wrong(&mut self, path: &str, origin: &str, message: &str) {
        self.problems.push(Problem::new(path, Some(origin), message));
    }
}

/// The value as text, if it has the TOML type that the key's kind is written in.
fn text_of(key: &Key, kind: Kind, value: &DeValue<'_>) -> Result<String, String> {
    match (kind, value) {
        (Kind::Int(..), DeValue::Integer(number)) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            Ok(decimal.map_or_else(|_| number.as_str().to_owned(), |n| n.to_string()))
        }
        (Kind::Bool, DeValue::Boolean(flag)) => Ok(flag.to_string()),
        (Kind::Durations, DeValue::Array(parts)) if parts.iter().all(|part| part.get_ref().is_str()) => {
            let parts: Vec<&str> = parts.iter().filter_map(|part| part.get_ref().as_str()).collect();
            Ok(parts.join(", "))
        }
        (Kind::Int(..) | Kind::Bool | Kind::Durations, _) => Err(mismatch(key, kind, value)),
        (_, DeValue::String(text)) => Ok(text.to_string()),
        _ => Err(mismatch(key, kind, value)),
    }
}

fn mismatch(key: &Key, kind: Kind, value: &DeValue<'_>) -> String {
    let found = match value {
        DeValue::Integer(number) if !key.secret => format!("the number {}", number.as_str()),
        DeValue::Float(number) if !key.secret => format!("the number {}", number.as_str()),
        DeValue::Integer(_) | DeValue::Float(_) => "a number".to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::String(_) => "text in quotes".to_owned(),
        DeValue::Datetime(_) => "a time without quotes".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    let quotes =
        if matches!(kind, Kind::Int(..) | Kind::Bool | Kind::Durations) { "" } else { ", in quotes" };
    format!("expected {}{quotes}; found {found}", kind.expected())
}

fn unknown(path: &str, origin: &str, is_table: bool) -> Problem {
    if is_table {
        let tables = TABLES.iter().map(|(table, _)| *table).chain(["section", "headers"]);
        return guess(&format!("[{path}]"), origin, path, "", tables);
    }
    let known: Vec<String> = keys::paths().collect();
    let table = path.rsplit_once('.').map_or("", |(table, _)| table);
    guess(path, origin, path, table, known.iter().map(String::as_str))
}

/// An unknown name with the nearest known one, or else with all that would fit.
fn guess<'a>(
    path: &str,
    origin: &str,
    wanted: &str,
    table: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Problem {
    let problem = Problem::new(path, Some(origin), "unknown key");
    if let Some(near) = nearest(wanted, known.clone()) {
        return problem.hint(format!("did you mean {near}?"));
    }
    let parent = |name: &str| name.rsplit_once('.').map_or("", |(parent, _)| parent).to_owned();
    let fitting: Vec<&str> = known.filter(|name| parent(name) == table).collect();
    if fitting.is_empty() { problem } else { problem.hint(format!("known here: {}", fitting.join(", "))) }
}
