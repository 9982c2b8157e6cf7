//! What must hold for every message before it leaves, checked on the final bytes.

use memchr::{memchr_iter, memchr2};

/// The longest line without its CRLF (RFC 5322 §2.1.1).
const MAX_LINE_BYTES: usize = 998;

/// Why bytes must not be sent: another reading of them by a server could smuggle a second
/// message, or a relay would refuse them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// A byte above 127 in a message whose address does not need SMTPUTF8.
    #[error("a byte beyond ASCII at offset {0}")]
    NotAscii(usize),
    /// A NUL.
    #[error("a NUL at offset {0}")]
    Nul(usize),
    /// A CR without LF, or an LF without CR.
    #[error("a line end that is not CRLF at offset {0}")]
    LineEnd(usize),
    /// A line longer than 998 bytes.
    #[error("a line longer than 998 bytes that ends at offset {0}")]
    LongLine(usize),
    /// The last line is not ended.
    #[error("the last line has no end")]
    Unended,
}

/// Checks the final bytes of a message. `utf8`: whether the headers may hold UTF-8,
/// because the address needs SMTPUTF8 (RFC 6532).
pub fn check(bytes: &[u8], utf8: bool) -> Result<(), WireFault> {
    let mut start = 0;
    for end in memchr_iter(b'\n', bytes) {
        let line = bytes[start..end].strip_suffix(b"\r").ok_or(WireFault::LineEnd(end))?;
        if let Some(at) = memchr2(b'\r', 0, line) {
            let at = start + at;
            return Err(if bytes[at] == 0 { WireFault::Nul(at) } else { WireFault::LineEnd(at + 1) });
        }
        if !utf8 && !line.is_ascii() {
            let beyond = line.iter().take_while(|b| b.is_ascii()).count();
            return Err(WireFault::NotAscii(start + beyond));
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(WireFault::LongLine(end));
        }
        start = end + 1;
    }
    if start == bytes.len() { Ok(()) } else { Err(WireFault::Unended) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_ascii_lines_that_end_in_crlf_pass() {
        let long = |n: usize| format!("{}\r\n", "a".repeat(n));
        assert_eq!(check(b"a\r\n\r\nb\r\n", false), Ok(()));
        assert_eq!(check(long(998).as_bytes(), false), Ok(()));
        assert_eq!(check(long(999).as_bytes(), false), Err(WireFault::LongLine(1000)));
        assert_eq!(check(b"a\nb\r\n", false), Err(WireFault::LineEnd(1)));
        assert_eq!(check(b"a\rb\r\n", false), Err(WireFault::LineEnd(2)));
        assert_eq!(check(b"a\r\r\n", false), Err(WireFault::LineEnd(2)));
        assert_eq!(check(b"a\0\r\n", false), Err(WireFault::Nul(1)));
        assert_eq!(check("é\r\n".as_bytes(), false), Err(WireFault::NotAscii(0)));
        assert_eq!(check("é\r\n".as_bytes(), true), Ok(()));
        assert_eq!(check(b"a", false), Err(WireFault::Unended));
        assert_eq!(check(b"a\r", false), Err(WireFault::Unended));
    }
}
