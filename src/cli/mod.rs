//! What a person types: one file per command, and nothing else prints.

mod audit;
mod check;
mod completions;
mod demo;
mod explain;
mod failure;
mod healthcheck;
mod import;
mod inbox;
mod man;
mod migrate;
mod optout;
mod out;
mod plan;
mod preview;
mod queue;
mod resend;
mod retry;
mod run;
mod schedule;
mod send_test;
mod session;
mod status;
mod suppress;
mod templates;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::domain::zone;
use crate::lifecycle::Exit;
use crate::store;

/// Sends every organisation its weekly digest, once, from any number of identical replicas.
#[derive(Debug, Parser)]
#[command(
    name = "digestd",
    disable_version_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "Examples:
  digestd run --config /etc/digestd.toml    run a replica; start as many as you like
  digestd check                             see whether it would work
  digestd preview --org acme                read what acme's admins would get
  digestd resend --org acme --to ann@acme.example

Without --config and DIGESTD_CONFIG, state is kept in ./digestd.db and mails are written to ./mail/.
Every key can also be set by a variable: DIGESTD__RELAY__URL is relay.url.

Exit codes: 0 done, 1 found something wrong, 64 wrong arguments, 65 unusable data,
69 a server is not there, 70 a fault of digestd's, 78 unusable configuration."
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    /// Print the versions of digestd, its time zone rules and SQLite
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Args)]
struct Global {
    // Help is shown as it stands, so that there are no backticks in it.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "The configuration file; DIGESTD_CONFIG names it too"
    )]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a replica until it is told to stop
    Run(run::Arguments),
    /// Bring the database's schema up to date
    Migrate(migrate::Arguments),
    /// Fill the built-in directory from a CSV or JSON Lines file
    Import(import::Arguments),
    /// Try everything that a replica needs, and say what is wrong
    Check(check::Arguments),
    /// Show what an org's digest looks like; sends nothing and leaves no trace
    Preview(preview::Arguments),
    /// Send one marked mail to try the relay and the templates; leaves no trace
    SendTest(send_test::Arguments),
    /// Send an org's digest once more
    Resend(resend::Arguments),
    /// Add, remove, list and import opt-outs
    Optout(optout::Arguments),
    /// Add, remove, list and import addresses that get nothing
    Suppress(suppress::Arguments),
    /// List, show, retry, cancel and resolve messages; pause and resume deliveries
    Queue(queue::Arguments),
    /// Export the built-in templates, or check those in use
    Templates(templates::Arguments),
    /// Show replicas, sends, messages and the relay
    Status(status::Arguments),
    /// Tell what became of an org's digest, and why
    Explain(explain::Arguments),
    /// Count who is owed a digest against who is accounted for
    Audit(audit::Arguments),
    /// List who would get what and when; sends nothing and leaves no trace
    Plan(plan::Arguments),
    /// List an org's coming slots
    Schedule(schedule::Arguments),
    /// Reopen sends of a week that failed or were missed
    Retry(retry::Arguments),
    /// Ask the replica on this machine whether it is well
    Healthcheck,
    /// Receive mails in a small inbox, for trying things out
    Inbox(inbox::Arguments),
    /// Watch three replicas send a Monday's digests, on this machine alone
    Demo(demo::Arguments),
    /// Print the manual page, or write all of them
    Man(man::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
}

impl Cli {
    /// Parses arguments. `Err` holds the code to end with: help was asked for and printed, or the
    /// arguments were wrong and that was said.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        Self::try_parse_from(arguments).map_err(|error| {
            // clap chooses the right stream; if that is closed, nobody is there to be told.
            drop(error.print());
            if error.use_stderr() { Exit::Usage } else { Exit::Ok }
        })
    }

    /// Runs the command and says how to end.
    pub async fn run(self) -> Exit {
        let outcome = match self.command {
            None if self.version => version().await,
            None => Ok(help()),
            Some(command) => dispatch(&self.global, command).await,
        };
        outcome.unwrap_or_else(|error| failure::report(&error))
    }
}

async fn dispatch(global: &Global, command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run(arguments) => run::run(global, &arguments).await,
        Command::Migrate(arguments) => migrate::run(global, &arguments).await,
        Command::Import(arguments) => import::run(global, &arguments).await,
        Command::Check(arguments) => check::run(global, &arguments).await,
        Command::Preview(arguments) => preview::run(global, &arguments).await,
        Command::SendTest(arguments) => send_test::run(global, &arguments).await,
        Command::Optout(arguments) => optout::run(global, &arguments).await,
        Command::Suppress(arguments) => suppress::run(global, &arguments).await,
        Command::Queue(arguments) => queue::run(global, &arguments).await,
        Command::Templates(arguments) => templates::run(global, &arguments),
        Command::Resend(arguments) => resend::run(global, &arguments).await,
        Command::Status(arguments) => status::run(global, &arguments).await,
        Command::Explain(arguments) => explain::run(global, &arguments).await,
        Command::Audit(arguments) => audit::run(global, &arguments).await,
        Command::Plan(arguments) => plan::run(global, &arguments).await,
        Command::Schedule(arguments) => schedule::run(global, &arguments).await,
        Command::Retry(arguments) => retry::run(global, &arguments).await,
        Command::Healthcheck => healthcheck::run(global).await,
        Command::Inbox(arguments) => inbox::run(&arguments).await,
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Man(arguments) => man::run(&arguments),
        Command::Completions(arguments) => Ok(completions::run(&arguments)),
    }
}

async fn version() -> anyhow::Result<Exit> {
    out::data(format_args!("digestd {}", env!("CARGO_PKG_VERSION")));
    out::data(format_args!("time zones {}", zone::tzdb_version()));
    out::data(format_args!("SQLite {}", store::connect::sqlite_version().await?));
    Ok(Exit::Ok)
}

fn help() -> Exit {
    out::note(Cli::command().render_help());
    Exit::Usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        Cli::command().debug_assert();
    }

    fn exit(arguments: &[&str]) -> Option<Exit> {
        Cli::from_arguments(arguments.iter().map(OsString::from)).err()
    }

    #[test]
    fn wrong_arguments_end_with_the_code_for_usage() {
        assert_eq!(exit(&["digestd", "rnu"]), Some(Exit::Usage));
        assert_eq!(exit(&["digestd", "import", "orgs"]), Some(Exit::Usage));
        assert_eq!(exit(&["digestd", "--help"]), Some(Exit::Ok));
        assert_eq!(exit(&["digestd", "--config", "a.toml", "run"]), None);
        assert_eq!(exit(&["digestd", "run", "--config", "a.toml"]), None);
    }
}
