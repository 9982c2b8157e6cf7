//! digestd sends every organisation its weekly digest, once, from any number of identical
//! replicas.
//!
//! The modules in reading order: [`domain`] says what the words mean; [`source`] knows who
//! gets a digest and what stands in it; [`tick`] claims, gathers, renders and enqueues;
//! [`deliver`] hands messages to the relay; [`store`] holds every row and all SQL of ours.
//! [`app`] puts them together; [`cli`] is what a person types.

pub mod app;
pub mod cleanup;
pub mod cli;
pub mod clock;
pub mod config;
pub mod deliver;
pub mod demo;
pub mod domain;
pub mod faults;
pub mod guard;
pub mod heartbeat;
pub mod http;
pub mod ledger;
pub mod lifecycle;
pub mod mail;
pub mod metrics;
pub mod progress;
pub mod render;
pub mod resend;
pub mod source;
pub mod store;
pub mod telemetry;
pub mod tick;
