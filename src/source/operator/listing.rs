//! The orgs of one sweep: read to the end at once, kept small, handed out page by page.
//!
//! To work on a page takes as long as it takes. No transaction of the application's database stays open
//! meanwhile: it would keep the server from cleaning up behind every write of the application.

use std::collections::{BTreeSet, HashMap};
use std::vec;

use chrono::{DateTime, Utc};

use super::database::OrgRow;
use super::people;
use crate::domain::candidate::Candidate;
use crate::domain::ids::OrgId;
use crate::domain::schedule::WeeklySchedule;
use crate::domain::zone::ZoneError;

type Schedule = Result<WeeklySchedule, ZoneError>;

/// A candidate in little space: about a hundred bytes with its id, so that a million of them are no burden.
#[derive(Debug)]
struct Entry {
    org: OrgId,
    /// Its place among the distinct schedules.
    schedule: usize,
    created_at: Option<DateTime<Utc>>,
    opted_in_at: Option<DateTime<Utc>>,
}

/// A listing that is being read.
#[derive(Debug)]
pub(super) struct Collecting {
    zones: Option<BTreeSet<String>>,
    default: WeeklySchedule,
    places: HashMap<Schedule, usize>,
    entries: Vec<Entry>,
    odd: u64,
    unreadable: u64,
}

impl Collecting {
    /// Every org is wanted, or those of some zones.
    pub fn new(zones: Option<&[String]>, default: &WeeklySchedule) -> Self {
        Self {
            zones: zones.map(|zones| zones.iter().cloned().collect()),
            default: default.clone(),
            places: HashMap::new(),
            entries: Vec::new(),
            odd: 0,
            unreadable: 0,
        }
    }

    /// Takes an org, in the order of the ids. The zones are compared here, by their proper names:
    /// applications write them in many ways.
    pub fn take(&mut self, row: OrgRow) {
        let Some((candidate, odd)) = people::candidate(row, &self.default) else {
            self.unreadable += 1;
            return;
        };
        self.odd += u64::from(odd);
        let Candidate { org, schedule, created_at, opted_in_at } = candidate;
        let wanted = self
            .zones
            .as_ref()
            .is_none_or(|zones| schedule.as_ref().is_ok_and(|schedule| zones.contains(schedule.zone.name())));
        if wanted {
            let next = self.places.len();
            let schedule = *self.places.entry(schedule).or_insert(next);
            self.entries.push(Entry { org, schedule, created_at, opted_in_at });
        }
    }

    /// The list, from its beginning.
    pub fn finish(self) -> Listing {
        let mut schedules: Vec<(usize, Schedule)> =
            self.places.into_iter().map(|(schedule, place)| (place, schedule)).collect();
        schedules.sort_unstable_by_key(|(place, _)| *place);
        Listing {
            entries: self.entries.into_iter(),
            schedules: schedules.into_iter().map(|(_, schedule)| schedule).collect(),
            odd: self.odd,
            unreadable: self.unreadable,
            told: false,
        }
    }
}

/// The orgs of one sweep, in the order of their ids.
#[derive(Debug)]
pub(in crate::source) struct Listing {
    entries: vec::IntoIter<Entry>,
    schedules: Vec<Schedule>,
    odd: u64,
    unreadable: u64,
    told: bool,
}

impl Listing {
    /// The next candidates, at most `limit`; `None` at the end.
    pub fn next_page(&mut self, limit: u32) -> Option<Vec<Candidate>> {
        let page: Vec<Candidate> = self
            .entries
            .by_ref()
            .take(limit as usize)
            .filter_map(|Entry { org, schedule, created_at, opted_in_at }| {
                let schedule = self.schedules.get(schedule)?.clone();
                Some(Candidate { org, schedule, created_at, opted_in_at })
            })
            .collect();
        if !page.is_empty() {
            return Some(page);
        }
        if !self.told && self.odd + self.unreadable > 0 {
            self.told = true;
            tracing::warn!(
                schedules = self.odd,
                ids = self.unreadable,
                "some orgs have a weekday or time that cannot be read, and keep the configured one; \
                 those with an unusable id are passed over"
            );
        }
        None
    }

    /// How many orgs have an unreadable weekday or time, and how many an unusable id.
    pub fn oddities(&self) -> (u64, u64) {
        (self.odd, self.unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::zone::Zone;

    #[test]
    fn an_org_takes_little_space_and_equal_schedules_take_it_once() {
        assert!(size_of::<Entry>() <= 72, "{}", size_of::<Entry>());
        let default = WeeklySchedule {
            weekday: chrono::Weekday::Mon,
            time: chrono::NaiveTime::from_hms_opt(8, 0, 0).unwrap(),
            zone: Zone::utc(),
        };
        let zones = ["Europe/Berlin".to_owned(), "UTC".to_owned()];
        let mut collecting = Collecting::new(Some(&zones), &default);
        for (n, zone) in
            ["europe/berlin", "", "Asia/Tokyo", "Europe/Berlin", "Mars/Base"].into_iter().enumerate()
        {
            collecting.take(OrgRow {
                org: Some(format!("org-{n}")),
                timezone: Some(zone.to_owned()),
                ..OrgRow::default()
            });
        }
        collecting.take(OrgRow::default());
        let mut listing = collecting.finish();
        assert_eq!((listing.schedules.len(), listing.oddities()), (2, (0, 1)));
        let mut page = |limit| -> Option<Vec<String>> {
            Some(listing.next_page(limit)?.iter().map(|candidate| candidate.org.to_string()).collect())
        };
        assert_eq!(page(2), Some(vec!["org-0".to_owned(), "org-1".to_owned()]));
        assert_eq!(page(2), Some(vec!["org-3".to_owned()]));
        assert_eq!(page(2), None);
    }
}
