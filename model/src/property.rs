//! What must hold, whatever happens.

use stateright::Property;

use crate::protocol::Protocol;
use crate::state::{MessageState, SendState, State};

/// All properties. The last one shows that the model does its work at all.
#[must_use]
pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always("never two accepted hand-overs", |_, state: &State| {
            state.history.accepted.iter().flatten().all(|accepted| *accepted <= 1)
        }),
        Property::always("no write by an old epoch or token", |_, state: &State| !state.history.stale_write),
        Property::always("a final state stays final", |_, state: &State| !state.history.left_final),
        Property::always("a known answer is never thrown away", |_, state: &State| {
            !state.history.thrown_away
        }),
        Property::always("uncertain only after a marker", |_, state: &State| {
            state
                .messages()
                .all(|(_, message)| message.state != MessageState::Uncertain || message.was_marked)
        }),
        Property::always("missed never beside enqueued", |protocol: &Protocol, state: &State| {
            let both = |org: usize| state.history.enqueued[org] && state.history.missed[org];
            protocol.restores > 0 || !(0..protocol.admins.len()).any(both)
        }),
        Property::always("a duplicate only beside a body that left", duplicate_beside_a_body),
        Property::always("at most one marker per connection", one_marker_per_connection),
        Property::always("every claim ends", |protocol: &Protocol, state: &State| {
            !is_quiet(protocol, state) || claims_ended(state)
        }),
        Property::always("every message ends", |protocol: &Protocol, state: &State| {
            !is_quiet(protocol, state) || messages_ended(state)
        }),
        Property::sometimes("everybody gets a digest", |_, state: &State| {
            state.history.accepted.iter().flatten().all(|accepted| *accepted == 1)
        }),
    ]
}

/// After a restore the guard may know a hand-over that the database has forgotten, begun or not.
fn duplicate_beside_a_body(protocol: &Protocol, state: &State) -> bool {
    let explained = |org: usize, admin: usize| state.history.bodies[org][admin] > 0;
    protocol.restores > 0
        || state.messages().all(|(place, message)| {
            message.state != MessageState::Duplicate || explained(place.org, place.admin)
        })
}

fn one_marker_per_connection(_: &Protocol, state: &State) -> bool {
    state.replicas.iter().all(|replica| {
        let marked = |message: &crate::state::Message| {
            message.state == MessageState::Sending && message.owner == Some(replica.life)
        };
        state.messages().filter(|(_, message)| marked(message)).count() <= 1
    })
}

/// Nothing goes on by itself any more.
fn is_quiet(protocol: &Protocol, state: &State) -> bool {
    let mut steps = Vec::new();
    protocol.steps(state, &mut steps);
    steps.is_empty()
}

/// Every organisation has its send, or had it and is long forgotten.
fn claims_ended(state: &State) -> bool {
    state.sends.iter().enumerate().all(|(org, send)| match send {
        Some(send) => send.state != SendState::Claimed,
        None => state.old && (state.history.enqueued[org] || state.history.missed[org]),
    })
}

fn messages_ended(state: &State) -> bool {
    state.messages().all(|(_, message)| message.state.is_final() || message.state == MessageState::Uncertain)
}
