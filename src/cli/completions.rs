//! `digestd completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, out};
use crate::lifecycle::Exit;

#[derive(Debug, Args)]
#[command(after_help = "Example:
  digestd completions bash > /usr/share/bash-completion/completions/digestd")]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "digestd", &mut script);
    out::data(String::from_utf8_lossy(&script).trim_end());
    Exit::Ok
}
