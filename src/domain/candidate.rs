//! Who may get a digest: one org as the recipients query or the directory lists it.

use chrono::{DateTime, Utc};

use super::ids::OrgId;
use super::schedule::WeeklySchedule;
use super::zone::{Zone, ZoneError};

/// An org with at least one opted-in admin, before anybody asks whether it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Whose digest.
    pub org: OrgId,
    /// When the org wants it; or why nobody can tell, which stops this org alone.
    pub schedule: Result<WeeklySchedule, ZoneError>,
    /// When the org was made; `None` where the application does not say.
    pub created_at: Option<DateTime<Utc>>,
    /// When the first of its opted-in admins opted in; `None` where the application does not say.
    pub opted_in_at: Option<DateTime<Utc>>,
}

impl Candidate {
    /// When the org's slots are. A week of an org whose zone is none is accounted for too: by the
    /// configured schedule in UTC; gathering then fails the org for its zone.
    pub fn schedule_or(&self, configured: &WeeklySchedule) -> WeeklySchedule {
        let fallback = |_| WeeklySchedule { zone: Zone::utc(), ..configured.clone() };
        self.schedule.clone().unwrap_or_else(fallback)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Weekday;

    use super::*;
    use crate::domain::schedule::parse_time;

    #[test]
    fn an_org_without_a_zone_keeps_the_configured_day_and_time_in_utc() {
        let weekly = |weekday, time, zone| WeeklySchedule { weekday, time: parse_time(time).unwrap(), zone };
        let berlin = || Zone::parse("Europe/Berlin").unwrap();
        let configured = weekly(Weekday::Thu, "18:00", berlin());
        for (schedule, expected) in [
            (Ok(weekly(Weekday::Mon, "08:00", berlin())), weekly(Weekday::Mon, "08:00", berlin())),
            (
                Zone::parse("Mars/Base").map(|_| configured.clone()),
                weekly(Weekday::Thu, "18:00", Zone::utc()),
            ),
        ] {
            let org = OrgId::parse("acme").unwrap();
            let candidate = Candidate { org, schedule, created_at: None, opted_in_at: None };
            assert_eq!(candidate.schedule_or(&configured), expected);
        }
    }
}
