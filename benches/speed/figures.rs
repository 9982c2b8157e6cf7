//! Medians, rates, and lines of a table.

use std::time::{Duration, Instant};

/// The middle one.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// So many a second, since `started`.
pub fn rate(n: usize, started: Instant) -> f64 {
    per_second(n, started.elapsed())
}

/// So many a second.
#[expect(clippy::cast_precision_loss, reason = "some thousands")]
pub fn per_second(n: usize, took: Duration) -> f64 {
    n as f64 / took.as_secs_f64()
}

/// The head of a table.
pub fn title(what: &str, ours: &str, theirs: &str) {
    println!("\n{what:<34} {ours:>14} {theirs:>14} {:>8}", "ratio");
}

/// A line of it: medians of both sides, and ours over theirs.
pub fn line(what: &str, ours: Vec<f64>, theirs: Vec<f64>) {
    let (ours, theirs) = (median(ours), median(theirs));
    println!("{what:<34} {ours:>14.1} {theirs:>14.1} {:>8.3}", ours / theirs);
}
