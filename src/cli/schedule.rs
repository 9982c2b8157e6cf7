//! `digestd schedule`.

use clap::Args;
use serde::Serialize;

use super::session::OrgWeek;
use super::{Global, out, session};
use crate::app;
use crate::domain::schedule::LocalSlot;
use crate::domain::zone::offset_text;
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(
    after_help = "Marks the weeks in which the clocks of the org's zone change, and slots that lie in an hour that the
clocks skip: those open at the first moment after it."
)]
pub(super) struct Arguments {
    /// The org
    #[arg(long, value_name = "ID")]
    org: String,
    /// How many slots
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=520))]
    count: u16,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    week: String,
    at: String,
    local: String,
    offset: String,
    timezone: String,
    /// How far the clocks were put forward since the week before, in seconds.
    clock_change_seconds: i32,
    /// Whether the clocks skip the scheduled time.
    moved: bool,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let store = session::open_untouched(&config).await?;
    let source = app::source_of(&config, &store)?;
    let found = OrgWeek::find(&config, &store, &source, &arguments.org, None).await?;
    let schedule = &found.schedule;
    let zone = schedule.zone.to_string();
    let slots = schedule.upcoming(found.now).take(arguments.count.into());
    let lines: Vec<Line> = slots.map(|slot| line(&schedule.local_slot(slot), &zone)).collect();
    if arguments.json {
        out::json(&lines)?;
    } else {
        for line in &lines {
            out::data(tell(line));
        }
    }
    Ok(Exit::Ok)
}

fn line(slot: &LocalSlot, zone: &str) -> Line {
    Line {
        week: slot.slot.week.to_string(),
        at: slot.slot.at.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
        local: slot.local.format("%a %Y-%m-%d %H:%M").to_string(),
        offset: offset_text(slot.offset_seconds),
        timezone: zone.to_owned(),
        clock_change_seconds: slot.change_seconds,
        moved: slot.moved,
    }
}

fn tell(line: &Line) -> String {
    let minutes = line.clock_change_seconds.abs() / 60;
    let change = match line.clock_change_seconds {
        0 => String::new(),
        1.. => format!("  clocks went forward by {minutes} min"),
        _ => format!("  clocks went back by {minutes} min"),
    };
    let moved = if line.moved { "  the clocks skip the scheduled time" } else { "" };
    let Line { week, local, offset, timezone, at, .. } = line;
    format!("{week}  {local} {offset} {timezone}  = {at}{change}{moved}")
}
