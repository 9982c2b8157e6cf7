//! `digestd optout`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::{self, Misuse};
use super::{Global, out, session};
use crate::domain::address::Address;
use crate::domain::ids::OrgId;
use crate::lifecycle::Exit;
use crate::store::Store;
use crate::store::opt_outs::OptOut;

/// What the table says of an opt-out that an operator has made.
const OPERATOR: &str = "operator";
/// Opt-outs read at once.
const PAGE: u32 = 1000;
/// Mistakes told of a file before the rest is only counted.
const MISTAKES_TOLD: usize = 20;

#[derive(Debug, Args)]
#[command(
    after_help = "An opt-out without --org is about every digest from here. It holds at once, for messages
already in the outbox too.

Examples:
  digestd optout add ann@acme.example --org acme
  digestd optout import left.txt
  digestd optout list --json"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Stop an address's digests
    Add(Whom),
    /// Let an address's digests come again
    Remove(Whom),
    /// Print every opt-out
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add an opt-out for each line of a file: an address, or an address, a comma and an org
    Import {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Whom {
    /// The address
    address: String,
    /// Only this org's digest
    #[arg(long, value_name = "ID")]
    org: Option<String>,
}

/// One address, and the org if it is about one.
type Subject = (Address, Option<OrgId>);

#[derive(Debug, Serialize)]
struct Listed<'a> {
    address: &'a str,
    org: Option<&'a str>,
    at: String,
    source: &'a str,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open(&config).await?;
    match &arguments.action {
        Action::Add(whom) => {
            let (address, org) = subject(&whom.address, whom.org.as_deref())?;
            store.opt_out(&address, org.as_ref(), OPERATOR).await?;
            out::data("opted out");
        }
        Action::Remove(whom) => {
            let (address, org) = subject(&whom.address, whom.org.as_deref())?;
            if !store.remove_opt_out(&address, org.as_ref()).await? {
                return Err(Misuse::new("there is no such opt-out")
                    .hint("`digestd optout list` prints them; one for an org and one for all are two")
                    .into());
            }
            out::data("removed");
        }
        Action::List { json } => list(&store, *json).await?,
        Action::Import { file } => {
            let text = failure::read_input(file)?;
            let subjects = parse_lines(&text)?;
            for (address, org) in &subjects {
                store.opt_out(address, org.as_ref(), OPERATOR).await?;
            }
            let count = u64::try_from(subjects.len()).unwrap_or(u64::MAX);
            out::data(format_args!("imported {}", out::counted(count, "opt-out")));
        }
    }
    Ok(Exit::Ok)
}

fn subject(address: &str, org: Option<&str>) -> Result<Subject, Misuse> {
    let address = Address::parse(address).map_err(|error| Misuse::new(format!("address: {error}")))?;
    let org = org.map(OrgId::parse).transpose().map_err(|error| Misuse::new(format!("org: {error}")))?;
    Ok((address, org))
}

/// Every line of a file, or every mistake in it: nothing is imported of a file that has one.
fn parse_lines(text: &str) -> Result<Vec<Subject>, Misuse> {
    let mut subjects = Vec::new();
    let mut mistakes = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (address, org) = match line.split_once(',') {
            Some((address, org)) => (address, Some(org.trim())),
            None => (line, None),
        };
        match subject(address, org) {
            Ok(subject) => subjects.push(subject),
            Err(error) => mistakes.push(format!("line {}: {error}", at + 1)),
        }
    }
    if mistakes.is_empty() {
        return Ok(subjects);
    }
    let more = mistakes.len().saturating_sub(MISTAKES_TOLD);
    mistakes.truncate(MISTAKES_TOLD);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
    Err(Misuse::new(format!("nothing was imported: {}", mistakes.join("; ")))
        .hint("write one address a line"))
}

async fn list(store: &Store, json: bool) -> anyhow::Result<()> {
    let mut last: Option<OptOut> = None;
    let mut all = Vec::new();
    loop {
        let page = store.list_opt_outs(last.as_ref(), PAGE).await?;
        let complete = page.len() < PAGE as usize;
        last = page.last().cloned();
        if json {
            all.extend(page);
        } else {
            page.iter().for_each(print_line);
        }
        if complete {
            break;
        }
    }
    if json {
        out::json(&all.iter().map(listed).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn print_line(row: &OptOut) {
    let org = row.org.as_ref().map_or("all digests", OrgId::as_str);
    out::data(format_args!("{}\t{org}\t{}\t{}", row.address, row.at.to_rfc3339(), row.source));
}

fn listed(row: &OptOut) -> Listed<'_> {
    Listed {
        address: &row.address,
        org: row.org.as_ref().map(OrgId::as_str),
        at: row.at.to_rfc3339(),
        source: &row.source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_opt_outs_is_read_whole_or_not_at_all() {
        let read = parse_lines("# left in March\nann@acme.example\nbob@acme.example, acme\n\n").unwrap();
        let shown: Vec<_> = read.iter().map(|(a, o)| (a.normal(), o.as_ref().map(OrgId::as_str))).collect();
        assert_eq!(shown, [("ann@acme.example", None), ("bob@acme.example", Some("acme"))]);
        let refused = parse_lines("ann@acme.example\nnobody\n@x\n").unwrap_err().to_string();
        assert!(refused.contains("line 2: address") && refused.contains("line 3: address"), "{refused}");
    }
}
