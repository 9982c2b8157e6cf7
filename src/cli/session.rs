//! What most commands begin with: the configuration, the database, one org.

use std::path::Path;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use clap::Args;
use secrecy::SecretString;

use super::Global;
use super::failure::Misuse;
use crate::app;
use crate::clock::Clock;
use crate::config::{Config, DatabaseUrl, LogFormat};
use crate::domain::ids::OrgId;
use crate::domain::schedule::{Period, Slot, WeeklySchedule};
use crate::domain::token::{KeyRing, KeyRingError};
use crate::domain::week::WeekKey;
use crate::source::Source;
use crate::store::Store;
use crate::store::migrate::MigrateMode;
use crate::telemetry;

/// Where the database is when nobody has said it: the default of `database.url`.
const DEFAULT_PATH: &str = "./digestd.db";

/// What a one-shot command says of its own accord; its answer goes to standard output.
const ONE_SHOT_FILTER: &str = "warn";

/// Reads the configuration and sets up quiet logs for a one-shot command.
pub fn configure(global: &Global) -> anyhow::Result<Config> {
    let config = Config::load(global.config.as_deref(), environment())?;
    let filter = variable("RUST_LOG");
    telemetry::init(LogFormat::Text, filter.as_deref().unwrap_or(ONE_SHOT_FILTER));
    Ok(config)
}

/// The whole environment, for the configuration. Names and values that are not UTF-8 cannot be ours.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// One variable; an empty one counts as absent.
pub fn variable(name: &str) -> Option<String> {
    environment().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value)
}

/// Opens the database and brings its schema up to date, as the configuration allows.
pub async fn open(config: &Config) -> anyhow::Result<Store> {
    refuse_nothing(config)?;
    open_or_make(config).await
}

/// The same for a command that a new installation may begin with.
pub async fn open_or_make(config: &Config) -> anyhow::Result<Store> {
    let store = app::open_store(config, Clock::Database)?;
    app::await_database(&store, config).await?;
    Ok(store)
}

/// Opens the database for a command that leaves no trace: a schema that is not current is an error.
pub async fn open_untouched(config: &Config) -> anyhow::Result<Store> {
    refuse_nothing(config)?;
    let store = app::open_store(config, Clock::Database)?;
    store.try_connect().await?;
    store.migrate(MigrateMode::Check).await?;
    Ok(store)
}

/// Without a configuration the database is a file in the working directory. Where there is none, somebody has
/// forgotten `--config`, and a new and empty database would answer for the real one.
fn refuse_nothing(config: &Config) -> Result<(), Misuse> {
    match &config.database.url {
        DatabaseUrl::Sqlite(path) if path == Path::new(DEFAULT_PATH) && !path.exists() => {
            Err(Misuse::new(format!("there is no database {}", path.display())).hint(
                "name the replicas' configuration by --config or DIGESTD_CONFIG; `digestd migrate` makes a new database",
            ))
        }
        _ => Ok(()),
    }
}

/// Which week, and in which form: what the commands that read the ledger take.
#[derive(Debug, Args)]
pub struct WeekChoice {
    /// The week, such as 2026-W28; by default that of the newest slot
    #[arg(long, value_name = "WEEK", value_parser = parse_week)]
    pub week: Option<WeekKey>,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// One org's digest for one week, as the commands that speak of one org see it.
#[derive(Debug)]
pub struct OrgWeek {
    /// The org.
    pub org: OrgId,
    /// When the org wants its digests.
    pub schedule: WeeklySchedule,
    /// The slot of that week.
    pub slot: Slot,
    /// The days that its digest is about.
    pub period: Period,
    /// The database's time.
    pub now: DateTime<Utc>,
}

impl OrgWeek {
    /// Finds an org and a week: the given one, else that of the slot that opened last.
    pub async fn find(
        config: &Config,
        store: &Store,
        source: &Source,
        org: &str,
        week: Option<WeekKey>,
    ) -> anyhow::Result<Self> {
        let org = OrgId::parse(org).map_err(|error| Misuse::new(format!("--org: {error}")))?;
        let schedule: WeeklySchedule = source
            .schedule(&org)
            .await
            .with_context(|| format!("looking for the org {org}"))?
            .ok_or_else(|| {
                Misuse::new(format!("there is no active org “{org}”"))
                    .hint("ids are compared letter by letter; `digestd plan` lists the orgs that there are")
            })?
            .with_context(|| format!("the org {org} has no usable time zone"))?;
        let now = store.now().await?;
        let slot = match week {
            Some(week) => schedule.slot_in(week),
            None => schedule.latest_slot(now),
        };
        let period = config.digest.period.of(&schedule, slot.week);
        Ok(Self { org, schedule, slot, period, now })
    }
}

/// Signs the links of previews and tests and nothing else, so that no click on one opts anybody out.
const PREVIEW_KEY: &str = "previews are signed by a key that opens nothing";

/// Keys for mails that must not opt anybody out.
pub fn preview_keys() -> Result<KeyRing, KeyRingError> {
    KeyRing::new(&[SecretString::from(PREVIEW_KEY)])
}

/// Parses `--week`.
pub fn parse_week(text: &str) -> Result<WeekKey, String> {
    WeekKey::parse(text).map_err(|error| error.to_string())
}
