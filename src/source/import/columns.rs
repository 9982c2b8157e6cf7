//! Which columns a file may have.

use super::Problem;
use super::cells::Kind;
use crate::store::import::ImportTable;

/// One column of a file.
#[derive(Debug)]
pub(super) struct Column {
    /// Its name in the header, or the key in JSON.
    pub name: &'static str,
    /// What its cells hold.
    pub kind: Kind,
    /// Whether each row must have it.
    pub required: bool,
}

const fn required(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, required: true }
}

const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, required: false }
}

const ORGS: [Column; 8] = [
    required("id", Kind::Id),
    required("name", Kind::Text),
    required("timezone", Kind::Zone),
    optional("weekday", Kind::Weekday),
    optional("time", Kind::Time),
    optional("locale", Kind::Locale),
    optional("active", Kind::Bool),
    optional("created_at", Kind::Instant),
];

const ADMINS: [Column; 8] = [
    required("id", Kind::Id),
    required("org_id", Kind::Id),
    required("email", Kind::Address),
    optional("name", Kind::Text),
    optional("locale", Kind::Locale),
    optional("weekly_digest", Kind::Bool),
    optional("active", Kind::Bool),
    optional("opted_in_at", Kind::Instant),
];

const ACTIVITY: [Column; 9] = [
    required("id", Kind::Id),
    required("org_id", Kind::Id),
    required("kind", Kind::Text),
    required("title", Kind::Text),
    required("occurred_at", Kind::Instant),
    optional("admin_id", Kind::Id),
    optional("url", Kind::Url),
    optional("actor", Kind::Text),
    optional("value", Kind::Number),
];

/// The columns of a table's files, in the order in which the documentation lists them.
pub(super) fn columns(table: ImportTable) -> &'static [Column] {
    match table {
        ImportTable::Orgs => &ORGS,
        ImportTable::Admins => &ADMINS,
        ImportTable::Activity => &ACTIVITY,
    }
}

/// Names alike enough to be a slip of the pen.
const ALIKE: f64 = 0.6;

/// The place of a named column, or what to say about it.
pub(super) fn find(columns: &[Column], name: &str) -> Result<usize, String> {
    if let Some(place) = columns.iter().position(|column| column.name.eq_ignore_ascii_case(name)) {
        return Ok(place);
    }
    let shown: String = name.chars().take(60).collect();
    let likeness =
        |column: &&Column| strsim::normalized_damerau_levenshtein(&name.to_lowercase(), column.name);
    let nearest = columns.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    Err(match nearest.filter(|column| likeness(column) >= ALIKE) {
        Some(column) => format!("there is no column “{shown}”; did you mean {}?", column.name),
        None => format!("there is no column “{shown}”; the columns are {}", names(columns)),
    })
}

/// Which columns stand in a CSV file, from its first line; or all that is wrong with it.
pub(super) fn header(columns: &[Column], line: u64, cells: &[String]) -> Result<Vec<usize>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut complain = |message: String| problems.push(Problem::on(line, message));
    if let [only] = cells
        && let Some(separator) = [';', '\t', '|'].into_iter().find(|separator| only.contains(*separator))
    {
        complain(format!("columns are separated by commas, but this file seems to use {separator:?}"));
        return Err(problems);
    }
    let mut places = Vec::new();
    for name in cells {
        match find(columns, name) {
            Ok(place) if places.contains(&place) => complain(format!("the column {name} stands here twice")),
            Ok(place) => places.push(place),
            Err(message) => complain(message),
        }
    }
    let missing = |(place, column): &(usize, &Column)| column.required && !places.contains(place);
    for (_, column) in columns.iter().enumerate().filter(missing) {
        complain(format!("the column {} is missing", column.name));
    }
    if problems.is_empty() { Ok(places) } else { Err(problems) }
}

fn names(columns: &[Column]) -> String {
    columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(table: ImportTable, names: &[&str]) -> Vec<String> {
        let cells: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let problems = header(columns(table), 1, &cells).unwrap_err();
        problems.into_iter().map(|problem| problem.fault.to_string()).collect()
    }

    #[test]
    fn columns_may_stand_in_any_order_and_case() {
        let cells = ["timezone", "ID", "name"].map(str::to_owned);
        assert_eq!(header(columns(ImportTable::Orgs), 1, &cells).unwrap(), [2, 0, 1]);
    }

    #[test]
    fn everything_wrong_with_a_header_is_told_at_once() {
        assert_eq!(
            complaints(ImportTable::Orgs, &["id", "nmae", "colour", "id"]),
            [
                "there is no column “nmae”; did you mean name?",
                "there is no column “colour”; the columns are id, name, timezone, weekday, time, locale, active, \
                 created_at",
                "the column id stands here twice",
                "the column name is missing",
                "the column timezone is missing",
            ]
        );
    }

    #[test]
    fn a_file_with_semicolons_is_recognised() {
        assert_eq!(
            complaints(ImportTable::Orgs, &["id;name;timezone"]),
            ["columns are separated by commas, but this file seems to use ';'"]
        );
    }
}
