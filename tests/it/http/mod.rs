//! The HTTP routes, on both databases.

mod admin;
mod bounces;
mod page;
mod probes;
mod routes;
mod unsubscribe;
