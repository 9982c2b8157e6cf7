//! The `digestd` program: parse, build, run, exit code.

use std::process::ExitCode;

use digestd::cli::Cli;
use digestd::lifecycle::Exit;

fn main() -> ExitCode {
    let cli = match Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(cli.run()).into(),
        Err(_) => Exit::Internal.into(),
    }
}
