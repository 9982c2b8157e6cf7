//! What the guard remembers of a hand-over.

use std::fmt;

use sha2::{Digest, Sha256};

/// SHA-256, in hex, over normalised address, template name and dedupe key, joined by NUL.
///
/// The body is left out on purpose: it is volatile, and a second rendering of the same
/// week must be recognised as the same digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Derives the fingerprint. `dedupe_key` is the org and the send's key.
    pub fn derive(address: &str, template: &str, dedupe_key: &str) -> Self {
        let normal = address.trim().to_lowercase();
        let hash = Sha256::digest(format!("{normal}\0{template}\0{dedupe_key}").as_bytes());
        Self(hex(&hash))
    }

    /// Takes a fingerprint from the database.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::{Fingerprint, hex};

    #[test]
    fn bytes_become_two_digits_each() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }

    #[test]
    fn case_and_white_space_of_the_address_do_not_matter() {
        let derive = |address| Fingerprint::derive(address, "weekly", "acme 2026-W28");
        assert_eq!(derive(" Ann@Example.org "), derive("ann@example.org"));
        assert_ne!(derive("ann@example.org"), derive("bob@example.org"));
    }

    #[test]
    fn a_fingerprint_read_back_from_its_64_digits_is_the_same() {
        let derived = Fingerprint::derive("ann@example.org", "weekly", "acme 2026-W28");
        assert_eq!(derived.as_str().len(), 64);
        assert_eq!(derived.to_string(), derived.as_str());
        assert_eq!(Fingerprint::from_stored(derived.to_string()), derived);
    }
}
