//! Unsubscribe tokens: opaque, signed, without an address in them.
//!
//! A token is 36 bytes, 48 characters of base64url:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | the version, 1 |
//! | 2 | which key signed: the first bytes of a hash of the key |
//! | 1 | the scope that one click means |
//! | 16 | the subscription: see [`SubscriptionRef`] |
//! | 16 | HMAC-SHA-256 over a label and all of the above, cut to 128 bits |
//!
//! Tokens do not expire: a link in an old mail must still work. They are capabilities, so they
//! are kept out of logs: `Debug` shows nothing of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::fingerprint::hex;
use super::ids::OrgId;

/// The path below the public URL that tokens are appended to.
pub const UNSUBSCRIBE_PATH: &str = "/u/";

/// The fewest characters of a key. 32 hexadecimal digits are 128 bits, as many as the signature has.
pub const MIN_KEY_CHARS: usize = 32;

const VERSION: u8 = 1;
const SIGNED_BYTES: usize = 20;
const MAC_BYTES: usize = 16;
const TOKEN_CHARS: usize = (SIGNED_BYTES + MAC_BYTES) / 3 * 4;
/// Sets these signatures apart from whatever else the same key may ever sign.
const LABEL: &[u8] = b"digestd unsubscribe link, version 1\0";
const KEY_ID_LABEL: &[u8] = b"digestd key id\0";
const SUBSCRIPTION_LABEL: &[u8] = b"digestd subscription\0";

/// One address's place in one org's digest: 128 bits of SHA-256 over the two.
///
/// Whoever knows both can compute it, and that is no harm: it names a subscription and opens
/// nothing. What opens is the signature around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionRef([u8; 16]);

impl SubscriptionRef {
    /// Derives the reference; `address` is in its normal form.
    pub fn derive(org: &OrgId, address: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(SUBSCRIPTION_LABEL);
        hash.update(org.as_str());
        hash.update([0]);
        hash.update(address);
        let bytes = hash.finalize();
        Self(std::array::from_fn(|at| bytes[at]))
    }
}

impl fmt::Display for SubscriptionRef {
    /// 32 hexadecimal digits, as the database keeps it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// What one click on the mail's own unsubscribe button means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// This org's digest.
    Org,
    /// All digests from this installation.
    All,
}

impl Scope {
    const fn byte(self) -> u8 {
        match self {
            Self::Org => b'o',
            Self::All => b'a',
        }
    }

    const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'o' => Some(Self::Org),
            b'a' => Some(Self::All),
            _ => None,
        }
    }
}

/// A signed token, ready for a link.
#[derive(Clone, PartialEq, Eq)]
pub struct UnsubscribeToken(String);

impl UnsubscribeToken {
    /// What stands for tokens where the mails of several recipients are made at once: as long as one, opening
    /// nothing, and in nobody's data because it is random.
    pub fn stand_in() -> Self {
        let mut text = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        text.truncate(TOKEN_CHARS);
        Self(text)
    }

    /// The text: letters, digits, `-` and `_`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole link, `public_url` being without a slash at its end.
    pub fn link(&self, public_url: &str) -> String {
        format!("{public_url}{UNSUBSCRIBE_PATH}{}", self.0)
    }
}

impl fmt::Debug for UnsubscribeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnsubscribeToken(…)")
    }
}

/// What a token says, once its signature has been found good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Whose digest.
    pub subscription: SubscriptionRef,
    /// What one click means.
    pub scope: Scope,
}

/// The keys of unsubscribe links: the first signs, all are accepted. Cheap enough to clone.
#[derive(Clone)]
pub struct KeyRing {
    newest: Key,
    older: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: [u8; 2],
    mac: Hmac<Sha256>,
}

/// Why there is no key ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// Nothing could be signed.
    #[error("there is no key to sign unsubscribe links with")]
    Empty,
    /// Guessable.
    #[error("key {0} of the unsubscribe links has fewer than {MIN_KEY_CHARS} characters")]
    Short(usize),
}

impl KeyRing {
    /// Takes the keys as texts, the newest first.
    pub fn new(keys: &[SecretString]) -> Result<Self, KeyRingError> {
        let short = keys.iter().position(|key| key.expose_secret().chars().count() < MIN_KEY_CHARS);
        if let Some(at) = short {
            return Err(KeyRingError::Short(at + 1));
        }
        let mut keys = keys.iter().map(|key| Key::new(key.expose_secret().as_bytes()));
        let newest = keys.next().ok_or(KeyRingError::Empty)?;
        Ok(Self { newest, older: keys.collect() })
    }

    /// Signs a token by the newest key. Pure: the same in, the same out.
    pub fn sign(&self, subscription: SubscriptionRef, scope: Scope) -> UnsubscribeToken {
        let mut bytes = Vec::with_capacity(SIGNED_BYTES + MAC_BYTES);
        bytes.push(VERSION);
        bytes.extend(self.newest.id);
        bytes.push(scope.byte());
        bytes.extend(subscription.0);
        let mac = self.newest.over(&bytes).finalize().into_bytes();
        bytes.extend(&mac[..MAC_BYTES]);
        UnsubscribeToken(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Opens a token; `None` for whatever no key of ours has signed. Takes the same time for every
    /// wrong signature.
    pub fn open(&self, token: &str) -> Option<Opened> {
        if token.len() != TOKEN_CHARS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (signed, mac) = bytes.split_at_checked(SIGNED_BYTES)?;
        let (&version, rest) = signed.split_first()?;
        let (id, rest) = rest.split_at_checked(2)?;
        let (&scope, subscription) = rest.split_first()?;
        let good = |key: &Key| key.id == id && key.over(signed).verify_truncated_left(mac).is_ok();
        if version != VERSION || !self.keys().any(good) {
            return None;
        }
        Some(Opened {
            subscription: SubscriptionRef(subscription.try_into().ok()?),
            scope: Scope::of(scope)?,
        })
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.newest).chain(&self.older)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", 1 + self.older.len())
    }
}

impl Key {
    fn new(key: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(KEY_ID_LABEL).chain_update(key).finalize();
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104 §2)")]
        let mac = Hmac::new_from_slice(key).expect("a key of any length");
        Self { id: [hash[0], hash[1]], mac }
    }

    fn over(&self, signed: &[u8]) -> Hmac<Sha256> {
        self.mac.clone().chain_update(LABEL).chain_update(signed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(keys: &[&str]) -> KeyRing {
        let keys: Vec<SecretString> = keys.iter().map(|key| SecretString::from(key.repeat(32))).collect();
        KeyRing::new(&keys).unwrap()
    }

    fn subscription(org: &str, address: &str) -> SubscriptionRef {
        SubscriptionRef::derive(&OrgId::parse(org).unwrap(), address)
    }

    fn scopes() -> impl Strategy<Value = Scope> {
        prop_oneof![Just(Scope::Org), Just(Scope::All)]
    }

    proptest! {
        #[test]
        fn what_was_signed_is_opened_again(bytes: [u8; 16], scope in scopes()) {
            let token = ring(&["a"]).sign(SubscriptionRef(bytes), scope);
            prop_assert_eq!(token.as_str().len(), TOKEN_CHARS);
            prop_assert_eq!(
                ring(&["a"]).open(token.as_str()),
                Some(Opened { subscription: SubscriptionRef(bytes), scope })
            );
        }

        #[test]
        fn one_changed_character_opens_nothing(
            bytes: [u8; 16], scope in scopes(), at in 0..TOKEN_CHARS, new in "[A-Za-z0-9_-]"
        ) {
            let token = ring(&["a"]).sign(SubscriptionRef(bytes), scope);
            let mut changed = token.as_str().to_owned();
            changed.replace_range(at..=at, &new);
            let opened = ring(&["a"]).open(&changed).is_some();
            prop_assert_eq!(opened, changed == token.as_str());
        }

        #[test]
        fn a_key_that_signed_once_opens_as_long_as_it_is_kept(bytes: [u8; 16], scope in scopes()) {
            let token = ring(&["a"]).sign(SubscriptionRef(bytes), scope);
            prop_assert!(ring(&["b", "a"]).open(token.as_str()).is_some());
            prop_assert!(ring(&["b"]).open(token.as_str()).is_none());
            prop_assert_ne!(ring(&["b", "a"]).sign(SubscriptionRef(bytes), scope), token);
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in "\\PC{0,60}", exact in "[A-Za-z0-9_-]{48}") {
            prop_assert_eq!(ring(&["a"]).open(&text), None);
            prop_assert_eq!(ring(&["a"]).open(&exact), None);
        }
    }

    #[test]
    fn a_subscription_is_an_org_and_an_address_and_the_border_between_them_counts() {
        assert_eq!(subscription("acme", "ann@x.io"), subscription("acme", "ann@x.io"));
        assert_ne!(subscription("acme", "ann@x.io"), subscription("acm", "eann@x.io"));
        assert_ne!(subscription("acme", "ann@x.io"), subscription("acme", "bob@x.io"));
    }

    #[test]
    fn the_address_is_not_in_the_link_and_the_link_is_not_in_debug_texts() {
        let token = ring(&["a"]).sign(subscription("acme", "ann@x.io"), Scope::Org);
        let link = token.link("https://digest.example.com");
        assert!(link.starts_with("https://digest.example.com/u/"));
        assert!(!link.contains("ann") && !link.contains("acme"));
        assert_eq!(format!("{token:?} {:?}", ring(&["a", "b"])), "UnsubscribeToken(…) KeyRing(2 keys)");
    }

    #[test]
    fn no_key_or_a_guessable_one_makes_no_ring() {
        assert_eq!(KeyRing::new(&[]).unwrap_err(), KeyRingError::Empty);
        assert!(KeyRing::new(&["k".repeat(32).into()]).is_ok());
        let keys = ["k".repeat(32).into(), "k".repeat(31).into()];
        assert_eq!(KeyRing::new(&keys).unwrap_err(), KeyRingError::Short(2));
    }

    #[test]
    fn a_subscription_is_stored_as_32_hexadecimal_digits() {
        let bytes = std::array::from_fn(|n| u8::try_from(n * 17).unwrap());
        assert_eq!(SubscriptionRef(bytes).to_string(), "00112233445566778899aabbccddeeff");
    }

    #[test]
    fn a_stand_in_is_as_long_as_a_token_and_never_the_same() {
        let (one, other) = (UnsubscribeToken::stand_in(), UnsubscribeToken::stand_in());
        assert_eq!((one.as_str().len(), other.as_str().len()), (TOKEN_CHARS, TOKEN_CHARS));
        assert_ne!(one, other);
    }
}
