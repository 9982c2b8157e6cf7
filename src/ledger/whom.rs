//! Whom a question about an org's digest is narrowed to.

use crate::domain::address::Address;

/// An admin, by address or by id, as a person typed it. A broken address is one too: it is what the person
/// may be asking about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whom {
    given: String,
    address: String,
}

impl Whom {
    /// Takes any text; addresses are compared as messages have them.
    pub fn new(text: &str) -> Self {
        let given = text.trim();
        let address = Address::parse(given)
            .map_or_else(|_| given.to_lowercase(), |address| address.normal().to_owned());
        Self { given: given.to_owned(), address }
    }

    /// Whether this admin is meant.
    pub fn is(&self, user: &str, address: &str) -> bool {
        address == self.address || user == self.given
    }

    /// As an address.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_is_found_by_address_by_a_broken_one_and_by_id() {
        assert!(Whom::new(" Ann@ACME.example ").is("1", "ann@acme.example"));
        assert!(Whom::new("Not An Address").is("1", "not an address"));
        assert!(Whom::new("5A1E").is("5A1E", "ann@acme.example"));
        assert!(!Whom::new("5a1e").is("5A1E", "ann@acme.example"));
        assert!(!Whom::new("bob@acme.example").is("1", "ann@acme.example"));
    }
}
