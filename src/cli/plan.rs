//! `digestd plan`.

use clap::Args;

use super::{Global, out, session};
use crate::app;
use crate::domain::week::WeekKey;
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(after_help = "A dry run: lists who would get what and when. Sends nothing and leaves no trace.")]
pub(super) struct Arguments {
    /// The week, such as 2026-W28; by default each org's open slot, else its next one
    #[arg(long, value_name = "WEEK", value_parser = session::parse_week)]
    week: Option<WeekKey>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let plan = app::ledger_of(&config, &store).await?.plan(arguments.week).await?;
    if arguments.json {
        out::json(&plan)?;
    } else {
        out::data(plan.to_string().trim_end());
    }
    Ok(Exit::Ok)
}
