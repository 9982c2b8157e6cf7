//! Prints the slots of every zone as CSV, for a comparison with other calendars
//! (`scripts/check-zoneinfo`). Without arguments it prints the release of the rules.
//!
//! ```sh
//! cargo run --example slots -- 2020-W01 2032-W53 mon 08:00 sun 02:30
//! ```

use std::io::{self, BufWriter, Write};

use anyhow::{Context, ensure};
use digestd::domain::schedule::{WeeklySchedule, parse_time, parse_weekday};
use digestd::domain::week::WeekKey;
use digestd::domain::zone::{self, Zone};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    match args.as_slice() {
        [] => writeln!(out, "{}", zone::tzdb_version())?,
        [first, last, moments @ ..] => {
            let weeks = (WeekKey::parse(first)?, WeekKey::parse(last)?);
            writeln!(out, "zone,weekday,time,week,unix_seconds")?;
            for name in zone::names() {
                print_zone(&mut out, name, weeks, moments)?;
            }
        }
        _ => anyhow::bail!("usage: slots [FIRST_WEEK LAST_WEEK [WEEKDAY TIME]...]"),
    }
    out.flush().context("writing the slots")
}

fn print_zone(
    out: &mut impl Write,
    name: &str,
    (first, last): (WeekKey, WeekKey),
    moments: &[String],
) -> anyhow::Result<()> {
    for moment in moments.chunks(2) {
        ensure!(moment.len() == 2, "{} has no time", moment[0]);
        let (weekday, time) = (parse_weekday(&moment[0])?, parse_time(&moment[1])?);
        let schedule = WeeklySchedule { weekday, time, zone: Zone::parse(name)? };
        let mut week = first;
        while week <= last {
            let at = schedule.slot_in(week).at.timestamp();
            writeln!(out, "{name},{weekday},{},{week},{at}", time.format("%H:%M"))?;
            week = week.next();
        }
    }
    Ok(())
}
