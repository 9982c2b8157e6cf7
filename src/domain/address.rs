//! Mail addresses, parsed once and kept in one normal form.

use std::fmt;

/// The longest address in bytes (RFC 5321 §4.5.3.1.3: a path of 256 with its brackets).
const MAX_ADDRESS_BYTES: usize = 254;
/// The longest local part in bytes (RFC 5321 §4.5.3.1.1).
const MAX_LOCAL_BYTES: usize = 64;

/// A mail address in its normal form: trimmed, lower-cased, the domain in A-labels.
///
/// The local part is lower-cased too. RFC 5321 lets a server tell `A@x.io`
/// from `a@x.io`; hardly any does, and sending one person two copies is the
/// worse mistake. The relay gets the form in which the application wrote the
/// local part: see [`Address::mailbox`].
///
/// `Debug` and `Display` show the domain only, because addresses are personal data.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    normal: String,
    mailbox: String,
}

/// Why a text is not an address that a digest can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No `@`, or nothing on one of its sides.
    #[error("an address has the form local@domain")]
    Shape,
    /// Longer than RFC 5321 allows.
    #[error("the address is longer than RFC 5321 allows")]
    TooLong,
    /// White space, controls, quotes, brackets or other characters outside an atom.
    #[error("the part before the @ holds characters that are not allowed there")]
    Local,
    /// Not a host name with at least two labels.
    #[error("the part after the @ is not a full domain name")]
    Domain,
}

/// What an attempt to deliver says against an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFault {
    /// There is no such mailbox, and there will be none.
    Hard,
    /// Anything else that ended in a failure.
    Soft,
}

impl Address {
    /// Parses and normalises an address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let (local, domain) = text.rsplit_once('@').ok_or(AddressError::Shape)?;
        if local.is_empty() || domain.is_empty() {
            return Err(AddressError::Shape);
        }
        let domain = idna::domain_to_ascii_strict(domain).map_err(|_| AddressError::Domain)?;
        check_local(local)?;
        check_domain(&domain)?;
        let mailbox = format!("{local}@{domain}");
        if local.len() > MAX_LOCAL_BYTES || mailbox.len() > MAX_ADDRESS_BYTES {
            return Err(AddressError::TooLong);
        }
        Ok(Self { normal: mailbox.to_lowercase(), mailbox })
    }

    /// The normal form: what uniqueness, opt-outs and fingerprints are about.
    pub fn normal(&self) -> &str {
        &self.normal
    }

    /// The form for the envelope and the `To` header: local part as written, domain in A-labels.
    pub fn mailbox(&self) -> &str {
        &self.mailbox
    }

    /// Whether the local part needs the SMTPUTF8 extension (RFC 6531).
    pub fn needs_smtputf8(&self) -> bool {
        !self.mailbox.is_ascii()
    }

    /// The domain in A-labels.
    pub fn domain(&self) -> &str {
        self.normal.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "…@{}", self.domain())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A dot-atom (RFC 5322 §3.2.3), widened to letters beyond ASCII (RFC 6531).
/// Quoted local parts are refused: no real admin has one, and they smuggle markup.
fn check_local(local: &str) -> Result<(), AddressError> {
    let atom = |c: char| {
        c.is_ascii_alphanumeric()
            || "!#$%&'*+-/=?^_`{|}~".contains(c)
            || (!c.is_ascii() && c.is_alphanumeric())
    };
    let well_formed = local.split('.').all(|part| !part.is_empty() && part.chars().all(atom));
    if well_formed { Ok(()) } else { Err(AddressError::Local) }
}

/// A host name of two or more labels, and no IPv4 address. That each label is one (RFC 1035 §2.3.1, as
/// relaxed by RFC 1123 §2.1) has been seen to by IDNA's strict rules.
fn check_domain(domain: &str) -> Result<(), AddressError> {
    let named = |(_, top): (&str, &str)| !top.bytes().all(|b| b.is_ascii_digit());
    if domain.rsplit_once('.').is_some_and(named) { Ok(()) } else { Err(AddressError::Domain) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, AddressError>) {
        assert_eq!(Address::parse(text).as_ref().map(Address::normal).map_err(|e| *e), expected);
    }

    #[test]
    fn addresses_are_normalised_or_refused_with_a_reason() {
        check("a@x.io", Ok("a@x.io"));
        check(" A@X.io ", Ok("a@x.io"));
        check("user@bücher.example", Ok("user@xn--bcher-kva.example"));
        check("Zoë@x.org", Ok("zoë@x.org"));
        check("no-at-sign", Err(AddressError::Shape));
        check("@x.org", Err(AddressError::Shape));
        check("a b@x.org", Err(AddressError::Local));
        check("\"a b\"@x.org", Err(AddressError::Local));
        check("a..b@x.org", Err(AddressError::Local));
        check("a\r\nb@x.org", Err(AddressError::Local));
        check("a<b>@x.org", Err(AddressError::Local));
        check("a\u{200b}@x.org", Err(AddressError::Local));
        check("a@localhost", Err(AddressError::Domain));
        check("a@[127.0.0.1]", Err(AddressError::Domain));
        check("a@127.0.0.1", Err(AddressError::Domain));
    }

    #[test]
    fn every_label_of_a_domain_is_letters_digits_and_inner_hyphens() {
        let longest = "x".repeat(63);
        for domain in ["x-y.org", "4.x.org", "x.4a", &format!("{longest}.org")] {
            check(&format!("a@{domain}"), Ok(&format!("a@{domain}")));
        }
        for domain in [
            "-x.org",
            "x-.org",
            "x.-org",
            "x.org-",
            "x_y.org",
            "x y.org",
            "x<y>.org",
            "x\r\ny.org",
            ".org",
            "x.",
            "x..org",
            "x.org.",
            ".",
            &format!("{longest}x.org"),
        ] {
            check(&format!("a@{domain}"), Err(AddressError::Domain));
        }
    }

    #[test]
    fn an_address_is_as_long_as_rfc_5321_allows_and_not_a_byte_longer() {
        let local = "a".repeat(64);
        let domain = |last: usize| ["x".repeat(63), "y".repeat(63), "z".repeat(last)].join(".");
        let longest = format!("{local}@{}", domain(61));
        assert_eq!(longest.len(), 254);
        check(&longest, Ok(&longest));
        check(&format!("{local}@{}", domain(62)), Err(AddressError::TooLong));
        check(&format!("{local}@{}", domain(63)), Err(AddressError::TooLong));
        check(&format!("{local}a@x.org"), Err(AddressError::TooLong));
    }

    #[test]
    fn the_relay_gets_the_local_part_as_it_was_written() {
        for (text, mailbox, needs_smtputf8) in [
            (" Ann.Lee@X.org ", "Ann.Lee@x.org", false),
            ("Ann@Bücher.example", "Ann@xn--bcher-kva.example", false),
            ("Zoë@x.org", "Zoë@x.org", true),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.mailbox(), address.needs_smtputf8()), (mailbox, needs_smtputf8), "{text}");
        }
    }

    #[test]
    fn debug_and_display_keep_the_local_part_to_themselves() {
        let address = Address::parse("secret@x.org").unwrap();
        assert_eq!(format!("{address} {address:?}"), "…@x.org …@x.org");
    }
}
