//! The model itself: what may happen next.

use stateright::{Model, Property};

use crate::mutation::Mutation;
use crate::property;
use crate::state::{Answer, Connection, History, MessageState, Org, Place, Replica, SendState, State, Tick};

/// Definite refusals after which a message is failed.
pub const MAX_ATTEMPTS: u8 = 2;

/// What a run explores.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part of the world that is there or not")]
pub struct Protocol {
    /// For the table.
    pub name: &'static str,
    /// How many replicas run.
    pub replicas: u8,
    /// How many admins each organisation has.
    pub admins: Vec<usize>,
    /// How many faults may happen.
    pub faults: u8,
    /// How many messages a replica leases beside the one in hand.
    pub look_ahead: usize,
    /// Whether there is a guard.
    pub guard: bool,
    /// How often the database may be restored to a dump of before the slot.
    pub restores: u8,
    /// Whether readers may opt out.
    pub opt_outs: bool,
    /// Whether somebody may cancel messages.
    pub cancels: bool,
    /// Whether the window closes.
    pub week_ends: bool,
    /// The rule that is left out.
    pub mutation: Option<Mutation>,
}

/// One step. The number is the replica's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads the candidates that have no send.
    WithoutSend(usize),
    /// Claims a candidate.
    Claim(usize, Org),
    /// The same, and its answer is lost.
    ClaimUnanswered(usize, Org),
    /// Remembers the slot as swept.
    MarkSwept(usize),
    /// Takes an expired claim over.
    TakeOver(usize, Org),
    /// Renews the claim in hand.
    Renew(usize),
    /// Enqueues the claim in hand.
    Enqueue(usize),
    /// The same, and its answer is lost.
    EnqueueUnanswered(usize),
    /// Leases a message.
    LeaseMessages(usize, Place),
    /// Sets the marker of the next message.
    MarkMessages(usize),
    /// The same, and its answer is lost.
    MarkMessagesUnanswered(usize),
    /// Records that a marker whose answer was lost is taken back: no body followed it.
    TakeBack(usize),
    /// The relay refuses the envelope.
    RefuseEnvelope(usize),
    /// Asks the guard.
    TakeFingerprint(usize),
    /// The body leaves and is accepted.
    BodyAccepted(usize),
    /// The body leaves and is refused.
    BodyRefused(usize),
    /// The body leaves, is accepted, and the answer is lost.
    BodyAcceptedInSilence(usize),
    /// The body leaves and nobody answers, or ever will.
    BodyLost(usize),
    /// Gives the fingerprint of a refused hand-over back.
    GiveFingerprintBack(usize),
    /// The same: no answer, and the request is still under way.
    GiveFingerprintBackLate(usize),
    /// A request that was under way arrives.
    LateGiveBack(usize),
    /// Records the result in hand.
    RecordResults(usize),
    /// The same, and its answer is lost.
    RecordResultsUnanswered(usize),
    /// Somebody settles an expired lease.
    SweepMessages(Place),
    /// A claim's lease runs out.
    ClaimExpires(Org),
    /// A message's lease runs out.
    LeaseExpires(Place),
    /// The process dies, and another one starts.
    Crash(usize),
    /// A reader opts out.
    OptOut(Place),
    /// Somebody cancels a message.
    Cancel(Place),
    /// The slot's window closes.
    WindowCloses,
    /// The leader reads the orgs of the week.
    CloseWeeks(usize),
    /// The leader writes an org down as missed.
    RecordMissed(usize, Org),
    /// The leader closes the week.
    CloseWeek(usize),
    /// The week gets older than the horizon.
    WeekGetsOld,
    /// Retention deletes a send.
    DeleteSends(Org),
    /// The database comes back as it was before the slot; all replicas were stopped.
    Restore,
}

impl Protocol {
    /// Whether a rule is left out.
    #[must_use]
    pub fn lacks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.admins.iter().enumerate().flat_map(|(org, n)| (0..*n).map(move |admin| Place { org, admin }))
    }

    /// What goes on by itself once nothing goes wrong any more.
    pub fn steps(&self, state: &State, out: &mut Vec<Action>) {
        for (number, replica) in state.replicas.iter().enumerate() {
            self.tick_steps(state, number, replica, out);
            self.delivery_steps(state, number, replica, out);
        }
        for (place, message) in state.messages() {
            let held = matches!(message.state, MessageState::Leased | MessageState::Sending);
            if held && !message.leased {
                out.push(Action::SweepMessages(place));
            }
            // Nobody lives who could renew or use it: this is no fault, only time.
            if held && message.leased && !has_message(state, message.owner, place) {
                out.push(Action::LeaseExpires(place));
            }
        }
        for (org, send) in state.sends.iter().enumerate() {
            let claimed = send.is_some_and(|send| send.state == SendState::Claimed && send.leased);
            if claimed && !has_claim(state, org) {
                out.push(Action::ClaimExpires(org));
            }
        }
        out.extend((0..state.late_give_backs.len()).map(Action::LateGiveBack));
        self.week_steps(state, out);
    }

    fn tick_steps(&self, state: &State, number: usize, replica: &Replica, out: &mut Vec<Action>) {
        if let Some(claim) = replica.claim {
            out.push(Action::Enqueue(number));
            let expired =
                state.sends[claim.org].is_some_and(|send| !send.leased && send.epoch == claim.epoch);
            if expired {
                out.push(Action::Renew(number));
            }
            return;
        }
        match &replica.tick {
            Tick::Idle => {
                if state.window_open && !state.swept {
                    out.push(Action::WithoutSend(number));
                }
                if !self.lacks(Mutation::ClaimIsALatch) {
                    let expired =
                        |send: &crate::state::Send| send.state == SendState::Claimed && !send.leased;
                    let orgs =
                        state.sends.iter().enumerate().filter(|(_, send)| send.as_ref().is_some_and(expired));
                    out.extend(orgs.map(|(org, _)| Action::TakeOver(number, org)));
                }
            }
            Tick::Sweeping { left } => {
                out.extend(left.iter().map(|org| Action::Claim(number, *org)));
                if left.is_empty() || self.lacks(Mutation::SweptBeforeComplete) {
                    out.push(Action::MarkSwept(number));
                }
            }
            Tick::Closing { left } => {
                out.extend(left.iter().map(|org| Action::RecordMissed(number, *org)));
                if left.is_empty() {
                    out.push(Action::CloseWeek(number));
                }
            }
        }
    }

    fn delivery_steps(&self, state: &State, number: usize, replica: &Replica, out: &mut Vec<Action>) {
        let busy = usize::from(replica.connection != Connection::Free);
        if replica.queue.len() + busy < 1 + self.look_ahead {
            let pending = state.messages().filter(|(_, m)| m.state == MessageState::Pending);
            // More leases than faults and refusals can explain are a loop.
            let bounded = pending.filter(|(_, m)| m.token < self.faults + MAX_ATTEMPTS + 1);
            out.extend(bounded.map(|(place, _)| Action::LeaseMessages(number, place)));
        }
        match replica.connection {
            Connection::Free if replica.queue.is_empty() => {}
            Connection::Free if self.lacks(Mutation::GuardBeforeMarker) => {
                out.push(Action::TakeFingerprint(number));
            }
            Connection::Free | Connection::Reserved(_) => out.push(Action::MarkMessages(number)),
            Connection::Unsure(_) => out.push(Action::TakeBack(number)),
            Connection::Marked(_) => {
                out.push(Action::RefuseEnvelope(number));
                out.push(Action::TakeFingerprint(number));
            }
            Connection::Guarded(_) => {
                out.push(Action::BodyAccepted(number));
                out.push(Action::BodyRefused(number));
            }
            Connection::Answered { answer, holds, next, .. } => {
                if holds && answer == Answer::Refused {
                    out.push(Action::GiveFingerprintBack(number));
                } else {
                    out.push(Action::RecordResults(number));
                }
                let early = self.lacks(Mutation::NextMarkerBeforeResult) && next.is_none();
                if early && !replica.queue.is_empty() {
                    out.push(Action::MarkMessages(number));
                }
            }
        }
    }

    fn week_steps(&self, state: &State, out: &mut Vec<Action>) {
        if self.lacks(Mutation::RetentionInsideHorizon) || (state.week_closed && state.old) {
            let orgs = (0..self.admins.len()).filter(|org| deletable(state, *org));
            out.extend(orgs.map(Action::DeleteSends));
        }
        if !self.week_ends {
            return;
        }
        if state.window_open {
            out.push(Action::WindowCloses);
        } else if !state.week_closed {
            let idle = |replica: &Replica| replica.tick == Tick::Idle && replica.claim.is_none();
            let leaders = state.replicas.iter().enumerate().filter(|(_, replica)| idle(replica));
            out.extend(leaders.map(|(number, _)| Action::CloseWeeks(number)));
        } else if !state.old {
            out.push(Action::WeekGetsOld);
        }
    }

    /// What may go wrong, and what people may do.
    pub fn faults(&self, state: &State, out: &mut Vec<Action>) {
        if self.opt_outs {
            let places = self.places().filter(|place| !state.opted_out[place.org][place.admin]);
            out.extend(places.map(Action::OptOut));
        }
        if self.cancels {
            let open =
                |m: &crate::state::Message| matches!(m.state, MessageState::Pending | MessageState::Leased);
            out.extend(state.messages().filter(|(_, m)| open(m)).map(|(place, _)| Action::Cancel(place)));
        }
        if state.restored < self.restores {
            out.push(Action::Restore);
        }
        if state.faults == 0 {
            return;
        }
        for (number, replica) in state.replicas.iter().enumerate() {
            out.push(Action::Crash(number));
            if replica.claim.is_some() {
                out.push(Action::EnqueueUnanswered(number));
            } else if let Tick::Sweeping { left } = &replica.tick {
                out.extend(left.iter().map(|org| Action::ClaimUnanswered(number, *org)));
            }
            match replica.connection {
                Connection::Free if !replica.queue.is_empty() && !self.lacks(Mutation::GuardBeforeMarker) => {
                    out.push(Action::MarkMessagesUnanswered(number));
                }
                Connection::Guarded(_) => {
                    out.push(Action::BodyAcceptedInSilence(number));
                    out.push(Action::BodyLost(number));
                }
                Connection::Answered { answer: Answer::Refused, holds: true, .. } => {
                    out.push(Action::GiveFingerprintBackLate(number));
                }
                Connection::Answered { .. } => out.push(Action::RecordResultsUnanswered(number)),
                _ => {}
            }
        }
        for (place, message) in state.messages() {
            let held =
                matches!(message.state, MessageState::Leased | MessageState::Sending) && message.leased;
            if held && has_message(state, message.owner, place) {
                out.push(Action::LeaseExpires(place));
            }
        }
        for (org, send) in state.sends.iter().enumerate() {
            let claimed = send.is_some_and(|send| send.state == SendState::Claimed && send.leased);
            if claimed && has_claim(state, org) {
                out.push(Action::ClaimExpires(org));
            }
        }
    }
}

fn has_message(state: &State, owner: Option<u8>, place: Place) -> bool {
    state.replicas.iter().any(|replica| Some(replica.life) == owner && replica.has(place))
}

fn has_claim(state: &State, org: Org) -> bool {
    let claimer = state.sends[org].map(|send| send.claim);
    state.replicas.iter().any(|replica| {
        let unanswered = matches!(&replica.tick, Tick::Sweeping { left } if left.contains(&org));
        Some(replica.life) == claimer && (unanswered || replica.claim.is_some_and(|claim| claim.org == org))
    })
}

fn deletable(state: &State, org: Org) -> bool {
    let settled = state.sends[org].is_some_and(|send| send.state != SendState::Claimed);
    settled && state.outbox[org].iter().flatten().all(|message| message.state.is_final())
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let per_place = |value: u8| self.admins.iter().map(|n| vec![value; *n]).collect::<Vec<_>>();
        vec![State {
            sends: vec![None; self.admins.len()],
            outbox: self.admins.iter().map(|n| vec![None; *n]).collect(),
            opted_out: self.admins.iter().map(|n| vec![false; *n]).collect(),
            swept: false,
            window_open: true,
            week_closed: false,
            old: false,
            fingerprints: self.admins.iter().map(|n| vec![None; *n]).collect(),
            late_give_backs: Vec::new(),
            replicas: (0..self.replicas).map(Replica::new).collect(),
            next_life: self.replicas,
            restored: 0,
            faults: self.faults,
            history: History {
                accepted: per_place(0),
                bodies: per_place(0),
                enqueued: vec![false; self.admins.len()],
                missed: vec![false; self.admins.len()],
                ..History::default()
            },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.steps(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}
