//! `digestd send-test`.

use clap::Args;

use super::failure::Misuse;
use super::preview;
use super::session::{self, OrgWeek};
use super::{Global, out};
use crate::app;
use crate::domain::address::Address;
use crate::domain::message::MessageUid;
use crate::domain::reply::HandOver;
use crate::domain::week::{SendKey, WeekKey};
use crate::lifecycle::Exit;
use crate::mail::compose::mark_as_test;
use crate::mail::parts::Parts;

#[derive(Debug, Args)]
#[command(
    after_help = "The mail is real and marked as a test. Nothing is written to the database, and its links opt nobody out.

Example:
  digestd send-test --org acme --to me@example.com"
)]
pub(super) struct Arguments {
    /// The org whose digest it is
    #[arg(long, value_name = "ID")]
    org: String,
    /// Who gets it; need not be an admin
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// The week in which the digest goes out; by default that of the newest slot
    #[arg(long, value_name = "WEEK", value_parser = session::parse_week)]
    week: Option<WeekKey>,
    /// The admin as whom it is rendered, by id or address; by default the first
    #[arg(long = "as", value_name = "ADMIN")]
    reader: Option<String>,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let to = Address::parse(&arguments.to).map_err(|error| Misuse::new(format!("--to: {error}")))?;
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let source = app::source_of(&config, &store)?;
    let found = OrgWeek::find(&config, &store, &source, &arguments.org, arguments.week).await?;
    let input = preview::gather(&source, &found).await?;
    let drafter = app::drafter_of(&config, session::preview_keys()?)?;
    let recipient = preview::choose(&input, arguments.reader.as_deref())?;
    let token = drafter.token(&input, &to);
    let mut rendered = drafter.rendered(&input, &recipient, &token)?;
    mark_as_test(&mut rendered);
    let uid = MessageUid::derive(&input.org, SendKey::manual(found.now), to.normal());
    let bytes = drafter.bytes(Parts::encode(&rendered), &recipient, &to, &uid, found.now, &token)?;

    let mut connection = app::transport_of(&config.relay)?.connect().await?;
    let outcome = match connection.envelope(&config.relay.envelope_from, &to, bytes.len()).await {
        Ok(()) => connection.body(&bytes, &uid).await,
        Err(refused) => refused,
    };
    let (phase, note) = (outcome.phase(), outcome.note());
    connection.quit().await;
    match outcome {
        HandOver::Accepted(_) => {
            out::data(format_args!("accepted: {note}"));
            Ok(Exit::Ok)
        }
        HandOver::Refused { .. } | HandOver::Broken { .. } => {
            out::data(format_args!("not accepted, at {phase}: {note}"));
            Ok(Exit::ProblemFound)
        }
        HandOver::Unknown { .. } => {
            out::data(format_args!("nobody knows whether it was accepted: {note}"));
            Ok(Exit::ProblemFound)
        }
    }
}
