//! What became of one org's digest, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::facts::{Facts, Own, unanswered};
use super::recipients::{Hosts, opted_out, stories, suppressed};
use super::story::{Event, LeftOut, RecipientStory, SendStory, SlotStory, Story};
use super::whom::Whom;
use super::words::{counted, local, send_reason, time};
use super::{Ledger, LedgerError};
use crate::domain::address::Address;
use crate::domain::ids::OrgId;
use crate::domain::message::{MessageReason, MessageState};
use crate::domain::schedule::{Slot, WeeklySchedule};
use crate::domain::send::{SendReason, SendState};
use crate::domain::week::{SendKey, WeekKey};
use crate::domain::zone::Zone;
use crate::store::ledger::{SendEvent, SendRow};
use crate::store::relays::Breaker;

/// A replica is alive if it was heard of within this.
const ALIVE: Duration = Duration::from_mins(1);

impl Ledger {
    /// The story of an org's digest: of a week, or of the slot that opened last (while the source is silent, of the
    /// last send); of everybody, or of one admin.
    pub async fn explain(
        &self,
        org: &OrgId,
        week: Option<WeekKey>,
        to: Option<&Whom>,
    ) -> Result<Story, LedgerError> {
        let facts = self.facts(org, week).await?;
        let hosts = Hosts(self.store.replica_hosts().await?);
        let week = facts.slot.week;
        let first = self.rules.period.of(&facts.schedule, week).first.to_string();
        let rows = self.store.sends_of(org, week, &first).await?;
        let of_week = rows.iter().find(|row| row.key == SendKey::Week(week)).cloned();
        let mut sends = Vec::new();
        let mut retried = false;
        for row in rows {
            let events = self.store.send_events(row.id).await?;
            let failed = events.last().is_some_and(|last| last.event == "attempt_failed");
            retried |= failed && row.key == SendKey::Week(week) && row.state == SendState::Claimed;
            sends.push(self.send_story(row, events, to, &hosts).await?);
        }
        let outcome = if let (Some(row), true) = (&of_week, retried) {
            let (n, max) = (row.attempts, self.max_attempts);
            format!("In work: attempt {n} of {max} has failed, and it will be tried again.")
        } else if let (Some(row), Some(story)) = (&of_week, sends.first()) {
            outcome(row, &story.recipients, to.is_some(), self.max_attempts)
        } else {
            let live = self.store.live_replicas(ALIVE).await?.len();
            self.why_no_send(&facts, live, self.store.is_closed(week).await?)
        };
        let known = of_week.is_some() || matches!(facts.own, Own::Listed(_));
        Ok(Story {
            org: org.to_string(),
            name: facts.standing.as_ref().map(|standing| standing.name.clone()),
            week: week.to_string(),
            now: facts.now,
            outcome,
            slot: known.then(|| self.slot_story(&facts, of_week.as_ref())),
            left_out: self.left_out(&facts, of_week.as_ref(), &sends, to).await?,
            next: next(&facts, of_week.as_ref(), retried, self.what_stops(&sends).await?),
            sends,
        })
    }

    /// As the send has it, which keeps what held when it was made; else as the org has it today.
    fn slot_story(&self, facts: &Facts, row: Option<&SendRow>) -> SlotStory {
        let (schedule, slot) = match row {
            Some(row) => {
                let zone = Zone::parse(&row.timezone).unwrap_or_else(|_| Zone::utc());
                let schedule = WeeklySchedule { zone, ..facts.schedule.clone() };
                (schedule, Slot { at: row.slot_at, ..facts.slot })
            }
            None => (facts.schedule.clone(), facts.slot),
        };
        SlotStory { local: local(&schedule, slot), at: slot.at, closes_at: slot.at + self.rules.catch_up }
    }

    async fn send_story(
        &self,
        row: SendRow,
        events: Vec<SendEvent>,
        to: Option<&Whom>,
        hosts: &Hosts,
    ) -> Result<SendStory, LedgerError> {
        let mut messages = self.store.messages_of(row.id).await?;
        if let Some(to) = to {
            messages.retain(|message| to.is(&message.user, &message.address));
        }
        let attempts = self.store.attempts_of(row.id).await?;
        let events = told(&row, events, hosts);
        Ok(SendStory {
            key: row.key.to_string(),
            state: row.state.as_str(),
            reason: row.reason.map(SendReason::as_str),
            events,
            recipients: stories(messages, attempts, hosts, row.settled_at),
        })
    }

    /// Admins without a message, and whoever has opted out.
    async fn left_out(
        &self,
        facts: &Facts,
        of_week: Option<&SendRow>,
        sends: &[SendStory],
        to: Option<&Whom>,
    ) -> Result<Vec<LeftOut>, LedgerError> {
        let mailed: BTreeSet<&str> = sends
            .iter()
            .flat_map(|send| &send.recipients)
            .map(|recipient| recipient.address.as_str())
            .collect();
        let normal =
            |email: &str| Address::parse(email).map_or_else(|_| email.to_owned(), |a| a.normal().to_owned());
        let mut left_out = Vec::new();
        let mut opted_in: BTreeMap<String, Option<DateTime<Utc>>> = BTreeMap::new();
        let mut addresses: Vec<String> = mailed.iter().map(|address| (*address).to_owned()).collect();
        for admin in facts.standing.iter().flat_map(|standing| &standing.admins) {
            let address = normal(&admin.email);
            if admin.weekly_digest {
                let newest = opted_in.entry(address.clone()).or_default();
                *newest = admin.opted_in_at.max(*newest);
            }
            if to.is_some_and(|to| !to.is(&admin.user, &address)) {
                continue;
            }
            if !mailed.contains(address.as_str())
                && let Some(why) = admin.left_out(facts.slot.at).or_else(|| came_late(of_week))
            {
                left_out.push(LeftOut { user: Some(admin.user.clone()), address: address.clone(), why });
            }
            addresses.push(address);
        }
        if let Some(to) = to {
            // Of an org that nobody knows, the outcome has said it.
            if addresses.is_empty() && facts.standing.is_some() {
                let why = if facts.built_in {
                    "is not the address of a recipient of this org"
                } else {
                    "is no recipient of this org: the recipients query has no row with this address or user_id"
                };
                left_out.push(LeftOut { user: None, address: to.address().to_owned(), why: why.to_owned() });
            }
            addresses.push(to.address().to_owned());
        }
        addresses.sort();
        addresses.dedup();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let opt_outs = self.store.opt_outs_of(&addresses).await?;
        let failing = sends.iter().flat_map(|send| &send.recipients).filter(|recipient| {
            let reasons = [MessageReason::Suppressed, MessageReason::Refused, MessageReason::TooManyAttempts];
            recipient.reason.is_some_and(|reason| reasons.iter().any(|known| known.as_str() == reason))
        });
        let failing: BTreeSet<&str> = failing.map(|recipient| recipient.address.as_str()).collect();
        for address in addresses.iter().filter(|address| to.is_some() || failing.contains(*address)) {
            let Ok(address) = Address::parse(address) else { continue };
            let known = self.store.suppression_of(&address).await?;
            left_out.extend(known.filter(|known| known.suppressed).as_ref().map(suppressed));
        }
        let told = opt_outs
            .iter()
            .filter_map(|out| opted_out(out, &facts.org, opted_in.get(&out.address).copied().flatten()));
        left_out.extend(told);
        Ok(left_out)
    }

    /// What keeps messages waiting that could otherwise go.
    async fn what_stops(&self, sends: &[SendStory]) -> Result<Option<String>, LedgerError> {
        let under_way = [MessageState::Pending, MessageState::Leased, MessageState::Sending];
        let waits =
            |recipient: &RecipientStory| under_way.iter().any(|state| state.as_str() == recipient.state);
        if !sends.iter().flat_map(|send| &send.recipients).any(waits) {
            return Ok(None);
        }
        let relay = self.store.relay(&self.relay).await?;
        if relay.paused {
            return Ok(Some(
                "deliveries are paused by an operator; `digestd queue resume` lets them go on".to_owned(),
            ));
        }
        if relay.breaker == Breaker::Closed {
            return Ok(None);
        }
        let said: Vec<String> = relay.reason.into_iter().chain(relay.note).collect();
        let until = relay.open_until.map(|at| format!(", next at {} UTC", time(at))).unwrap_or_default();
        Ok(Some(format!(
            "the relay does not work ({}): one message at a time is tried{until}, and all go on once it is accepted",
            said.join(": ")
        )))
    }
}

/// Why an admin who is to get digests has no message of one that was made.
fn came_late(row: Option<&SendRow>) -> Option<String> {
    let row = row.filter(|row| row.state == SendState::Enqueued)?;
    let made = row.settled_at.map(|at| format!(" at {} UTC", time(at))).unwrap_or_default();
    Some(format!("is a recipient at this address now, and was none when the digest was made{made}"))
}

/// The answer in one sentence.
fn outcome(row: &SendRow, recipients: &[RecipientStory], narrowed: bool, max_attempts: u32) -> String {
    let reason = row.reason.map_or("for no reason given", send_reason);
    let all = usize::try_from(row.messages).unwrap_or(0);
    match row.state {
        // The first look at a batch is nobody's attempt.
        SendState::Claimed if row.attempts == 0 => "In work: claimed, and not yet enqueued.".to_owned(),
        SendState::Claimed => {
            format!("In work: attempt {} of {max_attempts}, and not yet enqueued.", row.attempts)
        }
        SendState::Skipped => format!("Skipped: {reason}."),
        SendState::Failed => {
            let detail = row.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("Failed: {reason}{detail}.")
        }
        SendState::Missed => "Missed: no replica claimed it while its window was open.".to_owned(),
        SendState::Enqueued if recipients.is_empty() => {
            let n = counted(all, "recipient");
            if narrowed {
                format!("Enqueued for {n}, and this is none of them.")
            } else {
                format!("Enqueued for {n}.")
            }
        }
        SendState::Enqueued => {
            let mut states: Vec<(&str, usize)> = Vec::new();
            for recipient in recipients {
                match states.iter_mut().find(|(state, _)| *state == recipient.state) {
                    Some((_, n)) => *n += 1,
                    None => states.push((recipient.state, 1)),
                }
            }
            if let (true, [(state, 1)], 2..) = (narrowed, states.as_slice(), all) {
                return format!(
                    "Enqueued for {}; the message to this one: {state}.",
                    counted(all, "recipient")
                );
            }
            let states: Vec<String> = states.iter().map(|(state, n)| format!("{n} {state}")).collect();
            format!("Enqueued for {}: {}.", counted(recipients.len(), "recipient"), states.join(", "))
        }
    }
}

/// What happened to a send, in the order of time.
fn told(row: &SendRow, rows: Vec<SendEvent>, hosts: &Hosts) -> Vec<Event> {
    let mut events = Vec::new();
    if matches!(row.key, SendKey::Week(_)) {
        events.push(Event { at: row.slot_at, what: "the slot opened".to_owned() });
    }
    // After a take-over the events tell every claim; before it the row itself does.
    let all = rows
        .iter()
        .any(|event| matches!(event.event.as_str(), "claimed" | "taken_over" | "resend_requested"));
    if let (false, Some(at), Some(replica)) = (all, row.claimed_at, row.claimed_by) {
        events.push(Event { at, what: format!("{} claimed it", hosts.name(Some(replica))) });
    }
    let mut free = false;
    for event in rows {
        let who = hosts.name(event.replica);
        let detail = event.detail.unwrap_or_default();
        let what = match event.event.as_str() {
            "claimed" => format!("{who} claimed it"),
            "taken_over" if free => format!("{who} took it up"),
            "taken_over" => format!("{who} took it over, because nobody worked on it any more"),
            "attempt_failed" => format!("{who} could not make it: {detail}"),
            "resend_requested" => "a person asked for it".to_owned(),
            "reopened" => format!("a person reopened it; it was {detail}"),
            other => format!("{other} {detail}").trim().to_owned(),
        };
        free = matches!(event.event.as_str(), "attempt_failed" | "resend_requested" | "reopened");
        events.push(Event { at: event.at, what });
    }
    if let Some(at) = row.settled_at {
        let what = match row.state {
            SendState::Enqueued => {
                let n = usize::try_from(row.messages).unwrap_or(0);
                format!("{} went into the outbox", counted(n, "message"))
            }
            SendState::Missed => "the week was closed, and it was written down as missed".to_owned(),
            state => format!("it was {state}: {}", row.reason.map_or("for no reason given", send_reason)),
        };
        events.push(Event { at, what });
    }
    events.sort_by_key(|event| event.at);
    events
}

fn next(facts: &Facts, row: Option<&SendRow>, retried: bool, stopped: Option<String>) -> Vec<String> {
    let mut next: Vec<String> = stopped.into_iter().collect();
    if let Some(row) = row
        && row.state == SendState::Claimed
        && let Some(until) = row.lease_until
    {
        let what = match (until > facts.now, retried) {
            (true, true) => "any replica tries it again from",
            (true, false) => "the claim is held until",
            (false, _) => "the claim can be taken up by any replica since",
        };
        next.push(format!("{what} {} UTC; it is given up at {} UTC", time(until), time(row.give_up_at)));
    }
    match &facts.own {
        Own::Listed(Ok(schedule)) => {
            let slot = schedule.upcoming(facts.now).next();
            next.extend(
                slot.map(|slot| {
                    format!("{} opens {}, {} UTC", slot.week, local(schedule, slot), time(slot.at))
                }),
            );
        }
        Own::Listed(Err(error)) => next.push(format!("correct the org's time zone first: {error}")),
        Own::NotListed => next.push("nothing: the source lists no such active org".to_owned()),
        // The outcome has told why.
        Own::Silent(_) if row.is_none() => {
            next.push("unknown until the application's database answers".to_owned());
        }
        Own::Silent(why) => {
            next.push(format!(
                "whether a digest after {} is due is not known. {}",
                facts.slot.week,
                unanswered(why)
            ));
        }
    }
    next
}
