//! The configuration in types. What each field means for an operator stands in [`super::keys`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use secrecy::SecretString;

use super::relay_url::RelayUrl;
use super::text::{Mailbox, Pace};
use super::url::DatabaseUrl;
use super::words::{
    Empty, FirstStart, LogFormat, Migrate, OnError, OnUnavailable, OnUncertain, Provider, SectionKind,
};
use crate::domain::address::Address;
use crate::domain::schedule::{PeriodKind, WeeklySchedule};
use crate::render::{Accent, SafeUrl};

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where our own tables are.
    pub database: Database,
    /// The SMTP server, or a folder.
    pub relay: Relay,
    /// When digests go out.
    pub schedule: Schedule,
    /// What a digest is about.
    pub digest: Digest,
    /// How often each replica looks.
    pub tick: Tick,
    /// How orgs are claimed.
    pub claim: ClaimSettings,
    /// How messages are handed over.
    pub delivery: Delivery,
    /// The check across all sends; `None` when it is off.
    pub guard: Option<Guard>,
    /// When failing addresses are left out.
    pub suppression: Suppression,
    /// The operator's database; `None` for the built-in directory.
    pub source: Option<Source>,
    /// The digest's parts, in the order of the mail; empty for the built-in ones.
    pub sections: Vec<SectionQuery>,
    /// The folder of the operator's own templates.
    pub templates_dir: Option<PathBuf>,
    /// How a digest looks.
    pub brand: Brand,
    /// Fixed headers of every mail, in the order of their names.
    pub headers: Vec<(String, String)>,
    /// Where HTTP listens.
    pub listen: SocketAddr,
    /// Where recipients reach it, without a trailing slash.
    pub public_url: String,
    /// Keys of unsubscribe links; the first signs. Empty: one kept in the database.
    pub unsubscribe_keys: Vec<SecretString>,
    /// Where opt-outs are also written to.
    pub opt_out: OptOut,
    /// What opens the admin pages; `None` when they are off.
    pub admin_token: Option<SecretString>,
    /// How long finished rows are kept.
    pub retention: Retention,
    /// How long a stopping replica may take.
    pub shutdown_grace: Duration,
    /// How logs are written.
    pub log: Log,
}

/// Where our own tables are.
#[derive(Debug, Clone)]
pub struct Database {
    /// Which database.
    pub url: DatabaseUrl,
    /// The PostgreSQL schema.
    pub schema: String,
    /// Connections at most.
    pub pool: u32,
    /// What to do about the schema at start.
    pub migrate: Migrate,
    /// How long a start waits.
    pub start_timeout: Duration,
    /// Whether PgBouncer is between.
    pub pgbouncer: bool,
}

/// The SMTP server, or a folder.
#[derive(Debug, Clone)]
pub struct Relay {
    /// Where mails go.
    pub url: RelayUrl,
    /// User and password; over `file:` unused.
    pub login: Option<Login>,
    /// The sender that recipients see.
    pub from: Mailbox,
    /// MAIL FROM.
    pub envelope_from: Address,
    /// Whose reply codes to expect.
    pub provider: Provider,
    /// Connections of this replica at most.
    pub connections: u32,
    /// Connections of all replicas at most.
    pub connections_total: Option<u32>,
    /// Messages per time, all replicas together.
    pub pace: Option<Pace>,
    /// Messages in 24 hours, all replicas together.
    pub daily_quota: Option<u32>,
    /// How often a relay that is down is tried.
    pub probe_interval: TimeDelta,
    /// The name in EHLO.
    pub helo: Option<String>,
    /// Certificates to trust besides the system's.
    pub tls_ca_file: Option<PathBuf>,
    /// Certificate and key to show, both PEM files.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// Deadlines of the dialogue.
    pub timeouts: Timeouts,
    /// When a connection is replaced.
    pub reuse: Reuse,
}

/// User and password at the relay.
#[derive(Debug, Clone)]
pub struct Login {
    /// The user.
    pub username: String,
    /// The password.
    pub password: SecretString,
}

/// Deadlines of the SMTP dialogue, each for one read or write of its phase.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Name lookup and TCP.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The relay's first line.
    pub greeting: Duration,
    /// EHLO, STARTTLS and AUTH.
    pub login: Duration,
    /// MAIL, RCPT and DATA.
    pub envelope: Duration,
    /// The body, without progress.
    pub body: Duration,
    /// The reply after the final dot.
    pub reply: Duration,
}

impl Timeouts {
    /// The longest time from taking up a message to its body, if every phase uses its deadline.
    pub fn until_body(&self) -> Duration {
        self.connect + self.tls + self.greeting + self.login + self.envelope
    }
}

/// When a connection to the relay is replaced.
#[derive(Debug, Clone, Copy)]
pub struct Reuse {
    /// Messages over one connection.
    pub messages: u32,
    /// Age.
    pub age: Duration,
    /// Idle time.
    pub idle: Duration,
}

/// When digests go out.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// For orgs that have none of their own.
    pub default: WeeklySchedule,
    /// How long after its slot a digest may still be made.
    pub catch_up: TimeDelta,
    /// What a new installation does about slots before it.
    pub first_start: FirstStart,
    /// When unsettled orgs raise the alarm.
    pub late_alarm: TimeDelta,
}

/// What a digest is about.
#[derive(Debug, Clone)]
pub struct Digest {
    /// Which days.
    pub period: PeriodKind,
    /// What to do for an empty week.
    pub empty: Empty,
    /// The language of recipients that have none.
    pub locale: String,
}

/// How often each replica looks.
#[derive(Debug, Clone, Copy)]
pub struct Tick {
    /// Time between two looks.
    pub interval: Duration,
    /// Time between two reads of an open slot.
    pub resweep: TimeDelta,
}

/// How orgs are claimed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimSettings {
    /// How long a claim holds.
    pub lease: TimeDelta,
    /// Orgs claimed together.
    pub batch: u32,
    /// Attempts before a send is failed.
    pub max_attempts: u32,
}

/// How messages are handed over.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// How long a message is held before the hand-over begins.
    pub lease: TimeDelta,
    /// Time between two looks of an idle replica.
    pub poll: Duration,
    /// When a message expires.
    pub max_age: TimeDelta,
    /// Attempts charged to a message at most.
    pub max_attempts: u32,
    /// The waits between attempts; never empty, the last repeats.
    pub retry: Vec<TimeDelta>,
    /// What becomes of an uncertain message.
    pub on_uncertain: OnUncertain,
    /// The only address that gets mail, in staging.
    pub redirect_to: Option<Address>,
}

/// The check across all sends.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Where fingerprints are kept.
    pub store: GuardStore,
    /// How long.
    pub ttl: TimeDelta,
    /// What to do when it cannot be asked.
    pub on_unavailable: OnUnavailable,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// Where fingerprints are kept.
#[derive(Debug, Clone)]
pub enum GuardStore {
    /// In our own database.
    Sql,
    /// In Redis.
    Redis {
        /// Where it is.
        url: SecretString,
        /// What its keys begin with.
        prefix: String,
    },
}

/// When failing addresses are left out.
#[derive(Debug, Clone)]
pub struct Suppression {
    /// Permanent failures.
    pub hard_after: u32,
    /// Other failures in a row.
    pub soft_after: u32,
    /// How long those count.
    pub soft_decay: TimeDelta,
    /// The endpoint's bearer token; `None` when it is off.
    pub token: Option<SecretString>,
}

/// The operator's database.
#[derive(Debug, Clone)]
pub struct Source {
    /// Where it is.
    pub url: DatabaseUrl,
    /// Who gets a digest.
    pub recipients: String,
    /// Connections at most.
    pub pool: u32,
    /// How long the recipients query may run.
    pub statement_timeout: Duration,
}

/// One `[[section]]`.
#[derive(Debug, Clone)]
pub struct SectionQuery {
    /// Unique.
    pub name: String,
    /// The heading.
    pub title: String,
    /// The query.
    pub sql: String,
    /// What its rows are.
    pub kind: SectionKind,
    /// Rows shown.
    pub limit: u32,
    /// Whether rows reach only the admin they name.
    pub personal: bool,
    /// How long the query may run.
    pub timeout: Duration,
    /// What to do when it fails.
    pub on_error: OnError,
}

/// How a digest looks.
#[derive(Debug, Clone)]
pub struct Brand {
    /// The product's name.
    pub product: String,
    /// The colour of bars, links and buttons.
    pub accent: Accent,
    /// An image.
    pub logo_url: Option<SafeUrl>,
    /// A postal address; may have several lines.
    pub address: Option<String>,
    /// Where replies go.
    pub reply_to: Option<Mailbox>,
}

/// What an opt-out does in the application.
#[derive(Debug, Clone)]
pub struct OptOut {
    /// The database and the statement that writes it.
    pub write_back: Option<(DatabaseUrl, String)>,
    /// A page of the application's own.
    pub page_url: Option<String>,
}

/// How long finished rows are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Message bodies.
    pub bodies: TimeDelta,
    /// Attempts.
    pub attempts: TimeDelta,
    /// Sends and messages.
    pub sends: TimeDelta,
    /// Replicas that are gone.
    pub replicas: TimeDelta,
}

/// How logs are written.
#[derive(Debug, Clone)]
pub struct Log {
    /// For whom.
    pub format: LogFormat,
    /// Levels, as `RUST_LOG` has them.
    pub filter: String,
}
