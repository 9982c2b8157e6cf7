//! A storm: everything that can go wrong goes wrong, again and again, and then it is quiet. `scripts/chaos`
//! runs it alone, because it restarts the PostgreSQL server under everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::backend::TestDatabase;
use crate::support::fleet::{PATIENCE, config, migrate};
use crate::support::pooler::Pooler;
use crate::support::process::{Launch, Process, Signal};
use crate::support::proxy::{Proxy, Weather};
use crate::support::redis::Redis;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::{Counts, World, execute, numbers};
use crate::support::{Chance, eventually, seed, variable, web};

const REPLICAS: usize = 3;
/// `relay.connections` of a test replica.
const CONNECTIONS: usize = 4;
/// Orgs that become due between two faults.
const WAVE: usize = 3;
/// Milliseconds between two faults, at most.
const PAUSE: u64 = 1500;
/// Milliseconds that a fault lasts, at most. Longer than a claim's lease and shorter than two of a message's.
const LASTING: u64 = 9000;
/// How soon after the last fault everything must be settled.
const BOUND: Duration = Duration::from_mins(5);
/// What hosts' clocks are off by, in libfaketime's words.
const CLOCKS: [&str; 4] = ["-7d", "-2h", "+0", "+3h"];

/// Claims that have not ended, and how often each was tried.
const CLAIMED: &str = "SELECT org_id || ' ' || lease_until, attempts FROM {}sends WHERE state = 'claimed'";
/// Organisations nobody has claimed.
const UNSENT: &str = "
    SELECT o.id || ' ' || o.timezone || ' ' || o.weekday || ' ' || o.local_time, 0
    FROM {}orgs AS o
    WHERE NOT EXISTS (SELECT 1 FROM {}sends AS s WHERE s.org_id = o.id)";

/// What goes wrong. The number is the replica's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// It dies where it stands, and another starts, with another clock.
    Kill(usize),
    /// It is asked to end, and another starts, with another clock.
    Terminate(usize),
    /// It stands still for a while.
    Freeze(usize),
    /// Its database is out of reach for a while.
    Cut(usize),
    /// Its database does not answer for a while.
    Stall(usize),
    /// Answers of its database are lost for a while.
    LoseAnswers(usize),
    /// The PostgreSQL server is restarted without a farewell.
    RestartPostgres,
    /// Redis dies and comes back after a while.
    KillRedis,
}

impl Fault {
    fn draw(chance: &mut Chance) -> Self {
        let n = usize::try_from(chance.below(REPLICAS as u64)).expect("a number of a replica");
        match chance.below(16) {
            0..=3 => Self::Kill(n),
            4 | 5 => Self::Terminate(n),
            6..=8 => Self::Freeze(n),
            9 | 10 => Self::Cut(n),
            11 => Self::Stall(n),
            12 | 13 => Self::LoseAnswers(n),
            14 => Self::RestartPostgres,
            _ => Self::KillRedis,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Terminate(_) => "terminate",
            Self::Freeze(_) => "freeze",
            Self::Cut(_) => "cut",
            Self::Stall(_) => "stall",
            Self::LoseAnswers(_) => "lose_answers",
            Self::RestartPostgres => "restart_postgres",
            Self::KillRedis => "kill_redis",
        }
    }
}

/// One replica, its own way to the database, and the clock of its host.
struct Ship {
    process: Process,
    proxy: Proxy,
    _pooler: Option<Pooler>,
    config: String,
    http: SocketAddr,
    frozen: bool,
}

impl Ship {
    async fn launch(database: &TestDatabase, base: &str, n: usize, seed: u64) -> Self {
        let (login, place) = database.url.rsplit_once('@').expect("a login");
        let (server, path) = place.split_once('/').expect("a path");
        let proxy = Proxy::start(server, seed).await;
        let mut url = format!("{login}@{}/{path}", proxy.addr());
        // The last one goes through a pooler, which goes through the same weather.
        let pooler =
            if n == REPLICAS - 1 { Some(Pooler::start(&url, database.folder()).await) } else { None };
        if let Some(pooler) = &pooler {
            url.clone_from(&pooler.url);
        }
        let mut config = base.replace(&database.url, &url);
        if pooler.is_some() {
            config = config.replace("[database]\n", "[database]\npgbouncer = true\n");
        }
        let http = web::free_address();
        config = config.replace("listen = \"127.0.0.1:0\"", &format!("listen = \"{http}\""));
        let process = launch(database, n, &config, "+0");
        Self { process, proxy, _pooler: pooler, config, http, frozen: false }
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen) {
            self.process.signal(Signal::Thaw);
        }
    }
}

fn launch(database: &TestDatabase, n: usize, config: &str, clock: &str) -> Process {
    Launch::new(database.folder(), &format!("replica-{n}"), &["run"]).config(config).clock(clock).start()
}

/// Everything that the storm plays with.
struct Sea {
    database: TestDatabase,
    ships: Vec<Ship>,
    redis: Redis,
    /// What is to be healed, and when.
    wounds: Vec<(Instant, Fault)>,
    done: BTreeMap<&'static str, usize>,
}

impl Sea {
    async fn strike(&mut self, fault: Fault, chance: &mut Chance) {
        // One wound of a kind at a time: what is frozen cannot be frozen.
        if self.wounds.iter().any(|(_, open)| *open == fault) {
            return;
        }
        *self.done.entry(fault.kind()).or_default() += 1;
        let lasting = Duration::from_millis(200 + chance.below(LASTING));
        match fault {
            Fault::Kill(n) => {
                self.ships[n].process.kill();
                return self.relaunch(n, chance);
            }
            Fault::Terminate(n) => {
                self.ships[n].thaw();
                self.ships[n].process.signal(Signal::Terminate);
                self.ships[n].process.exit(PATIENCE).await;
                return self.relaunch(n, chance);
            }
            Fault::Freeze(n) => {
                self.ships[n].process.signal(Signal::Freeze);
                self.ships[n].frozen = true;
            }
            Fault::Cut(n) => self.ships[n].proxy.set(Weather::Cut),
            Fault::Stall(n) => self.ships[n].proxy.set(Weather::Stall),
            Fault::LoseAnswers(n) => self.ships[n].proxy.set(Weather::LoseAnswers(20)),
            Fault::RestartPostgres => return restart_postgres(),
            Fault::KillRedis => self.redis.kill(),
        }
        self.wounds.push((Instant::now() + lasting, fault));
    }

    fn relaunch(&mut self, n: usize, chance: &mut Chance) {
        let clock = CLOCKS[usize::try_from(chance.below(4)).expect("a number of a clock")];
        self.ships[n].frozen = false;
        self.ships[n].process = launch(&self.database, n, &self.ships[n].config, clock);
    }

    /// Heals what has lasted long enough, or everything.
    async fn heal(&mut self, everything: bool) {
        let now = Instant::now();
        let (over, open) =
            std::mem::take(&mut self.wounds).into_iter().partition(|(at, _)| everything || *at <= now);
        self.wounds = open;
        let over: Vec<(Instant, Fault)> = over;
        for (_, fault) in over {
            match fault {
                Fault::Freeze(n) => self.ships[n].thaw(),
                Fault::Cut(n) | Fault::Stall(n) | Fault::LoseAnswers(n) => {
                    self.ships[n].proxy.set(Weather::Pass);
                }
                Fault::KillRedis => self.redis.restart().await,
                Fault::Kill(_) | Fault::Terminate(_) | Fault::RestartPostgres => {}
            }
        }
    }
}

fn restart_postgres() {
    let program =
        variable("DIGESTD_TEST_POSTGRES_RESTART").expect("scripts/with-postgres says how to restart it");
    assert!(Command::new(program).status().expect("the program").success(), "PostgreSQL does not come back");
}

/// A relay that does every tenth thing wrongly.
fn moody(seed: u64) -> Script {
    let mut chance = Chance(seed);
    let slow = Duration::from_millis(3);
    Script::new().offer("PIPELINING").offer("SIZE 10485760").mood(move |at, _| {
        let (roll, kind) = (chance.below(100), chance.below(5));
        let answer = |line: &str| Some(vec![Act::reply(line)]);
        match (at, roll) {
            (At::Connect, 0..=2) => Some(vec![Act::Close]),
            (At::Greeting, 0..=2) => Some(vec![Act::reply("421 4.3.2 not now"), Act::Close]),
            (At::Mail, 0..=2) => answer("451 4.3.0 try again later"),
            (At::Rcpt, 0..=3) => answer("450 4.2.1 try again later"),
            (At::Rcpt, 4) => answer("550 5.1.1 no such user"),
            (At::Data, 0..=1) => Some(vec![Act::Reset]),
            (At::Dot, 0..=9) => Some(match kind {
                0 => vec![Act::reply("451 4.3.0 try again later")],
                1 => vec![Act::Accept, Act::Close],
                2 => vec![Act::Accept, Act::Hang],
                3 => vec![Act::Reset],
                _ => vec![Act::Delay(Duration::from_millis(1500)), Act::Normal],
            }),
            (At::Dot, _) => Some(vec![Act::Delay(slow), Act::Normal]),
            _ => None,
        }
    })
}

/// What came of the storm.
#[derive(Debug, Default)]
struct Outcome {
    orgs: usize,
    expected: usize,
    accepted: usize,
    twice: Vec<String>,
    strays: Vec<String>,
    /// In no state that has a name.
    lost: Vec<String>,
    /// Accepted by the ledger, but not by the relay.
    invented: Vec<String>,
    /// Held back as a duplicate of something that never left.
    unexplained: Vec<String>,
    states: BTreeMap<String, usize>,
}

impl Outcome {
    async fn look(world: &World, database: &TestDatabase, relay: &SmtpServer) -> Self {
        let mut outcome = Self { orgs: world.orgs, expected: world.expected.len(), ..Self::default() };
        let mut arrived: BTreeMap<String, usize> = BTreeMap::new();
        for message in relay.accepted() {
            *arrived.entry(message.to).or_default() += 1;
        }
        outcome.accepted = arrived.len();
        outcome.twice = arrived.iter().filter(|(_, n)| **n > 1).map(|(to, _)| to.clone()).collect();
        let wanted: BTreeSet<&String> = world.expected.iter().map(|(_, address)| address).collect();
        outcome.strays = arrived.keys().filter(|to| !wanted.contains(to)).cloned().collect();
        let rows = numbers(database, "SELECT address || ' ' || state, id FROM {}outbox").await;
        let ledger: BTreeMap<&str, &str> = rows.iter().filter_map(|(row, _)| row.split_once(' ')).collect();
        for (org, address) in &world.expected {
            let state = ledger.get(address.as_str()).copied().unwrap_or("absent");
            *outcome.states.entry(state.to_owned()).or_default() += 1;
            let named =
                ["accepted", "failed", "uncertain", "suppressed", "expired", "cancelled"].contains(&state);
            let was_sent = arrived.contains_key(address);
            if !named {
                outcome.lost.push(format!("{org} {address} {state}"));
            }
            if state == "accepted" && !was_sent {
                outcome.invented.push(address.clone());
            }
            if state == "suppressed" && !was_sent {
                outcome.unexplained.push(address.clone());
            }
        }
        outcome
    }

    fn assert_sound(&self) {
        let none: [(&str, &Vec<String>); 5] = [
            ("accepted twice", &self.twice),
            ("nobody asked for", &self.strays),
            ("lost", &self.lost),
            ("accepted in the ledger only", &self.invented),
            ("suppressed for no reason", &self.unexplained),
        ];
        for (what, found) in none {
            assert!(found.is_empty(), "{what}: {found:?}");
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "organisations  {}", self.orgs)?;
        writeln!(f, "admins         {}", self.expected)?;
        writeln!(f, "mails arrived  {}", self.accepted)?;
        writeln!(f, "duplicates     {}", self.twice.len())?;
        writeln!(f, "lost           {}", self.lost.len())?;
        write!(f, "ledger        ")?;
        self.states.iter().try_for_each(|(state, n)| write!(f, " {state} {n}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "restarts the server under every other test; scripts/chaos runs it alone"]
async fn nobody_gets_two_and_nobody_none_without_a_reason() {
    let minutes: u64 =
        variable("DIGESTD_CHAOS_MINUTES").map_or(1, |n| n.parse().expect("a number of minutes"));
    let seed = seed();
    let mut chance = Chance(seed);
    let database = TestDatabase::postgres().await;
    migrate(&database).await;
    let relay = SmtpServer::start(moody(seed)).await;
    let redis = Redis::start_durable().await;
    let guard =
        format!("[guard]\nbackend = \"redis\"\non_unavailable = \"open\"\nurl = \"{}\"\n", redis.url());
    let base = config(&database, &relay)
        .replace("interval = \"1s\"", "interval = \"1s\"\nresweep = \"1s\"")
        .replace("connections = 4", "connections = 4\nprobe_interval = \"1s\"")
        + &guard;
    let mut ships = Vec::new();
    for n in 0..REPLICAS {
        ships.push(Ship::launch(&database, &base, n, seed.wrapping_add(n as u64)).await);
    }
    let mut sea = Sea { database, ships, redis, wounds: Vec::new(), done: BTreeMap::new() };
    let mut world = World::fill(&sea.database, WAVE).await;
    let until = Instant::now() + Duration::from_mins(minutes);
    while Instant::now() < until {
        // The moment is what chance decides; no fact could stand for it.
        tokio::time::sleep(Duration::from_millis(chance.below(PAUSE))).await;
        sea.heal(false).await;
        let fault = Fault::draw(&mut chance);
        sea.strike(fault, &mut chance).await;
        world.grow(&sea.database, WAVE).await;
    }
    calm(&mut sea, &relay).await;
    let quiet_since = Instant::now();
    settle(&world, &sea.database).await;
    let faults: usize = sea.done.values().sum();
    let outcome = Outcome::look(&world, &sea.database, &relay).await;
    println!("{minutes} minutes, seed {seed}: {faults} faults {:?}", sea.done);
    println!("{outcome}\nsettled       {:.1} s after the last fault", quiet_since.elapsed().as_secs_f64());
    outcome.assert_sound();
    let uncertain = outcome.states.get("uncertain").copied().unwrap_or(0);
    let silences = relay.connections();
    assert!(uncertain <= CONNECTIONS * faults + silences, "{uncertain} uncertain after {faults} faults");
    counts_agree(&sea).await;
    for ship in &mut sea.ships {
        ship.process.signal(Signal::Terminate);
        assert!(ship.process.exit(PATIENCE).await.success(), "{}", ship.process.log());
    }
}

/// Ends all faults, and starts whoever is not there.
async fn calm(sea: &mut Sea, relay: &SmtpServer) {
    sea.heal(true).await;
    relay.rescript(Script::new().offer("PIPELINING"));
    for n in 0..REPLICAS {
        if sea.ships[n].process.ended().is_some() {
            sea.ships[n].process = launch(&sea.database, n, &sea.ships[n].config, "+0");
        }
    }
}

/// Waits until everything has ended. What waits for its next try is called up, as `digestd queue retry` does.
async fn settle(world: &World, database: &TestDatabase) {
    let started = Instant::now();
    eventually("everything is settled", BOUND * 2, async || {
        let call = "UPDATE digestd.outbox SET next_attempt_at = now() WHERE state = 'pending' AND next_attempt_at > now()";
        execute(database, call.to_owned()).await;
        let counts = Counts::read(database).await;
        let under_way: i64 = ["pending", "leased", "sending"].iter().map(|state| counts.messages(state)).sum();
        let sends: i64 = ["enqueued", "failed", "skipped", "missed"].iter().map(|state| counts.sends(state)).sum();
        let settled = under_way == 0 && sends == i64::try_from(world.orgs).expect("a count");
        if !settled && started.elapsed() > BOUND {
            let (claimed, unsent) = (numbers(database, CLAIMED).await, numbers(database, UNSENT).await);
            panic!("{} organisations, not settled: {counts:?}; claimed {claimed:?}; no send {unsent:?}", world.orgs);
        }
        settled.then_some(())
    })
    .await;
}

/// What the first replica's metrics say of the outbox is what the table holds.
async fn counts_agree(sea: &Sea) {
    eventually("the metrics agree with the table", PATIENCE, async || {
        let counts = Counts::read(&sea.database).await;
        let text = web::get(sea.ships[0].http, "/metrics").await.body;
        let gauge = |state: &str| {
            let name = format!("digestd_outbox_messages{{state=\"{state}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)).and_then(|n| n.trim().parse::<i64>().ok())
        };
        let states = ["pending", "leased", "sending", "uncertain"];
        states.iter().all(|state| gauge(state).unwrap_or(0) == counts.messages(state)).then_some(())
    })
    .await;
}
