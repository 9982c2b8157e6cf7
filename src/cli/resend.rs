//! `digestd resend`.

use chrono::TimeDelta;
use clap::Args;
use serde::Serialize;

use super::failure::Misuse;
use super::session::{self, OrgWeek};
use super::{Global, out};
use crate::app;
use crate::domain::address::Address;
use crate::domain::week::{SendKey, WeekKey};
use crate::heartbeat;
use crate::lifecycle::Exit;
use crate::resend::Resend;
use crate::store::Store;

/// Two resends of one org in a millisecond are one person's two scripts; a few tries tell them apart.
const TRIES: i64 = 10;

#[derive(Debug, Args)]
#[command(
    after_help = "The resend gets a key of its own, so that it neither stops nor repeats the scheduled digest.
Whichever replica comes first makes and delivers it. Opted-out admins are left out here too.

Examples:
  digestd resend --org acme
  digestd resend --org acme --week 2026-W28 --to ann@acme.example"
)]
pub(super) struct Arguments {
    /// The org
    #[arg(long, value_name = "ID")]
    org: String,
    /// The week whose digest is sent again, such as 2026-W28; by default that of the newest slot
    #[arg(long, value_name = "WEEK", value_parser = session::parse_week)]
    week: Option<WeekKey>,
    /// Only to this one of the org's recipients
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Print what was asked for as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Asked<'a> {
    org: &'a str,
    key: String,
    week: String,
    first_day: String,
    last_day: String,
    send_id: i64,
    live_replicas: usize,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let only = match arguments.to.as_deref().map(Address::parse).transpose() {
        Ok(only) => only,
        Err(error) => return Err(Misuse::new(format!("--to: {error}")).into()),
    };
    let config = session::configure(global)?;
    let store = session::open(&config).await?;
    let source = app::source_of(&config, &store)?;
    let found = OrgWeek::find(&config, &store, &source, &arguments.org, arguments.week).await?;
    if found.slot.at > found.now {
        return Err(Misuse::new(format!("the digest of {} has not been due yet", found.slot.week))
            .hint("`digestd preview` shows a digest before its time")
            .into());
    }
    let resend = Resend { org: found.org.clone(), period: found.period.clone(), asked_at: found.now, only };
    if resend.only.is_some() && !resend.reaches_somebody(&source).await? {
        return Err(Misuse::new(format!("no recipient of {} has the address of --to", found.org))
            .hint("recipients are active admins who want the digest")
            .into());
    }
    let (send_id, key) = ask(&store, resend).await?;
    let live = store.live_replicas(heartbeat::EVERY * 4).await?.len();
    let asked = Asked {
        org: found.org.as_str(),
        key: key.to_string(),
        week: found.slot.week.to_string(),
        first_day: found.period.first.to_string(),
        last_day: found.period.last.to_string(),
        send_id,
        live_replicas: live,
    };
    tell(arguments, &found, &asked)?;
    Ok(Exit::Ok)
}

async fn ask(store: &Store, resend: Resend) -> anyhow::Result<(i64, SendKey)> {
    for later in 0..TRIES {
        let asked_at = resend.asked_at + TimeDelta::milliseconds(later);
        if let Some((id, key)) = (Resend { asked_at, ..resend.clone() }).ask(store).await? {
            return Ok((id.0, key));
        }
    }
    anyhow::bail!("other resends of this org were asked for in these very milliseconds; try again")
}

fn tell(arguments: &Arguments, found: &OrgWeek, asked: &Asked<'_>) -> anyhow::Result<()> {
    if arguments.json {
        out::json(asked)?;
    } else {
        let whom = if arguments.to.is_some() { "one recipient" } else { "all recipients" };
        out::data(format_args!(
            "{} of {} for {} ({} to {}) will go to {whom}",
            asked.key, found.org, found.slot.week, found.period.first, found.period.last
        ));
    }
    if asked.live_replicas == 0 {
        out::note("note: no replica is running; the first one to start will send it, within a day");
    }
    Ok(())
}
