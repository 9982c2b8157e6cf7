//! `digestd run`.

use anyhow::Context as _;

use super::Global;
use super::session::{environment, variable};
use crate::app;
use crate::clock::Clock;
use crate::config::Config;
use crate::lifecycle::{Exit, Shutdown};
use crate::telemetry;

pub(super) async fn run(global: &Global) -> anyhow::Result<Exit> {
    let config = Config::load(global.config.as_deref(), environment())?;
    let filter = variable("RUST_LOG");
    telemetry::init(config.log.format, filter.as_deref().unwrap_or(&config.log.filter));
    let shutdown = Shutdown::new();
    shutdown.listen(config.shutdown_grace).context("watching for signals")?;
    app::run(&config, Clock::Database, &shutdown).await?;
    Ok(Exit::Ok)
}
