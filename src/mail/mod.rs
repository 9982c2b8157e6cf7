//! Messages (RFC 5322) and submission (RFC 5321). The only module that names lettre.
//!
//! A message in reading order: [`parts`], [`header`] and [`compose`] make its bytes, [`wire`] checks them.
//! Submission in reading order: [`transport`] connects and is what the delivery loop holds,
//! [`session`] speaks with a relay phase by phase, [`folder`] writes files instead.

pub mod compose;
pub mod folder;
pub mod header;
mod hello;
pub mod lenient;
mod offers;
pub mod parts;
pub mod session;
pub mod settings;
mod stream;
mod tls;
pub mod transport;
pub mod wire;

/// Parses one reply line, for tables of replies in tests.
#[cfg(test)]
pub(crate) fn reply_of_line(line: &str) -> Option<crate::domain::reply::Reply> {
    let (mut strict, mut replies) = (Vec::new(), std::collections::VecDeque::new());
    let line = format!("{line}\r\n");
    lenient::ReplyParser::default().push(line.as_bytes(), &mut strict, &mut replies).ok()?;
    Some(replies.pop_front()?.to_reply())
}
