//! A parser of replies that takes what relays really send.
//!
//! RFC 5321 §4.2 wants `250 text` CRLF in ASCII. Met in the wild: a bare `250`, codes such as
//! 571, Latin-1 text, lines that end in LF alone. After the final dot each of them is a definite
//! answer, and a strict parser would make an uncertain message of it.

use std::collections::VecDeque;

use crate::domain::reply::{Enhanced, Reply};

/// The longest line taken, in bytes. RFC 5321 §4.5.3.1.5 allows 512.
const MAX_LINE_BYTES: usize = 4096;
/// The longest reply taken, in bytes. The answer to EHLO, the longest there is, has some hundreds.
const MAX_REPLY_BYTES: usize = 16 * 1024;
/// The most lines of one reply. lettre reads a reply again from its start for each line, so that
/// many short lines would cost time by their square.
const MAX_REPLY_LINES: usize = 128;
/// What is kept of a line, in characters.
const MAX_LINE_CHARS: usize = 480;
/// What is kept of a reply for the ledger, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// A whole reply, line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawReply {
    /// The three digits, 200 to 599.
    pub code: u16,
    /// The text of each line: valid UTF-8, no controls, cut.
    pub lines: Vec<String>,
}

impl RawReply {
    /// Whether the relay agrees: 2xx, but none that belongs to another command.
    pub fn is_ok(&self) -> bool {
        // 220, 221 and 235 greet, part and let in; as an answer to anything else they show
        // that question and answer are out of step.
        (200..300).contains(&self.code) && ![220, 221, 235].contains(&self.code)
    }

    /// Whether the relay refuses: 4xx or 5xx.
    pub fn is_refusal(&self) -> bool {
        self.code >= 400
    }

    /// The reply as the rest of the program knows it.
    pub fn to_reply(&self) -> Reply {
        let enhanced = self.lines.first().and_then(|line| enhanced(line));
        // Where the enhanced code contradicts the reply code, the reply code is right.
        let enhanced = enhanced.filter(|enhanced| enhanced.class == self.code / 100);
        let text: String = self.lines.join(" ").trim().chars().take(MAX_TEXT_CHARS).collect();
        Reply { code: self.code, enhanced, text }
    }
}

/// The bytes are not a reply, or too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line does not begin with a reply code, or the lines of one reply differ in it.
    #[error("the relay's answer is not an SMTP reply")]
    Malformed,
    /// A line or a reply has no end.
    #[error("the relay's answer is too long")]
    TooLong,
}

/// Collects bytes into replies, however they are cut into reads.
#[derive(Debug, Default)]
pub struct ReplyParser {
    line: Vec<u8>,
    unfinished: Option<RawReply>,
    bytes: usize,
}

impl ReplyParser {
    /// Takes bytes; appends every reply that they complete to `replies`, and each complete line to
    /// `strict`, in a form that the strictest parser accepts. After an error the parser is of no
    /// more use; replies completed before it stand.
    pub fn push(
        &mut self,
        bytes: &[u8],
        strict: &mut Vec<u8>,
        replies: &mut VecDeque<RawReply>,
    ) -> Result<(), ReplyError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            self.bytes += piece.len();
            if self.line.len() > MAX_LINE_BYTES || self.bytes > MAX_REPLY_BYTES {
                return Err(ReplyError::TooLong);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.take_line(line.trim_ascii_end(), strict, replies)?;
            }
        }
        Ok(())
    }

    /// Whether the bytes so far end with a whole reply.
    pub fn is_between_replies(&self) -> bool {
        self.line.is_empty() && self.unfinished.is_none()
    }

    fn take_line(
        &mut self,
        line: &[u8],
        strict: &mut Vec<u8>,
        replies: &mut VecDeque<RawReply>,
    ) -> Result<(), ReplyError> {
        if line.is_empty() {
            return Ok(());
        }
        let (code, last, text) = split(line).ok_or(ReplyError::Malformed)?;
        let reply = self.unfinished.get_or_insert_with(|| RawReply { code, lines: Vec::new() });
        if reply.code != code {
            return Err(ReplyError::Malformed);
        }
        if reply.lines.len() == MAX_REPLY_LINES {
            return Err(ReplyError::TooLong);
        }
        write_strict(code, last, &text, strict);
        reply.lines.push(text);
        if last && let Some(reply) = self.unfinished.take() {
            self.bytes = 0;
            replies.push_back(reply);
        }
        Ok(())
    }
}

/// Code, whether it is the last line of its reply, text.
fn split(line: &[u8]) -> Option<(u16, bool, String)> {
    let (digits, rest) = line.split_at_checked(3)?;
    let code = digits
        .iter()
        .try_fold(0, |code, byte| byte.is_ascii_digit().then(|| code * 10 + u16::from(byte - b'0')))?;
    if !(200..600).contains(&code) || rest.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let last = rest.first() != Some(&b'-');
    let text = rest.strip_prefix(b"-").or_else(|| rest.strip_prefix(b" ")).unwrap_or(rest);
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    Some((code, last, String::from_utf8_lossy(text).chars().take(MAX_LINE_CHARS).map(clean).collect()))
}

/// The same line with a second digit that RFC 5321 §4.2.1 knows, a text, and a CRLF.
fn write_strict(code: u16, last: bool, text: &str, strict: &mut Vec<u8>) {
    let second = (code / 10 % 10).min(5);
    let code = code / 100 * 100 + second * 10 + code % 10;
    let text = if text.trim().is_empty() { "-" } else { text };
    strict.extend_from_slice(format!("{code}{}{text}\r\n", if last { ' ' } else { '-' }).as_bytes());
}

/// The enhanced status code that a text begins with (RFC 2034 §4).
fn enhanced(text: &str) -> Option<Enhanced> {
    let mut parts = text.split_whitespace().next()?.splitn(3, '.').map(|part| {
        let digits = !part.is_empty() && part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    });
    let (class, subject, detail) = (parts.next()??, parts.next()??, parts.next()??);
    Some(Enhanced { class, subject, detail })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> (Result<(), ReplyError>, Vec<RawReply>, Vec<u8>) {
        let (mut strict, mut replies) = (Vec::new(), VecDeque::new());
        let result = ReplyParser::default().push(bytes, &mut strict, &mut replies);
        (result, replies.into(), strict)
    }

    #[track_caller]
    fn check(bytes: &[u8], code: u16, text: &str, strict: &str) {
        let (result, replies, clean) = parse(bytes);
        assert_eq!(result, Ok(()));
        assert_eq!(replies.len(), 1, "{replies:?}");
        let reply = replies[0].to_reply();
        assert_eq!((reply.code, reply.text.as_str()), (code, text));
        assert_eq!(String::from_utf8(clean).unwrap(), strict);
    }

    #[test]
    fn what_relays_really_send_is_understood() {
        check(b"250 2.0.0 ok\r\n", 250, "2.0.0 ok", "250 2.0.0 ok\r\n");
        check(b"250\r\n", 250, "", "250 -\r\n");
        check(b"250\n", 250, "", "250 -\r\n");
        check(b"250 ok\n", 250, "ok", "250 ok\r\n");
        check(b"571 no\r\n", 571, "no", "551 no\r\n");
        check(b"550 bo\xeete pleine\r\n", 550, "bo\u{fffd}te pleine", "550 bo\u{fffd}te pleine\r\n");
        check(b"250-one\r\n250 two\r\n", 250, "one two", "250-one\r\n250 two\r\n");
        check(b"250-one\n250\n", 250, "one", "250-one\r\n250 -\r\n");
        check(b"\r\n250 after an empty line\r\n", 250, "after an empty line", "250 after an empty line\r\n");
        check(b"250:ok\r\n", 250, ":ok", "250 :ok\r\n");
        check(b"451 a\x00b\x1b[31m\r\n", 451, "a b [31m", "451 a b [31m\r\n");
    }

    #[test]
    fn what_is_not_a_reply_is_refused() {
        for bytes in [
            &b"hello\r\n"[..],
            b"25\r\n",
            b"2500 ok\r\n",
            b"150 ok\r\n",
            b"650 ok\r\n",
            b"250-a\r\n251 b\r\n",
            b"\xff\xfe\xfd\r\n",
        ] {
            assert_eq!(parse(bytes).0, Err(ReplyError::Malformed), "{bytes:?}");
        }
        assert_eq!(parse(&[b'2'; MAX_LINE_BYTES + 1]).0, Err(ReplyError::TooLong));
        assert_eq!(parse(&b"250-again\r\n".repeat(MAX_REPLY_LINES + 1)).0, Err(ReplyError::TooLong));
    }

    #[test]
    fn an_enhanced_code_is_read_where_it_agrees_with_the_reply_code() {
        let of = |line: &str| {
            let reply = RawReply { code: 550, lines: vec![line.to_owned()] }.to_reply();
            reply.enhanced.map(|e| (e.class, e.subject, e.detail))
        };
        assert_eq!(of("5.7.26 unauthenticated"), Some((5, 7, 26)));
        assert_eq!(of("5.1.1"), Some((5, 1, 1)));
        assert_eq!(of("4.2.2 contradicts the 550"), None);
        assert_eq!(of("5.7 too short"), None);
        assert_eq!(of("5.7.1.2 too long"), None);
        assert_eq!(of("5.7.1234 too long"), None);
        assert_eq!(of("127.0.0.1 is not it"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_cutting_changes_nothing(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'2'), Just(b'5'), Just(b'-'), Just(b'\r'), Just(b'\n'), any::<u8>()], 0..300),
            cut in 0usize..300,
        ) {
            let whole = parse(&bytes);
            let cut = cut.min(bytes.len());
            let (mut strict, mut replies) = (Vec::new(), VecDeque::new());
            let mut parser = ReplyParser::default();
            let result = parser
                .push(&bytes[..cut], &mut strict, &mut replies)
                .and_then(|()| parser.push(&bytes[cut..], &mut strict, &mut replies));
            prop_assert_eq!(whole, (result, Vec::from(replies), strict));
        }
    }
}
