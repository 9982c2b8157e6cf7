//! What we are compared with that is written in Python: programs of `benches/peers/`.

use std::time::Instant;

use crate::figures::rate;
use crate::world::{World, variable};

/// A run's mails per second, from the start of the process to its end, and the bytes of a mail.
pub struct Run {
    pub rate: f64,
    pub bytes: usize,
}

/// Runs a program of `benches/peers/` to its end; it prints its mails and their bytes.
pub async fn run(program: &str, world: &World, port: u16, mails: usize) -> Run {
    let python = variable("DIGESTD_BENCH_PEERS").expect("scripts/bench makes a Python");
    let started = Instant::now();
    let output = tokio::process::Command::new(python)
        .arg(format!("{}/benches/peers/{program}", env!("CARGO_MANIFEST_DIR")))
        .args([&world.url, &port.to_string()])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let mut numbers = printed.split_whitespace().filter_map(|number| number.parse::<usize>().ok());
    let (sent, bytes) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    assert!(output.status.success() && sent == mails, "{program} sent {sent} of {mails}: {complaint}");
    Run { rate: rate(mails, started), bytes: bytes / mails }
}
