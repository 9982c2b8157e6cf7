//! Takes typed values out of the raw ones and remembers what was wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{self, Key};
use super::kind::Kind;
use super::layer::Entry;
use super::problem::{Problem, nearest, quoted};
use super::text::Setting;

/// A cursor over the raw values of one table of keys.
pub struct Reader<'a> {
    values: &'a BTreeMap<String, Entry>,
    keys: &'static [Key],
    /// What the paths in problems begin with.
    prefix: String,
    problems: &'a mut Vec<Problem>,
    /// Paths that have a problem already: not missing, and no ground for a rule.
    broken: BTreeSet<String>,
    /// Whether a missing key is missing for sure.
    complete: bool,
}

impl<'a> Reader<'a> {
    /// A reader of the values below `prefix`.
    pub fn new(
        values: &'a BTreeMap<String, Entry>,
        keys: &'static [Key],
        prefix: &str,
        problems: &'a mut Vec<Problem>,
        complete: bool,
    ) -> Self {
        let broken = problems.iter().map(|problem| without_twin(&problem.path)).collect();
        Self { values, keys, prefix: prefix.to_owned(), problems, broken, complete }
    }

    /// The value of a key that has a default. After a mistake the default, so that reading goes on.
    pub fn get<T: Setting>(&mut self, path: &str) -> T {
        let read = self.optional(path);
        #[expect(clippy::expect_used, reason = "a test parses every default of the table")]
        read.or_else(|| T::parse(self.key(path).default?, self.key(path).kind).ok())
            .expect("the default parses")
    }

    /// The value of a key, its default, or nothing.
    pub fn optional<T: Setting>(&mut self, path: &str) -> Option<T> {
        let key = self.key(path);
        let Some(entry) = self.values.get(path) else {
            return T::parse(key.default?, key.kind).ok();
        };
        T::parse(&entry.text, key.kind).map_err(|hint| self.refuse(key, entry, hint)).ok()
    }

    /// The value of a key that must be written.
    pub fn required<T: Setting>(&mut self, path: &str, because: &str) -> Option<T> {
        let value = self.optional(path);
        if value.is_none() {
            self.missing(path, because);
        }
        value
    }

    /// Says that a key is missing, unless something else is known to be wrong with it.
    pub fn missing(&mut self, path: &str, because: &str) {
        if self.complete && !self.is_set(path) {
            let key = self.key(path);
            let problem = Problem::new(self.full(path), None, format!("missing; {because}"));
            self.push(path, problem.hint(format!("expected {}", key.kind.expected())));
        }
    }

    /// Checks that two keys are both written or both absent.
    pub fn together(&mut self, a: &str, b: &str) {
        for (set, unset) in [(a, b), (b, a)] {
            if self.is_set(set) && !self.is_set(unset) {
                let because = format!("{} needs it", self.full(set));
                self.missing(unset, &because);
            }
        }
    }

    /// Reports a combination that cannot work. Says nothing where one of the keys is wrong
    /// in itself: there is no value to compare.
    pub fn rule(&mut self, holds: bool, paths: &[&str], message: &str, hint: &str) {
        if holds || paths.iter().any(|path| self.broken.contains(&self.full(path))) {
            return;
        }
        let path = paths.iter().copied().find(|path| self.values.contains_key(*path)).unwrap_or(paths[0]);
        let origin = self.values.get(path).map(|entry| entry.origin.as_str());
        let problem = Problem::new(self.full(path), origin, message).hint(hint);
        self.push(path, problem);
    }

    /// Whether a key is written, rightly or wrongly.
    pub fn is_set(&self, path: &str) -> bool {
        self.values.contains_key(path) || self.broken.contains(&self.full(path))
    }

    /// The key of a path of the table.
    pub fn key(&self, path: &str) -> &'static Key {
        #[expect(clippy::expect_used, reason = "every load reads every key; see `validate`")]
        self.keys.iter().find(|key| key.path == path).expect("the path stands in the table")
    }

    /// Adds a problem of a key.
    pub fn push(&mut self, path: &str, problem: Problem) {
        self.broken.insert(self.full(path));
        self.problems.push(problem);
    }

    fn refuse(&mut self, key: &Key, entry: &Entry, hint: Option<String>) {
        let found = if key.secret || !key.kind.is_harmless() {
            "something else".to_owned()
        } else {
            quoted(&entry.text)
        };
        let message = format!("expected {}; found {found}", key.kind.expected());
        let near = match key.kind {
            Kind::Choice(names) => nearest(&entry.text, names.iter().copied()),
            _ => None,
        };
        let hint = hint.or_else(|| near.map(|name| format!("did you mean {name}?")));
        let mut problem = Problem::new(self.full(key.path), Some(&entry.origin), message);
        problem.hint = hint;
        self.push(key.path, problem);
    }

    fn full(&self, path: &str) -> String {
        keys::join(&self.prefix, path)
    }
}

fn without_twin(path: &str) -> String {
    match keys::find(path) {
        Some((key, true)) => key.path.to_owned(),
        _ => path.to_owned(),
    }
}
