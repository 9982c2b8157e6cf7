//! What is wrong with a configuration: everything, in one answer, and never a secret.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `relay.url`.
    pub path: String,
    /// Where its value comes from: file and line, or the name of the environment variable.
    /// `None` where there is no value at all.
    pub origin: Option<String>,
    /// What is wrong. Never holds a value that might be a secret.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem of a key that has a value somewhere.
    pub fn new(path: impl Into<String>, origin: Option<&str>, message: impl Into<String>) -> Self {
        Self { path: path.into(), origin: origin.map(str::to_owned), message: message.into(), hint: None }
    }

    /// Adds what would be right.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}: {}", self.path, self.message)?,
            None => write!(f, "{}: {}", self.path, self.message)?,
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n      hint: {hint}")?;
        }
        Ok(())
    }
}

/// The configuration cannot be used. Ends the process with exit code 78.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", report(problems))]
pub struct ConfigError {
    /// Everything that is wrong, in the order of the file, then of the environment.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Puts the problems into the order in which a reader meets their places.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.origin.as_deref().map_or(usize::MAX, place));
        Self { problems }
    }
}

/// The line of an origin in the file; the environment comes after every line.
fn place(origin: &str) -> usize {
    let line = origin.split(", ").next().and_then(|origin| origin.rsplit_once(':')?.1.parse().ok());
    line.unwrap_or(usize::MAX - 1)
}

fn report(problems: &[Problem]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        n => format!("{n} problems"),
    };
    let mut text = format!("the configuration has {count}");
    for problem in problems {
        text.push_str("\n  - ");
        text.push_str(&problem.to_string());
    }
    text
}

/// The value for a message, where it cannot be a secret: short, and without
/// the characters that addresses, URLs and assignments have.
pub fn quoted(text: &str) -> String {
    let harmless = text.len() <= 40
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " ._-+:/".contains(c))
        && !text.contains("//");
    if harmless { format!("“{text}”") } else { "something else".to_owned() }
}

/// The candidate nearest to a mistyped word, if one is near.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(wanted, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
