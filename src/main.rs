//! The `digestd` program: parse, build, run, exit code.

use std::process::ExitCode;
use std::time::Duration;

use digestd::cli::Cli;
use digestd::lifecycle::Exit;

/// How long threads that cannot be stopped are waited for.
const LAST_THREADS: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let cli = match Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(cli.run());
            // A name that is still being looked up in a thread must not hold the process up.
            runtime.shutdown_timeout(LAST_THREADS);
            exit.into()
        }
        Err(_) => Exit::Internal.into(),
    }
}
