//! `digestd queue`: the outbox in an operator's hands.

mod act;
mod choice;
mod show;

use clap::{Args, Subcommand};

use super::{Global, out, session};
use crate::app;
use crate::config::Config;
use crate::lifecycle::Exit;
use crate::store::Store;
use choice::{Filter, Which};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  digestd queue list --state uncertain
  digestd queue show 4711
  digestd queue retry --state failed --week 2026-W28 --yes
  digestd queue resolve --accepted 4711 4712
  digestd queue pause")]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print messages: id, state, week, org, address and when it was enqueued, between tabs
    List {
        #[command(flatten)]
        filter: Filter,
        /// Print so many at most
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print one message and its history
    Show {
        /// The message
        id: i64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Try failed, expired and cancelled messages again, if their bodies are still kept
    Retry(Which),
    /// Take back messages that have not left
    Cancel(Which),
    /// Settle messages that may or may not have been accepted
    Resolve {
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        which: Which,
    },
    /// Stop deliveries of all replicas; digests are still made
    Pause,
    /// Let deliveries go on
    Resume,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct How {
    /// They were accepted
    #[arg(long)]
    accepted: bool,
    /// Send them again, at the risk of a second copy; from 30 minutes after the hand-over on
    #[arg(long)]
    resend: bool,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open(&config).await?;
    match &arguments.action {
        Action::List { filter, limit, json } => show::list(&store, filter, *limit, *json).await,
        Action::Show { id, json } => show::one(&store, *id, *json).await,
        Action::Retry(which) => act::retry(&config, &store, which).await,
        Action::Cancel(which) => act::cancel(&store, which).await,
        Action::Resolve { how, which } => act::resolve(&config, &store, how.resend, which).await,
        Action::Pause => pause(&config, &store, true).await,
        Action::Resume => pause(&config, &store, false).await,
    }
}

async fn pause(config: &Config, store: &Store, paused: bool) -> anyhow::Result<Exit> {
    store.relay_pause(&app::relay_name(&config.relay), paused).await?;
    out::data(if paused { "deliveries are paused" } else { "deliveries go on" });
    Ok(Exit::Ok)
}
