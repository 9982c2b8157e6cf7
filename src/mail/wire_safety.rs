//! The last look at a message before it leaves.

/// Whether every relay agrees where the message ends: only CRLF ends lines, no NUL, no line over
/// 998 bytes (RFC 5322 §2.1.1). Anything else is how mail is smuggled past a relay.
pub fn is_safe_on_the_wire(bytes: &[u8]) -> bool {
    let mut line = 0;
    let mut before = 0;
    for &byte in bytes {
        let well_placed = match byte {
            b'\n' => before == b'\r',
            0 => false,
            _ => before != b'\r',
        };
        line = if byte == b'\n' { 0 } else { line + 1 };
        // The CR of the line's end was counted too.
        if !well_placed || line > 999 {
            return false;
        }
        before = byte;
    }
    before != b'\r'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crlf_ends_lines_and_lines_are_bounded() {
        for good in [&b"a\r\n.\r\nb\r\n"[..], b"", b"no end", b"\r\n\r\n"] {
            assert!(is_safe_on_the_wire(good), "{good:?}");
        }
        for bad in [&b"a\n.\nb"[..], b"a\r.\rb", b"a\r\n.\r.\n", b"a\n", b"a\r", b"\0", b"a\r\r\n"] {
            assert!(!is_safe_on_the_wire(bad), "{bad:?}");
        }
        let line = |n: usize| [vec![b'x'; n], b"\r\n".to_vec()].concat();
        assert!(is_safe_on_the_wire(&line(998)));
        assert!(!is_safe_on_the_wire(&line(999)));
    }
}
