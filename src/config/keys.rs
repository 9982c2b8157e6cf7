//! Keys: their paths, their variables, and how to find one.

use super::kind::Kind;
use super::table::{KEYS, TABLES};

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// The dotted path, such as `relay.url`; for a key of `[[section]]` its bare name.
    pub path: &'static str,
    /// What its value looks like.
    pub kind: Kind,
    /// The built-in default, as it would be written.
    pub default: Option<&'static str>,
    /// What to show in the reference where there is no default.
    pub example: &'static str,
    /// One or two sentences for the reference.
    pub doc: &'static str,
    /// Whether the value is a secret. Such a key has a twin `…_file` that names a file holding it.
    pub secret: bool,
}

/// A key with a default.
pub(super) const fn key(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default: Some(default), example: "", doc, secret: false }
}

/// A key without a default.
pub(super) const fn optional(
    path: &'static str,
    kind: Kind,
    example: &'static str,
    doc: &'static str,
) -> Key {
    Key { path, kind, default: None, example, doc, secret: false }
}

/// A secret, with its twin.
pub(super) const fn secret(path: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default: None, example, doc, secret: true }
}

impl Key {
    /// The same key with a default.
    pub(super) const fn with_default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }
}

/// The keys of a secret's file end in this.
pub const FILE_SUFFIX: &str = "_file";

/// The key of a path, and whether the path names its `…_file` twin.
pub fn find(path: &str) -> Option<(&'static Key, bool)> {
    let exact = |path: &str| KEYS.iter().find(|key| key.path == path);
    exact(path).map(|key| (key, false)).or_else(|| {
        let key = exact(path.strip_suffix(FILE_SUFFIX)?)?;
        key.secret.then_some((key, true))
    })
}

/// Every path that may be written, twins included.
pub fn paths() -> impl Iterator<Item = String> {
    KEYS.iter().flat_map(|key| {
        let twin = key.secret.then(|| format!("{}{FILE_SUFFIX}", key.path));
        std::iter::once(key.path.to_owned()).chain(twin)
    })
}

/// The path of a name within a table; the root is the empty path.
pub fn join(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}

/// Whether a path is a table that holds keys.
pub fn is_table(path: &str) -> bool {
    TABLES.iter().any(|(table, _)| *table == path)
}

/// The environment variable of a path.
pub fn variable(path: &str) -> String {
    format!("DIGESTD__{}", path.replace('.', "__").to_uppercase())
}
