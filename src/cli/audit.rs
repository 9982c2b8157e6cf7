//! `digestd audit`.

use clap::Args;

use super::{Global, out, session};
use crate::app;
use crate::domain::week::WeekKey;
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(
    after_help = "Counts the orgs that are owed a digest against the sends there are, and lists what does not add up.
Ends with 1 if there is any such thing. Uncertain messages are shown and are no such thing."
)]
pub(super) struct Arguments {
    /// The week, such as 2026-W28; by default that of the newest slot
    #[arg(long, value_name = "WEEK", value_parser = session::parse_week)]
    week: Option<WeekKey>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let audit = app::ledger_of(&config, &store).await?.audit(arguments.week).await?;
    if arguments.json {
        out::json(&audit)?;
    } else {
        out::data(audit.to_string().trim_end());
    }
    Ok(if audit.adds_up() { Exit::Ok } else { Exit::ProblemFound })
}
