//! Who gets a digest and what stands in it.

pub mod builtin;
mod candidates;
pub mod import;
pub mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::domain::candidate::Candidate;
use crate::domain::digest::{DigestInput, Recipient};
use crate::domain::ids::{OrgId, UserId};
use crate::domain::schedule::{Period, WeeklySchedule};
use crate::domain::week::SendKey;
use crate::domain::zone::ZoneError;
use crate::store::{ErrorClass, StoreError};
use builtin::BuiltIn;
pub use candidates::Candidates;
use operator::scan::ScanError;
use operator::{Operator, Survey};

/// Where orgs, admins and content come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The built-in tables, filled by `digestd import` or by the app.
    BuiltIn(BuiltIn),
    /// The operator's own database, asked by the operator's own queries.
    Operator(Operator),
}

/// What was not found or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The built-in directory could not be read.
    #[error("the directory could not be read")]
    Directory(#[from] StoreError),
    /// `source.url` cannot be used.
    #[error("source.url is not a database URL that can be used")]
    Url,
    /// A query of the operator's cannot be read.
    #[error("{query} cannot be used")]
    Sql {
        /// Which query.
        query: String,
        /// What is wrong with it.
        source: ScanError,
    },
    /// A query has other columns than it must have.
    #[error("{query} cannot be used: {problem}")]
    Shape {
        /// Which query.
        query: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The operator's database refused a query, or could not be reached.
    #[error("{query} failed: {problem}")]
    Query {
        /// Which query.
        query: String,
        /// The database's message, where it quotes no data.
        problem: String,
        /// Whether it may well succeed a moment later.
        transient: bool,
    },
    /// A query took too long.
    #[error("{query} took longer than {limit:?}")]
    TimedOut {
        /// Which query.
        query: String,
        /// How long it may take.
        limit: Duration,
    },
    /// A section gave a row of an org that was not asked for, or of none. Nothing of it may be shown.
    #[error(
        "section “{section}” gave a row whose org_id was not asked for or is null; its query must keep to :org_ids"
    )]
    Leak {
        /// The section's name.
        section: String,
    },
    /// A section's row holds what cannot be shown.
    #[error("section “{section}”: column {column} of a row {problem}")]
    Value {
        /// The section's name.
        section: String,
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl SourceError {
    /// Whether the same query may well succeed a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Directory(error) => error.class() == ErrorClass::Transient,
            Self::Query { transient, .. } => *transient,
            // A Monday morning's load passes. An org whose query is always too slow is ended by its window.
            Self::TimedOut { .. } => true,
            _ => false,
        }
    }
}

/// What is asked about a batch of orgs. All of a batch share the period.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The orgs.
    pub orgs: &'a [OrgId],
    /// The unique key of their sends.
    pub key: SendKey,
    /// When the slot opened: whoever opted in later waits for next week.
    pub slot_at: DateTime<Utc>,
    /// The days that the digest is about.
    pub period: &'a Period,
}

/// What a batch's gathering gave for one org.
#[derive(Debug)]
pub enum Gathered {
    /// Everything that its digest is made of.
    Digest(Box<DigestInput>),
    /// The org's zone is not one; that org alone fails.
    BadZone(ZoneError),
}

/// An active, opted-in admin of an org.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The org.
    pub org: OrgId,
    /// The admin.
    pub user: UserId,
    /// The address in its normal form; `None`: it cannot be parsed.
    pub address: Option<String>,
}

/// An org as an operator's database lists it now.
#[derive(Debug)]
pub struct Listed {
    /// Its name, where there is one.
    pub name: Option<String>,
    /// As a sweep would see it.
    pub candidate: Candidate,
    /// Who gets its digest.
    pub recipients: Vec<Recipient>,
}

impl Source {
    /// Whether orgs and admins are in our own tables.
    pub const fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }

    /// Whether the source answers and gives what it must. The built-in one is checked by its schema.
    pub async fn check(&self) -> Result<(), SourceError> {
        match self {
            Self::BuiltIn(_) => Ok(()),
            Self::Operator(operator) => operator.check().await,
        }
    }

    /// Who would get a digest, in numbers. `None` for the built-in directory, whose rows `import` has checked.
    pub async fn survey(&self) -> Result<Option<Survey>, SourceError> {
        match self {
            Self::BuiltIn(_) => Ok(None),
            Self::Operator(operator) => operator.survey().await.map(Some),
        }
    }

    /// Begins to list the candidates of all zones or of some, in the order of their ids.
    pub async fn candidates(&self, zones: Option<&[String]>) -> Result<Candidates, SourceError> {
        Ok(match self {
            Self::BuiltIn(directory) => Candidates::pages(directory.clone(), zones),
            Self::Operator(operator) => Candidates::listing(operator.candidates(zones).await?),
        })
    }

    /// Everything that the digests of a batch are made of. An org that is not in the answer is gone.
    pub async fn gather(&self, question: &Question<'_>) -> Result<BTreeMap<OrgId, Gathered>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.gather(question).await,
            Self::Operator(operator) => operator.gather(question).await,
        }
    }

    /// Closes the connections to the operator's database.
    pub async fn close(&self) {
        if let Self::Operator(operator) = self {
            operator.close().await;
        }
    }

    /// One org and its recipients in an operator's database. `None`: it lists no such org, or the directory
    /// is the built-in one, which [`crate::store::Store::standing`] tells more of.
    pub async fn listed(&self, org: &OrgId) -> Result<Option<Listed>, SourceError> {
        match self {
            Self::BuiltIn(_) => Ok(None),
            Self::Operator(operator) => operator.listed(org).await,
        }
    }

    /// Who of these orgs is an active, opted-in admin right now, and at which address.
    pub async fn members(&self, orgs: &[&OrgId]) -> Result<BTreeSet<Member>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.members(orgs).await,
            Self::Operator(operator) => operator.members(orgs).await,
        }
    }

    /// The names of some orgs. One that is gone has none.
    pub async fn names(&self, orgs: &[&OrgId]) -> Result<BTreeMap<OrgId, String>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.names(orgs).await,
            Self::Operator(operator) => operator.names(orgs).await,
        }
    }

    /// One org's schedule, for commands that speak of one org. `None`: no such active org.
    pub async fn schedule(
        &self,
        org: &OrgId,
    ) -> Result<Option<Result<WeeklySchedule, ZoneError>>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.schedule(org).await,
            Self::Operator(operator) => operator.schedule(org).await,
        }
    }
}
