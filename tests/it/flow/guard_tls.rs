//! A guard whose Redis speaks TLS only.

use crate::support::backend::TestDatabase;
use crate::support::certs::{Certs, Flaw};
use crate::support::fleet::{PATIENCE, config, migrate, relay};
use crate::support::process::{Launch, Signal};
use crate::support::redis::Redis;
use crate::support::smtp_server::SmtpServer;
use crate::support::world::World;

/// A command that knows one authority more than none.
fn launch(
    database: &TestDatabase,
    relay: &SmtpServer,
    redis: &Redis,
    certs: &Certs,
    command: &str,
) -> Launch {
    let ca = database.folder().join("redis-ca.pem");
    std::fs::write(&ca, &certs.ca).expect("a certificate");
    let guard =
        format!("[guard]\nbackend = \"redis\"\non_unavailable = \"closed\"\nurl = \"{}\"\n", redis.url());
    let text = config(database, relay) + &guard;
    Launch::new(database.folder(), command, &[command])
        .config(&text)
        .env("SSL_CERT_FILE", &ca.display().to_string())
}

both_databases! {
    async fn fingerprints_are_kept_by_a_redis_behind_tls(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 10).await;
        let certs = Certs::new(Flaw::None);
        let (relay, redis) = (relay().await, Redis::start_tls(certs.clone()).await);
        let mut replica = launch(&database, &relay, &redis, &certs, "run").start();
        let counts = world.settled(&database, PATIENCE).await;
        assert_eq!(world.check(&counts, &relay), 0);
        let kept: usize = redis::cmd("DBSIZE").query(&mut redis.connection()).expect("a count");
        assert_eq!(kept, world.expected.len(), "one fingerprint for each message");
        let mut check = launch(&database, &relay, &redis, &certs, "check").start();
        assert!(check.exit(PATIENCE).await.success(), "{}", check.output());
        assert!(check.output().contains("ok      guard      Redis answers"), "{}", check.output());
        replica.signal(Signal::Terminate);
        assert!(replica.exit(PATIENCE).await.success());
    }
}

#[tokio::test]
async fn a_redis_whose_certificate_is_not_trusted_is_not_spoken_to() {
    let database = TestDatabase::sqlite();
    migrate(&database).await;
    for flaw in [Flaw::Untrusted, Flaw::Expired, Flaw::OtherHost] {
        let certs = Certs::new(flaw);
        let redis = Redis::start_tls(certs.clone()).await;
        let relay = relay().await;
        let mut check = launch(&database, &relay, &redis, &certs, "check").start();
        assert_eq!(check.exit(PATIENCE).await.code(), Some(1), "{flaw:?}: {}", check.output());
        assert!(check.output().contains("failed  guard"), "{flaw:?}: {}", check.output());
    }
}
