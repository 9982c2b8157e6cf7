//! What an error quotes of a text that somebody else wrote.

/// Long enough for any name that was almost right.
const MAX_CHARS: usize = 60;

/// The start of a text, on one line: errors end up in logs, where a line break would forge an entry.
pub fn excerpt(text: &str) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(MAX_CHARS).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_stays_on_one_line() {
        assert_eq!(excerpt("Europe/Berln"), "Europe/Berln");
        assert_eq!(excerpt("a\r\nERROR b\u{1b}[0m"), "a\u{fffd}\u{fffd}ERROR b\u{fffd}[0m");
        assert_eq!(excerpt(&"ü".repeat(1_000)), "ü".repeat(60));
    }
}
