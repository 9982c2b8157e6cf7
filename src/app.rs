//! The composition root: configuration in, running parts out.

mod boot;
mod house;
mod source;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::cleanup;
use crate::cleanup::election::Election;
use crate::clock::Clock;
use crate::config::{
    Config, DatabaseUrl, Empty, FirstStart, GuardStore, Migrate, OnUnavailable, OnUncertain,
    Provider as ProviderWord, Relay, RelayUrl, Security, SmtpUrl,
};
use crate::deliver::gate::{Gate, GateSettings};
use crate::deliver::journal::Journal;
use crate::deliver::providers::{Overrides, Provider};
use crate::deliver::{self, Deliver};
use crate::domain::due::DueRules;
use crate::domain::ids::ReplicaId;
use crate::domain::retry::{RetryPolicy, RetryPolicyError};
use crate::domain::token::{KeyRing, KeyRingError};
#[cfg(feature = "redis")]
use crate::guard::redis::RedisMemory;
use crate::guard::{Guard, GuardTerms, Memory, Watch};
use crate::heartbeat;
use crate::http;
use crate::lifecycle::{self, Parts, Shutdown};
use crate::mail::compose::Sender;
use crate::mail::folder::MailFolder;
use crate::mail::transport::{
    ClientIdentity, SettingsError, SmtpRelay, SmtpSettings, Timeouts, TlsMode, Transport,
};
use crate::metrics::Metrics;
use crate::render::{Brand, Http, SafeUrl, TemplateError, Templates};
use crate::source::{Source, SourceError};
use crate::store::connect::Target;
use crate::store::migrate::{MigrateMode, MigrateReport};
use crate::store::outbox::LeaseTerms;
use crate::store::relays::PaceLimits;
use crate::store::replicas::Heartbeat;
use crate::store::sends::ClaimTerms;
use crate::store::{ConnectOptions, ErrorClass, Store, StoreError};
use crate::tick::drafts::Drafter;
use crate::tick::{self, Limits, Rhythm, Tick};

use boot::Booted;
pub use house::{cleanup_of, due_rules, ledger_of};
pub use source::{source_of, write_back_of};

/// A claimed send is tried for this long past its window, then failed.
const GIVE_UP: TimeDelta = TimeDelta::days(1);
/// The wait after an org's first failed attempt.
const RETRY_DELAY: TimeDelta = TimeDelta::minutes(1);
/// How long the gathering of one batch may take.
const GATHER_TIMEOUT: Duration = Duration::from_mins(2);
/// How long the connections to the database may take to close at the end.
const CLOSE: Duration = Duration::from_secs(2);
/// Between two tries to reach the database at the start, at first and at most.
const START_RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Why the parts could not be put together or started.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The state database.
    #[error("the state database cannot be used")]
    Store(#[from] StoreError),
    /// The database stayed away for the whole of `database.start_timeout`.
    #[error("the database could not be reached within {0:?}")]
    Unavailable(Duration, #[source] StoreError),
    /// The source.
    #[error("the source cannot be used")]
    Source(#[from] SourceError),
    /// The templates.
    #[error("the templates cannot be used")]
    Templates(#[from] TemplateError),
    /// The pages' own address.
    #[error("public_url is not a link that may stand in a mail")]
    PublicUrl,
    /// The relay.
    #[error("the relay's settings cannot be used")]
    Relay(#[from] SettingsError),
    /// The unsubscribe keys.
    #[error("the keys for unsubscribe links cannot be used")]
    Keys(#[from] KeyRingError),
    /// The guard's Redis.
    #[cfg(feature = "redis")]
    #[error("the guard's Redis cannot be used")]
    Redis(#[from] redis::RedisError),
    /// The guard's Redis, in a build without it.
    #[cfg(not(feature = "redis"))]
    #[error("this build has no Redis support")]
    NoRedis,
    /// The retry ladder.
    #[error("delivery.retry")]
    Retry(#[from] RetryPolicyError),
    /// A file named by the configuration.
    #[error("reading {0}")]
    File(String, #[source] std::io::Error),
    /// A part of the replica has panicked.
    #[error("{0} has panicked")]
    Panicked(&'static str),
    /// The port for HTTP.
    #[error("listening on {0}")]
    Listen(std::net::SocketAddr, #[source] std::io::Error),
}

/// Runs a replica until it is told to stop, or a part of it panics. True: everything ended in time.
pub async fn run(config: &Config, clock: Clock, shutdown: &Shutdown) -> Result<bool, AppError> {
    let replica = ReplicaId::random();
    let store = open_store(config, clock)?;
    // Nothing is begun yet that would have to be finished; a migration under way is rolled back as a whole.
    let booted = shutdown.soft.run_until_cancelled(Booted::boot(config, &store, replica)).await;
    let Some(Booted { source, tick, deliver, journal, cleanup, listener, http, metrics, progress }) =
        booted.transpose()?
    else {
        tracing::info!("stopped before the start was complete");
        return Ok(true);
    };

    tracing::info!(
        replica.id = %replica, http.listen = %config.listen, relay = %config.relay.url,
        version = env!("CARGO_PKG_VERSION"), "digestd is running"
    );
    let (tick, deliver) = (Arc::new(tick), Arc::new(deliver));
    let parts = Parts::new(shutdown);
    let beat = Heartbeat {
        replica,
        host: host_name(),
        version: env!("CARGO_PKG_VERSION"),
        clock_offset: TimeDelta::zero(),
        connections: config.relay.connections,
    };
    let pulse = progress.watch("heartbeat", heartbeat::EVERY * 8);
    // The others take over its connections at its goodbye, so it says it when the last is closed.
    let delivered = CancellationToken::new();
    parts.spawn("the heartbeat", heartbeat::run(store.clone(), beat, metrics, pulse, delivered.clone()));
    let rhythm = tick_rhythm(config, replica);
    parts.spawn("the tick", tick::run(tick, rhythm, progress.clone(), shutdown.soft.clone()));
    let election = Election::new(store.clone(), replica);
    let housekeeping = cleanup::run(cleanup, election, progress.clone(), shutdown.soft.clone());
    parts.spawn("housekeeping", housekeeping);
    let (soft, hard) = (shutdown.soft.clone(), shutdown.hard.clone());
    parts.spawn("the delivery", async move {
        let _goodbye = delivered.drop_guard();
        deliver::run(deliver, progress, soft, hard).await;
    });
    parts.watch("the journal", journal);
    let stop = shutdown.soft.clone();
    parts.spawn("the HTTP server", async move {
        if let Err(error) = http::serve(listener, http, stop).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the HTTP server has ended");
        }
    });
    shutdown.soft.cancelled().await;
    let ended = lifecycle::finish(parts.tracker(), shutdown).await;
    // A database that does not answer must not hold the process up.
    let _ = tokio::time::timeout(CLOSE, async { tokio::join!(store.close(), source.close()) }).await;
    tracing::info!(complete = ended, "digestd has stopped");
    match parts.panicked() {
        Some(part) => Err(AppError::Panicked(part)),
        None => Ok(ended),
    }
}

/// Opens the state database without waiting for it.
pub fn open_store(config: &Config, clock: Clock) -> Result<Store, AppError> {
    let target = match &config.database.url {
        DatabaseUrl::Postgres(url) => Target::Postgres(url.clone()),
        DatabaseUrl::Sqlite(path) => Target::Sqlite(path.clone()),
    };
    Ok(Store::open(&ConnectOptions {
        target,
        pool: config.database.pool,
        schema: config.database.schema.clone(),
        pgbouncer: config.database.pgbouncer,
        clock,
    })?)
}

/// Waits for the database, for as long as the configuration allows, and brings the schema up to date.
pub async fn await_database(store: &Store, config: &Config) -> Result<MigrateReport, AppError> {
    let mode = match config.database.migrate {
        Migrate::Auto => MigrateMode::Auto,
        Migrate::Check => MigrateMode::Check,
    };
    let limit = config.database.start_timeout;
    let started = Instant::now();
    let mut wait = START_RETRY.0;
    loop {
        let ready = match store.try_connect().await {
            Ok(()) => store.migrate(mode).await,
            Err(error) => Err(error),
        };
        match ready {
            Ok(report) => return Ok(report),
            Err(error) if error.class() == ErrorClass::Permanent => return Err(error.into()),
            Err(error) if started.elapsed() + wait >= limit => {
                return Err(AppError::Unavailable(limit, error));
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the database is not ready yet");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(START_RETRY.1);
            }
        }
    }
}

/// The configured keys, and after them the installation's own key: links that were signed before keys
/// were configured go on working.
pub async fn key_ring(config: &Config, store: &Store) -> Result<KeyRing, AppError> {
    let mut keys = config.unsubscribe_keys.clone();
    keys.push(store.unsubscribe_key().await?);
    Ok(KeyRing::new(&keys)?)
}

/// What turns data into messages.
pub fn drafter_of(config: &Config, keys: KeyRing) -> Result<Drafter, AppError> {
    let brand = &config.brand;
    let public_url = SafeUrl::parse(&config.public_url, Http::Allowed).map_err(|_| AppError::PublicUrl)?;
    Ok(Drafter {
        templates: Templates::load(config.templates_dir.as_deref())?.with_language(&config.digest.locale),
        brand: Brand {
            product: brand.product.clone(),
            accent: brand.accent.clone(),
            logo_url: brand.logo_url.clone(),
            postal_address: brand.address.clone(),
            public_url: Some(public_url),
        },
        sender: Sender {
            from_name: config.relay.from.name.clone().unwrap_or_else(|| brand.product.clone()),
            from: config.relay.from.address.clone(),
            reply_to: brand.reply_to.as_ref().map(|mailbox| mailbox.address.clone()),
            list_id_domain: config.relay.from.address.domain().to_owned(),
            headers: config.headers.clone(),
            redirect_to: config.delivery.redirect_to.clone(),
        },
        public_url: config.public_url.clone(),
        settings_url: config.opt_out.page_url.clone(),
        keys,
    })
}

/// What a tick needs.
pub async fn tick_of(
    config: &Config,
    store: &Store,
    source: Source,
    keys: KeyRing,
    replica: ReplicaId,
    metrics: &Metrics,
) -> Result<Tick, AppError> {
    let not_before = match config.schedule.first_start {
        FirstStart::Wait => Some(store.installed_at().await?),
        FirstStart::CatchUp => None,
    };
    Ok(Tick {
        store: store.clone(),
        source,
        drafter: Arc::new(drafter_of(config, keys)?),
        terms: ClaimTerms {
            replica,
            lease: config.claim.lease,
            catch_up: config.schedule.catch_up,
            give_up: GIVE_UP,
        },
        rules: DueRules { catch_up: config.schedule.catch_up, not_before, period: config.digest.period },
        fallback: config.schedule.default.clone(),
        limits: Limits {
            claim_batch: config.claim.batch,
            max_attempts: config.claim.max_attempts,
            retry_delay: RETRY_DELAY,
            gather_timeout: GATHER_TIMEOUT,
            max_age: config.delivery.max_age,
            send_empty: config.digest.empty == Empty::Send,
        },
        metrics: metrics.clone(),
        gathering: tokio::sync::Mutex::default(),
    })
}

fn tick_rhythm(config: &Config, replica: ReplicaId) -> Rhythm {
    Rhythm {
        interval: config.tick.interval,
        resweep: config.tick.resweep.to_std().unwrap_or(Duration::from_mins(15)),
        jitter: replica.0.as_u64_pair().0 ^ replica.0.as_u64_pair().1,
    }
}

/// What delivery needs, and the task of its journal.
pub fn deliver_of(
    config: &Config,
    store: &Store,
    source: Source,
    replica: ReplicaId,
    metrics: &Metrics,
) -> Result<(Deliver, tokio::task::JoinHandle<()>), AppError> {
    let transport = transport_of(&config.relay)?;
    let lease = config.delivery.lease.to_std().unwrap_or(Duration::from_mins(5));
    // The body begins within one lease of the marker, and ends within the hand-over's limit.
    let hand_over = transport.hand_over_limit() + lease;
    let (journal, task) = Journal::start(store.clone(), replica, hand_over, metrics.clone());
    let delivery = &config.delivery;
    let gate = Gate::new(store.clone(), gate_settings(&config.relay, replica), metrics.clone());
    let deliver = Deliver {
        store: store.clone(),
        source,
        transport,
        from: config.relay.envelope_from.clone(),
        guard: guard_of(config, store, metrics)?,
        gate,
        journal,
        terms: LeaseTerms { replica, lease, max_attempts: delivery.max_attempts },
        policy: RetryPolicy::new(delivery.retry.clone(), delivery.max_attempts, delivery.max_age)?,
        suppression: delivery.redirect_to.is_none().then_some(house::suppression_terms(config)),
        resend_uncertain: delivery.on_uncertain == OnUncertain::Resend,
        overrides: overrides_of(&config.relay),
        connections: config.relay.connections as usize,
        poll: delivery.poll,
        metrics: metrics.clone(),
    };
    Ok((deliver, task))
}

/// The check across sends and installations, if one is configured.
pub fn guard_of(config: &Config, store: &Store, metrics: &Metrics) -> Result<Guard, AppError> {
    let Some(guard) = &config.guard else { return Ok(Guard::Off) };
    let memory = match &guard.store {
        GuardStore::Sql => Memory::Sql,
        #[cfg(feature = "redis")]
        GuardStore::Redis { url, prefix } => {
            Memory::Redis(Box::new(RedisMemory::new(url, prefix, guard.timeout)?))
        }
        // The configuration's own check refuses it first.
        #[cfg(not(feature = "redis"))]
        GuardStore::Redis { .. } => return Err(AppError::NoRedis),
    };
    let terms = GuardTerms {
        ttl: guard.ttl.to_std().unwrap_or_default(),
        timeout: guard.timeout,
        open: guard.on_unavailable == OnUnavailable::Open,
    };
    Ok(Guard::On(Arc::new(Watch { memory, store: store.clone(), terms, metrics: metrics.clone() })))
}

/// Asks the guard's Redis whether it is there. A guard in our own database has nothing to be asked.
#[cfg(feature = "redis")]
pub async fn ask_guard(config: &Config) -> Result<(), AppError> {
    if let Some(guard) = &config.guard
        && let GuardStore::Redis { url, prefix } = &guard.store
    {
        RedisMemory::new(url, prefix, guard.timeout)?.ping().await?;
    }
    Ok(())
}

/// A build without Redis has nothing to ask.
#[cfg(not(feature = "redis"))]
#[expect(clippy::unused_async, reason = "whoever asks need not know which build this is")]
pub async fn ask_guard(_config: &Config) -> Result<(), AppError> {
    Ok(())
}

/// What the gate before a relay is made from.
pub fn gate_settings(relay: &Relay, replica: ReplicaId) -> GateSettings {
    GateSettings {
        relay: relay_name(relay),
        replica,
        connections: relay.connections as usize,
        connections_total: relay.connections_total.map(|total| total as usize),
        pace: PaceLimits {
            per_second: relay.pace.map(crate::config::Pace::per_second),
            per_day: relay.daily_quota.map(i64::from),
        },
        probe_interval: relay.probe_interval.to_std().unwrap_or(Duration::from_mins(1)),
    }
}

/// The relay's name in the database: all replicas that use one relay share its state.
pub fn relay_name(relay: &Relay) -> String {
    match &relay.url {
        RelayUrl::Smtp(SmtpUrl { host, port, .. }) => format!("{host}:{port}"),
        RelayUrl::Directory(_) => "file".to_owned(),
    }
}

fn overrides_of(relay: &Relay) -> Overrides {
    match (relay.provider, &relay.url) {
        (ProviderWord::Ses, _) => Overrides::of(Provider::Ses),
        (ProviderWord::Generic, RelayUrl::Smtp(smtp)) => Overrides::for_host(&smtp.host),
        (ProviderWord::Generic, RelayUrl::Directory(_)) => Overrides::NONE,
    }
}

/// Where mail goes. A folder is made if it is missing.
pub fn transport_of(relay: &Relay) -> Result<Transport, AppError> {
    let smtp = match &relay.url {
        RelayUrl::Directory(folder) => {
            fs::create_dir_all(folder)
                .map_err(|error| AppError::File(folder.display().to_string(), error))?;
            return Ok(Transport::Folder(MailFolder::new(folder.clone())));
        }
        RelayUrl::Smtp(smtp) => smtp,
    };
    let tls = match smtp.security {
        Security::ImplicitTls => TlsMode::Implicit,
        Security::StartTls => TlsMode::StartTls,
        Security::Plaintext => TlsMode::Plaintext,
    };
    let timeouts = &relay.timeouts;
    let settings = SmtpSettings {
        ca_pem: relay.tls_ca_file.as_ref().map(read).transpose()?,
        client_identity: client_identity(relay)?,
        credentials: relay.login.as_ref().map(|login| (login.username.clone(), login.password.clone())),
        auth_without_tls: smtp.is_loopback(),
        helo: relay.helo.clone().unwrap_or_else(helo_name),
        timeouts: Timeouts {
            connect: timeouts.connect,
            connect_total: timeouts.connect * 2,
            tls: timeouts.tls,
            greeting: timeouts.greeting,
            hello: timeouts.login,
            command: timeouts.envelope,
            body: timeouts.body,
            dot: timeouts.reply,
            ..Timeouts::default()
        },
        max_messages_per_connection: relay.reuse.messages,
        max_connection_age: relay.reuse.age,
        max_idle: relay.reuse.idle,
        ..SmtpSettings::new(smtp.host.clone(), smtp.port, tls)
    };
    Ok(Transport::Smtp(SmtpRelay::new(settings)?))
}

fn client_identity(relay: &Relay) -> Result<Option<ClientIdentity>, AppError> {
    let Some((chain, key)) = &relay.client_cert else { return Ok(None) };
    Ok(Some(ClientIdentity { chain_pem: read(chain)?, key_pem: SecretString::from(read(key)?) }))
}

fn read(path: &PathBuf) -> Result<String, AppError> {
    fs::read_to_string(path).map_err(|error| AppError::File(path.display().to_string(), error))
}

/// The host's name, for people.
fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// A name for EHLO that any relay takes: ours if it can stand there, else an address literal.
fn helo_name() -> String {
    let name = host_name();
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
    if fits { name } else { "[127.0.0.1]".to_owned() }
}
