//! What the tests stand on.

pub mod certs;
pub mod smtp_server;
