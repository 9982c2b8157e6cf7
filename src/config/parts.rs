//! The parts of the file that are lists: `[[section]]` and `[headers]`.

use std::collections::{BTreeMap, BTreeSet};

use super::layer::{Entry, Raw, RawSection};
use super::problem::Problem;
use super::reader::Reader;
use super::settings::SectionQuery;
use super::table::SECTION_KEYS;
use super::words::SectionKind;

/// Headers that every mail has already, or that would change who gets it or how it is read.
const RESERVED: &[&str] = &[
    "from",
    "sender",
    "to",
    "cc",
    "bcc",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "return-path",
    "received",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "content-disposition",
    "list-id",
    "list-unsubscribe",
    "list-unsubscribe-post",
    "auto-submitted",
    "x-digestd-id",
    "dkim-signature",
];
/// RFC 5322 §2.1.1, less the room that a name of usual length takes.
const MAX_HEADER_BYTES: usize = 900;

/// The `[[section]]` tables.
pub fn sections(raw: &Raw, problems: &mut Vec<Problem>) -> Vec<SectionQuery> {
    let mut names = BTreeSet::new();
    let mut sections = Vec::new();
    for (index, written) in raw.sections.iter().enumerate() {
        let prefix = format!("section[{}]", index + 1);
        let Some(section) = section(written, &prefix, !raw.incomplete, problems) else { continue };
        if !names.insert(section.name.clone()) {
            let origin = written.values.get("name").map_or(&written.origin, |entry| &entry.origin);
            let problem =
                Problem::new(format!("{prefix}.name"), Some(origin), "another section has this name");
            problems.push(problem.hint("give each section a name of its own"));
        }
        sections.push(section);
    }
    sections
}

fn section(
    written: &RawSection,
    prefix: &str,
    complete: bool,
    problems: &mut Vec<Problem>,
) -> Option<SectionQuery> {
    let before = problems.len();
    let mut reader = Reader::new(&written.values, SECTION_KEYS, prefix, problems, complete);
    let r = &mut reader;
    let (name, title, sql) = (
        r.required("name", "every section needs one"),
        r.required("title", "every section needs one"),
        r.required("sql", "every section needs one"),
    );
    let (kind, limit, personal) = (r.get("kind"), r.get("limit"), r.get::<bool>("personal"));
    let (timeout, on_error) = (r.get("timeout"), r.get("on_error"));
    r.rule(
        kind == SectionKind::Rows || !personal,
        &["personal", "kind"],
        "figures cannot be personal",
        "use kind = \"rows\", or remove personal",
    );
    for problem in problems.iter_mut().skip(before).filter(|problem| problem.origin.is_none()) {
        problem.origin = Some(written.origin.clone());
    }
    Some(SectionQuery { name: name?, title: title?, sql: sql?, kind, limit, personal, timeout, on_error })
}

/// The `[headers]` table.
pub fn headers(written: &BTreeMap<String, Entry>, problems: &mut Vec<Problem>) -> Vec<(String, String)> {
    for (name, entry) in written {
        let Some((message, hint)) = header_problem(name, &entry.text) else { continue };
        problems.push(Problem::new(format!("headers.{name}"), Some(&entry.origin), message).hint(hint));
    }
    written.iter().map(|(name, entry)| (name.clone(), entry.text.clone())).collect()
}

fn header_problem(name: &str, value: &str) -> Option<(&'static str, &'static str)> {
    let token = !name.is_empty()
        && name.len() <= 60
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if !token {
        return Some(("not the name of a header", "use letters, digits and -"));
    }
    if RESERVED.contains(&name.to_lowercase().as_str()) {
        return Some((
            "this header is ours to write",
            "remove it; [relay] and [brand] have keys for sender and replies",
        ));
    }
    let printable = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if value.trim().is_empty() || !printable || value.len() > MAX_HEADER_BYTES {
        return Some(("expected one line of printable ASCII", "at most 900 characters, no line breaks"));
    }
    None
}
