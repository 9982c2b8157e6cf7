//! The store, on both databases.

mod claims;
mod outbox;
