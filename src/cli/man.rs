//! `digestd man`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use super::{Cli, out};
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(after_help = "Example:
  digestd man --out /usr/local/share/man/man1")]
pub(super) struct Arguments {
    /// Write a page for digestd and one for each command into this folder, instead of printing the first
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let Some(folder) = &arguments.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).context("writing the page")?;
        out::data(String::from_utf8_lossy(&page).trim_end());
        return Ok(Exit::Ok);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder).context("writing the pages")?;
    out::data(folder.display());
    Ok(Exit::Ok)
}
