//! The built-in directory as a source.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{NaiveTime, Weekday};
use serde_json::Value;

use super::{Gathered, Member, Question, SourceError};
use crate::domain::address::Address;
use crate::domain::candidate::Candidate;
use crate::domain::digest::{
    Amount, BrokenAddress, DigestInput, Figure, Recipient, Row, Rows, Section, SectionBody,
};
use crate::domain::ids::{OrgId, UserId};
use crate::domain::schedule::{WeeklySchedule, parse_time, parse_weekday};
use crate::domain::zone::{Zone, ZoneError};
use crate::store::directory::{AdminRow, CandidateRow, FigureRow, ItemRow, OrgRow, Spans};
use crate::store::{Store, StoreError};

/// How many items a digest lists; the mail says how many more there are.
const ITEMS_SHOWN: u32 = 10;
/// The longest part of a broken address that is kept, in characters.
const BROKEN_CHARS: usize = 100;

/// The built-in tables with the configured schedule for orgs that have none of their own.
#[derive(Debug, Clone)]
pub struct BuiltIn {
    store: Store,
    weekday: Weekday,
    time: NaiveTime,
}

impl BuiltIn {
    /// Reads from `store`; orgs without a weekday or time of their own have these.
    pub fn new(store: Store, weekday: Weekday, time: NaiveTime) -> Self {
        Self { store, weekday, time }
    }

    pub(super) async fn candidates(
        &self,
        after: Option<&OrgId>,
        zones: Option<&[String]>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let mut after = after.map_or_else(String::new, |org| org.as_str().to_owned());
        let mut candidates = Vec::new();
        loop {
            let wanted = limit.saturating_sub(u32::try_from(candidates.len()).unwrap_or(u32::MAX));
            let rows = self.store.candidates_page(&after, zones, wanted).await?;
            let last = rows.len() < wanted as usize;
            if let Some(row) = rows.last() {
                after.clone_from(&row.org);
            }
            candidates.extend(rows.iter().filter_map(|row| self.candidate(row)));
            // An id that is none leaves a gap, and a short page would be taken for the last.
            if last || candidates.len() >= limit as usize {
                return Ok(candidates);
            }
        }
    }

    /// An org whose id is none has no digest, and must not take the page with it.
    fn candidate(&self, row: &CandidateRow) -> Option<Candidate> {
        let org = match OrgId::parse(&row.org) {
            Ok(org) => org,
            Err(error) => {
                let id: String = row.org.escape_debug().take(BROKEN_CHARS).collect();
                tracing::error!(
                    org.id = id,
                    error = &error as &dyn std::error::Error,
                    "an org's id cannot be used; it gets no digest"
                );
                return None;
            }
        };
        Some(Candidate {
            schedule: self.schedule_of(&row.timezone, row.weekday.as_deref(), row.local_time.as_deref()),
            org,
            created_at: row.created_at,
            opted_in_at: row.opted_in_at,
        })
    }

    pub(super) async fn schedule(
        &self,
        org: &OrgId,
    ) -> Result<Option<Result<WeeklySchedule, ZoneError>>, SourceError> {
        let row = self.store.org_schedule(org.as_str()).await?;
        Ok(row.map(|(zone, weekday, time)| self.schedule_of(&zone, weekday.as_deref(), time.as_deref())))
    }

    pub(super) async fn members(&self, orgs: &[&OrgId]) -> Result<BTreeSet<Member>, SourceError> {
        let mut distinct: Vec<&str> = orgs.iter().map(|org| org.as_str()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let rows = self.store.members(&distinct).await?;
        let member = |(org, user, email): (String, String, String)| {
            let address = Address::parse(&email).ok().map(|address| address.normal().to_owned());
            Ok(Member { org: org_id(&org)?, user: UserId::lenient(&user), address })
        };
        rows.into_iter().map(member).collect()
    }

    pub(super) async fn names(&self, orgs: &[&OrgId]) -> Result<BTreeMap<OrgId, String>, SourceError> {
        let orgs: Vec<&str> = orgs.iter().map(|org| org.as_str()).collect();
        let rows = self.store.org_rows(&orgs).await?;
        rows.into_iter().map(|row| Ok((org_id(&row.org)?, row.name))).collect()
    }

    /// A weekday or time that cannot be read falls back to the configured one: the digest still
    /// comes once a week, and `import` refuses such values in the first place.
    fn schedule_of(
        &self,
        zone: &str,
        weekday: Option<&str>,
        time: Option<&str>,
    ) -> Result<WeeklySchedule, ZoneError> {
        let weekday = weekday.and_then(|text| parse_weekday(text).ok()).unwrap_or(self.weekday);
        let time = time.and_then(|text| parse_time(text).ok()).unwrap_or(self.time);
        Zone::parse(zone).map(|zone| WeeklySchedule { weekday, time, zone })
    }

    pub(super) async fn gather(
        &self,
        question: &Question<'_>,
    ) -> Result<BTreeMap<OrgId, Gathered>, SourceError> {
        let orgs: Vec<&str> = question.orgs.iter().map(OrgId::as_str).collect();
        let spans = Spans {
            previous_from: question.period.previous().start,
            from: question.period.start,
            to: question.period.end,
        };
        let rows = self.store.org_rows(&orgs).await?;
        let mut admins = by_org(self.store.admin_rows(&orgs).await?, |row| &row.org);
        let mut figures = by_org(self.store.figure_rows(&orgs, spans).await?, |row| &row.org);
        let mut items = by_org(self.store.item_rows(&orgs, spans, ITEMS_SHOWN).await?, |row| &row.org);
        let mut gathered = BTreeMap::new();
        for row in rows {
            let org = org_id(&row.org)?;
            let answer = match Zone::parse(&row.timezone) {
                Err(error) => Gathered::BadZone(error),
                Ok(_) => Gathered::Digest(Box::new(DigestInput {
                    org: org.clone(),
                    org_name: row.name.clone(),
                    key: question.key,
                    period: question.period.clone(),
                    sections: vec![
                        figures_section(figures.remove(&row.org).unwrap_or_default()),
                        items_section(items.remove(&row.org).unwrap_or_default()),
                    ],
                    recipients: recipients(&row, admins.remove(&row.org).unwrap_or_default(), question),
                })),
            };
            gathered.insert(org, answer);
        }
        Ok(gathered)
    }
}

fn org_id(text: &str) -> Result<OrgId, StoreError> {
    OrgId::parse(text).map_err(|_| StoreError::inconsistent("orgs", "id", text))
}

fn by_org<T>(rows: Vec<T>, org: impl Fn(&T) -> &String) -> BTreeMap<String, Vec<T>> {
    let mut map: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for row in rows {
        map.entry(org(&row).clone()).or_default().push(row);
    }
    map
}

fn recipients(org: &OrgRow, admins: Vec<AdminRow>, question: &Question<'_>) -> Vec<Recipient> {
    admins
        .into_iter()
        .filter(|admin| admin.opted_in_at.is_none_or(|at| at <= question.slot_at))
        .map(|admin| {
            let address = Address::parse(&admin.email).map_err(|error| BrokenAddress {
                raw: admin.email.trim().to_lowercase().chars().take(BROKEN_CHARS).collect(),
                error,
            });
            Recipient {
                user: UserId::lenient(&admin.user),
                address,
                name: admin.name,
                locale: admin.locale.or_else(|| org.locale.clone()),
                opted_in_at: admin.opted_in_at,
            }
        })
        .collect()
}

fn figures_section(rows: Vec<FigureRow>) -> Section {
    let count = |n: i64| Amount::count(u64::try_from(n).unwrap_or(0));
    let figures = rows
        .into_iter()
        .map(|row| Figure { label: row.kind, value: count(row.current), previous: Some(count(row.previous)) })
        .collect::<Vec<_>>();
    let body = SectionBody::Figures(figures.into());
    Section { name: "figures".to_owned(), title: "This week".to_owned(), body }
}

fn items_section(rows: Vec<ItemRow>) -> Section {
    let total = rows.first().map_or(0, |row| u64::try_from(row.total).unwrap_or(0));
    let shown = rows.into_iter().map(item_row).collect();
    Section {
        name: "items".to_owned(),
        title: "Highlights".to_owned(),
        body: SectionBody::Rows(Rows { shown, total }),
    }
}

fn item_row(item: ItemRow) -> Row {
    let mut row = Row::new();
    row.insert("title".to_owned(), Value::String(item.title));
    row.insert("when".to_owned(), Value::String(item.occurred_at.to_rfc3339()));
    for (name, value) in [("url", item.url), ("actor", item.actor)] {
        if let Some(value) = value {
            row.insert(name.to_owned(), Value::String(value));
        }
    }
    row
}
