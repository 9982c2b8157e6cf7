//! Who is signed in: a signed cookie, and the proof that a form belongs to it.
//!
//! The signing key is derived from the configured token, so that every replica opens the cookies of the
//! others, and a new token ends all sessions. A cookie is 57 bytes in base64url:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | `v` for a visitor before the log-in, `o` for the operator |
//! | 8 | when it was issued, in milliseconds |
//! | 16 | chance |
//! | 32 | HMAC-SHA-256 over a label and all of the above |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use uuid::Uuid;

/// The cookie's name.
const COOKIE: &str = "digestd_admin";
/// How long a log-in holds.
const LIVES: TimeDelta = TimeDelta::hours(8);

const SIGNED_BYTES: usize = 25;
const TOKEN_LABEL: &[u8] = b"digestd admin token\0";
const COOKIE_LABEL: &[u8] = b"digestd admin cookie\0";
const FORM_LABEL: &[u8] = b"digestd admin form\0";

/// What the configured token is compared with and signs with.
pub(in crate::http) struct Keys {
    mac: Hmac<Sha256>,
    token: Vec<u8>,
}

/// Whose cookie it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// Somebody who sees the log-in page.
    Visitor,
    /// Somebody who knew the token.
    Operator,
}

/// A cookie whose signature has been found good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// Whose it is.
    pub holder: Holder,
    issued_at: DateTime<Utc>,
    cookie: String,
}

impl Keys {
    pub(in crate::http) fn new(token: &SecretString) -> Self {
        let bytes = token.expose_secret().trim().as_bytes();
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104 §2)")]
        let mac = Hmac::new_from_slice(bytes).expect("a key of any length");
        let token = over(&mac, TOKEN_LABEL, bytes).finalize().into_bytes().to_vec();
        Self { mac, token }
    }

    /// Whether a text is the token. Takes the same time wherever the two differ.
    pub(in crate::http) fn is_token(&self, given: &str) -> bool {
        over(&self.mac, TOKEN_LABEL, given.as_bytes()).verify_slice(&self.token).is_ok()
    }

    /// A new cookie.
    pub(super) fn issue(&self, holder: Holder, now: DateTime<Utc>) -> Session {
        let mut bytes = vec![holder.byte()];
        bytes.extend(now.timestamp_millis().to_be_bytes());
        bytes.extend(Uuid::new_v4().as_bytes());
        let mac = over(&self.mac, COOKIE_LABEL, &bytes).finalize().into_bytes();
        bytes.extend(mac);
        Session { holder, issued_at: now, cookie: URL_SAFE_NO_PAD.encode(bytes) }
    }

    /// The session of a `Cookie` header; `None` if no cookie of ours in it was signed by this key.
    pub(super) fn open(&self, header: &str) -> Option<Session> {
        header
            .split(';')
            .filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
            .find_map(|cookie| self.open_one(cookie))
    }

    fn open_one(&self, cookie: &str) -> Option<Session> {
        let bytes = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (signed, mac) = bytes.split_at_checked(SIGNED_BYTES)?;
        over(&self.mac, COOKIE_LABEL, signed).verify_slice(mac).ok()?;
        let (&holder, rest) = signed.split_first()?;
        let millis = i64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
        Some(Session {
            holder: Holder::of(holder)?,
            issued_at: DateTime::from_timestamp_millis(millis)?,
            cookie: cookie.to_owned(),
        })
    }

    /// What every form of a session carries.
    pub(super) fn form_token(&self, session: &Session) -> String {
        let mac = over(&self.mac, FORM_LABEL, session.cookie.as_bytes()).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode(mac)
    }

    /// Whether a form was made for this session.
    pub(super) fn is_form_token(&self, session: &Session, given: &str) -> bool {
        let Ok(given) = URL_SAFE_NO_PAD.decode(given) else { return false };
        over(&self.mac, FORM_LABEL, session.cookie.as_bytes()).verify_slice(&given).is_ok()
    }
}

impl Session {
    /// Whether it still opens anything.
    pub(super) fn is_live(&self, now: DateTime<Utc>) -> bool {
        now < self.issued_at + LIVES
    }

    /// The `Set-Cookie` value. A log-in also ends with the browser: there is no `Max-Age`.
    pub(super) fn set_cookie(&self) -> String {
        format!("{COOKIE}={}; Path=/admin; Secure; HttpOnly; SameSite=Strict", self.cookie)
    }

    /// The `Set-Cookie` value that removes it.
    pub(super) fn remove_cookie() -> String {
        format!("{COOKIE}=; Path=/admin; Max-Age=0; Secure; HttpOnly; SameSite=Strict")
    }
}

impl Holder {
    const fn byte(self) -> u8 {
        match self {
            Self::Visitor => b'v',
            Self::Operator => b'o',
        }
    }

    const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'v' => Some(Self::Visitor),
            b'o' => Some(Self::Operator),
            _ => None,
        }
    }
}

fn over(mac: &Hmac<Sha256>, label: &[u8], text: &[u8]) -> Hmac<Sha256> {
    mac.clone().chain_update(label).chain_update(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(token: &str) -> Keys {
        Keys::new(&SecretString::from(token))
    }

    fn now() -> DateTime<Utc> {
        "2026-07-06T06:00:00Z".parse().unwrap()
    }

    fn header(session: &Session) -> String {
        session.set_cookie().split(';').next().unwrap().to_owned()
    }

    #[test]
    fn only_the_token_itself_is_the_token() {
        let keys = keys("correct horse battery");
        assert!(keys.is_token("correct horse battery"));
        for wrong in ["", "correct horse batter", "correct horse battery ", "Correct horse battery", "\0"] {
            assert!(!keys.is_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_cookie_is_opened_by_every_replica_with_the_same_token_and_by_no_other() {
        let session = keys("a").issue(Holder::Operator, now());
        assert_eq!(keys("a").open(&header(&session)), Some(session.clone()));
        assert_eq!(keys("a").open(&format!("theme=dark; {}; x=y", header(&session))), Some(session.clone()));
        assert_eq!(keys("b").open(&header(&session)), None);
        assert_ne!(keys("a").issue(Holder::Operator, now()), session, "no two are the same");
    }

    #[test]
    fn a_changed_cookie_opens_nothing() {
        let keys = keys("a");
        let good = header(&keys.issue(Holder::Visitor, now()));
        let start = COOKIE.len() + 1;
        for at in start..good.len() {
            let new = if good.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut changed = good.clone();
            changed.replace_range(at..=at, new);
            assert_eq!(keys.open(&changed), None, "{at}");
        }
        for odd in ["", "digestd_admin", "digestd_admin=", "digestd_admin=A", "digestd_admin=\u{fc}", ";;=;"]
        {
            assert_eq!(keys.open(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_log_in_ends_after_eight_hours() {
        let session = keys("a").issue(Holder::Operator, now());
        assert!(session.is_live(now() + TimeDelta::hours(8) - TimeDelta::milliseconds(1)));
        assert!(!session.is_live(now() + TimeDelta::hours(8)));
    }

    #[test]
    fn a_form_belongs_to_one_session() {
        let keys = keys("a");
        let (one, other) = (keys.issue(Holder::Operator, now()), keys.issue(Holder::Operator, now()));
        assert!(keys.is_form_token(&one, &keys.form_token(&one)));
        assert!(!keys.is_form_token(&other, &keys.form_token(&one)));
        assert!(!keys.is_form_token(&one, "") && !keys.is_form_token(&one, "not base64!"));
    }

    #[test]
    fn the_cookie_says_nothing_and_goes_nowhere_else() {
        let session = keys("a secret token").issue(Holder::Operator, now());
        let cookie = session.set_cookie();
        assert!(cookie.ends_with("; Path=/admin; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains("secret"));
    }
}
