//! `digestd plan`.

use clap::Args;
use serde_json::to_string;

use super::session::WeekChoice;
use super::{Global, out, session};
use crate::app;
use crate::ledger::plan::{Plan, Planned};
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(
    after_help = "A dry run: lists who would get what and when, by org. Sends nothing and leaves no trace.
Without --week it is each org's open slot that counts, else its next one."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    choice: WeekChoice,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let ledger = app::ledger_of(&config, &store).await?;
    let plan = ledger.plan(arguments.choice.week).await?;
    if arguments.choice.json { as_json(plan).await } else { as_text(plan).await }?;
    Ok(Exit::Ok)
}

/// One line for each org as it is read, so that a million of them need no memory.
async fn as_text(mut plan: Plan<'_>) -> anyhow::Result<()> {
    out::data(format_args!("As of {} UTC", plan.now.format("%Y-%m-%d %H:%M:%S")));
    let mut orgs = 0;
    while let Some(page) = plan.next_page().await? {
        orgs += page.len() as u64;
        if !page.iter().all(out::line) {
            return Ok(());
        }
    }
    out::data(out::counted(orgs, "org"));
    Ok(())
}

/// One JSON object, written org by org.
async fn as_json(mut plan: Plan<'_>) -> anyhow::Result<()> {
    out::data(format_args!("{{\n  \"now\": {},\n  \"orgs\": [", to_string(&plan.now)?));
    // Written once the next one is known: only the last has no comma.
    let mut held: Option<Planned> = None;
    while let Some(page) = plan.next_page().await? {
        for org in page {
            if let Some(before) = held.replace(org)
                && !out::line(format_args!("    {},", to_string(&before)?))
            {
                return Ok(());
            }
        }
    }
    if let Some(last) = held {
        out::data(format_args!("    {}", to_string(&last)?));
    }
    out::data("  ]\n}");
    Ok(())
}
