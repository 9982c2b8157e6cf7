//! Who gets a digest and what stands in it.

pub mod builtin;
pub mod import;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use crate::domain::candidate::Candidate;
use crate::domain::digest::DigestInput;
use crate::domain::ids::{OrgId, UserId};
use crate::domain::schedule::{Period, WeeklySchedule};
use crate::domain::week::SendKey;
use crate::domain::zone::ZoneError;
use crate::store::{ErrorClass, StoreError};
use builtin::BuiltIn;

/// Where orgs, admins and content come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The built-in tables, filled by `digestd import` or by the app.
    BuiltIn(BuiltIn),
}

/// What was not found or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The built-in directory could not be read.
    #[error("the directory could not be read")]
    Directory(#[from] StoreError),
}

impl SourceError {
    /// Whether the same query may well succeed a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Directory(error) => error.class() == ErrorClass::Transient,
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

impl Source {
    /// The next page of candidates after an org, in the order of ids; of all zones or of some.
    /// A page shorter than `limit` is the last.
    pub async fn candidates(
        &self,
        after: Option<&OrgId>,
        zones: Option<&[String]>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.candidates(after, zones, limit).await,
        }
    }

    /// Everything that the digests of a batch are made of. An org that is not in the answer is gone.
    pub async fn gather(&self, question: &Question<'_>) -> Result<BTreeMap<OrgId, Gathered>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.gather(question).await,
        }
    }

    /// Who of these orgs is an active, opted-in admin right now.
    pub async fn members(&self, orgs: &[&OrgId]) -> Result<BTreeSet<(OrgId, UserId)>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.members(orgs).await,
        }
    }

    /// One org's schedule, for commands that speak of one org. `None`: no such active org.
    pub async fn schedule(
        &self,
        org: &OrgId,
    ) -> Result<Option<Result<WeeklySchedule, ZoneError>>, SourceError> {
        match self {
            Self::BuiltIn(directory) => directory.schedule(org).await,
        }
    }
}
