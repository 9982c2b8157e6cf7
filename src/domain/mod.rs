//! What the words mean: pure types and decisions, no I/O, no clock, no database.
//!
//! Reading order: who ([`ids`], [`address`]), when ([`week`], [`zone`],
//! [`schedule`], [`candidate`], [`due`]), what ([`send`], [`digest`]), and how it travels
//! ([`text`], [`message`], [`ends`], [`reply`], [`retry`], [`fingerprint`], [`token`]).

pub mod address;
pub mod candidate;
pub mod digest;
pub mod due;
pub mod ends;
pub mod excerpt;
pub mod fingerprint;
pub mod ids;
pub mod message;
pub mod reply;
pub mod retry;
pub mod schedule;
pub mod send;
pub mod text;
pub mod token;
pub mod week;
pub mod zone;
