//! From the outbox to the relay.
//!
//! The pure part: [`classify`] says what a hand-over means, by the table in [`rules`] and the
//! overrides in [`providers`]; [`streak`] tells a refusal of ours from a refusal of theirs.

pub mod classify;
pub mod providers;
pub mod rules;
pub mod streak;
