//! `digestd run`.

use anyhow::Context as _;
use chrono::TimeDelta;
use clap::Args;

use super::Global;
use super::failure::Misuse;
use super::session::{environment, variable};
use crate::app;
use crate::clock::Clock;
use crate::config::{Config, DatabaseUrl};
use crate::lifecycle::{Exit, Shutdown};
use crate::telemetry;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Moves the clock that decides: the demo's Monday morning
    #[arg(long, hide = true, value_name = "MS", allow_negative_numbers = true)]
    clock_shift_ms: Option<i64>,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = Config::load(global.config.as_deref(), environment())?;
    let filter = variable("RUST_LOG");
    telemetry::init(config.log.format, filter.as_deref().unwrap_or(&config.log.filter));
    let shutdown = Shutdown::new();
    shutdown.listen(config.shutdown_grace).context("watching for signals")?;
    app::run(&config, clock(&config, arguments)?, &shutdown).await?;
    Ok(Exit::Ok)
}

/// The database's clock, but for the demo, which has a file of its own.
fn clock(config: &Config, arguments: &Arguments) -> anyhow::Result<Clock> {
    match (arguments.clock_shift_ms, &config.database.url) {
        (None, _) => Ok(Clock::Database),
        (Some(by), DatabaseUrl::Sqlite(_)) => Ok(Clock::Shifted(TimeDelta::milliseconds(by))),
        (Some(_), DatabaseUrl::Postgres(_)) => {
            Err(Misuse::new("--clock-shift-ms is for the demo's SQLite file").into())
        }
    }
}
