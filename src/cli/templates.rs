//! `digestd templates`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::failure::Misuse;
use super::{Global, out, session};
use crate::app;
use crate::lifecycle::Exit;
use crate::render::FILES;

#[derive(Debug, Args)]
#[command(
    after_help = "Copies of the files in templates.dir replace the built-in ones, file by file; what is not there
is built in.

Examples:
  digestd templates export templates
  DIGESTD__TEMPLATES__DIR=templates digestd templates check"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write the built-in templates and words into a folder, to be changed
    Export {
        /// The folder; files that are there already are kept
        dir: PathBuf,
    },
    /// Render the templates with a quiet, a normal and the worst week, in every language
    Check,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.action {
        Action::Export { dir } => export(dir),
        Action::Check => {
            let config = session::configure(global)?;
            let drafter = app::drafter_of(&config, session::preview_keys()?)?;
            drafter.templates.check(&drafter.brand).context("checking the templates")?;
            out::data(format_args!("ok: {}", drafter.templates.languages().join(", ")));
            Ok(Exit::Ok)
        }
    }
}

fn export(dir: &Path) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(dir).with_context(|| format!("making the folder {}", dir.display()))?;
    let there: Vec<&str> =
        FILES.iter().map(|(name, _)| *name).filter(|name| dir.join(name).exists()).collect();
    if !there.is_empty() {
        return Err(Misuse::new(format!("{} holds {} already", dir.display(), there.join(", ")))
            .hint("nothing was written; choose another folder or move those files")
            .into());
    }
    for (name, text) in FILES {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        out::data(path.display());
    }
    Ok(Exit::Ok)
}
