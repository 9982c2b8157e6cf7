//! Data to standard output, words about it to standard error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

/// Writes a line of data. A reader that has gone, as in `digestd status | head`, is no error of ours.
pub fn data(text: impl Display) {
    line(text);
}

/// Like [`data`], for long lists. False: the reader has gone, and the rest need not be read.
pub fn line(text: impl Display) -> bool {
    writeln!(io::stdout().lock(), "{text}").is_ok()
}

/// Writes a value as JSON, for scripts.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    data(serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Writes a line for the person at the terminal.
pub fn note(text: impl Display) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// A count as people read it: `1,204`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun, which takes an s unless there is one.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (count, text) in [(0, "0"), (7, "7"), (999, "999"), (1_204, "1,204"), (1_000_000, "1,000,000")] {
            assert_eq!(grouped(count), text);
        }
        assert_eq!((counted(1, "org"), counted(0, "org")), ("1 org".to_owned(), "0 orgs".to_owned()));
    }
}
