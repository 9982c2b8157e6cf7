//! Real `digestd run` processes on one database and one relay.

use std::time::Duration;

use super::backend::{Kind, TestDatabase};
use super::process::{Launch, Process, Signal};
use super::smtp_server::{Script, SmtpServer};

/// A relay that offers what most relays offer.
pub async fn relay() -> SmtpServer {
    SmtpServer::start(Script::new().offer("PIPELINING").offer("SIZE 10485760").offer("8BITMIME")).await
}

/// The configuration of a test replica: short leases, a quick tick, and no waiting for next week.
pub fn config(database: &TestDatabase, relay: &SmtpServer) -> String {
    config_to(database, &format!("smtp+plaintext://127.0.0.1:{}", relay.port()))
}

/// The same towards any relay.
pub fn config_to(database: &TestDatabase, relay: &str) -> String {
    let pool = match database.kind {
        Kind::Postgres => "pool = 6",
        Kind::Sqlite => "",
    };
    format!(
        r#"
public_url = "http://127.0.0.1:9/"

[http]
listen = "127.0.0.1:0"

[database]
url = "{url}"
{pool}

[relay]
url = "{relay}"
from = "Digest <digest@example.com>"
connections = 4

[relay.timeouts]
connect = "500ms"
tls = "200ms"
greeting = "1s"
login = "1s"
envelope = "1s"
body = "1s"
reply = "2s"

[schedule]
first_start = "catch_up"

[tick]
interval = "1s"

[claim]
lease = "3s"
batch = 20

[delivery]
lease = "6s"
poll = "100ms"
"#,
        url = database.url,
    )
}

/// Starts a replica; `fault` names the point at which it dies.
pub fn replica(database: &TestDatabase, relay: &SmtpServer, name: &str, fault: Option<&str>) -> Process {
    let changes: Vec<_> = fault.map(|point| ("DIGESTD_FAULT", point)).into_iter().collect();
    replica_with(database, relay, name, &changes)
}

/// Starts a replica with some variables of its environment set, such as `DIGESTD__RELAY__CONNECTIONS`.
pub fn replica_with(
    database: &TestDatabase,
    relay: &SmtpServer,
    name: &str,
    changes: &[(&str, &str)],
) -> Process {
    let launch = Launch::new(database.folder(), name, &["run"]).config(&config(database, relay));
    changes.iter().fold(launch, |launch, (name, value)| launch.env(name, value)).start()
}

/// Ends replicas politely; each must have ended well.
pub async fn stop(replicas: &mut [Process]) {
    for replica in replicas.iter() {
        replica.signal(Signal::Terminate);
    }
    for replica in replicas.iter_mut() {
        assert!(replica.exit(PATIENCE).await.success(), "{}", replica.log());
    }
}

/// Brings the schema up to date without a process.
pub async fn migrate(database: &TestDatabase) {
    let store = super::fixtures::open(database, digestd::clock::Clock::Database);
    store.migrate(digestd::store::migrate::MigrateMode::Auto).await.expect("a fresh schema");
    store.close().await;
}

/// The longest a fleet may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(2);
