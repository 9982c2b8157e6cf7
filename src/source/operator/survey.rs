//! Who would get a digest, in numbers: what `check` tells before the first Monday.

use std::collections::BTreeSet;

use super::Operator;
use super::people::{self, Trouble};
use crate::source::SourceError;

/// Orgs that are looked at together.
const PAGE: u32 = 500;

/// The recipients query in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survey {
    /// Orgs with a usable id.
    pub orgs: u64,
    /// Rows with a usable org, user and address, each user of an org once.
    pub recipients: u64,
    /// Rows that repeat a user or an address within an org.
    pub duplicates: u64,
    /// Rows whose address cannot be used.
    pub broken_addresses: u64,
    /// Rows whose user cannot be named.
    pub unusable_users: u64,
    /// Orgs whose zone is none. They get no digest.
    pub bad_zones: u64,
    /// Orgs whose weekday or time cannot be read. They keep the configured one.
    pub bad_schedules: u64,
    /// Orgs without a usable id. They get no digest.
    pub unusable_ids: u64,
}

impl Operator {
    /// Reads the whole recipients query, a page of orgs at a time.
    pub async fn survey(&self) -> Result<Survey, SourceError> {
        let learnt = self.learnt().await?;
        let mut survey = Survey::default();
        let mut listing = self.candidates(None).await?;
        while let Some(page) = listing.next_page(PAGE) {
            survey.orgs += page.len() as u64;
            survey.bad_zones += page.iter().filter(|candidate| candidate.schedule.is_err()).count() as u64;
            let orgs: Vec<String> = page.iter().map(|candidate| candidate.org.as_str().to_owned()).collect();
            let inner = &self.0;
            let rows = inner.database.recipients(&inner.recipients, &learnt, &orgs, inner.limit).await?;
            let mut seen = BTreeSet::new();
            for row in rows {
                match people::trouble(&row, &mut seen) {
                    None => survey.recipients += 1,
                    Some(Trouble::Duplicate) => survey.duplicates += 1,
                    Some(Trouble::BrokenAddress) => survey.broken_addresses += 1,
                    Some(Trouble::UnusableUser) => survey.unusable_users += 1,
                }
            }
        }
        (survey.bad_schedules, survey.unusable_ids) = listing.oddities();
        Ok(survey)
    }
}

impl Survey {
    /// What is not as it should be, in words; empty if all is well.
    pub fn problems(&self) -> Vec<String> {
        let told = [
            (self.duplicates, "rows repeat a user or an address of their org and count once"),
            (self.broken_addresses, "rows have an address that cannot be used"),
            (self.unusable_users, "rows have no usable user_id"),
            (self.bad_zones, "orgs have a time zone that is none, and get no digest"),
            (
                self.bad_schedules,
                "orgs have a weekday or time that cannot be read, and keep the configured one",
            ),
            (self.unusable_ids, "orgs have no usable id, and get no digest"),
        ];
        told.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }
}
