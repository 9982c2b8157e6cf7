//! Explores every scenario completely and prints how many states it has.

use std::process::ExitCode;

use digestd_model::scenario;
use stateright::{Checker, Model};

fn main() -> ExitCode {
    let long = std::env::args().any(|argument| argument == "--long");
    println!("{:<20} {:>6} {:>12} {:>10}  result", "scenario", "faults", "states", "seconds");
    let mut sound = true;
    for protocol in scenario::all(long) {
        let (name, faults) = (protocol.name, protocol.faults);
        let started = std::time::Instant::now();
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        let found: Vec<_> = checker.discoveries().into_iter().filter(|(name, _)| !is_wanted(name)).collect();
        let result = if found.is_empty() { "holds" } else { "BROKEN" };
        let seconds = started.elapsed().as_secs_f64();
        println!("{name:<20} {faults:>6} {:>12} {seconds:>10.1}  {result}", checker.unique_state_count());
        for (property, path) in found {
            sound = false;
            println!("  {property}:");
            for action in path.into_actions() {
                println!("    {action:?}");
            }
        }
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The one property that is meant to be discovered.
fn is_wanted(property: &str) -> bool {
    property == "everybody gets a digest"
}
