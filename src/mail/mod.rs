//! Messages (RFC 5322) and submission (RFC 5321). The only module that names lettre.
//!
//! Submission in reading order: [`transport`] connects and is what the delivery loop holds,
//! [`session`] speaks with a relay phase by phase, [`folder`] writes files instead.

pub mod folder;
mod hello;
mod lenient;
mod offers;
pub mod session;
pub mod settings;
mod stream;
mod tls;
pub mod transport;
pub mod wire_safety;
