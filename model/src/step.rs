//! What each step does.

use crate::database::Marked;
use crate::mutation::Mutation;
use crate::protocol::{Action, Protocol};
use crate::state::{Answer, Connection, Leased, MessageState, Org, Replica, State, Tick};

impl Protocol {
    pub(crate) fn step(&self, state: &mut State, action: Action) {
        if self.is_fault(state, action) {
            state.faults -= 1;
        }
        match action {
            Action::WithoutSend(number) => {
                let left = (0..self.admins.len()).filter(|org| state.sends[*org].is_none()).collect();
                state.replicas[number].tick = Tick::Sweeping { left };
            }
            Action::Claim(number, org) => self.claim_step(state, number, org, true),
            Action::ClaimUnanswered(number, org) => self.claim_step(state, number, org, false),
            Action::MarkSwept(number) => {
                state.swept = true;
                state.replicas[number].tick = Tick::Idle;
            }
            Action::TakeOver(number, org) => {
                let life = state.replicas[number].life;
                state.replicas[number].claim = Self::take_over(state, org, life);
            }
            Action::Renew(number) => {
                if let Some(claim) = state.replicas[number].claim {
                    Self::renew(state, claim);
                }
            }
            Action::Enqueue(number) => {
                if let Some(claim) = state.replicas[number].claim.take() {
                    self.enqueue(state, claim);
                }
            }
            Action::EnqueueUnanswered(number) => {
                if let Some(claim) = state.replicas[number].claim {
                    self.enqueue(state, claim);
                }
            }
            Action::OptOut(place) => state.opted_out[place.org][place.admin] = true,
            Action::Cancel(place) => {
                if let Some(message) = state.outbox[place.org][place.admin].as_mut() {
                    message.state = MessageState::Cancelled;
                }
            }
            Action::ClaimExpires(org) => {
                if let Some(send) = state.sends[org].as_mut() {
                    send.leased = false;
                }
            }
            Action::LeaseExpires(place) => {
                if let Some(message) = state.outbox[place.org][place.admin].as_mut() {
                    message.leased = false;
                }
            }
            Action::Crash(number) => {
                state.replicas[number] = Replica::new(state.next_life);
                state.next_life += 1;
            }
            Action::SweepMessages(place) => self.sweep_messages(state, place),
            Action::LateGiveBack(at) => {
                let (place, owner) = state.late_give_backs.remove(at);
                self.give_fingerprint_back(state, place, owner);
            }
            other => {
                self.week_step(state, other);
                self.delivery_step(state, other);
            }
        }
    }

    /// Whether a step uses up one of the faults: expiries do only while somebody holds what expires.
    fn is_fault(&self, state: &State, action: Action) -> bool {
        match action {
            Action::Crash(_)
            | Action::ClaimUnanswered(..)
            | Action::EnqueueUnanswered(_)
            | Action::MarkMessagesUnanswered(_)
            | Action::BodyAcceptedInSilence(_)
            | Action::BodyLost(_)
            | Action::GiveFingerprintBackLate(_)
            | Action::RecordResultsUnanswered(_) => true,
            Action::ClaimExpires(_) | Action::LeaseExpires(_) => {
                let mut steps = Vec::new();
                self.steps(state, &mut steps);
                !steps.contains(&action)
            }
            _ => false,
        }
    }

    fn claim_step(&self, state: &mut State, number: usize, org: Org, answered: bool) {
        let life = state.replicas[number].life;
        let claim = self.claim(state, org, life);
        if !answered {
            return;
        }
        state.replicas[number].claim = claim;
        if let Tick::Sweeping { left } = &mut state.replicas[number].tick {
            left.retain(|other| *other != org);
        }
    }

    fn week_step(&self, state: &mut State, action: Action) {
        match action {
            Action::WindowCloses => state.window_open = false,
            Action::CloseWeeks(number) => {
                let left = (0..self.admins.len()).collect();
                state.replicas[number].tick = Tick::Closing { left };
            }
            Action::RecordMissed(number, org) => {
                self.record_missed(state, org);
                if let Tick::Closing { left } = &mut state.replicas[number].tick {
                    left.retain(|other| *other != org);
                }
            }
            Action::CloseWeek(number) => {
                state.week_closed = true;
                state.replicas[number].tick = Tick::Idle;
            }
            Action::WeekGetsOld => state.old = true,
            Action::DeleteSends(org) => {
                state.sends[org] = None;
                state.outbox[org].fill(None);
            }
            Action::Restore => {
                state.restored += 1;
                state.sends.fill(None);
                state.outbox.iter_mut().for_each(|admins| admins.fill(None));
                state.swept = false;
                for replica in &mut state.replicas {
                    *replica = Replica::new(state.next_life);
                    state.next_life += 1;
                }
            }
            _ => {}
        }
    }

    fn delivery_step(&self, state: &mut State, action: Action) {
        match action {
            Action::LeaseMessages(number, place) => {
                let leased = Self::lease_messages(state, place, state.replicas[number].life);
                state.replicas[number].queue.extend(leased);
            }
            Action::MarkMessages(number) => self.mark_step(state, number),
            Action::MarkMessagesUnanswered(number) => {
                let leased = state.replicas[number].queue.remove(0);
                self.mark_messages(state, leased);
                state.replicas[number].connection = Connection::Unsure(leased);
            }
            Action::TakeBack(number) => {
                if let Connection::Unsure(leased) = state.replicas[number].connection {
                    Self::record_results(state, leased, Answer::TakenBack, Self::owner(state, leased));
                }
                state.replicas[number].connection = Connection::Free;
            }
            Action::RefuseEnvelope(number) => {
                if let Connection::Marked(leased) = state.replicas[number].connection {
                    answered(state, number, leased, Answer::Refused, false);
                }
            }
            Action::TakeFingerprint(number) => self.guard_step(state, number),
            Action::BodyAccepted(number) => self.body_step(state, number, true, Answer::Accepted),
            Action::BodyRefused(number) => self.body_step(state, number, false, Answer::Refused),
            Action::BodyAcceptedInSilence(number) => self.body_step(state, number, true, Answer::Unknown),
            Action::BodyLost(number) => self.body_step(state, number, false, Answer::Unknown),
            Action::GiveFingerprintBack(number) => self.give_back_step(state, number, true),
            Action::GiveFingerprintBackLate(number) => self.give_back_step(state, number, false),
            Action::RecordResults(number) => record_step(state, number, true),
            Action::RecordResultsUnanswered(number) => record_step(state, number, false),
            _ => {}
        }
    }

    fn mark_step(&self, state: &mut State, number: usize) {
        let reserved = match state.replicas[number].connection {
            Connection::Reserved(leased) => Some(leased),
            _ => None,
        };
        let leased = reserved.unwrap_or_else(|| state.replicas[number].queue.remove(0));
        let marked = self.mark_messages(state, leased);
        let connection = &mut state.replicas[number].connection;
        match (marked, *connection) {
            (Marked::Sending, Connection::Answered { leased: last, answer, holds, .. }) => {
                *connection = Connection::Answered { leased: last, answer, holds, next: Some(leased) };
            }
            (Marked::Sending, Connection::Reserved(_)) => *connection = Connection::Guarded(leased),
            (Marked::Sending, _) => *connection = Connection::Marked(leased),
            (Marked::Superseded | Marked::Suppressed, Connection::Answered { .. }) => {}
            (Marked::Superseded | Marked::Suppressed, _) => *connection = Connection::Free,
        }
    }

    fn guard_step(&self, state: &mut State, number: usize) {
        let before_marker = self.lacks(Mutation::GuardBeforeMarker);
        let leased = match state.replicas[number].connection {
            Connection::Marked(leased) => leased,
            _ => state.replicas[number].queue.remove(0),
        };
        if self.take_fingerprint(state, leased) {
            state.replicas[number].connection =
                if before_marker { Connection::Reserved(leased) } else { Connection::Guarded(leased) };
        } else {
            answered(state, number, leased, Answer::Duplicate, false);
        }
    }

    fn body_step(&self, state: &mut State, number: usize, accepted: bool, answer: Answer) {
        let Connection::Guarded(leased) = state.replicas[number].connection else { return };
        state.history.bodies[leased.place.org][leased.place.admin] += 1;
        state.history.accepted[leased.place.org][leased.place.admin] += u8::from(accepted);
        answered(state, number, leased, answer, self.guard);
    }

    fn give_back_step(&self, state: &mut State, number: usize, arrives: bool) {
        let Connection::Answered { leased, answer, next, .. } = state.replicas[number].connection else {
            return;
        };
        let owner = Self::owner(state, leased);
        if arrives {
            self.give_fingerprint_back(state, leased.place, owner);
        } else {
            state.late_give_backs.push((leased.place, owner));
        }
        state.replicas[number].connection = Connection::Answered { leased, answer, holds: false, next };
    }
}

fn answered(state: &mut State, number: usize, leased: Leased, answer: Answer, holds: bool) {
    state.replicas[number].connection = Connection::Answered { leased, answer, holds, next: None };
}

fn record_step(state: &mut State, number: usize, heard: bool) {
    let Connection::Answered { leased, answer, next, .. } = state.replicas[number].connection else { return };
    let owner = Protocol::owner(state, leased);
    Protocol::record_results(state, leased, answer, owner);
    if heard {
        state.replicas[number].connection = next.map_or(Connection::Free, Connection::Marked);
    }
}
