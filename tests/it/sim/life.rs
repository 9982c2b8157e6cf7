//! What happens in the town: who is there at the start, and what changes from hour to hour.

use std::fmt::Write as _;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use digestd::domain::address::Address;
use digestd::domain::ids::OrgId;
use digestd::store::Store;

use super::dice::Dice;
use super::town::{Admin, AdminState, Org, OrgState, Past};
use crate::support::backend::{Kind, TestDatabase};
use crate::support::world::execute;

/// Zones with and without changing clocks, of both hemispheres and every kind of offset; some in a
/// spelling that is not the database's.
const ZONES: [&str; 14] = [
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "europe/london",
    "Etc/UTC",
];
/// What somebody once typed; such an org fails week by week, and alone.
const NO_ZONE: &str = "GMT Standard Time";
/// Hours between two things that happen in an org, at most.
const BUSY: usize = 6 * 24;
/// Out of so many orgs one has weeks in which nothing happens.
const QUIET: usize = 6;

/// The town and the script that has not been run yet.
pub struct Town {
    pub orgs: Vec<Org>,
    kind: Kind,
    script: String,
    ends: DateTime<Utc>,
}

impl Town {
    /// Founds a town with `orgs` orgs whose life is known up to `ends`.
    pub fn found(kind: Kind, orgs: usize, now: DateTime<Utc>, ends: DateTime<Utc>, dice: &mut Dice) -> Self {
        let mut town = Self { orgs: Vec::new(), kind, script: String::new(), ends };
        for _ in 0..orgs {
            town.add_org(now, None, dice);
        }
        town
    }

    /// Writes down what has changed since the last time.
    pub async fn write(&mut self, database: &TestDatabase) {
        if !self.script.is_empty() {
            execute(database, std::mem::take(&mut self.script)).await;
        }
    }

    /// One thing happens to somebody.
    pub async fn change(&mut self, now: DateTime<Utc>, store: &Store, dice: &mut Dice) {
        let n = dice.below(self.orgs.len());
        match dice.below(100) {
            0..25 => self.set_org(n, now, |state| state.zone = (*dice.pick(&ZONES)).to_owned()),
            25..45 => self.set_org(n, now, |state| {
                (state.weekday, state.time) = (Some(weekday(dice)), Some(time(dice)));
            }),
            45..50 => self.set_org(n, now, |state| state.zone = NO_ZONE.to_owned()),
            50..58 => self.set_org(n, now, |state| state.active = !state.active),
            58..64 => self.add_org(now, Some(now), dice),
            64..76 => self.add_admin(n, now, Some(now), dice),
            76..94 => self.change_admin(n, now, dice),
            _ => self.unsubscribe(n, now, store, dice).await,
        }
    }

    fn add_org(&mut self, now: DateTime<Utc>, created_at: Option<DateTime<Utc>>, dice: &mut Dice) {
        let n = self.orgs.len();
        // Most keep the configured Monday morning.
        let own = dice.chance(40);
        let state = OrgState {
            zone: if dice.chance(3) { NO_ZONE } else { dice.pick(&ZONES) }.to_owned(),
            weekday: own.then(|| weekday(dice)),
            time: own.then(|| time(dice)),
            active: true,
        };
        let id = format!("org-{n:03}");
        let _ = writeln!(
            self.script,
            "INSERT INTO {} (id, name, timezone, weekday, local_time, created_at) \
             VALUES ('{id}', 'Org {n}', '{}', {}, {}, {});",
            self.table("orgs"),
            state.zone,
            weekday_text(state.weekday),
            time_text(state.time),
            self.instant(created_at),
        );
        let activity = self.activity(&id, n.is_multiple_of(QUIET), now, dice);
        self.orgs.push(Org { id, created_at, state: Past::new(now, state), admins: Vec::new(), activity });
        for _ in 0..=dice.below(3) {
            self.add_admin(n, now, created_at, dice);
        }
    }

    /// What will happen in an org until the end.
    fn activity(
        &mut self,
        org: &str,
        quiet: bool,
        now: DateTime<Utc>,
        dice: &mut Dice,
    ) -> Vec<DateTime<Utc>> {
        let mut moments = Vec::new();
        let mut at = now - TimeDelta::days(8);
        while at < self.ends {
            let _ = writeln!(
                self.script,
                "INSERT INTO {} (id, org_id, kind, title, occurred_at) VALUES ('{org}-{}', '{org}', 'commit', 'A change', {});",
                self.table("activity"),
                moments.len(),
                self.instant(Some(at)),
            );
            moments.push(at);
            let hours = 1 + dice.below(if quiet { 4 * BUSY } else { BUSY });
            at += TimeDelta::hours(i64::try_from(hours).expect("hours"));
        }
        moments
    }

    fn add_admin(
        &mut self,
        n: usize,
        now: DateTime<Utc>,
        opted_in_at: Option<DateTime<Utc>>,
        dice: &mut Dice,
    ) {
        let org = &self.orgs[n];
        let id = format!("{}-{}", org.id, org.admins.len());
        // Two admins of one org may have one address, in another case.
        let email = match org.admins.first() {
            Some(first) if first.unsubscribed_at.is_none() && dice.chance(5) => first.email.to_uppercase(),
            _ if dice.chance(4) => format!("nobody-{} at {}", org.admins.len(), org.id),
            _ => format!("Admin-{}@{}.example", org.admins.len(), org.id),
        };
        let _ = writeln!(
            self.script,
            "INSERT INTO {} (id, org_id, email, name, opted_in_at) VALUES ('{id}', '{}', '{email}', 'A', {});",
            self.table("admins"),
            org.id,
            self.instant(opted_in_at),
        );
        let state = AdminState { wants_it: true, active: true, opted_in_at };
        let state = Past::new(now, state);
        self.orgs[n].admins.push(Admin { id, email, state, unsubscribed_at: None });
    }

    fn set_org(&mut self, n: usize, now: DateTime<Utc>, change: impl FnOnce(&mut OrgState)) {
        let mut state = self.orgs[n].state.now().clone();
        change(&mut state);
        let _ = writeln!(
            self.script,
            "UPDATE {} SET timezone = '{}', weekday = {}, local_time = {}, active = {} WHERE id = '{}';",
            self.table("orgs"),
            state.zone,
            weekday_text(state.weekday),
            time_text(state.time),
            state.active,
            self.orgs[n].id,
        );
        self.orgs[n].state.set(now, state);
    }

    /// Somebody opts out in the app, opts in again, leaves, or comes back.
    fn change_admin(&mut self, n: usize, now: DateTime<Utc>, dice: &mut Dice) {
        let place = dice.below(self.orgs[n].admins.len());
        let admin = &mut self.orgs[n].admins[place];
        // An opt-in after a link's opt-out would overrule it, which is another test's matter.
        if admin.unsubscribed_at.is_some() {
            return;
        }
        let mut state = admin.state.now().clone();
        if dice.chance(60) {
            state.wants_it = !state.wants_it;
            state.opted_in_at = if state.wants_it { Some(now) } else { state.opted_in_at };
        } else {
            state.active = !state.active;
        }
        let (wants_it, active, since, id) =
            (state.wants_it, state.active, state.opted_in_at, admin.id.clone());
        admin.state.set(now, state);
        let _ = writeln!(
            self.script,
            "UPDATE {} SET weekly_digest = {wants_it}, active = {active}, opted_in_at = {} WHERE id = '{id}';",
            self.table("admins"),
            self.instant(since),
        );
    }

    /// Somebody follows the link in a mail. Whoever shares the address is meant too.
    async fn unsubscribe(&mut self, n: usize, now: DateTime<Utc>, store: &Store, dice: &mut Dice) {
        let org = &mut self.orgs[n];
        let address = dice.pick(&org.admins).email.to_lowercase();
        // Nobody has ever got a link at a broken address.
        let Ok(parsed) = Address::parse(&address) else { return };
        let id = OrgId::parse(&org.id).expect("an id");
        store.opt_out(&parsed, Some(&id), "link").await.expect("an opt-out");
        for admin in org.admins.iter_mut().filter(|admin| admin.email.to_lowercase() == address) {
            admin.unsubscribed_at.get_or_insert(now);
        }
    }

    fn table(&self, name: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("digestd.{name}"),
            Kind::Sqlite => name.to_owned(),
        }
    }

    fn instant(&self, at: Option<DateTime<Utc>>) -> String {
        match (at, self.kind) {
            (None, _) => "NULL".to_owned(),
            (Some(at), Kind::Postgres) => format!("'{}'", at.to_rfc3339()),
            (Some(at), Kind::Sqlite) => at.timestamp_millis().to_string(),
        }
    }
}

fn weekday(dice: &mut Dice) -> Weekday {
    *dice.pick(&[Weekday::Mon, Weekday::Wed, Weekday::Fri, Weekday::Sat, Weekday::Sun])
}

/// Times on and off the hour, at midnight and where clocks change.
fn time(dice: &mut Dice) -> NaiveTime {
    let (hour, minute) = *dice.pick(&[(0, 0), (2, 30), (6, 45), (8, 0), (17, 20), (23, 59)]);
    NaiveTime::from_hms_opt(hour, minute, 0).expect("a time")
}

fn weekday_text(weekday: Option<Weekday>) -> String {
    weekday.map_or("NULL".to_owned(), |weekday| format!("'{weekday}'"))
}

fn time_text(time: Option<NaiveTime>) -> String {
    time.map_or("NULL".to_owned(), |time| format!("'{}'", time.format("%H:%M")))
}
