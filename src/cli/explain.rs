//! `digestd explain`.

use clap::Args;

use super::failure::Misuse;
use super::session::WeekChoice;
use super::{Global, out, session};
use crate::app;
use crate::domain::ids::OrgId;
use crate::ledger::whom::Whom;
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(
    after_help = "Tells what became of an org's digest and why: the slot, who claimed it, what failed, each
recipient's attempts with the relay's replies, who was left out, and what happens next.
Without --week it is the week of the org's newest slot, or of its last send while the
application's database does not answer.

Examples:
  digestd explain --org acme
  digestd explain --org acme --week 2026-W28 --to ann@acme.example"
)]
pub(super) struct Arguments {
    /// The org
    #[arg(long, value_name = "ID")]
    org: String,
    /// Only this recipient, by address or id
    #[arg(long, value_name = "ADMIN")]
    to: Option<String>,
    #[command(flatten)]
    choice: WeekChoice,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let org = OrgId::parse(&arguments.org).map_err(|error| Misuse::new(format!("--org: {error}")))?;
    let to = arguments.to.as_deref().map(Whom::new);
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let ledger = app::ledger_of(&config, &store).await?;
    let told = ledger.explain(&org, arguments.choice.week, to.as_ref()).await?;
    if arguments.choice.json {
        out::json(&told)?;
    } else {
        out::data(told.to_string().trim_end());
    }
    Ok(Exit::Ok)
}
