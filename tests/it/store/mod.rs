//! The store, on both databases.

mod claims;
mod directory;
mod leases;
mod manual;
mod opt_outs;
mod outbox;
mod queue;
mod repair;
mod retention;
mod stats;
mod suppressions;
mod weeks;
