//! `digestd import`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::failure::Misuse;
use super::{Global, out, session};
use crate::lifecycle::Exit;
use crate::source::import::{Format, Progress, import};
use crate::store::import::{ImportCount, ImportTable};

#[derive(Debug, Args)]
#[command(after_help = "Columns, those in brackets may be left out:
  orgs      id, name, timezone [, weekday, time, locale, active, created_at]
  admins    id, org_id, email [, name, locale, weekly_digest, active, opted_in_at]
  activity  id, org_id, kind, title, occurred_at [, admin_id, url, actor, value]

A row whose id is known replaces what is there; columns that the file does not have are kept.
All rows of a file are imported, or none. Times are RFC 3339 with an offset.

Examples:
  digestd import orgs orgs.csv
  digestd import activity today.jsonl --json")]
pub(super) struct Arguments {
    /// What the file holds
    #[arg(value_enum)]
    table: Table,
    /// A CSV file with a line of column names, or JSON Lines
    file: PathBuf,
    /// How the file is written, where its name does not end in .csv or .jsonl
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Table {
    Orgs,
    Admins,
    Activity,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileFormat {
    Csv,
    Jsonl,
}

#[derive(Debug, Serialize)]
struct Summary {
    table: Table,
    #[serde(flatten)]
    count: ImportCount,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let format = match arguments.format {
        Some(FileFormat::Csv) => Format::Csv,
        Some(FileFormat::Jsonl) => Format::JsonLines,
        None => Format::of(&arguments.file).ok_or_else(|| {
            Misuse::new(format!("cannot tell the format of {} from its name", arguments.file.display()))
                .hint("add --format csv or --format jsonl")
        })?,
    };
    let config = session::configure(global)?;
    let store = session::open_or_make(&config).await?;
    let table = match arguments.table {
        Table::Orgs => ImportTable::Orgs,
        Table::Admins => ImportTable::Admins,
        Table::Activity => ImportTable::Activity,
    };
    let bar = bar(&arguments.file);
    let count = import(&store, table, &arguments.file, format, |progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    let count = count?;
    if arguments.json {
        out::json(&Summary { table: arguments.table, count })?;
    } else {
        out::data(summary(arguments.table, count));
    }
    Ok(Exit::Ok)
}

/// `imported 1,204 admins (1,190 new, 14 changed)`.
fn summary(table: Table, count: ImportCount) -> String {
    let all = count.new + count.changed + count.unchanged;
    let what = match table {
        Table::Orgs => out::counted(all, "org"),
        Table::Admins => out::counted(all, "admin"),
        Table::Activity => out::counted(all, "activity row"),
    };
    let parts: Vec<String> = [(count.new, "new"), (count.changed, "changed"), (count.unchanged, "unchanged")]
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{} {word}", out::grouped(n)))
        .collect();
    if parts.is_empty() {
        format!("imported {what}")
    } else {
        format!("imported {what} ({})", parts.join(", "))
    }
}

/// Hidden where standard error is no terminal.
fn bar(file: &Path) -> ProgressBar {
    let size = std::fs::metadata(file).map_or(0, |file| file.len());
    let bar = ProgressBar::new(size);
    if let Ok(style) = ProgressStyle::with_template("{msg:9} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Checked(bytes) => {
            bar.set_message("checking");
            bar.set_position(bytes);
        }
        Progress::Written { rows, all } => {
            bar.set_message("importing");
            bar.set_length(all);
            bar.set_position(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_there_was() {
        let count = |new, changed, unchanged| ImportCount { new, changed, unchanged };
        assert_eq!(
            summary(Table::Admins, count(1_190, 14, 0)),
            "imported 1,204 admins (1,190 new, 14 changed)"
        );
        assert_eq!(summary(Table::Orgs, count(0, 0, 1)), "imported 1 org (1 unchanged)");
        assert_eq!(summary(Table::Activity, count(0, 0, 0)), "imported 0 activity rows");
    }
}
