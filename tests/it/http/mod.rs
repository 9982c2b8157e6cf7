//! The HTTP routes, on both databases.

mod page;
mod probes;
mod routes;
mod unsubscribe;
