//! Which columns a query must have, and how to say what is wrong with them.

use std::collections::BTreeSet;

use super::super::SourceError;
use super::query::Query;
use crate::config::{SectionKind, SectionQuery};

/// What every recipients query has.
const REQUIRED: [&str; 4] = ["org_id", "org_name", "user_id", "email"];
/// What it may have.
const OPTIONAL: [&str; 7] =
    ["name", "locale", "timezone", "weekday", "time", "org_created_at", "opted_in_at"];

/// The columns of the recipients query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns(BTreeSet<String>);

impl Columns {
    /// Checks the columns that the database describes.
    pub fn of_recipients(query: &Query, found: &[String]) -> Result<Self, SourceError> {
        let expected = format!("expected {}, and at will {}", REQUIRED.join(", "), OPTIONAL.join(", "));
        let known: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL).collect();
        check(query, found, &REQUIRED, Some(&known), &expected)?;
        Ok(Self(found.iter().cloned().collect()))
    }

    pub fn has(&self, column: &str) -> bool {
        self.0.contains(column)
    }
}

/// Checks a section's columns.
pub(super) fn check_section(
    section: &SectionQuery,
    query: &Query,
    found: &[String],
) -> Result<(), SourceError> {
    match section.kind {
        SectionKind::Figures => {
            let known = ["org_id", "label", "value", "previous"];
            let expected = "expected org_id, label, value, and at will previous";
            check(query, found, &["org_id", "label", "value"], Some(&known), expected)
        }
        SectionKind::Rows if section.personal => {
            check(query, found, &["org_id", "user_id"], None, "expected org_id, user_id and what is shown")
        }
        SectionKind::Rows => {
            check(query, found, &["org_id"], None, "expected org_id and what is shown")?;
            if found.iter().any(|name| name == "user_id") {
                return Err(not_personal(query));
            }
            Ok(())
        }
    }
}

/// Rows that name a user must not reach everybody because somebody forgot a word.
pub(super) fn not_personal(query: &Query) -> SourceError {
    let problem = "it has the column user_id, but its rows go to every admin; set personal = true, or give \
                   the column another name, such as actor_id";
    SourceError::Shape { query: query.name(), problem: problem.to_owned() }
}

fn check(
    query: &Query,
    found: &[String],
    required: &[&str],
    known: Option<&[&str]>,
    expected: &str,
) -> Result<(), SourceError> {
    let missing = required.iter().filter(|name| !found.iter().any(|column| column == *name));
    let missing: Vec<&str> = missing.copied().collect();
    let surplus = found.iter().filter(|column| known.is_some_and(|known| !known.contains(&column.as_str())));
    let surplus: Vec<&str> = surplus.map(String::as_str).collect();
    let mut seen = BTreeSet::new();
    let twice: Vec<&str> = found.iter().map(String::as_str).filter(|column| !seen.insert(*column)).collect();
    let problems: Vec<String> =
        [("missing", missing), ("not known", surplus), ("there more than once", twice)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(SourceError::Shape { query: query.name(), problem: format!("{}; {expected}", problems.join("; ")) })
}
