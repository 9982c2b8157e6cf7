//! `digestd audit`.

use clap::Args;

use super::session::WeekChoice;
use super::{Global, out, session};
use crate::app;
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(
    after_help = "Counts the orgs that are owed a digest against the sends there are, and lists what does not add up.
Ends with 1 if there is any such thing. Uncertain messages are shown and are no such thing.
Without --week it is the week of the newest slot of the configured schedule."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    choice: WeekChoice,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let audit = app::ledger_of(&config, &store).await?.audit(arguments.choice.week).await?;
    if arguments.choice.json {
        out::json(&audit)?;
    } else {
        out::data(audit.to_string().trim_end());
    }
    Ok(if audit.adds_up() { Exit::Ok } else { Exit::ProblemFound })
}
