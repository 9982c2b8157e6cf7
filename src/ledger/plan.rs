//! A dry run: who would get what, and when.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::words::{counted, local, time};
use super::{Ledger, LedgerError, PAGE, Placed};
use crate::domain::due::Younger;
use crate::domain::ids::OrgId;
use crate::domain::schedule::WeeklySchedule;
use crate::domain::send::SendState;
use crate::domain::week::{SendKey, WeekKey};
use crate::source::Candidates;

/// What would happen, read page by page: an installation may have a million orgs.
#[derive(Debug)]
pub struct Plan<'a> {
    ledger: &'a Ledger,
    /// When this was asked.
    pub now: DateTime<Utc>,
    week: Option<WeekKey>,
    candidates: Candidates,
    /// By distinct schedule, of which there are few.
    instants: HashMap<(WeeklySchedule, WeekKey), DateTime<Utc>>,
}

/// What one org would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// The org.
    pub org: String,
    /// The week.
    pub week: String,
    /// When the slot opens.
    pub at: DateTime<Utc>,
    /// On the org's own clocks.
    pub local: String,
    /// The days that the digest would be about: first and last.
    pub days: (String, String),
    /// The admins who would get it.
    pub recipients: Vec<String>,
    /// What keeps it from happening or has become of it.
    pub note: String,
}

impl Ledger {
    /// Plans a week; by default each org's open slot, or its next one where none is open. Leaves no trace.
    pub async fn plan(&self, week: Option<WeekKey>) -> Result<Plan<'_>, LedgerError> {
        let now = self.store.now().await?;
        let candidates = self.source.candidates(None).await?;
        Ok(Plan { ledger: self, now, week, candidates, instants: HashMap::new() })
    }

    fn current_week(&self, schedule: &WeeklySchedule, now: DateTime<Utc>) -> WeekKey {
        let latest = schedule.latest_slot(now);
        if latest.is_open(now, self.rules.catch_up) { latest.week } else { latest.week.next() }
    }

    /// The states of a page's sends; its orgs may be in two different weeks.
    async fn states(&self, placed: &[Placed<'_>]) -> Result<HashMap<String, SendState>, LedgerError> {
        let mut by_week: BTreeMap<WeekKey, Vec<&OrgId>> = BTreeMap::new();
        for placed in placed {
            by_week.entry(placed.slot.week).or_default().push(&placed.candidate.org);
        }
        let mut states = HashMap::new();
        for (week, orgs) in by_week {
            states.extend(self.store.send_states(SendKey::Week(week), &orgs).await?);
        }
        Ok(states)
    }

    fn planned(
        &self,
        placed: &Placed<'_>,
        state: Option<SendState>,
        recipients: Vec<String>,
        now: DateTime<Utc>,
    ) -> Planned {
        let Placed { candidate, schedule, slot, owed } = placed;
        let period = self.rules.period.of(schedule, slot.week);
        let note = match (state, owed, &candidate.schedule) {
            (Some(SendState::Missed), ..) => "was missed: no replica claimed it in time".to_owned(),
            (Some(state), ..) => format!("is {state} already"),
            (None, _, Err(error)) => format!("would fail: {error}"),
            (None, Err(Younger::Org(_)), _) => "gets nothing: the org is younger than the slot".to_owned(),
            (None, Err(Younger::OptIn(_)), _) => {
                "gets nothing: the opt-in is younger than the slot".to_owned()
            }
            (None, Err(Younger::Installation(_)), _) => {
                "gets nothing: this installation is younger than the slot (schedule.first_start)".to_owned()
            }
            (None, Ok(_), _) if now < slot.at => "will be sent".to_owned(),
            (None, Ok(_), _) if slot.is_open(now, self.rules.catch_up) => "is due now".to_owned(),
            (None, Ok(_), _) => "was missed: the window has passed".to_owned(),
        };
        Planned {
            org: candidate.org.to_string(),
            week: slot.week.to_string(),
            at: slot.at,
            local: local(schedule, *slot),
            days: (period.first.to_string(), period.last.to_string()),
            recipients,
            note,
        }
    }
}

impl Plan<'_> {
    /// The next orgs, in the order of their ids; `None` at the end.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Planned>>, LedgerError> {
        let Some(page) = self.candidates.next_page(PAGE).await? else { return Ok(None) };
        let (ledger, now, week) = (self.ledger, self.now, self.week);
        let week_of = |schedule: &WeeklySchedule| week.unwrap_or_else(|| ledger.current_week(schedule, now));
        let placed = ledger.place(&page, week_of, &mut self.instants).await?;
        let orgs: Vec<&OrgId> = page.iter().map(|candidate| &candidate.org).collect();
        let mut members: BTreeMap<OrgId, BTreeSet<String>> = BTreeMap::new();
        for member in ledger.source.members(&orgs).await? {
            members.entry(member.org).or_default().insert(member.user.to_string());
        }
        let states = ledger.states(&placed).await?;
        let planned = placed.iter().map(|placed| {
            let state = states.get(placed.candidate.org.as_str()).copied();
            let recipients = members.remove(&placed.candidate.org).unwrap_or_default().into_iter().collect();
            ledger.planned(placed, state, recipients, now)
        });
        Ok(Some(planned.collect()))
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { org, week, at, local, days: (first, last), recipients, note } = self;
        let recipients = counted(recipients.len(), "recipient");
        write!(f, "{}  {week}  {org}  {local}  {recipients}  days {first} to {last}: {note}", time(*at))
    }
}
