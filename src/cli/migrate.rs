//! `digestd migrate`.

use clap::Args;

use super::{Global, out, session};
use crate::app;
use crate::clock::Clock;
use crate::config::{Config, Database, Migrate};
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(after_help = "Safe to run from many places at once. With database.migrate = \"auto\", which is the
default, every replica does this by itself when it starts.")]
pub(super) struct Arguments {
    /// Print the SQL of all migrations instead, for a person to apply
    #[arg(long)]
    print: bool,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = app::open_store(&config, Clock::Database)?;
    if arguments.print {
        out::data(store.migration_script().trim_end());
        return Ok(Exit::Ok);
    }
    let database = Database { migrate: Migrate::Auto, ..config.database.clone() };
    let report = app::await_database(&store, &Config { database, ..config }).await?;
    for name in &report.applied {
        out::data(format_args!("applied {name}"));
    }
    out::data(format_args!("the schema has version {}", report.version));
    Ok(Exit::Ok)
}
