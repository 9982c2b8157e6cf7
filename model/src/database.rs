//! The statements, each with the fence that it has in the store.

use crate::mutation::Mutation;
use crate::protocol::{MAX_ATTEMPTS, Protocol};
use crate::state::{
    Answer, Claim, Leased, Life, Message, MessageState, Org, Owner, Place, Send, SendState, State,
};

/// What a marker write found.
pub enum Marked {
    /// The body may leave.
    Sending,
    /// The row is final.
    Suppressed,
    /// No row.
    Superseded,
}

impl Protocol {
    /// `CLAIM`: the insert, or this very claim again.
    pub(crate) fn claim(&self, state: &mut State, org: Org, life: Life) -> Option<Claim> {
        if !state.window_open && !self.lacks(Mutation::ClaimWithoutWindow) {
            return None;
        }
        match state.sends[org] {
            None => {
                state.sends[org] =
                    Some(Send { state: SendState::Claimed, epoch: 1, claim: life, leased: true });
                Some(Claim { org, epoch: 1 })
            }
            Some(send) if send.claim == life && send.state == SendState::Claimed => {
                Some(Claim { org, epoch: send.epoch })
            }
            Some(_) => None,
        }
    }

    /// `TAKE_OVER`: a higher epoch for a claim whose lease has passed.
    pub(crate) fn take_over(state: &mut State, org: Org, life: Life) -> Option<Claim> {
        let send = state.sends[org].as_mut()?;
        if send.state != SendState::Claimed || send.leased {
            return None;
        }
        *send = Send { epoch: send.epoch + 1, claim: life, leased: true, ..*send };
        Some(Claim { org, epoch: send.epoch })
    }

    /// `RENEW`, fenced by epoch and state.
    pub(crate) fn renew(state: &mut State, claim: Claim) {
        if let Some(send) = state.sends[claim.org].as_mut()
            && send.state == SendState::Claimed
            && send.epoch == claim.epoch
        {
            send.leased = true;
        }
    }

    /// `enqueue`: moves the send first, and inserts messages only then.
    pub(crate) fn enqueue(&self, state: &mut State, claim: Claim) {
        let Some(send) = state.sends[claim.org].as_mut() else { return };
        let ours = send.epoch == claim.epoch;
        if send.state != SendState::Claimed || !(ours || self.lacks(Mutation::NoEpochInFence)) {
            return;
        }
        send.state = SendState::Enqueued;
        state.history.stale_write |= !ours;
        state.history.enqueued[claim.org] = true;
        for row in &mut state.outbox[claim.org] {
            *row = Some(Message {
                state: MessageState::Pending,
                token: 0,
                owner: None,
                leased: false,
                attempts: 0,
                refused: None,
                was_marked: false,
            });
        }
    }

    /// `LEASE`: a pending message, with the next token.
    pub(crate) fn lease_messages(state: &mut State, place: Place, life: Life) -> Option<Leased> {
        let message = state.outbox[place.org][place.admin].as_mut()?;
        if message.state != MessageState::Pending {
            return None;
        }
        message.state = MessageState::Leased;
        message.token += 1;
        message.owner = Some(life);
        message.leased = true;
        Some(Leased { place, token: message.token })
    }

    /// `SETTLE` for a marker: token, state, and a lease with time left. An opt-out is no condition.
    pub(crate) fn mark_messages(&self, state: &mut State, leased: Leased) -> Marked {
        let opted_out = state.opted_out[leased.place.org][leased.place.admin];
        let Some(message) = state.outbox[leased.place.org][leased.place.admin].as_mut() else {
            return Marked::Superseded;
        };
        if self.lacks(Mutation::NoMarker) {
            return Marked::Sending;
        }
        let may = message.token == leased.token
            && (self.lacks(Mutation::NoStateInFence)
                || (message.state == MessageState::Leased && message.leased));
        if !may || (opted_out && self.lacks(Mutation::OptOutInWhere)) {
            return Marked::Superseded;
        }
        state.history.left_final |= message.state.is_final();
        if opted_out {
            message.state = MessageState::OptedOut;
            return Marked::Suppressed;
        }
        message.state = MessageState::Sending;
        message.leased = true;
        message.was_marked = true;
        Marked::Sending
    }

    /// `SETTLE` for a result: the token, and a state in which an answer is still news.
    pub(crate) fn record_results(state: &mut State, leased: Leased, answer: Answer, owner: Owner) {
        let row = state.outbox[leased.place.org][leased.place.admin].as_mut();
        let Some(message) = row else { return };
        let open =
            matches!(message.state, MessageState::Leased | MessageState::Sending | MessageState::Uncertain);
        if message.token != leased.token || !open {
            let known = message.state == MessageState::Accepted;
            state.history.thrown_away |= answer == Answer::Accepted && !known;
            return;
        }
        message.owner = None;
        message.leased = false;
        message.state = match answer {
            Answer::Accepted => MessageState::Accepted,
            Answer::Duplicate => MessageState::Duplicate,
            Answer::Unknown => MessageState::Uncertain,
            Answer::TakenBack => MessageState::Pending,
            Answer::Refused => {
                message.attempts += 1;
                message.refused = Some(owner);
                if message.attempts < MAX_ATTEMPTS { MessageState::Pending } else { MessageState::Failed }
            }
        };
    }

    /// `SWEEP`: without a marker back to pending, with one uncertain; the token stays.
    pub(crate) fn sweep_messages(&self, state: &mut State, place: Place) {
        let Some(message) = state.outbox[place.org][place.admin].as_mut() else { return };
        message.state = match message.state {
            MessageState::Leased => MessageState::Pending,
            MessageState::Sending => MessageState::Uncertain,
            other => other,
        };
        message.owner = None;
        if self.lacks(Mutation::SweepRaisesToken) {
            message.token += 1;
        }
    }

    /// `TAKE` of the guard: free, or held by this row's own refused hand-over.
    pub(crate) fn take_fingerprint(&self, state: &mut State, leased: Leased) -> bool {
        if !self.guard {
            return true;
        }
        let owner = Self::owner(state, leased);
        let refused = state.message(leased.place).and_then(|message| message.refused);
        let held = &mut state.fingerprints[leased.place.org][leased.place.admin];
        let free = held.is_none() || *held == Some(owner) || (refused.is_some() && *held == refused);
        if free {
            *held = Some(owner);
        }
        free
    }

    /// `GIVE_BACK` of the guard: compare and delete.
    pub(crate) fn give_fingerprint_back(&self, state: &mut State, place: Place, owner: Owner) {
        let held = &mut state.fingerprints[place.org][place.admin];
        if *held == Some(owner) || self.lacks(Mutation::GuardGivenBackByNonOwner) {
            *held = None;
        }
    }

    /// `MISS`: the same unique index as a claim's, and only while the week is not closed.
    pub(crate) fn record_missed(&self, state: &mut State, org: Org) {
        if state.week_closed && !self.lacks(Mutation::MissedWithoutWeek) {
            return;
        }
        if state.sends[org].is_none() && !state.window_open {
            state.sends[org] =
                Some(Send { state: SendState::Missed, epoch: 0, claim: Life::MAX, leased: false });
            state.history.missed[org] = true;
        }
    }

    /// The guard's name for a hand-over.
    pub(crate) fn owner(state: &State, leased: Leased) -> Owner {
        (state.restored, leased.token)
    }
}
