//! One function per target. Each panics where a promise is broken, and for no other reason.

use std::collections::VecDeque;

use digestd::config::Config;
use digestd::domain::token::KeyRing;
use digestd::mail::lenient::ReplyParser;
use digestd::source::operator::param::{Named as _, Param};
use digestd::source::operator::scan::{Dialect, scan};
use secrecy::SecretString;

const SECRET: &str = "correct-horse-battery-staple-0123456789";

/// The token of an unsubscribe link: nobody but the key's holder makes one that opens.
pub fn token(data: &[u8]) {
    let Ok(keys) = KeyRing::new(&[SecretString::from(SECRET)]) else { panic!("the key is long enough") };
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(opened) = keys.open(text) {
        let signed = keys.sign(opened.subscription, opened.scope);
        assert_eq!(signed.as_str(), text, "two texts open as one token");
    }
}

/// The configuration file: an error with a place or a configuration, and no secret in the error.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let secret = [("DIGESTD__RELAY__PASSWORD".to_owned(), SECRET.to_owned())];
    if let Err(problems) = Config::parse(text, secret) {
        let told = problems.to_string();
        assert!(!told.trim().is_empty(), "an error without a word");
        assert!(!told.contains(SECRET), "an error tells a secret");
    }
}

/// The relay's replies: the same ones however the bytes are cut, each clean and bounded.
pub fn reply(data: &[u8]) {
    let (Some((cut, bytes)), mut whole) = (data.split_first(), VecDeque::new()) else { return };
    let (mut strict, mut strict_too) = (Vec::new(), Vec::new());
    let at_once = ReplyParser::default().push(bytes, &mut strict, &mut whole);
    let (mut parser, mut pieces) = (ReplyParser::default(), VecDeque::new());
    let mut piecewise = Ok(());
    for piece in bytes.chunks(usize::from(*cut) % 7 + 1) {
        if piecewise.is_ok() {
            piecewise = parser.push(piece, &mut strict_too, &mut pieces);
        }
    }
    assert_eq!(whole, pieces, "the cut into reads changes the replies");
    assert_eq!(at_once.is_ok(), piecewise.is_ok(), "the cut into reads changes the verdict");
    for reply in whole {
        assert!((200..600).contains(&reply.code), "a code out of range");
        let told = reply.to_reply();
        assert!(
            told.text.chars().count() <= 500 && !told.text.chars().any(char::is_control),
            "a text that is not clean"
        );
    }
    assert!(std::str::from_utf8(&strict).is_ok(), "a strict line that is not UTF-8");
}

/// The operator's SQL: everything but semicolons at the end comes back byte by byte, and scanning the
/// answer again finds the same parameters.
pub fn scan_sql(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for dialect in [Dialect::Postgres, Dialect::Sqlite] {
        let Ok(scanned) = scan::<Param>(text, dialect) else { continue };
        let same = scanned.spelt(|param| format!(":{}", param.name()));
        assert!(without_semicolons(text).eq(without_semicolons(&same)), "the text has changed");
        let Ok(again) = scan::<Param>(&same, dialect) else { panic!("what was a query is none any more") };
        assert_eq!(scanned.params(), again.params(), "other parameters the second time");
    }
}

fn without_semicolons(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| *c != ';')
}
