//! Values as they were written, layer upon layer, each with its origin.

use std::collections::BTreeMap;

use config::{Config as Layers, Map, Source, Value, ValueKind};

use super::keys::{self, FILE_SUFFIX};
use super::problem::Problem;
use super::table::KEYS;

/// A value's text and where it stands.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The value, as text whatever its type was.
    pub text: String,
    /// File and line, or the variable's name.
    pub origin: String,
}

/// Everything that was written, merged.
#[derive(Debug, Default)]
pub struct Raw {
    /// By dotted path.
    pub values: BTreeMap<String, Entry>,
    /// The `[[section]]` tables in the order of the file.
    pub sections: Vec<RawSection>,
    /// The `[headers]` table.
    pub headers: BTreeMap<String, Entry>,
    /// Whether the file has syntax errors, so that a missing key means nothing.
    pub incomplete: bool,
}

/// One `[[section]]` as written.
#[derive(Debug)]
pub struct RawSection {
    /// Where it begins.
    pub origin: String,
    /// By key.
    pub values: BTreeMap<String, Entry>,
}

/// One source of values: known keys only, dotted.
#[derive(Debug, Clone, Default)]
pub struct Layer(Map<String, Value>);

impl Layer {
    /// Sets a value.
    pub fn set(&mut self, path: &str, entry: Entry) {
        self.0.insert(path.to_owned(), Value::new(Some(&entry.origin), entry.text));
    }

    fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// A secret and its file are one thing: where this layer has either of them,
    /// the one below must not add the other.
    fn hide_twins_in(&self, below: &mut Self) {
        for key in KEYS.iter().filter(|key| key.secret) {
            let twin = format!("{}{FILE_SUFFIX}", key.path);
            if self.has(key.path) || self.has(&twin) {
                below.0.remove(key.path);
                below.0.remove(&twin);
            }
        }
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// Lays the environment over the file.
pub fn merge(mut file: Layer, environment: Layer, problems: &mut Vec<Problem>) -> BTreeMap<String, Entry> {
    environment.hide_twins_in(&mut file);
    let mut values = BTreeMap::new();
    match Layers::builder().add_source(file).add_source(environment).build() {
        Ok(merged) => flatten("", &merged.cache, &mut values),
        Err(_) => problems.push(Problem::new("configuration", None, "the layers cannot be merged")),
    }
    values
}

fn flatten(path: &str, value: &Value, values: &mut BTreeMap<String, Entry>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (name, value) in table {
                flatten(&keys::join(path, name), value, values);
            }
        }
        ValueKind::String(text) => {
            let origin = value.origin().unwrap_or_default().to_owned();
            values.insert(path.to_owned(), Entry { text: text.clone(), origin });
        }
        // Layers hold text only; see `Layer::set`.
        _ => {}
    }
}
