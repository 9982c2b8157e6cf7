//! `digestd suppress`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::{self, Misuse};
use super::{Global, out, session};
use crate::domain::address::Address;
use crate::lifecycle::Exit;
use crate::store::Store;
use crate::store::suppressions::Suppression;

/// What the table says of a suppression that an operator has made.
const OPERATOR: &str = "operator";
/// Rows read at once.
const PAGE: u32 = 1000;
/// Mistakes told of a file before the rest is only counted.
const MISTAKES_TOLD: usize = 20;

#[derive(Debug, Args)]
#[command(
    after_help = "A suppressed address gets no digest of any org, messages already in the outbox included; the org's
other admins are not concerned. Addresses that the relay refuses get here by themselves, as
suppression.hard_after and suppression.soft_after say.

Examples:
  digestd suppress add ann@acme.example --note \"mailbox closed\"
  digestd suppress import bounced.txt
  digestd suppress list --json"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Leave an address out
    Add {
        /// The address
        address: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Let an address get digests again, and forget its failures
    Remove {
        /// The address
        address: String,
    },
    /// Print the addresses that are left out
    List {
        /// Also those that have failed and still get digests
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Leave out each address of a file, one a line
    Import {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    address: &'a str,
    suppressed: bool,
    hard_failures: u32,
    soft_failures: u32,
    at: String,
    source: &'a str,
    note: Option<&'a str>,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open(&config).await?;
    match &arguments.action {
        Action::Add { address, note } => {
            store.suppress(&parse(address)?, OPERATOR, note.as_deref()).await?;
            out::data("suppressed");
        }
        Action::Remove { address } => {
            if !store.unsuppress(&parse(address)?).await? {
                return Err(Misuse::new("nothing is known against this address")
                    .hint("`digestd suppress list --all` prints what is known")
                    .into());
            }
            out::data("removed");
        }
        Action::List { all, json } => list(&store, *all, *json).await?,
        Action::Import { file } => {
            let text = failure::read_input(file)?;
            let addresses = parse_lines(&text)?;
            for address in &addresses {
                store.suppress(address, "import", None).await?;
            }
            let count = u64::try_from(addresses.len()).unwrap_or(u64::MAX);
            out::data(format_args!("imported {}", out::counted(count, "suppression")));
        }
    }
    Ok(Exit::Ok)
}

fn parse(address: &str) -> Result<Address, Misuse> {
    Address::parse(address).map_err(|error| Misuse::new(format!("address: {error}")))
}

/// Every line of a file, or every mistake in it: nothing is imported of a file that has one.
fn parse_lines(text: &str) -> Result<Vec<Address>, Misuse> {
    let mut addresses = Vec::new();
    let mut mistakes = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse(line) {
            Ok(address) => addresses.push(address),
            Err(error) => mistakes.push(format!("line {}: {error}", at + 1)),
        }
    }
    if mistakes.is_empty() {
        return Ok(addresses);
    }
    let more = mistakes.len().saturating_sub(MISTAKES_TOLD);
    mistakes.truncate(MISTAKES_TOLD);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
    Err(Misuse::new(format!("nothing was imported: {}", mistakes.join("; ")))
        .hint("write one address a line"))
}

async fn list(store: &Store, all: bool, json: bool) -> anyhow::Result<()> {
    let mut rows: Vec<Suppression> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.address.clone());
        let page = store.list_suppressions(after.as_deref(), all, PAGE).await?;
        let complete = page.len() < PAGE as usize;
        rows.extend(page);
        if complete {
            break;
        }
    }
    if json {
        return out::json(&rows.iter().map(listed).collect::<Vec<_>>());
    }
    for row in &rows {
        let state = if row.suppressed { "suppressed" } else { "failing" };
        out::data(format_args!(
            "{}\t{state}\t{} hard, {} soft\t{}\t{}",
            row.address,
            row.hard_failures,
            row.soft_failures,
            row.at.to_rfc3339(),
            row.source
        ));
    }
    Ok(())
}

fn listed(row: &Suppression) -> Listed<'_> {
    Listed {
        address: &row.address,
        suppressed: row.suppressed,
        hard_failures: row.hard_failures,
        soft_failures: row.soft_failures,
        at: row.at.to_rfc3339(),
        source: &row.source,
        note: row.note.as_deref(),
    }
}
