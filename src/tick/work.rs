//! What is done under a claim: gather, render, enqueue; or skip, fail, postpone.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tokio_util::sync::CancellationToken;

use super::drafts::Drafts;
use super::keep_alive::KeepAlive;
use super::{Tick, TickReport};
use crate::domain::digest::DigestInput;
use crate::domain::ids::OrgId;
use crate::domain::message::Draft;
use crate::domain::schedule::Period;
use crate::domain::send::{Claim, SendReason, SendState};
use crate::domain::text;
use crate::domain::week::SendKey;
use crate::faults::{self, Point};
use crate::progress::Pulse;
use crate::source::{Gathered, Question, SourceError};
use crate::store::ErrorClass;
use crate::store::enqueue::{Enqueue, Enqueued, NotEnqueued};
use crate::store::sends::Ending;

/// Bytes of messages that are enqueued in one transaction: enough to make the commit cheap, few
/// enough to keep memory and the transaction small.
const ENQUEUE_BYTES: usize = 2 * 1024 * 1024;
/// Orgs that are enqueued in one transaction.
const ENQUEUE_ORGS: usize = 50;
/// Recipients that are rendered at once, but at least one org: all their messages are in memory together.
const RENDER_RECIPIENTS: usize = 500;

/// Why an org could not be gathered.
#[derive(Debug, thiserror::Error)]
enum GatherError {
    #[error("the data could not be gathered")]
    Source(#[from] SourceError),
    #[error("gathering took longer than {0:?}")]
    TimedOut(std::time::Duration),
    /// The last of them was begun and never ended: the process was lost in it.
    #[error("no attempt has come to an end")]
    NeverEnded,
}

impl GatherError {
    /// Whether it is the application's outage rather than this org's fault.
    fn is_outage(&self) -> bool {
        match self {
            Self::Source(error) => error.is_transient(),
            Self::TimedOut(_) => true,
            Self::NeverEnded => false,
        }
    }
}

/// An org's data that is ready to be rendered.
type Ready = (Claim, Box<DigestInput>);

/// What an org's data says about its claim.
enum Sorted {
    /// There is something to render.
    Content(Ready),
    /// There is nothing to send.
    Ended(Ending),
}

/// An org's drafts that are ready to be enqueued.
type Drafted = (Claim, Drafts);

impl Tick {
    /// Works a batch of fresh claims, as far as it gets. Whatever it cannot end is postponed, or stays
    /// claimed and is taken over.
    pub async fn work(&self, claims: Vec<Claim>, pulse: &Pulse, stop: &CancellationToken) -> TickReport {
        let mut report = TickReport::default();
        for group in by_period(claims) {
            let keep_alive = KeepAlive::start(&self.store, &group, self.terms.lease);
            let turn = self.gathering.lock().await;
            let gathered = self.gather(&group).await;
            drop(turn);
            match gathered {
                Ok(gathered) => report.add(self.settle(group, gathered).await),
                Err(error) => {
                    if group.len() > 1 {
                        tracing::warn!(
                            orgs = group.len(),
                            error = &error as &dyn std::error::Error,
                            "a batch could not be gathered; its orgs are tried one at a time"
                        );
                    }
                    for claim in group {
                        if stop.is_cancelled() {
                            break;
                        }
                        report.add(self.work_alone(claim).await);
                        pulse.touch();
                    }
                }
            }
            keep_alive.end().await;
        }
        report
    }

    /// Works one claim by itself, charging it an attempt.
    pub async fn work_alone(&self, mut claim: Claim) -> TickReport {
        match self.store.charge(&claim).await {
            Ok(Some(attempts)) => claim.attempts = attempts,
            Ok(None) => return TickReport { superseded: 1, ..TickReport::default() },
            Err(error) => {
                log_left(&claim, &error);
                return TickReport::default();
            }
        }
        // An org that ends the process each time must not do so for days.
        if claim.attempts > self.limits.max_attempts {
            return self.try_again(claim, SendReason::GatherFailed, &GatherError::NeverEnded).await;
        }
        let claims = vec![claim];
        let keep_alive = KeepAlive::start(&self.store, &claims, self.terms.lease);
        let report = match self.gather(&claims).await {
            Ok(gathered) => self.settle(claims, gathered).await,
            Err(error) => {
                let mut report = TickReport::default();
                for mut claim in claims {
                    // An outage on a Monday morning must not cost every org its week: only time ends it.
                    if error.is_outage() {
                        claim.attempts = claim.attempts.min(self.limits.max_attempts.saturating_sub(1));
                    }
                    report.add(self.try_again(claim, SendReason::GatherFailed, &error).await);
                }
                report
            }
        };
        keep_alive.end().await;
        report
    }

    async fn gather(&self, claims: &[Claim]) -> Result<BTreeMap<OrgId, Gathered>, GatherError> {
        let Some(first) = claims.first() else {
            return Ok(BTreeMap::new());
        };
        let orgs: Vec<OrgId> = claims.iter().map(|claim| claim.org.clone()).collect();
        let question =
            Question { orgs: &orgs, key: first.key, slot_at: first.slot_at, period: &first.period };
        let limit = self.limits.gather_timeout;
        match tokio::time::timeout(limit, self.source.gather(&question)).await {
            Ok(gathered) => Ok(gathered?),
            Err(_) => Err(GatherError::TimedOut(limit)),
        }
    }

    /// Renders and enqueues what has content; ends what has none.
    async fn settle(&self, claims: Vec<Claim>, mut gathered: BTreeMap<OrgId, Gathered>) -> TickReport {
        let mut report = TickReport::default();
        let mut ready = Vec::new();
        let mut endings = Vec::new();
        for claim in claims {
            match self.sort(claim, &mut gathered) {
                Sorted::Content(with_content) => ready.push(with_content),
                Sorted::Ended(ending) => endings.push(ending),
            }
        }
        report.add(self.end(endings).await);
        if let Err(error) = self.heed_opt_ins(ready.iter().map(|(_, input)| &**input)).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "claims are left to be taken over");
            return report;
        }
        let mut ready = ready.into_iter().peekable();
        while ready.peek().is_some() {
            report.add(self.render_and_enqueue(next_batch(&mut ready)).await);
        }
        report
    }

    /// Decides by an org's data whether there is something to render.
    fn sort(&self, claim: Claim, gathered: &mut BTreeMap<OrgId, Gathered>) -> Sorted {
        let skipped =
            |claim, reason| Sorted::Ended(Ending { claim, state: SendState::Skipped, reason, detail: None });
        match gathered.remove(&claim.org) {
            None => skipped(claim, SendReason::OrgGone),
            Some(Gathered::BadZone(error)) => Sorted::Ended(Ending {
                claim,
                state: SendState::Failed,
                reason: SendReason::BadTimezone,
                detail: Some(error.to_string()),
            }),
            Some(Gathered::Digest(input)) if input.recipients.is_empty() => {
                skipped(claim, SendReason::NoRecipients)
            }
            // Whoever asks for a resend gets one, of a quiet week too.
            Some(Gathered::Digest(input))
                if input.is_empty() && !self.limits.send_empty && matches!(claim.key, SendKey::Week(_)) =>
            {
                skipped(claim, SendReason::EmptyWeek)
            }
            Some(Gathered::Digest(input)) => Sorted::Content((claim, input)),
        }
    }

    async fn render_and_enqueue(&self, batch: Vec<Ready>) -> TickReport {
        let now = match self.store.now().await {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "claims are left to be taken over");
                return TickReport::default();
            }
        };
        let rendered = self.render(batch, now).await;
        let mut report = TickReport::default();
        let mut enqueues: Vec<Enqueue> = Vec::new();
        let mut bytes = 0;
        for (claim, Drafts { drafts, all_failed }) in rendered {
            if let Some(error) = all_failed {
                report.add(self.try_again(claim, SendReason::RenderFailed, &error).await);
                continue;
            }
            if drafts.is_empty() {
                let ending = Ending {
                    claim,
                    state: SendState::Skipped,
                    reason: SendReason::NoRecipients,
                    detail: None,
                };
                report.add(self.end(vec![ending]).await);
                continue;
            }
            bytes += drafts.iter().map(Draft::size).sum::<usize>();
            enqueues.push(Enqueue { claim, drafts });
            if bytes >= ENQUEUE_BYTES {
                report.add(self.enqueue(std::mem::take(&mut enqueues)).await);
                bytes = 0;
            }
        }
        report.add(self.enqueue(enqueues).await);
        report
    }

    /// Rendering is pure computing, so it has a thread of its own and lets the timers run.
    async fn render(&self, batch: Vec<Ready>, now: DateTime<Utc>) -> Vec<Drafted> {
        let drafter = Arc::clone(&self.drafter);
        let rendering = tokio::task::spawn_blocking(move || {
            batch
                .into_iter()
                .map(|(claim, input)| {
                    let made = drafter.drafts(&input, claim.only.as_ref(), now);
                    (claim, made)
                })
                .collect()
        });
        match rendering.await {
            Ok(done) => done,
            // Panics are caught per recipient; one outside of that leaves the claims to be taken over.
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "rendering a batch panicked");
                Vec::new()
            }
        }
    }

    async fn enqueue(&self, batch: Vec<Enqueue>) -> TickReport {
        if batch.is_empty() {
            return TickReport::default();
        }
        let asked = batch.len();
        let NotEnqueued { source: error, batch } = match self.store.enqueue(batch, self.limits.max_age).await
        {
            Ok(enqueued) => return self.enqueued(asked, &enqueued),
            Err(not_enqueued) => not_enqueued,
        };
        // A database that is away will be away for each of them too.
        if error.class() == ErrorClass::Transient {
            tracing::warn!(
                orgs = asked,
                error = &error as &dyn std::error::Error,
                "digests could not be enqueued; their claims are left to be taken over"
            );
            return TickReport::default();
        }
        let mut report = TickReport::default();
        if asked == 1 {
            for Enqueue { claim, .. } in batch {
                report.add(self.try_again(claim, SendReason::RenderFailed, &error).await);
            }
            return report;
        }
        tracing::warn!(
            orgs = asked,
            error = &error as &dyn std::error::Error,
            "a batch could not be enqueued; its orgs are tried one at a time"
        );
        for one in batch {
            report.add(Box::pin(self.enqueue(vec![one])).await);
        }
        report
    }

    fn enqueued(&self, asked: usize, enqueued: &Enqueued) -> TickReport {
        faults::point(Point::AfterEnqueue);
        let moved = enqueued.sends.len();
        self.metrics.sends_settled(SendState::Enqueued, None, moved);
        self.metrics.messages_ended(&enqueued.ended);
        TickReport {
            enqueued: moved as u64,
            messages: enqueued.messages,
            superseded: (asked - moved) as u64,
            ..TickReport::default()
        }
    }

    /// Ends claims without messages.
    pub(super) async fn end(&self, endings: Vec<Ending>) -> TickReport {
        let mut report = TickReport::default();
        if endings.is_empty() {
            return report;
        }
        let asked = endings.len() as u64;
        for ending in &endings {
            if ending.state == SendState::Failed {
                tracing::error!(
                    org.id = %ending.claim.org, send.week_key = %ending.claim.key, reason = %ending.reason,
                    detail = ending.detail.as_deref().unwrap_or_default(),
                    "an org's digest has failed"
                );
            }
        }
        let ends: Vec<_> = endings.iter().map(|e| (e.claim.send, e.state, e.reason)).collect();
        match self.store.finish(endings).await {
            Ok(ended) => {
                report.superseded = asked - ended.len() as u64;
                for (_, state, reason) in ends.into_iter().filter(|(send, ..)| ended.contains(send)) {
                    self.metrics.sends_settled(state, Some(reason), 1);
                    *(if state == SendState::Failed { &mut report.failed } else { &mut report.skipped }) += 1;
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "ends could not be recorded; their claims are left to be taken over"
                );
            }
        }
        report
    }

    /// Postpones a claim after a failed attempt, or fails it after the last one.
    async fn try_again(
        &self,
        claim: Claim,
        reason: SendReason,
        error: &(dyn std::error::Error + Send + Sync + 'static),
    ) -> TickReport {
        let detail = text::chain(error);
        if claim.attempts >= self.limits.max_attempts {
            let ending = Ending { claim, state: SendState::Failed, reason, detail: Some(detail) };
            return self.end(vec![ending]).await;
        }
        tracing::warn!(
            org.id = %claim.org, send.week_key = %claim.key, attempt = claim.attempts,
            error = error as &dyn std::error::Error,
            "an org's digest could not be made; it will be tried again"
        );
        let delay = backed_off(self.limits.retry_delay, claim.attempts);
        match self.store.postpone(claim, delay, Some(&detail), self.terms.replica).await {
            Ok(true) => TickReport { postponed: 1, ..TickReport::default() },
            Ok(false) => TickReport { superseded: 1, ..TickReport::default() },
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a claim is left to be taken over");
                TickReport::default()
            }
        }
    }
}

fn next_batch(ready: &mut impl Iterator<Item = Ready>) -> Vec<Ready> {
    let (mut batch, mut recipients) = (Vec::new(), 0);
    while batch.len() < ENQUEUE_ORGS
        && recipients < RENDER_RECIPIENTS
        && let Some((claim, input)) = ready.next()
    {
        recipients += input.recipients.len();
        batch.push((claim, input));
    }
    batch
}

/// Groups claims that can be gathered by the same queries.
fn by_period(claims: Vec<Claim>) -> Vec<Vec<Claim>> {
    type Key = (SendKey, DateTime<Utc>, DateTime<Utc>, DateTime<Utc>, String);
    let key = |claim: &Claim| -> Key {
        let Period { zone, start, end, .. } = &claim.period;
        (claim.key, claim.slot_at, *start, *end, zone.name().to_owned())
    };
    let mut groups: BTreeMap<Key, Vec<Claim>> = BTreeMap::new();
    for claim in claims {
        groups.entry(key(&claim)).or_default().push(claim);
    }
    groups.into_values().collect()
}

/// Doubles with each attempt, up to an hour.
fn backed_off(first: TimeDelta, attempts: u32) -> TimeDelta {
    let doubled = first.checked_mul(1 << attempts.saturating_sub(1).min(16));
    doubled.unwrap_or(TimeDelta::MAX).min(TimeDelta::hours(1))
}

fn log_left(claim: &Claim, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(
        org.id = %claim.org, send.week_key = %claim.key, error,
        "a claim is left to be taken over"
    );
}
