//! Untrusted text made fit for a mail: names, titles, subjects. Pure functions over `str`.

use std::borrow::Cow;

/// Breaks a link without being seen: ZERO WIDTH NON-JOINER.
const BREAK: char = '\u{200c}';
/// FIRST STRONG ISOLATE and POP DIRECTIONAL ISOLATE (Unicode Standard Annex 9).
const ISOLATE: (char, char) = ('\u{2068}', '\u{2069}');

/// Removes what has no place in a name: controls, line breaks, bidi controls and invisible
/// characters. White space becomes single blanks.
///
/// Joiners between two characters beyond ASCII stay: Persian words and composed emoji need them.
pub fn clean(text: &str) -> Cow<'_, str> {
    if is_tidy(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let beyond_ascii = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_invisible(c));
        if c.is_whitespace() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
        } else if is_joiner(c) {
            if beyond_ascii(out.chars().next_back()) && beyond_ascii(chars.peek().copied()) {
                out.push(c);
            }
        } else if !is_invisible(c) {
            out.push(c);
        }
    }
    out.truncate(out.trim_end().len());
    Cow::Owned(out)
}

/// Cleans, and breaks whatever a mail client would turn into a link by itself:
/// `evil.com`, `https://…`, `a@b.c`.
///
/// A name must not become a link that the reader takes for ours.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let text = clean(text);
    let may_be_link = |b: u8| matches!(b, b'.' | b'@' | b':') || !b.is_ascii();
    if !text.bytes().any(may_be_link) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        let next = chars.peek().copied();
        let breaks = match c {
            '.' | '。' | '．' | '｡' => next.is_some_and(char::is_alphabetic),
            '@' => next.is_some_and(|n| !n.is_whitespace()),
            ':' => next == Some('/') || next.is_some_and(char::is_alphabetic),
            _ => false,
        };
        if breaks {
            out.push(BREAK);
        }
    }
    Cow::Owned(out)
}

/// Keeps at most `max` characters, the last of them an ellipsis where something was cut.
pub fn truncate(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max || text.chars().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    Cow::Owned(format!("{}…", kept.trim_end()))
}

/// Whether the text holds letters that are written from right to left.
pub fn has_rtl(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(|c| matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}'))
}

/// Wraps the text in an isolate, so that its direction does not disturb what stands around it.
pub fn isolate(text: &str) -> String {
    format!("{}{text}{}", ISOLATE.0, ISOLATE.1)
}

/// An error with its causes, in one line, for the ledger.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Wraps lines at blanks so that they have at most `width` characters where that is possible.
/// A longer word, such as a link, stays whole. Continuation lines keep the indent.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / width.max(1));
    for line in text.lines() {
        let line = line.trim_end();
        if line.chars().count() <= width {
            out.push_str(line);
        } else {
            wrap_line(line, width, &mut out);
        }
        out.push('\n');
    }
    out
}

fn wrap_line(line: &str, width: usize, out: &mut String) {
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut used = 0;
    for word in line.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > width {
            out.push('\n');
            used = 0;
        }
        if used == 0 {
            out.push_str(indent);
            used = indent.chars().count();
        } else {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += len;
    }
}

/// Whether the text is printable ASCII with single blanks between its words: most texts are, and
/// they are looked at once only.
fn is_tidy(text: &str) -> bool {
    let mut previous = b' ';
    for byte in text.bytes() {
        if !(b' '..=b'~').contains(&byte) || (byte == b' ' && previous == b' ') {
            return false;
        }
        previous = byte;
    }
    previous != b' ' || text.is_empty()
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Characters that show nothing, or change how others are shown.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_lose_controls_line_breaks_and_invisible_characters() {
        assert_eq!(clean("Ana"), "Ana");
        assert_eq!(clean(" A\r\nBcc: b@x.io\0 "), "A Bcc: b@x.io");
        assert_eq!(clean("a\u{202e}b\u{2066}c\u{200b}d\u{feff}"), "abcd");
        assert_eq!(clean("one\u{2028}two\t \u{a0}three"), "one two three");
        assert_eq!(clean("\u{200d}\u{2060}"), "");
    }

    #[test]
    fn joiners_stay_where_a_script_or_an_emoji_needs_them() {
        assert_eq!(clean("می\u{200c}شود"), "می\u{200c}شود");
        assert_eq!(clean("👩\u{200d}💻"), "👩\u{200d}💻");
        assert_eq!(clean("ev\u{200c}il"), "evil");
        for (text, cleaned) in
            [("é\u{200c}il", "éil"), ("l\u{200c}é", "lé"), ("é\u{200d}", "é"), ("\u{200d}é", "é")]
        {
            assert_eq!(clean(text), cleaned);
        }
    }

    #[test]
    fn names_that_look_like_links_are_broken() {
        assert_eq!(harmless("evil.com"), "evil.\u{200c}com");
        assert_eq!(harmless("http://evil.com"), "http:\u{200c}//evil.\u{200c}com");
        assert_eq!(harmless("a@b.io"), "a@\u{200c}b.\u{200c}io");
        assert_eq!(harmless("evil。com"), "evil。\u{200c}com");
        assert_eq!(harmless("ev\u{200b}il\u{200b}.com"), "evil.\u{200c}com");
        assert_eq!(harmless("mailto:a"), "mailto:\u{200c}a");
        assert_eq!(harmless("Version 1.25, at 10:30."), "Version 1.25, at 10:30.");
        assert_eq!(harmless("Tom's R&D <x>"), "Tom's R&D <x>");
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(truncate("short", 5), "short");
        assert_eq!(truncate("äöüß", 4), "äöüß");
        assert_eq!(truncate("äöüß", 3), "äö…");
        assert_eq!(truncate("ab cd", 4), "ab…");
        assert_eq!(truncate("abc", 0), "…");
    }

    #[test]
    fn lines_are_wrapped_at_blanks_and_keep_their_indent() {
        assert_eq!(wrap("  aa bb cc\n\nx", 6), "  aa\n  bb\n  cc\n\nx\n");
        assert_eq!(wrap("a b c d", 5), "a b c\nd\n");
        assert_eq!(wrap("a  b", 4), "a  b\n");
        assert_eq!(wrap("https://example.org/long", 5), "https://example.org/long\n");
    }

    proptest! {
        #[test]
        fn cleaned_text_is_clean_and_one_line(text in any::<String>()) {
            let once = clean(&text).into_owned();
            prop_assert!(!once.chars().any(|c| is_invisible(c) && !is_joiner(c)));
            let line_ends = ['\r', '\n', '\0', '\u{2028}'];
            prop_assert!(!once.contains(line_ends));
            prop_assert_eq!(clean(&once).into_owned(), once.clone());
        }
    }

    #[test]
    fn text_without_anything_to_change_is_lent_and_not_copied() {
        for text in ["", "Ana", "Tom's R&D <x>", "a b"] {
            assert!(matches!(clean(text), Cow::Borrowed(same) if same == text), "{text:?}");
            assert!(matches!(harmless(text), Cow::Borrowed(same) if same == text), "{text:?}");
            assert!(matches!(truncate(text, 20), Cow::Borrowed(same) if same == text), "{text:?}");
        }
    }

    #[test]
    fn letters_written_from_right_to_left_are_found_and_isolated() {
        for text in ["שלום", "Café سلام", "\u{1e900}"] {
            assert!(has_rtl(text), "{text}");
        }
        for text in ["", "Ana", "Café", "日本"] {
            assert!(!has_rtl(text), "{text}");
        }
        assert_eq!(isolate("سلام"), "\u{2068}سلام\u{2069}");
    }

    #[test]
    fn an_error_is_told_with_its_causes_in_one_line() {
        let cause = std::io::Error::other("no route to host");
        let error = std::io::Error::other(Wrapped(cause));
        assert_eq!(chain(&error), "asking the database: no route to host");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("asking the database")]
    struct Wrapped(#[source] std::io::Error);
}
