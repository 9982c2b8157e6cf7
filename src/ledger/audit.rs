//! Whether a week adds up.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::words::time;
use super::{Ledger, LedgerError, PAGE};
use crate::domain::ids::OrgId;
use crate::domain::week::{SendKey, WeekKey};
use crate::store::audit::OddityKind;

/// A lease that has passed is somebody's within a few ticks; later it is a sign that nobody looks.
const GRACE: TimeDelta = TimeDelta::minutes(5);
/// Rows listed per kind. Whoever has more of them needs no list.
const LISTED: u32 = 100;

/// Eligible against settled, and what does not add up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// The week.
    pub week: String,
    /// When this was asked.
    pub now: DateTime<Utc>,
    /// Whether the week is closed: nobody can be claimed in it any more.
    pub closed: bool,
    /// Orgs that are owed a digest of this week, by what the source says today.
    pub eligible: u64,
    /// How many of those are where.
    pub orgs: BTreeMap<&'static str, u64>,
    /// All sends of the week by state, also of orgs that are not eligible today.
    pub sends: BTreeMap<&'static str, u64>,
    /// All messages of the week by state.
    pub messages: BTreeMap<&'static str, u64>,
    /// What does not add up.
    pub problems: Vec<Finding>,
    /// What adds up and still wants a person.
    pub attention: Vec<Finding>,
}

/// Something found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short name for scripts.
    pub kind: &'static str,
    /// The org.
    pub org: String,
    /// The recipient, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// In words.
    pub what: String,
}

impl Audit {
    /// Whether everything adds up.
    pub fn adds_up(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Where orgs without a send are: before their slot, in its window, past it.
const TO_COME: &str = "to_come";
const DUE: &str = "due";
const WITHOUT: &str = "without_send";

impl Ledger {
    /// Audits a week, by default that of the configured schedule's newest slot.
    pub async fn audit(&self, week: Option<WeekKey>) -> Result<Audit, LedgerError> {
        let now = self.store.now().await?;
        let week = week.unwrap_or_else(|| self.fallback.latest_slot(now).week);
        let key = SendKey::Week(week);
        let mut audit = Audit {
            week: week.to_string(),
            now,
            closed: self.store.is_closed(week).await?,
            eligible: 0,
            orgs: BTreeMap::new(),
            sends: BTreeMap::new(),
            messages: BTreeMap::new(),
            problems: Vec::new(),
            attention: Vec::new(),
        };
        self.audit_orgs(week, &mut audit).await?;
        for tally in self.store.week_sends(key).await? {
            *audit.sends.entry(tally.state.as_str()).or_default() += tally.count;
        }
        for tally in self.store.week_messages(key).await? {
            *audit.messages.entry(tally.state.as_str()).or_default() += tally.count;
        }
        for (kind, name) in [
            (OddityKind::StaleClaims, "claim_past_lease"),
            (OddityKind::StaleLeases, "message_past_lease"),
            (OddityKind::WrongCounts, "wrong_count"),
            (OddityKind::Uncertain, "uncertain"),
        ] {
            for odd in self.store.oddities(kind, key, GRACE, LISTED).await? {
                let since = odd.since.map(|at| format!(" since {} UTC", time(at))).unwrap_or_default();
                let what = match kind {
                    OddityKind::StaleClaims => format!("is claimed, and nobody has worked on it{since}"),
                    OddityKind::StaleLeases => format!("is held by a replica that is gone{since}"),
                    OddityKind::WrongCounts => {
                        format!("should have {} messages and has {}", odd.expected, odd.found)
                    }
                    OddityKind::Uncertain => {
                        format!("may or may not have been accepted; waits for a person{since}")
                    }
                };
                let finding = Finding { kind: name, org: odd.org, address: odd.address, what };
                if kind == OddityKind::Uncertain {
                    audit.attention.push(finding);
                } else {
                    audit.problems.push(finding);
                }
            }
        }
        Ok(audit)
    }

    async fn audit_orgs(&self, week: WeekKey, audit: &mut Audit) -> Result<(), LedgerError> {
        let mut instants = HashMap::new();
        let mut candidates = self.source.candidates(None).await?;
        while let Some(page) = candidates.next_page(PAGE).await? {
            let placed = self.place(&page, |_| week, &mut instants).await?;
            let owed: Vec<_> = placed.iter().filter(|placed| placed.owed.is_ok()).collect();
            let orgs: Vec<&OrgId> = owed.iter().map(|placed| &placed.candidate.org).collect();
            let states = self.store.send_states(SendKey::Week(week), &orgs).await?;
            for placed in owed {
                audit.eligible += 1;
                let org = placed.candidate.org.as_str();
                let closes = placed.slot.at + self.rules.catch_up;
                let place = match states.get(org) {
                    Some(state) => state.as_str(),
                    None if audit.now < placed.slot.at => TO_COME,
                    None if audit.now < closes => DUE,
                    None => WITHOUT,
                };
                *audit.orgs.entry(place).or_default() += 1;
                if place == WITHOUT && audit.problems.len() < LISTED as usize {
                    let what = format!("has no send, and its window ended at {} UTC", time(closes));
                    audit.problems.push(Finding { kind: WITHOUT, org: org.to_owned(), address: None, what });
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = if self.closed { "closed" } else { "open" };
        writeln!(f, "Week {}, {closed}, at {} UTC", self.week, time(self.now))?;
        writeln!(f, "\nEligible orgs: {}", self.eligible)?;
        table(f, &self.orgs)?;
        writeln!(f, "\nSends: {}", self.sends.values().sum::<u64>())?;
        table(f, &self.sends)?;
        writeln!(f, "\nMessages: {}", self.messages.values().sum::<u64>())?;
        table(f, &self.messages)?;
        for (title, findings) in [("What does not add up", &self.problems), ("For a person", &self.attention)]
        {
            if !findings.is_empty() {
                writeln!(f, "\n{title}")?;
                findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))?;
            }
        }
        if self.adds_up() { writeln!(f, "\nIt adds up.") } else { writeln!(f, "\nIt does not add up.") }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.as_ref().map(|address| format!(", {address}")).unwrap_or_default();
        write!(f, "{}{address}: {}", self.org, self.what)
    }
}

fn table(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<&'static str, u64>) -> fmt::Result {
    counts.iter().try_for_each(|(name, count)| writeln!(f, "  {:<13}{count:>9}", name.replace('_', " ")))
}
