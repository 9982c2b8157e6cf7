//! From a section's rows to what stands in each org's digest.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::super::SourceError;
use super::database::{Cut, Row};
use super::query::Query;
use super::shape::not_personal;
use crate::config::{SectionKind, SectionQuery};
use crate::domain::digest::{Amount, Figure, Figures, Rows, SectionBody};
use crate::domain::ids::{OrgId, UserId};

/// One `[[section]]` with its query taken apart.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub settings: SectionQuery,
    pub query: Query,
}

impl Section {
    pub fn cut(&self) -> Cut {
        Cut { limit: self.settings.limit, personal: self.settings.personal }
    }
}

/// What the rows have said so far.
#[derive(Debug)]
pub(super) struct Collected<'a> {
    section: &'a Section,
    asked: BTreeSet<&'a str>,
    bodies: BTreeMap<String, SectionBody>,
    failed: Option<SourceError>,
}

impl<'a> Collected<'a> {
    pub fn new(section: &'a Section, orgs: &'a [OrgId]) -> Self {
        let asked = orgs.iter().map(OrgId::as_str).collect();
        Self { section, asked, bodies: BTreeMap::new(), failed: None }
    }

    /// Takes a row; the first that must not be there ends the section.
    pub fn take(&mut self, row: Row) -> ControlFlow<()> {
        match self.sort(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The bodies by org. An org without rows has an empty one.
    pub fn finish(mut self) -> Result<BTreeMap<String, SectionBody>, SourceError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        for org in self.asked {
            self.bodies.entry(org.to_owned()).or_insert_with(|| empty(&self.section.settings));
        }
        Ok(self.bodies)
    }

    fn sort(&mut self, row: Row) -> Result<(), SourceError> {
        let section = self.section;
        let settings = &section.settings;
        let org = row.org.as_deref().filter(|org| self.asked.contains(org));
        let org = org.ok_or_else(|| SourceError::Leak { section: settings.name.clone() })?;
        let limit = settings.limit as usize;
        let mut columns = row.columns;
        columns.remove("org_id");
        let named_user = columns.remove("user_id").is_some();
        let body = self.bodies.entry(org.to_owned()).or_insert_with(|| empty(settings));
        match body {
            SectionBody::Figures(figures) => {
                let figure =
                    figure(&columns).map_err(|(column, problem)| value(settings, column, problem))?;
                figures.total = row.total.unwrap_or(figures.total + 1);
                if figures.shown.len() < limit {
                    figures.shown.push(figure);
                }
            }
            SectionBody::Rows(_) if named_user => return Err(not_personal(&section.query)),
            SectionBody::Rows(rows) => add(rows, columns, row.total, limit),
            SectionBody::PersonalRows(by_user) => {
                let user = row.user.as_deref().and_then(|user| UserId::parse(user).ok());
                let user = user.ok_or_else(|| value(settings, "user_id", "names nobody"))?;
                add(by_user.entry(user).or_default(), columns, row.total, limit);
            }
            SectionBody::Omitted => {}
        }
        Ok(())
    }
}

fn value(settings: &SectionQuery, column: &'static str, problem: &'static str) -> SourceError {
    SourceError::Value { section: settings.name.clone(), column, problem }
}

fn empty(settings: &SectionQuery) -> SectionBody {
    match settings.kind {
        SectionKind::Figures => SectionBody::Figures(Figures::default()),
        SectionKind::Rows if settings.personal => SectionBody::PersonalRows(BTreeMap::new()),
        SectionKind::Rows => SectionBody::Rows(Rows::default()),
    }
}

/// Adds a row, counting those past the limit. A total that the database has counted goes before ours.
fn add(rows: &mut Rows, columns: Map<String, Value>, total: Option<u64>, limit: usize) {
    rows.total = total.unwrap_or(rows.total + 1);
    if rows.shown.len() < limit {
        rows.shown.push(columns);
    }
}

/// Zero is not unknown: a figure without a value is a mistake in the query, not a zero.
fn figure(columns: &Map<String, Value>) -> Result<Figure, (&'static str, &'static str)> {
    let label = text(columns.get("label")).ok_or(("label", "is null"))?;
    let amount = |column: &'static str| {
        text(columns.get(column))
            .map(|text| Amount::parse(&text).map_err(|_| (column, "is not a finite number")))
            .transpose()
    };
    let value = amount("value")?.ok_or(("value", "is null; coalesce(…, 0) makes it a zero"))?;
    Ok(Figure { label, value, previous: amount("previous")? })
}

fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
