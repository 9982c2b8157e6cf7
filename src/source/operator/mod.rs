//! The operator's own database as a source: one query says who gets a digest, and one for each section
//! says what stands in it.
//!
//! Each query is asked for a whole batch of orgs at once, in a transaction that can only read and
//! ends in time. Parameters are bound, never spliced.

mod cut;
mod database;
mod json;
mod listing;
pub mod param;
mod people;
mod postgres;
mod query;
pub mod scan;
mod scanner;
mod section;
mod shape;
mod sqlite;
mod survey;
pub mod write_back;

pub use survey::Survey;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use self::database::{Database, Learnt};
use self::listing::Collecting;
pub(in crate::source) use self::listing::Listing;
use self::query::{Query, Values};
use self::scan::Dialect;
use self::section::{Collected, Section};
use self::shape::Columns;
use super::{Gathered, Listed, Member, Question, SourceError};
use crate::config::{self, DatabaseUrl, OnError};
use crate::domain::digest::{self, DigestInput, SectionBody};
use crate::domain::ids::OrgId;
use crate::domain::schedule::WeeklySchedule;
use crate::domain::zone::ZoneError;

/// The operator's database, its recipients query and the sections. Cheap to clone.
#[derive(Clone)]
pub struct Operator(Arc<Inner>);

struct Inner {
    database: Database,
    recipients: Query,
    sections: Vec<Section>,
    default: WeeklySchedule,
    limit: Duration,
    pool: u32,
    learnt: OnceCell<Learnt>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("database", &self.0.database).finish_non_exhaustive()
    }
}

/// A section's answer for a batch: bodies by org, `None` where it is left out.
type Answer = Option<BTreeMap<String, SectionBody>>;

impl Operator {
    /// Reads the queries and opens a pool, without touching the network. Orgs without a weekday, time or
    /// zone of their own have those of `default`.
    pub fn open(
        source: &config::Source,
        sections: &[config::SectionQuery],
        default: &WeeklySchedule,
    ) -> Result<Self, SourceError> {
        let dialect = match source.url {
            DatabaseUrl::Postgres(_) => Dialect::Postgres,
            DatabaseUrl::Sqlite(_) => Dialect::Sqlite,
        };
        let sections = sections.iter().map(|settings| {
            let query = Query::section(&settings.name, &settings.sql, dialect)?;
            Ok(Section { settings: settings.clone(), query })
        });
        Ok(Self(Arc::new(Inner {
            recipients: Query::recipients(&source.recipients, dialect)?,
            sections: sections.collect::<Result<_, SourceError>>()?,
            database: Database::open(&source.url, source.pool)?,
            default: default.clone(),
            limit: source.statement_timeout,
            pool: source.pool,
            learnt: OnceCell::new(),
        })))
    }

    /// Asks the database what the queries give, and tells the first that cannot serve.
    pub async fn check(&self) -> Result<(), SourceError> {
        let learnt = self.learnt().await?;
        for section in &self.0.sections {
            let (query, limit) = (&section.query, section.settings.timeout);
            let found = self.0.database.columns(query, &learnt.id_type, limit).await?;
            shape::check_section(&section.settings, query, &found)?;
        }
        Ok(())
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.0.database.close().await;
    }

    /// Every candidate, or those of some zones.
    pub(super) async fn candidates(&self, zones: Option<&[String]>) -> Result<Listing, SourceError> {
        let learnt = self.learnt().await?;
        let (query, limit) = (&self.0.recipients, self.0.limit);
        let mut collecting = Collecting::new(zones, &self.0.default);
        self.0.database.each_org(query, &learnt, limit, |row| collecting.take(row)).await?;
        Ok(collecting.finish())
    }

    /// One org's schedule.
    pub(super) async fn schedule(
        &self,
        org: &OrgId,
    ) -> Result<Option<Result<WeeklySchedule, ZoneError>>, SourceError> {
        let learnt = self.learnt().await?;
        let orgs = [org.as_str().to_owned()];
        let rows = self.0.database.orgs(&self.0.recipients, &learnt, &orgs, self.0.limit).await?;
        let row = rows.into_iter().next().and_then(|row| people::candidate(row, &self.0.default));
        Ok(row.map(|(candidate, _)| candidate.schedule))
    }

    /// One org and its recipients.
    pub(super) async fn listed(&self, org: &OrgId) -> Result<Option<Listed>, SourceError> {
        let learnt = self.learnt().await?;
        let orgs = [org.as_str().to_owned()];
        let (database, query, limit) = (&self.0.database, &self.0.recipients, self.0.limit);
        let found = database.orgs(query, &learnt, &orgs, limit).await?.into_iter().next();
        let Some((candidate, _)) = found.and_then(|row| people::candidate(row, &self.0.default)) else {
            return Ok(None);
        };
        let rows = database.recipients(query, &learnt, &orgs, limit).await?;
        let name = people::names(&rows).remove(org);
        Ok(Some(Listed { name, candidate, recipients: people::recipients(&rows) }))
    }

    pub(super) async fn members(&self, orgs: &[&OrgId]) -> Result<BTreeSet<Member>, SourceError> {
        let learnt = self.learnt().await?;
        let distinct: BTreeSet<&str> = orgs.iter().map(|org| org.as_str()).collect();
        let orgs: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
        let rows = self.0.database.recipients(&self.0.recipients, &learnt, &orgs, self.0.limit).await?;
        Ok(people::members(&rows))
    }

    pub(super) async fn names(&self, orgs: &[&OrgId]) -> Result<BTreeMap<OrgId, String>, SourceError> {
        let learnt = self.learnt().await?;
        let orgs: Vec<String> = orgs.iter().map(|org| org.as_str().to_owned()).collect();
        let rows = self.0.database.recipients(&self.0.recipients, &learnt, &orgs, self.0.limit).await?;
        Ok(people::names(&rows))
    }

    pub(super) async fn gather(
        &self,
        question: &Question<'_>,
    ) -> Result<BTreeMap<OrgId, Gathered>, SourceError> {
        let learnt = self.learnt().await?;
        let values = Values::of(question);
        let rows =
            self.0.database.recipients(&self.0.recipients, &learnt, &values.orgs, self.0.limit).await?;
        let orgs = people::orgs(rows, question, &self.0.default.zone);
        if orgs.is_empty() {
            return Ok(BTreeMap::new());
        }
        // One connection is left for whoever else asks, such as the list of orgs.
        let at_once = self.0.pool.saturating_sub(1).max(1) as usize;
        let asked: Vec<BoxFuture<'_, Result<Answer, SourceError>>> = self
            .0
            .sections
            .iter()
            .map(|section| self.section(section, &learnt, &values, question).boxed())
            .collect();
        let answers: Vec<Answer> = stream::iter(asked).buffered(at_once).try_collect().await?;
        Ok(self.put_together(orgs, answers, question))
    }

    /// A section's answer for the batch.
    async fn section(
        &self,
        section: &Section,
        learnt: &Learnt,
        values: &Values,
        question: &Question<'_>,
    ) -> Result<Answer, SourceError> {
        let mut collected = Collected::new(section, question.orgs);
        let (query, limit) = (&section.query, section.settings.timeout);
        let asked = self
            .0
            .database
            .section(query, learnt, values, section.cut(), limit, |row| collected.take(row))
            .await;
        let failed = match asked.and_then(|()| collected.finish()) {
            Ok(bodies) => return Ok(Some(bodies)),
            Err(error) => error,
        };
        // In a batch, one org may be to blame: all others, asked alone, have the section. One that takes too
        // long for an org alone is what this setting is for; a database that is away will be back.
        let alone = question.orgs.len() == 1;
        let final_for_now = !failed.is_transient() || matches!(failed, SourceError::TimedOut { .. });
        if section.settings.on_error == OnError::OmitWithNote && alone && final_for_now {
            tracing::warn!(
                section = section.settings.name, org.id = %question.orgs[0],
                error = &failed as &dyn std::error::Error,
                "a section is left out of an org's digest"
            );
            return Ok(None);
        }
        Err(failed)
    }

    fn put_together(
        &self,
        orgs: BTreeMap<OrgId, people::Org>,
        mut answers: Vec<Answer>,
        question: &Question<'_>,
    ) -> BTreeMap<OrgId, Gathered> {
        let mut gathered = BTreeMap::new();
        for (id, org) in orgs {
            let bodies = answers.iter_mut().map(|answer| {
                let body = answer.as_mut().map(|bodies| bodies.remove(id.as_str()));
                body.map_or(SectionBody::Omitted, |body| body.unwrap_or(SectionBody::Omitted))
            });
            let sections = self.0.sections.iter().zip(bodies).map(|(section, body)| digest::Section {
                name: section.settings.name.clone(),
                title: section.settings.title.clone(),
                body,
            });
            let sections: Vec<digest::Section> = sections.collect();
            let answer = match org.zone {
                Err(error) => Gathered::BadZone(error),
                Ok(_) => Gathered::Digest(Box::new(DigestInput {
                    org: id.clone(),
                    org_name: org.name,
                    key: question.key,
                    period: question.period.clone(),
                    sections,
                    recipients: org.recipients,
                })),
            };
            gathered.insert(id, answer);
        }
        gathered
    }

    /// What the database says about the recipients query; asked until it has answered once.
    async fn learnt(&self) -> Result<Learnt, SourceError> {
        if let Some(known) = self.0.learnt.get() {
            return Ok(known.clone());
        }
        let (database, query, limit) = (&self.0.database, &self.0.recipients, self.0.limit);
        let columns = Columns::of_recipients(query, &database.columns(query, "text", limit).await?)?;
        let Some(id_type) = database.id_type(query, limit).await? else {
            return Ok(Learnt { columns, id_type: String::new() });
        };
        Ok(self.0.learnt.get_or_init(|| async { Learnt { columns, id_type } }).await.clone())
    }
}
