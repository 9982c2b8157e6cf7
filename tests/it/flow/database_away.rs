//! PostgreSQL goes away in the middle of deliveries, in the ways that it can.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::backend::TestDatabase;
use crate::support::counters::{ended_messages, sum};
use crate::support::fleet::{PATIENCE, migrate, replica_with, stop};
use crate::support::process::{Process, Signal};
use crate::support::proxy::{Proxy, Weather};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};
use crate::support::world::World;
use crate::support::{eventually, seed, web};

const ORGS: usize = 60;

/// The server of a URL, and the URL with another server.
fn through(database: &TestDatabase, proxy: &Proxy) -> String {
    database.url.replace(&server(database), &proxy.addr().to_string())
}

fn server(database: &TestDatabase) -> String {
    let (_, rest) = database.url.split_once('@').expect("a login");
    rest.split_once('/').expect("a path").0.to_owned()
}

struct Away {
    database: TestDatabase,
    world: World,
    relay: SmtpServer,
    proxy: Proxy,
    replicas: Vec<Process>,
    /// Where the replicas' metrics are.
    http: Vec<SocketAddr>,
}

impl Away {
    /// Two replicas behind a proxy, in the middle of their deliveries.
    async fn begin() -> Self {
        let database = TestDatabase::postgres().await;
        migrate(&database).await;
        let world = World::fill(&database, ORGS).await;
        let slow = [Act::Delay(Duration::from_millis(20)), Act::Normal];
        let relay = SmtpServer::start(Script::new().offer("PIPELINING").always(At::Dot, slow)).await;
        let proxy = Proxy::start(&server(&database), seed()).await;
        let url = through(&database, &proxy);
        let http: Vec<_> = (0..2).map(|_| web::free_address()).collect();
        let replicas: Vec<_> = http
            .iter()
            .enumerate()
            .map(|(n, http)| {
                let changes =
                    [("DIGESTD__DATABASE__URL", url.as_str()), ("DIGESTD__HTTP__LISTEN", &http.to_string())];
                replica_with(&database, &relay, &format!("replica-{n}"), &changes)
            })
            .collect();
        relay.wait(PATIENCE, "deliveries", |relay| relay.accepted().len() >= 20).await;
        Self { database, world, relay, proxy, replicas, http }
    }

    /// The database has come back: everything is delivered once, and nothing had to become uncertain.
    async fn end(mut self) {
        self.proxy.set(Weather::Pass);
        for replica in &mut self.replicas {
            assert!(replica.ended().is_none(), "a process ended:\n{}", replica.log());
        }
        let counts = self.world.settled(&self.database, PATIENCE).await;
        assert_eq!(self.world.check(&counts, &self.relay), 0, "{counts:?}");
        assert_eq!(self.relay.accepted().len(), self.world.expected.len());
        let ends = ended_messages(&self.database).await;
        eventually("every end is counted, also those whose answer was lost", PATIENCE, async || {
            let mut scrapes = Vec::new();
            for http in &self.http {
                scrapes.push(web::get(*http, "/metrics").await.body);
            }
            (sum(&scrapes, "digestd_messages_settled_total") == ends).then_some(())
        })
        .await;
        stop(&mut self.replicas).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_cut_off_costs_nothing_but_time() {
    let mut away = Away::begin().await;
    away.proxy.set(Weather::Cut);
    for replica in &mut away.replicas {
        replica.logged("could not be", PATIENCE).await;
    }
    away.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stands_still_for_a_while_costs_nothing_but_time() {
    let away = Away::begin().await;
    away.proxy.set(Weather::Stall);
    // Under way when it stalled, answered by the relay since, and waiting to be recorded.
    let before = away.relay.accepted().len();
    let quiet = tokio::time::timeout(
        Duration::from_secs(3),
        away.relay.wait(PATIENCE, "more than was under way", |relay| relay.accepted().len() > before + 8),
    );
    assert!(quiet.await.is_err(), "no body leaves without a marker");
    away.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_lost_repeat_nothing_and_lose_nothing() {
    let away = Away::begin().await;
    away.proxy.set(Weather::LoseAnswers(12));
    let everything = away.world.expected.len();
    let lost = async || away.proxy.lost() >= 25 || away.relay.accepted().len() >= everything;
    eventually("many lost answers", PATIENCE, async || lost().await.then_some(())).await;
    assert!(away.proxy.lost() > 0);
    away.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_database_does_not_answer_still_stops_in_time() {
    let mut away = Away::begin().await;
    away.proxy.set(Weather::Stall);
    for replica in &away.replicas {
        replica.signal(Signal::Terminate);
    }
    for replica in &mut away.replicas {
        replica.logged("finishing what was begun", PATIENCE).await;
        replica.signal(Signal::Terminate);
        assert_eq!(replica.exit(Duration::from_secs(20)).await.code(), Some(0), "{}", replica.log());
    }
}

/// A storm found it: a replica that was told to stop while it waited for a pooler without a server behind it
/// went on waiting long after its grace, and ended as one that had found no database.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_still_waits_for_its_database_stops_when_told() {
    let database = TestDatabase::postgres().await;
    let relay = SmtpServer::start(Script::new()).await;
    for (name, weather) in [("cut", Weather::Cut), ("stalled", Weather::Stall)] {
        let proxy = Proxy::start(&server(&database), seed()).await;
        proxy.set(Weather::Cut);
        let url = through(&database, &proxy);
        let mut replica = replica_with(&database, &relay, name, &[("DIGESTD__DATABASE__URL", &url)]);
        replica.logged("the database is not ready yet", PATIENCE).await;
        proxy.set(weather);
        replica.signal(Signal::Terminate);
        assert_eq!(replica.exit(PATIENCE).await.code(), Some(0), "{}", replica.log());
        assert!(replica.log().contains("stopped before the start was complete"), "{}", replica.log());
    }
}
