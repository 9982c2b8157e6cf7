//! The HTTP routes, on both databases.

mod probes;
mod routes;
mod unsubscribe;
