//! `digestd retry`.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::failure::Misuse;
use super::{Global, out, session};
use crate::domain::ids::OrgId;
use crate::domain::send::SendState;
use crate::domain::week::WeekKey;
use crate::heartbeat;
use crate::lifecycle::Exit;
use crate::resend::GIVE_UP;

/// Sends per transaction.
const BATCH: u32 = 500;

#[derive(Debug, Args)]
#[command(
    after_help = "Reopens sends that ended without messages; whichever replica comes first works on them, within
a day.
The digest is still that of its own week. Nobody who has got it gets it again.

Examples:
  digestd retry --week 2026-W28 --state missed
  digestd retry --week 2026-W28 --state failed --org acme"
)]
pub(super) struct Arguments {
    /// The week, such as 2026-W28
    #[arg(long, value_name = "WEEK", value_parser = session::parse_week)]
    week: WeekKey,
    /// Which sends
    #[arg(long, value_enum)]
    state: State,
    /// Only this org's
    #[arg(long, value_name = "ID")]
    org: Option<String>,
    /// Print the orgs as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    /// Given up with a reason
    Failed,
    /// Not claimed in time
    Missed,
}

#[derive(Debug, Serialize)]
struct Reopened {
    week: String,
    orgs: Vec<String>,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let org = arguments.org.as_deref().map(OrgId::parse).transpose();
    let org = org.map_err(|error| Misuse::new(format!("--org: {error}")))?;
    let state = match arguments.state {
        State::Failed => SendState::Failed,
        State::Missed => SendState::Missed,
    };
    let config = session::configure(global)?;
    let store = session::open(&config).await?;
    let mut orgs = Vec::new();
    loop {
        let batch = store.reopen(arguments.week, org.as_ref(), state, GIVE_UP, BATCH).await?;
        let last = batch.len() < BATCH as usize;
        orgs.extend(batch.iter().map(ToString::to_string));
        if last {
            break;
        }
    }
    let live = store.live_replicas(heartbeat::EVERY * 4).await?.len();
    let (none, reopened) = (orgs.is_empty(), out::counted(orgs.len() as u64, "send"));
    if arguments.json {
        out::json(&Reopened { week: arguments.week.to_string(), orgs })?;
    } else {
        out::data(format_args!("{reopened} of {} reopened", arguments.week));
    }
    if none {
        out::note(format_args!(
            "note: no such send is {}; `digestd audit --week {}` counts what there is",
            state, arguments.week
        ));
    } else if live == 0 {
        out::note("note: no replica is running; the first one to start will work on them, within a day");
    }
    Ok(Exit::Ok)
}
