//! Identifiers. Each is a type of its own, so that no function takes the wrong one.

use std::fmt;

use uuid::Uuid;

/// The longest id accepted from an application, in bytes. A UUID has 36.
pub const MAX_ID_BYTES: usize = 200;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing but white space.
    #[error("an id must not be empty")]
    Empty,
    /// Longer than [`MAX_ID_BYTES`].
    #[error("an id may have at most {MAX_ID_BYTES} bytes")]
    TooLong,
    /// Control characters would break logs and headers.
    #[error("an id must not hold control characters")]
    Control,
}

fn checked(text: &str) -> Result<String, IdError> {
    if text.trim().is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    Ok(text.to_owned())
}

/// An organisation's id in the application, as text whatever its type there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrgId(String);

impl OrgId {
    /// Parses the application's id.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        checked(text).map(Self)
    }

    /// The id as the application wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OrgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An admin's id in the application, as text whatever its type there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(String);

impl UserId {
    /// Parses the application's id.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        checked(text).map(Self)
    }

    /// The id, or what can be read of it: an admin whose id is odd still has an address, and must not
    /// keep the digest from the others.
    pub fn lenient(text: &str) -> Self {
        let readable = || {
            let printable: String = text.chars().filter(|c| !c.is_control()).collect();
            let end = printable.floor_char_boundary(MAX_ID_BYTES);
            checked(&printable[..end]).unwrap_or_else(|_| "?".to_owned())
        };
        Self(checked(text).unwrap_or_else(|_| readable()))
    }

    /// The id as the application wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The row id of a send, given by the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub i64);

impl fmt::Display for SendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The row id of a message in the outbox, given by the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub i64);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fence of a claim: rises with every take-over, never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// The fence of a message's lease: rises with every lease, never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

/// The fence of leadership: rises with every election, never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub i64);

/// One start of one process. Never a host or pod name, which may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub Uuid);

impl ReplicaId {
    /// A fresh id. Called once, in `app.rs`.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one claim statement, made before the try, so that a rerun
/// after a lost answer recognises its own rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimId(pub Uuid);

impl ClaimId {
    /// A fresh identity for one batch of claims.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

/// The identity of one hand-over towards the guard, made before the fingerprint is taken. Never derived
/// from the row: a restored copy of it must not come to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GuardOwner(pub Uuid);

impl GuardOwner {
    /// A fresh identity for one hand-over.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for GuardOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_as_they_are_or_refused_with_a_reason() {
        let longest = "ü".repeat(MAX_ID_BYTES / 2);
        let longer = format!("{longest}x");
        for (text, refused) in [
            ("acme", None),
            (" Acme Inc. ", None),
            (longest.as_str(), None),
            (longer.as_str(), Some(IdError::TooLong)),
            ("", Some(IdError::Empty)),
            (" \t", Some(IdError::Empty)),
            ("a\r\nb", Some(IdError::Control)),
        ] {
            let expected = refused.map_or(Ok(text.to_owned()), Err);
            assert_eq!(OrgId::parse(text).map(|id| id.as_str().to_owned()), expected, "{text:?}");
            assert_eq!(UserId::parse(text).map(|id| id.as_str().to_owned()), expected, "{text:?}");
        }
    }

    #[test]
    fn an_odd_id_of_an_admin_becomes_what_can_be_read_of_it() {
        let (longest, longer) = ("x".repeat(MAX_ID_BYTES), "x".repeat(MAX_ID_BYTES + 1));
        let across = format!("{}ü", &longest[1..]);
        for (text, id) in [
            ("ann", "ann"),
            ("a\r\nb", "ab"),
            (longer.as_str(), longest.as_str()),
            // Never half a character.
            (across.as_str(), &longest[1..]),
            ("\0", "?"),
            ("", "?"),
        ] {
            assert_eq!(UserId::lenient(text).as_str(), id, "{text:?}");
        }
    }

    #[test]
    fn ids_are_shown_as_they_are_stored() {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_4cde_8f01_2345_6789_abcd);
        for (shown, stored) in [
            (OrgId::parse("acme").unwrap().to_string(), "acme"),
            (UserId::parse("ann").unwrap().to_string(), "ann"),
            (SendId(7).to_string(), "7"),
            (MessageId(8).to_string(), "8"),
            (ReplicaId(uuid).to_string(), "01234567-89ab-4cde-8f01-23456789abcd"),
            (GuardOwner(uuid).to_string(), "0123456789ab4cde8f0123456789abcd"),
        ] {
            assert_eq!(shown, stored);
        }
    }
}
