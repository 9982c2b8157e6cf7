//! Every request to the database is lost once, and every answer: in a week in which a bit of everything
//! happens, first the first, in the next week the second, until nothing is left to be lost. And each kind of
//! request is lost several times in a row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use digestd::clock::Clock;
use digestd::config::Config;
use digestd::domain::address::{Address, AddressFault};
use digestd::domain::ids::{OrgId, ReplicaId};
use digestd::store::Store;
use digestd::store::line::{Line, Loss};
use digestd::store::suppressions::SuppressionTerms;

use crate::support::backend::TestDatabase;
use crate::support::counters::sum;
use crate::support::engine::Rows;
use crate::support::fixtures::{claim_id, due_org, lease_terms, monday, open, terms};
use crate::support::fleet::{config, migrate};
use crate::support::replica::Replica;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{Counts, numbers};

/// Org and name of everybody, each for something that happens to a digest on its way.
const ADMINS: [(&str, &str); 7] = [
    ("plain", "ann"),
    ("plain", "back"),
    ("plain", "busy"),
    ("plain", "later"),
    ("plain", "refused"),
    ("orphan", "bob"),
    ("quiet", "zoe"),
];
/// Who gets a digest in the end.
const SERVED: [&str; 5] = ["ann", "back", "bob", "busy", "later"];

/// Requests of tick, delivery and guard that no week of this test makes, and what loses them instead.
const ELSEWHERE: [&str; 3] = [
    // A third of a lease has to pass in real time: tick::keep_alive, flow::database_away.
    "renew",
    // Asked for by a policy that permits duplicates: flow::outage.
    "resend_uncertain",
    // A question of the guard in Redis: guard.
    "was_refused",
];
/// So often each kind of request is lost in a row.
const IN_A_ROW: usize = 5;
/// Public functions whose requests are made by another one.
const INSIDE: [(&str, &str); 5] = [
    ("enqueue", "enqueue_all"),
    ("finish", "finish_rows"),
    ("record_and_mark", "settle"),
    ("relay_recover", "change_rate"),
    ("relay_throttled", "change_rate"),
];

/// What a relay thinks of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// No connection gets further than its greeting.
    Away,
    Busy,
    /// It takes nothing from our account.
    Blocking,
}

/// A relay with moods, and with something to say about some recipients.
struct Relay {
    server: SmtpServer,
    mood: Arc<Mutex<Mood>>,
}

impl Relay {
    async fn start() -> Self {
        let now = Arc::new(Mutex::new(Mood::Well));
        let told = Arc::clone(&now);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mood = move |at: At, to: &str| {
            match (at, *told.lock().expect("no panic")) {
                (At::Greeting, Mood::Away) => {
                    return Some(vec![Act::reply("421 4.3.2 back soon"), Act::Close]);
                }
                (At::Mail, Mood::Busy) => return Some(vec![Act::reply("450 4.3.2 slow down")]),
                (At::Mail, Mood::Blocking) => return Some(vec![Act::reply("550 5.7.1 account suspended")]),
                _ => {}
            }
            let asked = seen.entry(format!("{at:?} {to}")).or_default();
            *asked += 1;
            // Each second time all is well.
            let first = *asked % 2 == 1;
            let act = match (at, to.split('@').next()?) {
                (At::Rcpt, "refused") => Act::reply("550 5.1.1 no such user"),
                (At::Rcpt, "busy") if first => Act::reply("450 4.2.0 come back later"),
                (At::Dot, "later") if first => Act::reply("452 4.3.1 no room right now"),
                _ => return None,
            };
            Some(vec![act])
        };
        Self { server: SmtpServer::start(Script::new().offer("PIPELINING").mood(mood)).await, mood: now }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().expect("no panic") = mood;
    }
}

/// One week after the other, on one database.
struct Weeks<'a> {
    database: &'a TestDatabase,
    clock: Clock,
    relay: Relay,
    replica: Replica,
    /// Another replica that has died: what it has begun is left lying about. Its line holds.
    ghost: Store,
    passed: usize,
}

impl<'a> Weeks<'a> {
    async fn begin(database: &'a TestDatabase) -> Self {
        migrate(database).await;
        let mut rows = Rows::new(database);
        for org in ["plain", "orphan", "quiet"] {
            rows.org(org, org, "Europe/Berlin");
        }
        for (org, name) in ADMINS {
            rows.admin(name, org, &format!("{name}@{org}.example"));
        }
        rows.write(database).await;
        let clock = Clock::manual(monday() - TimeDelta::days(2));
        let relay = Relay::start().await;
        let lines = "[guard]\nbackend = \"sql\"\n";
        let config = format!("{}\n{lines}", config(database, &relay.server));
        let changes = [("DIGESTD__RELAY__PACE", "50/s"), ("DIGESTD__RELAY__CONNECTIONS_TOTAL", "8")];
        let changes = changes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::parse(&config, changes).expect("a configuration of ours");
        let replica = Replica::boot(&config, &clock).await;
        let ghost = open(database, clock.clone());
        Self { database, clock, relay, replica, ghost, passed: 0 }
    }

    /// Lets a week pass in which one request is lost, or its answer. Gives back where all came from.
    async fn week(&mut self, lose: impl FnOnce(&Line)) -> Vec<&'static str> {
        let saturday = self.clock.given().expect("a manual clock");
        self.weekend().await;
        let now = self.clock.given().expect("a manual clock");
        self.ghost
            .claim(&[due_org("orphan", now)], claim_id(), terms(ReplicaId::random()))
            .await
            .expect("a claim");
        self.clock.advance(TimeDelta::minutes(10));

        self.passed += 1;
        lose(self.replica.store.line());
        self.monday().await;
        let asked = self.replica.store.line().asked();
        self.replica.store.line().mend();
        for _ in 0..8 {
            self.clock.advance(TimeDelta::hours(2));
            self.replica.go_round().await;
            if self.is_quiet().await {
                break;
            }
        }

        self.check(&asked).await;
        let next = saturday + TimeDelta::weeks(1);
        self.clock.advance(next - self.clock.given().expect("a manual clock"));
        asked
    }

    /// From Saturday to Monday 08:00: what the week tells, and somebody who leaves and comes back.
    async fn weekend(&mut self) {
        let now = self.clock.given().expect("a manual clock");
        let back = Address::parse("back@plain.example").expect("an address");
        let plain = OrgId::parse("plain").expect("an id");
        self.ghost.opt_out(&back, Some(&plain), "link").await.expect("an opt-out");
        let mut rows = Rows::new(self.database);
        let sunday = rows.time(now + TimeDelta::days(1));
        rows.statement("DELETE FROM {}suppressions")
            .statement(&format!("UPDATE {{}}admins SET opted_in_at = {sunday} WHERE id = 'back'"));
        for org in ["plain", "orphan"] {
            rows.activity(&format!("{org}-{now}"), org, "News", now - TimeDelta::days(2));
        }
        rows.write(self.database).await;
        let ann = Address::parse("ann@plain.example").expect("an address");
        let terms = SuppressionTerms { hard_after: 2, soft_after: 9, soft_decay: TimeDelta::days(30) };
        self.ghost.note_address_failure(&ann, AddressFault::Soft, terms, "relay", "").await.expect("noted");
        self.clock.advance(TimeDelta::days(2));
    }

    /// A relay that is away at first, and leases that a dead replica has left.
    async fn monday(&mut self) {
        self.relay.set(Mood::Away);
        self.replica.go_round().await;
        for mood in [Mood::Busy, Mood::Blocking, Mood::Well] {
            self.relay.set(mood);
            self.clock.advance(TimeDelta::minutes(10));
            self.replica.try_to_deliver().await;
        }
        drop(self.ghost.lease_messages(1, lease_terms(ReplicaId::random())).await.expect("leases"));
        self.clock.advance(TimeDelta::minutes(5));
        self.replica.try_to_deliver().await;
        self.clock.advance(TimeDelta::hours(1));
        self.replica.go_round().await;
    }

    /// Whether every org has its send and nothing is under way.
    async fn is_quiet(&self) -> bool {
        let counts = Counts::read(self.database).await;
        let busy =
            ["pending", "leased", "sending"].map(|state| counts.messages(state)).into_iter().sum::<i64>();
        let sends = numbers(self.database, "SELECT week_key, COUNT(*) FROM {}sends GROUP BY 1").await;
        busy + counts.sends("claimed") == 0 && sends.iter().all(|(_, sends)| *sends == 3)
    }

    /// Everybody got their digest once, and the ledger and the metrics know it.
    async fn check(&self, asked: &[&str]) {
        let when = format!("week {} of requests from {asked:?}", self.passed);
        let accepted = self.relay.server.take_accepted().into_iter();
        let mut names: Vec<String> =
            accepted.filter_map(|message| Some(message.to.split_once('@')?.0.to_owned())).collect();
        names.sort();
        let counts = Counts::read(self.database).await;
        assert_eq!(names, SERVED, "{when}: {counts:?}");
        for state in ["pending", "leased", "sending", "uncertain", "expired", "cancelled"] {
            assert_eq!(counts.messages(state), 0, "{when}: {counts:?}");
        }
        assert_eq!(
            counts.sends("claimed") + counts.sends("missed") + counts.sends("failed"),
            0,
            "{when}: {counts:?}"
        );
        assert!(self.is_quiet().await, "{when}: {counts:?}");
        let weeks = i64::try_from(self.passed).expect("a count");
        let served = i64::try_from(SERVED.len()).expect("a count");
        let counted = sum([&self.replica.metrics.prometheus_text()], "digestd_messages_settled_total");
        let ends = [
            ("reason=\"\",state=\"accepted\"", weeks * served),
            ("reason=\"refused\",state=\"failed\"", weeks),
        ];
        assert_eq!(counted, ends.map(|(labels, n)| (labels.to_owned(), n)).into(), "{when}");
    }
}

/// The function that a place in the source belongs to.
fn function_at(place: &str) -> String {
    let (file, line) = place.rsplit_once(':').expect("file:line");
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file of ours");
    let above: Vec<&str> = text.lines().take(line.parse().expect("a line")).collect();
    above.iter().rev().find_map(|line| name_of_function(line)).expect("a function").to_owned()
}

fn name_of_function(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let opens = before.split_whitespace().all(|word| word.starts_with("pub") || word == "async");
    opens.then(|| name.split(['(', '<']).next()).flatten()
}

/// What tick, delivery and guard ask of the store.
fn requests_in_source() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = BTreeSet::new();
    for folder in ["tick", "deliver", "guard"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file of ours");
            let text: String = text.split_whitespace().collect();
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (at, _) in text.match_indices("store.") {
                let name: String =
                    text[at + 6..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if text[at + 6 + name.len()..].starts_with('(') && name != "clone" {
                    names.insert(name);
                }
            }
        }
    }
    names
}

/// Loses the first, the second, and each further request of such a week, until a week makes no more.
async fn lose_each(database: &TestDatabase, loss: Loss) {
    let mut weeks = Weeks::begin(database).await;
    let mut nth = 0;
    while weeks.week(|line| line.lose(nth, loss)).await.len() > nth {
        nth += 1;
    }
    weeks.replica.stop().await;
}

/// Whatever tick, delivery and guard can ask of the store was lost.
fn nothing_is_left_out(asked: &BTreeSet<&str>) {
    let reached: BTreeSet<String> = asked.iter().map(|place| function_at(place)).collect();
    let wanted = requests_in_source();
    assert!(wanted.len() > 20, "{wanted:?}");
    let is_reached = |name: &str| {
        let inside = INSIDE.iter().find(|(public, _)| *public == name).map_or(name, |(_, inside)| inside);
        reached.contains(inside)
    };
    let missing: Vec<&String> =
        wanted.iter().filter(|name| !is_reached(name) && !ELSEWHERE.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "never lost: {missing:?}; lost: {reached:?}");
}

both_databases! {
    async fn whichever_request_to_the_database_is_lost_everybody_gets_one_digest(database: TestDatabase) {
        lose_each(&database, Loss::Request).await;
    }

    async fn whichever_answer_of_the_database_is_lost_everybody_gets_one_digest(database: TestDatabase) {
        lose_each(&database, Loss::Answer).await;
    }

    async fn whatever_the_database_refuses_for_a_while_everybody_gets_one_digest(database: TestDatabase) {
        let mut weeks = Weeks::begin(&database).await;
        let mut places: Vec<&'static str> = weeks.week(|line| line.lose(usize::MAX, Loss::Request)).await;
        let mut tried = BTreeSet::new();
        while let Some(place) = places.pop() {
            if tried.insert(place) {
                places.extend(weeks.week(|line| line.lose_from(place, IN_A_ROW)).await);
            }
        }
        nothing_is_left_out(&tried);
        weeks.replica.stop().await;
    }
}
