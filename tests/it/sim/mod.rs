//! Weeks that pass by a manual clock, hour by hour: three replicas, a town of orgs in which something
//! always changes, a moody relay, deaths in the middle of a step, and outages. After every week the
//! judge compares tables, relay and metrics with the town's own story, and each closed week must add up.

mod dice;
mod judge;
mod life;
mod relay;
mod tables;
mod town;

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};
use digestd::app::ledger_of;
use digestd::clock::Clock;
use digestd::config::Config;
use digestd::deliver::journal::MarkAnswer;
use digestd::domain::ids::GuardOwner;
use digestd::tick::sweep::Scope;
use futures_util::future::join_all;

use crate::support::backend::{Kind, TestDatabase};
use crate::support::fleet::{config, migrate};
use crate::support::replica::{Replica, broken_off};
use crate::support::world::execute;
use crate::support::{scale, variable};
use dice::Dice;
use judge::Judge;
use life::Town;
use relay::MoodyRelay;

const ORGS: usize = 70;
const REPLICAS: usize = 3;
/// Hours between two full looks at every candidate.
const RESWEEP: usize = 6;
/// In the first weeks nobody dies and the relay takes everything, so that even counters must agree.
const CALM: usize = 2 * WEEK;
const WEEK: usize = 7 * 24;
/// The pattern of outages repeats after so many hours.
const PATTERN: usize = 8 * WEEK;

/// Hours of each pattern in which no replica runs: single ones, 30 over a Sunday night, and nine days
/// that take a Monday with them.
const OUTAGES: [Range<usize>; 5] = [
    2 * WEEK + 20..2 * WEEK + 21,
    3 * WEEK + 10..3 * WEEK + 40,
    4 * WEEK + 19..4 * WEEK + 20,
    5 * WEEK + 80..5 * WEEK + 80 + 9 * 24,
    7 * WEEK + 26..7 * WEEK + 27,
];
/// Hours of each pattern in which the relay is away.
const RELAY_AWAY: [Range<usize>; 2] = [2 * WEEK + 30..2 * WEEK + 36, 4 * WEEK + 18..4 * WEEK + 70];

/// A Sunday noon, before the easternmost Monday morning, and shortly before clocks change all over.
fn start() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

both_databases! {
    async fn weeks_pass_and_everybody_gets_what_they_are_owed_once(database: TestDatabase) {
        let fallback = u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let seed = variable("DIGESTD_SEED").map_or(fallback, |seed| seed.parse().expect("a whole number"));
        println!("DIGESTD_SEED={seed}");
        let weeks = scale(8, 52);
        let mut simulation = Simulation::new(&database, seed, weeks).await;
        for hour in 0..weeks * WEEK {
            simulation.hour(hour).await;
        }
        simulation.end().await;
    }
}

struct Simulation<'a> {
    database: &'a TestDatabase,
    config: Config,
    clock: Clock,
    dice: Dice,
    town: Town,
    relay: MoodyRelay,
    replicas: Vec<Replica>,
    judge: Judge,
    /// Every candidate is to be read at the next sweep.
    full: bool,
    /// A week has passed since the judge's last look.
    look_due: bool,
}

impl<'a> Simulation<'a> {
    async fn new(database: &'a TestDatabase, seed: u64, weeks: usize) -> Self {
        let mut dice = Dice::new(seed);
        migrate(database).await;
        let clock = Clock::manual(start());
        let relay = MoodyRelay::start(seed).await;
        let config = settings(database, &relay);
        let ends = start() + TimeDelta::weeks(i64::try_from(weeks).expect("weeks"));
        let mut town = Town::found(database.kind, ORGS, start(), ends, &mut dice);
        town.write(database).await;
        installed(database, start()).await;
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(Replica::boot(&config, &clock).await);
        }
        let judge = Judge::new(database).await;
        Self { database, config, clock, dice, town, relay, replicas, judge, full: true, look_due: false }
    }

    fn now(&self) -> DateTime<Utc> {
        self.clock.given().expect("a manual clock")
    }

    async fn hour(&mut self, hour: usize) {
        let during = |spans: &[Range<usize>]| spans.iter().any(|span| span.contains(&(hour % PATTERN)));
        self.look_due |= hour > 0 && hour.is_multiple_of(WEEK);
        self.relay.set_down(during(&RELAY_AWAY));
        self.relay.set_calm(hour < CALM);
        if self.dice.chance(12) {
            let store = &self.replicas[0].store;
            self.town.change(self.clock.given().expect("a manual clock"), store, &mut self.dice).await;
            self.town.write(self.database).await;
        }
        if during(&OUTAGES) {
            // Whoever comes back has not seen what has changed meanwhile.
            self.full = true;
        } else {
            self.full |= hour.is_multiple_of(RESWEEP);
            // The judge sees hours in which nobody dies.
            let deadly = hour >= CALM && !self.look_due;
            self.sweep(deadly).await;
            self.deliver(deadly).await;
            self.keep_house().await;
            if self.look_due && !during(&RELAY_AWAY) {
                self.look().await;
            }
        }
        self.clock.advance(TimeDelta::hours(1));
    }

    /// Which replicas get to do something in this hour: all of them, or one.
    fn awake(&mut self) -> Range<usize> {
        let one = self.dice.below(REPLICAS);
        if self.dice.chance(35) { 0..REPLICAS } else { one..one + 1 }
    }

    /// The replicas look at once. Sometimes one dies over it.
    async fn sweep(&mut self, deadly: bool) {
        let now = self.now();
        let awake = self.awake();
        let scope = if self.full { Scope::Everything } else { Scope::OpenSlots };
        let someone_is_due = self.town.orgs.iter().any(|org| org.due(now).is_some());
        let dies_at = (deadly && someone_is_due && self.dice.chance(8)).then(|| 1 + self.dice.below(60));
        let sweeps = self.replicas[awake.clone()].iter().enumerate().map(|(n, replica)| {
            broken_off(replica.sweep(scope), dies_at.filter(|_| n == 0).unwrap_or(usize::MAX), None)
        });
        let ended = join_all(sweeps).await;
        let swept = ended.contains(&true);
        if !ended[0] {
            self.replace(awake.start).await;
        }
        let dies_at = (deadly && self.dice.chance(2)).then(|| 1 + self.dice.below(40));
        let rescues = self.replicas[awake.clone()].iter().enumerate().map(|(n, replica)| {
            broken_off(replica.rescue(), dies_at.filter(|_| n == 0).unwrap_or(usize::MAX), None)
        });
        if !join_all(rescues).await[0] {
            self.replace(awake.start).await;
        }
        self.judge.after_sweeps(&self.town, now, self.full, swept).await;
        self.full &= !swept;
    }

    /// The replicas deliver at once. Sometimes one dies over it, or with leases in its hands.
    async fn deliver(&mut self, deadly: bool) {
        let hurts = deadly && self.judge.waiting(self.now()).await > 0;
        let awake = self.awake();
        if hurts && self.dice.chance(10) {
            let place = self.dice.below(REPLICAS);
            let leased = self.replicas[place].lease().await;
            if let Some(message) = leased.first().filter(|_| self.dice.chance(50)) {
                let journal = &self.replicas[place].deliver.journal;
                if let MarkAnswer::Sending(mut marker) =
                    journal.mark(message.fence(), GuardOwner::random()).await
                {
                    // As if its body had left.
                    marker.spend();
                }
            }
            drop(leased);
            self.replace(place).await;
        }
        let dies_at = (hurts && self.dice.chance(20)).then(|| 1 + self.dice.below(150));
        let deliveries = self.replicas[awake.clone()].iter_mut().enumerate().map(|(n, replica)| {
            let journal = Some(replica.journal());
            broken_off(replica.deliver(), dies_at.filter(|_| n == 0).unwrap_or(usize::MAX), journal)
        });
        if !join_all(deliveries).await[0] {
            self.replace(awake.start).await;
        }
    }

    /// One replica keeps house, or tries to: an hour is more than its lease, so that leaders change.
    async fn keep_house(&mut self) {
        let now = self.now();
        let place = self.dice.below(REPLICAS);
        for week in self.replicas[place].keep_house().await.weeks {
            self.judge.after_closing(&self.town, week, now).await;
            let ledger = ledger_of(&self.config, &self.replicas[place].store).await.expect("a ledger");
            let audit = ledger.audit(Some(week)).await.expect("an audit");
            assert!(audit.closed && audit.adds_up(), "at {now}:\n{audit}");
        }
    }

    /// Another replica comes for one that died.
    async fn replace(&mut self, place: usize) {
        let fresh = Replica::boot(&self.config, &self.clock).await;
        std::mem::replace(&mut self.replicas[place], fresh).die().await;
    }

    async fn look(&mut self) {
        let now = self.now();
        self.look_due = false;
        self.judge.no_lease_is_overdue(now).await;
        self.judge.check(&self.town, &self.relay, now).await;
        let first = &self.replicas[0];
        self.judge.check_gauges(&first.metrics, &first.store).await;
        if now <= start() + TimeDelta::hours(i64::try_from(CALM).expect("hours")) {
            let metrics: Vec<_> = self.replicas.iter().map(|replica| &replica.metrics).collect();
            self.judge.check_counters(self.database, &metrics).await;
        }
    }

    async fn end(mut self) {
        self.look().await;
        for replica in self.replicas {
            replica.stop().await;
        }
    }
}

/// The installation is as old as the simulated clock has it.
async fn installed(database: &TestDatabase, at: DateTime<Utc>) {
    let script = match database.kind {
        Kind::Postgres => format!("UPDATE digestd.installation SET installed_at = '{}';", at.to_rfc3339()),
        Kind::Sqlite => format!("UPDATE installation SET installed_at = {};", at.timestamp_millis()),
    };
    execute(database, script).await;
}

fn settings(database: &TestDatabase, relay: &MoodyRelay) -> Config {
    // A silent relay costs real time.
    let quick = [("DIGESTD__RELAY__TIMEOUTS__REPLY", "300ms")];
    let quick = quick.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Config::parse(&config(database, &relay.server), quick).expect("a configuration of ours")
}
