//! What became of a send's recipients, in words.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::story::{Event, LeftOut, RecipientStory};
use super::words::{counted, message_reason, time};
use crate::domain::ids::{MessageId, OrgId, ReplicaId};
use crate::domain::message::{MessageReason, MessageState};
use crate::store::ledger::{AttemptRow, MessageRow};
use crate::store::opt_outs::OptOut;
use crate::store::suppressions::Suppression;

/// The replicas' hosts, where they are still known.
pub(super) struct Hosts(pub HashMap<ReplicaId, String>);

impl Hosts {
    /// `replica web-1 (6f9619ff)`; the first digits of the id tell two on one host apart.
    pub fn name(&self, replica: Option<ReplicaId>) -> String {
        let Some(id) = replica else { return "a replica".to_owned() };
        let digits: String = id.to_string().chars().take(8).collect();
        match self.0.get(&id) {
            Some(host) => format!("replica {host} ({digits})"),
            None => format!("replica {digits}"),
        }
    }
}

/// One story per message.
pub(super) fn stories(
    messages: Vec<MessageRow>,
    attempts: Vec<AttemptRow>,
    hosts: &Hosts,
    enqueued_at: Option<DateTime<Utc>>,
) -> Vec<RecipientStory> {
    let mut by_message: HashMap<MessageId, Vec<Event>> = HashMap::new();
    for row in attempts {
        let event = Event { at: row.at, what: attempt(&row, hosts) };
        by_message.entry(row.message).or_default().push(event);
    }
    messages
        .into_iter()
        .map(|message| RecipientStory {
            message: message.id.0,
            outcome: outcome(&message, hosts, enqueued_at),
            attempts: by_message.remove(&message.id).unwrap_or_default(),
            user: message.user,
            address: message.address,
            state: message.state.as_str(),
            reason: message.reason.map(MessageReason::as_str),
        })
        .collect()
}

fn attempt(row: &AttemptRow, hosts: &Hosts) -> String {
    let ended = match MessageState::parse(&row.outcome) {
        Some(MessageState::Pending) => "to be tried again",
        Some(MessageState::Uncertain) => "may or may not have been accepted",
        Some(MessageState::Failed) => "given up",
        Some(state) => state.as_str(),
        None => &row.outcome,
    };
    let note = row.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let by = row.replica.map(|replica| format!("{} at ", hosts.name(Some(replica)))).unwrap_or_default();
    format!("{by}{}{note}; {ended}", row.phase)
}

fn outcome(message: &MessageRow, hosts: &Hosts, enqueued_at: Option<DateTime<Utc>>) -> String {
    let settled = message.settled_at.map(|at| format!(" at {}", time(at))).unwrap_or_default();
    let reason = message.reason.map_or("for no reason given", message_reason);
    let said = message.note.as_ref().map(|note| format!("; the last answer: {note}")).unwrap_or_default();
    match message.state {
        MessageState::Accepted => format!("accepted by the relay{settled}{said}"),
        MessageState::Pending if message.attempts == 0 && message.note.is_none() => {
            // A head start puts some in line by a time before their own.
            let since = enqueued_at.map_or(message.next_attempt_at, |at| at.max(message.next_attempt_at));
            format!("waits for its turn since {}", time(since))
        }
        MessageState::Pending => format!(
            "waits; the next attempt is due at {}, and it expires at {}",
            time(message.next_attempt_at),
            time(message.expires_at)
        ),
        MessageState::Leased | MessageState::Sending => {
            format!("is being handed over by {}", hosts.name(message.owner))
        }
        MessageState::Uncertain => {
            let since = message.marked_at.map(|at| format!(" at {}", time(at))).unwrap_or_default();
            format!(
                "uncertain: the body left{since} and no usable answer came back, so it may or may not have \
                 arrived; held until a person decides by `digestd queue resolve {id}`; `digestd queue show {id}` \
                 has what to look for in the relay's log",
                id = message.id.0
            )
        }
        MessageState::Failed => format!("failed{settled}: {reason}{said}"),
        MessageState::Suppressed => format!("kept back{settled}: {reason}"),
        MessageState::Expired => format!("expired{settled}: {reason}{said}"),
        MessageState::Cancelled => format!("cancelled{settled}: {reason}"),
    }
}

/// Why an address is left out of every digest.
pub(super) fn suppressed(known: &Suppression) -> LeftOut {
    let count = |n: u32, kind: &str| (n > 0).then(|| counted(n as usize, &format!("{kind} failure")));
    let counts: Vec<String> = [count(known.hard_failures, "permanent"), count(known.soft_failures, "other")]
        .into_iter()
        .flatten()
        .collect();
    let after = if counts.is_empty() { String::new() } else { format!(" after {}", counts.join(" and ")) };
    let note = known.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    let why = format!(
        "left out of every digest{after}, last told at {} UTC by {}{note}; `digestd suppress remove {}` takes it back",
        time(known.at),
        known.source,
        known.address
    );
    LeftOut { user: None, address: known.address.clone(), why }
}

/// What an opt-out says, if it is about this org, and whether the application's opt-in came later.
pub(super) fn opted_out(out: &OptOut, org: &OrgId, opted_in: Option<DateTime<Utc>>) -> Option<LeftOut> {
    let of = match &out.org {
        None => "all digests",
        Some(of) if of == org => "this org's digest",
        Some(_) => return None,
    };
    // An opt-in to one org says nothing of the others.
    let later = opted_in.filter(|at| out.org.is_some() && *at > out.at);
    let overruled = later.map(|at| {
        format!("; opted in again at {} UTC, which counts from the next digest that is made on", time(at))
    });
    let overruled = overruled.unwrap_or_default();
    let why = format!("opted out of {of} at {} UTC, by {}{overruled}", time(out.at), out.source);
    Some(LeftOut { user: None, address: out.address.clone(), why })
}
