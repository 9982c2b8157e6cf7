//! Messages (RFC 5322) and submission (RFC 5321). The only module that names lettre.

pub mod compose;
pub mod header;
pub mod wire;
