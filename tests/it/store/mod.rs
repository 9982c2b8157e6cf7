//! The store, on both databases.

mod claims;
mod opt_outs;
mod outbox;
mod stats;
