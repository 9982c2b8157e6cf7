//! What is known about one org before anybody looks at its sends.

use chrono::{DateTime, Utc};

use super::words::{local, span, time};
use super::{Ledger, LedgerError};
use crate::domain::candidate::Candidate;
use crate::domain::due::{Younger, owed};
use crate::domain::ids::OrgId;
use crate::domain::schedule::{Slot, WeeklySchedule};
use crate::domain::text;
use crate::domain::week::WeekKey;
use crate::domain::zone::ZoneError;
use crate::source::Listed;
use crate::store::ledger::{AdminStanding, Standing};

/// One org as it stands now, with its slot in the week asked about.
pub(super) struct Facts {
    pub org: OrgId,
    pub now: DateTime<Utc>,
    /// The org and its admins; of an operator's database, whoever its recipients query lists.
    pub standing: Option<Standing>,
    pub own: Own,
    /// The org's own schedule, or the configured one.
    pub schedule: WeeklySchedule,
    pub slot: Slot,
    pub built_in: bool,
}

/// What the source says of an org.
pub(super) enum Own {
    /// Its schedule, if it has a usable zone.
    Listed(Result<WeeklySchedule, ZoneError>),
    /// There is no such active org.
    NotListed,
    /// Nothing, and why: then only our own rows are known.
    Silent(String),
}

impl Own {
    fn of(schedule: Option<Result<WeeklySchedule, ZoneError>>) -> Self {
        schedule.map_or(Self::NotListed, Self::Listed)
    }

    /// What nobody lists has no zone either.
    fn schedule(&self) -> Result<WeeklySchedule, ZoneError> {
        match self {
            Self::Listed(schedule) => schedule.clone(),
            Self::NotListed | Self::Silent(_) => Err(ZoneError { name: String::new() }),
        }
    }
}

impl AdminStanding {
    /// Whether the admin is to get a digest whose slot opens at a moment; else why not.
    pub(super) fn left_out(&self, slot_at: DateTime<Utc>) -> Option<String> {
        match self.opted_in_at {
            _ if !self.active => Some("is not active".to_owned()),
            _ if !self.weekly_digest => Some("does not want the digest: weekly_digest is off".to_owned()),
            Some(at) if at > slot_at => {
                Some(format!("opted in at {} UTC, after the slot; waits for the next one", time(at)))
            }
            _ => None,
        }
    }
}

impl Ledger {
    pub(super) async fn facts(&self, org: &OrgId, week: Option<WeekKey>) -> Result<Facts, LedgerError> {
        let now = self.store.now().await?;
        let built_in = self.source.is_built_in();
        let (standing, own) = if built_in {
            (self.store.standing(org).await?, Own::of(self.source.schedule(org).await?))
        } else {
            match self.source.listed(org).await {
                Ok(Some(listed)) => (Some(standing_of(&listed)), Own::Listed(listed.candidate.schedule)),
                Ok(None) => (None, Own::NotListed),
                // What was sent is asked about most of all while something is broken.
                Err(error) => (None, Own::Silent(text::chain(&error))),
            }
        };
        let candidate =
            Candidate { org: org.clone(), schedule: own.schedule(), created_at: None, opted_in_at: None };
        let schedule = candidate.schedule_or(&self.fallback);
        let week = match week {
            None if matches!(own, Own::Silent(_)) => self.store.newest_week_of(org).await?,
            asked => asked,
        };
        let week = week.unwrap_or_else(|| schedule.latest_slot(now).week);
        let slot = schedule.slot_in(week);
        let at = self.store.stored_slots(&[(schedule.clone(), slot)]).await?;
        let slot = Slot { at: at.first().copied().unwrap_or(slot.at), ..slot };
        Ok(Facts { org: org.clone(), now, standing, own, schedule, slot, built_in })
    }

    /// Why an org without a send has none, or when it will get one.
    pub(super) fn why_no_send(&self, facts: &Facts, live_replicas: usize, week_closed: bool) -> String {
        let Facts { now, slot, schedule, .. } = facts;
        if let Own::Silent(why) = &facts.own {
            return format!(
                "No digest of {} is on record, and whether one is due is not known. {}",
                slot.week,
                unanswered(why)
            );
        }
        if let Some(why) = self.never_due(facts) {
            return why;
        }
        if slot.at > *now {
            return format!(
                "Not due yet: the slot opens in {}, {}.",
                span(slot.at - *now),
                local(schedule, *slot)
            );
        }
        let closes = slot.at + self.rules.catch_up;
        if *now < closes {
            let since = span(*now - slot.at);
            let who = if live_replicas == 0 {
                "no replica is running".to_owned()
            } else {
                "a replica claims it at its next look".to_owned()
            };
            return format!("Due for {since} and not claimed by anybody yet; {who}.");
        }
        if week_closed {
            return "No digest: the week was closed, and the org was not owed one by then.".to_owned();
        }
        let ago = span(*now - closes);
        format!(
            "Missed: the window passed {ago} ago without a claim; this is written down when the week is closed."
        )
    }

    fn never_due(&self, facts: &Facts) -> Option<String> {
        let Facts { org, slot, standing, own, .. } = facts;
        if facts.built_in && standing.is_none() {
            return Some(format!("Nobody knows an org “{org}”; ids are compared letter by letter."));
        }
        if standing.as_ref().is_some_and(|standing| !standing.active) {
            return Some("No digest: the org is not active.".to_owned());
        }
        if matches!(own, Own::NotListed) {
            return Some(format!("No digest: the recipients query lists no org “{org}”."));
        }
        let candidate = facts.candidate();
        if let Some(standing) = standing
            && !standing.admins.iter().any(|admin| admin.active && admin.weekly_digest)
        {
            return Some("No digest: the org has no active admin who wants it.".to_owned());
        }
        let younger = owed(&candidate, &facts.schedule, *slot, &self.rules).err()?;
        let since = time(younger.since());
        Some(match younger {
            Younger::Org(_) => format!("No digest: the org was created at {since} UTC, after the slot."),
            Younger::OptIn(_) => {
                format!("No digest: the first admin opted in at {since} UTC, after the slot.")
            }
            Younger::Installation(_) => {
                format!(
                    "No digest: the slot opened before {since} UTC; this installation sends for later ones, as schedule.first_start says."
                )
            }
        })
    }
}

/// Why nothing is known of an org but our own rows.
pub(super) fn unanswered(why: &str) -> String {
    format!("The application's database could not be asked who is a recipient: {why}.")
}

impl Facts {
    /// The org as a sweep would see it.
    fn candidate(&self) -> Candidate {
        let wanting = self.standing.iter().flat_map(|standing| &standing.admins);
        let opted_in: Vec<Option<DateTime<Utc>>> = wanting
            .filter(|admin| admin.active && admin.weekly_digest)
            .map(|admin| admin.opted_in_at)
            .collect();
        Candidate {
            org: self.org.clone(),
            schedule: self.own.schedule(),
            created_at: self.standing.as_ref().and_then(|standing| standing.created_at),
            // Unknown of one of them is unknown of all: that one may always have been there.
            opted_in_at: opted_in
                .iter()
                .copied()
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().min()),
        }
    }
}

/// Whoever an operator's query lists is active and wants the digest: the query says so.
fn standing_of(listed: &Listed) -> Standing {
    let admins = listed.recipients.iter().map(|recipient| AdminStanding {
        user: recipient.user.to_string(),
        email: match &recipient.address {
            Ok(address) => address.normal().to_owned(),
            Err(broken) => broken.raw.clone(),
        },
        active: true,
        weekly_digest: true,
        opted_in_at: recipient.opted_in_at,
    });
    Standing {
        name: listed.name.clone().unwrap_or_else(|| listed.candidate.org.to_string()),
        timezone: match &listed.candidate.schedule {
            Ok(schedule) => schedule.zone.to_string(),
            Err(error) => error.name.clone(),
        },
        active: true,
        created_at: listed.candidate.created_at,
        admins: admins.collect(),
    }
}
