//! What a run explores: how large the world is, what may go wrong, and which rule is left out.

use crate::mutation::Mutation;
use crate::protocol::Protocol;

impl Protocol {
    /// One organisation with one admin, and as many faults as can be explored.
    #[must_use]
    pub fn one_message(faults: u8) -> Self {
        Self {
            name: "one message",
            replicas: 2,
            admins: vec![1],
            faults,
            look_ahead: 0,
            guard: false,
            restores: 0,
            opt_outs: true,
            cancels: true,
            week_ends: false,
            mutation: None,
        }
    }

    /// One organisation with two admins: a connection has a next message.
    #[must_use]
    pub fn two_messages(faults: u8) -> Self {
        Self {
            name: "two messages",
            admins: vec![2],
            look_ahead: 1,
            opt_outs: false,
            cancels: false,
            ..Self::one_message(faults)
        }
    }

    /// Two organisations with one admin each: a sweep has more than one candidate.
    #[must_use]
    pub fn two_organisations(faults: u8) -> Self {
        Self {
            name: "two organisations",
            admins: vec![1, 1],
            opt_outs: false,
            cancels: false,
            ..Self::one_message(faults)
        }
    }

    /// The window closes, the week is closed, and retention deletes it.
    #[must_use]
    pub fn end_of_the_week(faults: u8) -> Self {
        Self {
            name: "end of the week",
            week_ends: true,
            opt_outs: false,
            cancels: false,
            ..Self::one_message(faults)
        }
    }

    /// The database is restored to a dump of before the slot, while the guard lives on.
    #[must_use]
    pub fn restore(faults: u8) -> Self {
        Self {
            name: "restore",
            guard: true,
            restores: 1,
            opt_outs: false,
            cancels: false,
            ..Self::one_message(faults)
        }
    }

    /// The guard without a restore, beside opt-outs and cancellations.
    #[must_use]
    pub fn guard(faults: u8) -> Self {
        Self { name: "guard", guard: true, ..Self::one_message(faults) }
    }

    /// The same run with a rule left out.
    #[must_use]
    pub fn without(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }
}

/// All scenarios, at the scale that takes seconds (`long` is false) or minutes.
#[must_use]
pub fn all(long: bool) -> Vec<Protocol> {
    let more = u8::from(long);
    vec![
        Protocol::one_message(2 + more),
        Protocol::two_messages(1 + more),
        Protocol::two_organisations(1 + more),
        Protocol::end_of_the_week(2 + more),
        Protocol::guard(2 + more),
        Protocol::restore(2 + more),
    ]
}
