//! The store, on both databases.

mod claims;
mod manual;
mod opt_outs;
mod outbox;
mod stats;
mod suppressions;
