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
        Self(hash.iter().map(|byte| format!("{byte:02x}")).collect())
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
