//! The app's side of the simulation: orgs and admins as they are, were, and should be treated.
//!
//! Everything that changes keeps its past, so that a send can be judged by what was true when it
//! was made.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use digestd::domain::schedule::WeeklySchedule;
use digestd::domain::week::WeekKey;
use digestd::domain::zone::Zone;

/// The configured catch-up, which is the default one.
pub const CATCH_UP: TimeDelta = TimeDelta::hours(36);

/// Something with a past: the newest value whose beginning is not after the moment asked for.
#[derive(Debug, Clone)]
pub struct Past<T>(Vec<(DateTime<Utc>, T)>);

impl<T> Past<T> {
    pub fn new(since: DateTime<Utc>, value: T) -> Self {
        Self(vec![(since, value)])
    }

    pub fn at(&self, at: DateTime<Utc>) -> Option<&T> {
        self.0.iter().rfind(|(since, _)| *since <= at).map(|(_, value)| value)
    }

    pub fn now(&self) -> &T {
        &self.0.last().expect("never empty").1
    }

    pub fn set(&mut self, since: DateTime<Utc>, value: T) {
        self.0.push((since, value));
    }

    pub fn changed_at(&self) -> DateTime<Utc> {
        self.0.last().expect("never empty").0
    }
}

/// An org's columns that may change.
#[derive(Debug, Clone)]
pub struct OrgState {
    pub zone: String,
    pub weekday: Option<Weekday>,
    pub time: Option<NaiveTime>,
    pub active: bool,
}

/// An admin's columns that may change.
#[derive(Debug, Clone)]
pub struct AdminState {
    pub wants_it: bool,
    pub active: bool,
    pub opted_in_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub struct Admin {
    pub id: String,
    /// As the app has it, in whatever case.
    pub email: String,
    pub state: Past<AdminState>,
    /// Said by an unsubscribe link, which the app does not know of.
    pub unsubscribed_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub struct Org {
    pub id: String,
    pub created_at: Option<DateTime<Utc>>,
    pub state: Past<OrgState>,
    pub admins: Vec<Admin>,
    /// When something happened, in order.
    pub activity: Vec<DateTime<Utc>>,
}

/// A digest that an org is owed at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    pub org: String,
    pub week: WeekKey,
    pub slot_at: DateTime<Utc>,
    pub zone: Zone,
}

/// How a send must have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Enqueued, with exactly these addresses.
    Enqueued(BTreeSet<String>),
    /// Ended with this state and reason.
    Ended(&'static str, &'static str),
}

impl OrgState {
    /// The org's schedule; of an org whose zone is none, the configured one in UTC.
    pub fn schedule(&self) -> WeeklySchedule {
        let eight = NaiveTime::from_hms_opt(8, 0, 0).expect("a time");
        match Zone::parse(&self.zone) {
            Ok(zone) => WeeklySchedule {
                weekday: self.weekday.unwrap_or(Weekday::Mon),
                time: self.time.unwrap_or(eight),
                zone,
            },
            Err(_) => WeeklySchedule { weekday: Weekday::Mon, time: eight, zone: Zone::utc() },
        }
    }

    pub fn has_zone(&self) -> bool {
        Zone::parse(&self.zone).is_ok()
    }
}

impl Org {
    /// The admins who are opted in and active at a moment.
    fn members(&self, at: DateTime<Utc>) -> impl Iterator<Item = (&Admin, &AdminState)> {
        self.admins
            .iter()
            .filter_map(move |admin| Some((admin, admin.state.at(at)?)))
            .filter(|(_, state)| state.active && state.wants_it)
    }

    /// When anything last changed that decides about candidates.
    pub fn changed_at(&self) -> DateTime<Utc> {
        let admins = self.admins.iter().map(|admin| admin.state.changed_at());
        admins.fold(self.state.changed_at(), DateTime::max)
    }

    /// What the org is owed at a moment for the week of `slot_in`'s choice, window aside.
    pub fn owed_in(&self, week: WeekKey, at: DateTime<Utc>) -> Option<Owed> {
        let state = self.state.at(at).filter(|state| state.active)?;
        let opted_in: Vec<Option<DateTime<Utc>>> =
            self.members(at).map(|(_, member)| member.opted_in_at).collect();
        if opted_in.is_empty() {
            return None;
        }
        let first =
            opted_in.iter().copied().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().min());
        let schedule = state.schedule();
        let slot_at = schedule.slot_in(week).at;
        let begins = Some(super::start() - CATCH_UP);
        let too_new = [self.created_at, first, begins].into_iter().flatten().any(|begin| begin > slot_at);
        (!too_new).then(|| Owed { org: self.id.clone(), week, slot_at, zone: schedule.zone })
    }

    /// What the org is owed at a moment: its newest slot, if that is still open.
    pub fn due(&self, at: DateTime<Utc>) -> Option<Owed> {
        let schedule = self.state.at(at)?.schedule();
        let near = WeekKey::of(at.date_naive());
        let newest = [near.next(), near, near.previous(), near.previous().previous()]
            .map(|week| schedule.slot_in(week))
            .into_iter()
            .find(|slot| slot.at <= at)?;
        (at < newest.at + CATCH_UP).then(|| self.owed_in(newest.week, at)).flatten()
    }

    /// How a send of this org must end that is worked at a moment.
    pub fn expected(&self, owed: &Owed, at: DateTime<Utc>) -> Expected {
        let Some(state) = self.state.at(at).filter(|state| state.active) else {
            return Expected::Ended("skipped", "org_gone");
        };
        if !state.has_zone() {
            return Expected::Ended("failed", "bad_timezone");
        }
        let addresses: BTreeSet<String> = self
            .members(at)
            .filter(|(_, member)| member.opted_in_at.is_none_or(|since| since <= owed.slot_at))
            .map(|(admin, _)| admin.email.to_lowercase())
            .collect();
        if addresses.is_empty() {
            return Expected::Ended("skipped", "no_recipients");
        }
        let monday = owed.week.previous().monday();
        let (start, end) = (owed.zone.start_of_day(monday), owed.zone.start_of_day(owed.week.monday()));
        if !self.activity.iter().any(|moment| start <= *moment && *moment < end) {
            return Expected::Ended("skipped", "empty_week");
        }
        Expected::Enqueued(addresses)
    }
}
