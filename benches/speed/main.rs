//! How fast, and how small: every figure beside its reference, in one run.
//!
//! ```text
//! scripts/bench [NAME …]
//! ```
//!
//! Absolute figures wander with the machine and its neighbours. Ratios hold: the two sides take turns,
//! and each figure is the median of its rounds. docs/performance.md tells what is compared with what.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark that cannot run may say so bluntly"
)]

mod claim;
mod deliver;
mod drain;
mod drawing;
mod end_to_end;
mod enqueue;
mod figures;
mod gather;
mod hand_over;
mod idle;
mod lease;
mod memory;
mod peer;
mod processor;
mod relay;
mod render;
mod replica;
mod scale;
mod world;

const ALL: [&str; 11] = [
    "hand_over",
    "render",
    "claim",
    "enqueue",
    "gather",
    "lease",
    "idle",
    "drain",
    "deliver",
    "end_to_end",
    "memory",
];

fn main() {
    // cargo adds options of its own.
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if wanted.is_empty() {
        wanted = ALL.map(str::to_owned).to_vec();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for name in wanted {
            match name.as_str() {
                "hand_over" => hand_over::run().await,
                "render" => render::run(),
                "claim" => claim::run().await,
                "enqueue" => enqueue::run().await,
                "gather" => gather::run().await,
                "lease" => lease::run().await,
                "idle" => idle::run().await,
                "drain" => drain::run().await,
                "deliver" => deliver::run().await,
                "end_to_end" => end_to_end::run().await,
                "memory" => memory::run().await,
                "scale" => scale::run().await,
                other => panic!("no benchmark is called {other}; there are {}, scale", ALL.join(", ")),
            }
        }
    });
}
