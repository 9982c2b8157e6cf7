//! A replica inside the test: its steps, called one by one on the test's own clock.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{DateTime, Utc};
use digestd::app;
use digestd::config::Config;
use digestd::deliver::Deliver;
use digestd::domain::ids::ReplicaId;
use digestd::metrics::Metrics;
use digestd::progress::{Progress, Pulse};
use digestd::store::Store;
use digestd::tick::sweep::Scope;
use digestd::tick::{Tick, TickReport};
use tokio_util::sync::CancellationToken;

use super::backend::{Kind, TestDatabase};
use super::eventually;
use super::world::{self, Counts};

/// A replica that does only what it is told to, with mail going to a folder of the test's.
#[derive(Debug)]
pub struct Engine {
    /// Claims, gathers, renders, enqueues.
    pub tick: Tick,
    deliver: Deliver,
    pulse: Pulse,
    stop: CancellationToken,
}

impl Engine {
    /// A new replica with the default schedule: Monday 08:00 in Berlin.
    pub async fn new(database: &TestDatabase, store: &Store) -> Self {
        Self::with(database, store, "").await
    }

    /// A new replica whose configuration has these lines too.
    pub async fn with(database: &TestDatabase, store: &Store, lines: &str) -> Self {
        let mail = database.folder().join("mail");
        let text = format!(
            "public_url = \"http://127.0.0.1:9/\"\n\
             {lines}\n\
             [relay]\n\
             url = \"file:{}\"\n\
             from = \"Digest <digest@example.com>\"\n\
             [schedule]\n\
             timezone = \"Europe/Berlin\"\n\
             first_start = \"catch_up\"\n",
            mail.display()
        );
        let config = Config::parse(&text, []).expect("a configuration of ours");
        let (replica, metrics) = (ReplicaId::random(), Metrics::new());
        let source = app::source_of(&config, store).expect("the built-in directory");
        let keys = app::key_ring(&config, store).await.expect("the installation's key");
        let tick =
            app::tick_of(&config, store, source.clone(), keys, replica, &metrics).await.expect("a tick");
        // The journal's task ends with its last handle, which is inside `deliver`.
        let (deliver, _) = app::deliver_of(&config, store, source, replica, &metrics).expect("a delivery");
        let pulse = Progress::new().watch("test", Duration::from_mins(1));
        Self { tick, deliver, pulse, stop: CancellationToken::new() }
    }

    /// One look at every candidate.
    pub async fn sweep(&self) -> TickReport {
        self.tick.sweep(Scope::Everything, &self.pulse, &self.stop).await.expect("a sweep")
    }

    /// One tick as most are: a look at open slots only.
    pub async fn look(&self) -> TickReport {
        self.tick.sweep(Scope::OpenSlots, &self.pulse, &self.stop).await.expect("a tick")
    }

    /// Takes over what has expired.
    pub async fn rescue(&self) -> TickReport {
        self.tick.rescue(&self.pulse, &self.stop).await.expect("a rescue")
    }

    /// Delivers until nothing is due, and waits until every result is recorded.
    pub async fn deliver(&self, database: &TestDatabase) {
        let mut connection = None;
        loop {
            let leased = self.deliver.lease(16).await.expect("a lease");
            if leased.is_empty() {
                break;
            }
            for message in leased {
                self.deliver.deliver_one(&mut connection, message).await;
            }
        }
        eventually("no message under way", Duration::from_secs(20), async || {
            let counts = Counts::read(database).await;
            (counts.messages("leased") + counts.messages("sending") == 0).then_some(())
        })
        .await;
    }
}

/// The mails in the folder, whole.
pub fn mails(database: &TestDatabase) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(database.folder().join("mail")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "eml"))
        .map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("a mail")).into_owned())
        .collect()
}

/// Rows for the built-in directory, written in one go, past every check that `import` makes.
#[derive(Debug)]
pub struct Rows {
    kind: Kind,
    script: String,
}

impl Rows {
    /// None yet.
    pub fn new(database: &TestDatabase) -> Self {
        Self { kind: database.kind, script: String::new() }
    }

    fn table(&self, name: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("digestd.{name}"),
            Kind::Sqlite => name.to_owned(),
        }
    }

    /// A time as a literal.
    pub fn time(&self, at: DateTime<Utc>) -> String {
        match self.kind {
            Kind::Postgres => format!("'{}'", at.to_rfc3339()),
            Kind::Sqlite => at.timestamp_millis().to_string(),
        }
    }

    /// An org.
    pub fn org(&mut self, id: &str, name: &str, timezone: &str) -> &mut Self {
        let table = self.table("orgs");
        let (id, name, timezone) = (literal(id), literal(name), literal(timezone));
        let _ = writeln!(
            self.script,
            "INSERT INTO {table} (id, name, timezone) VALUES ({id}, {name}, {timezone});"
        );
        self
    }

    /// An opted-in admin.
    pub fn admin(&mut self, id: &str, org: &str, email: &str) -> &mut Self {
        let table = self.table("admins");
        let (id, org, email) = (literal(id), literal(org), literal(email));
        let _ =
            writeln!(self.script, "INSERT INTO {table} (id, org_id, email) VALUES ({id}, {org}, {email});");
        self
    }

    /// Something that happened.
    pub fn activity(&mut self, id: &str, org: &str, title: &str, at: DateTime<Utc>) -> &mut Self {
        let (table, at) = (self.table("activity"), self.time(at));
        let (id, org, title) = (literal(id), literal(org), literal(title));
        let _ = writeln!(
            self.script,
            "INSERT INTO {table} (id, org_id, kind, title, occurred_at) VALUES ({id}, {org}, 'commit', {title}, {at});"
        );
        self
    }

    /// An org with one admin, to whom something happened.
    pub fn simple(&mut self, org: &str, at: DateTime<Utc>) -> &mut Self {
        self.org(org, org, "Europe/Berlin")
            .admin(&format!("{org}-a"), org, &format!("a@{org}.example"))
            .activity(&format!("{org}-1"), org, "A change", at)
    }

    /// Any statement; `{}` before a table's name stands for the schema.
    pub fn statement(&mut self, text: &str) -> &mut Self {
        let schema = if self.kind == Kind::Postgres { "digestd." } else { "" };
        let _ = writeln!(self.script, "{};", text.replace("{}", schema));
        self
    }

    /// Writes them all.
    pub async fn write(&mut self, database: &TestDatabase) {
        world::execute(database, std::mem::take(&mut self.script)).await;
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
