//! What one hand-over means: for the message, and for the relay.
//!
//! Two pure steps. [`classify`] reads the outcome by the table in [`super::rules`], after the
//! overrides of [`super::providers`]; [`decide`] applies the retry policy to the verdict.

use chrono::TimeDelta;

use super::providers::Overrides;
use super::rules;
use crate::domain::address::AddressFault;
use crate::domain::ids::MessageId;
use crate::domain::message::{Disposition, MessageReason};
use crate::domain::reply::{HandOver, Phase, RelayFailure, RelayFailureKind, Reply};
use crate::domain::retry::{Patience, RetryPolicy};

/// What an outcome is about. Only the first two spend a message's attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// This mail, whoever gets it.
    Message,
    /// This recipient.
    Recipient,
    /// This connection: another one will do.
    Connection,
    /// The relay, or our account with it: every message would meet the same.
    Relay,
}

/// What to do with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The relay has it.
    Accept,
    /// It may have it: hold it for a person or the policy.
    Hold,
    /// Try again at once on another connection.
    Reconnect,
    /// Put it back; when it is tried again depends on the relay.
    PutBack,
    /// Try again later.
    Retry(Patience),
    /// Give it up.
    Fail {
        /// Whether the address itself is bad, so that it may be suppressed from now on.
        bad_address: bool,
    },
}

/// What an outcome tells about the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelayEffect {
    /// Nothing.
    None,
    /// It accepted a message: all is well, and a streak of policy refusals ends.
    Healthy,
    /// It answered as a working relay does, about one message only. Ends a row of failures, but
    /// not a streak of policy refusals.
    Answered,
    /// It could not be talked to. A row of these opens the breaker.
    Failing,
    /// It asks us to slow down.
    Throttled,
    /// A refusal that may mean us and not the message. A streak of these over different
    /// recipients opens the breaker; see [`super::streak::PolicyStreak`].
    PolicyRefusal,
    /// It takes nothing from us until somebody acts, or a quota is renewed: open the breaker.
    Pause(PauseKind),
}

/// Why a relay is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseKind {
    /// A certificate is not good enough.
    Certificate,
    /// STARTTLS is missing, or somebody spoke into it.
    Insecure,
    /// Our credentials are refused.
    Auth,
    /// Our sender or account is refused.
    Account,
    /// A quota is used up; it passes by itself.
    Quota,
}

impl PauseKind {
    /// The name in the database, in metrics and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Insecure => "insecure",
            Self::Auth => "auth",
            Self::Account => "account",
            Self::Quota => "quota",
        }
    }
}

/// What one hand-over means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// What it is about.
    pub scope: Scope,
    /// What to do with the message.
    pub action: Action,
    /// What it tells about the relay.
    pub relay: RelayEffect,
}

impl Verdict {
    /// Whether the try counts against the message's attempts.
    pub const fn is_charged(self) -> bool {
        matches!(self.scope, Scope::Message | Scope::Recipient)
    }
}

/// Reads the outcome of one hand-over.
pub fn classify(hand_over: &HandOver, overrides: &Overrides) -> Verdict {
    use Action::{Accept, Hold, PutBack, Reconnect, Retry};
    use Scope::{Connection, Message, Recipient, Relay};
    let verdict = |scope, action, relay| Verdict { scope, action, relay };
    match hand_over {
        HandOver::Accepted(_) => verdict(Message, Accept, RelayEffect::Healthy),
        HandOver::Refused { phase, reply } => refused(*phase, reply, overrides),
        HandOver::Broken { stale: true, .. } => verdict(Connection, Reconnect, RelayEffect::None),
        HandOver::Broken { phase, .. } => match phase {
            // What breaks a connection as early as this does not know the message.
            Phase::Connect | Phase::Tls | Phase::Greeting | Phase::Ehlo | Phase::Auth | Phase::Mail => {
                verdict(Relay, PutBack, RelayEffect::Failing)
            }
            // A message that kills its connection every time must come to an end.
            Phase::Rcpt => verdict(Recipient, Retry(Patience::Ladder), RelayEffect::Failing),
            Phase::Data | Phase::Body | Phase::Dot => {
                verdict(Message, Retry(Patience::Ladder), RelayEffect::Failing)
            }
        },
        // A relay that swallows one message after the other must not be fed with all of them.
        HandOver::Unknown { .. } => verdict(Message, Hold, RelayEffect::Failing),
    }
}

fn refused(phase: Phase, reply: &Reply, overrides: &Overrides) -> Verdict {
    let wording = reply.text.to_lowercase();
    overrides
        .rules()
        .iter()
        .chain(rules::TABLE)
        .find(|rule| rule.applies(phase, reply, &wording))
        .map_or(rules::UNHEARD_OF, |rule| rule.verdict)
}

/// What becomes of a message that was charged `attempts` tries before this one, and what the
/// relay's state has to know.
pub fn decide(
    verdict: Verdict,
    message: MessageId,
    attempts: u32,
    policy: &RetryPolicy,
) -> (Disposition, RelayEffect) {
    let charge = verdict.is_charged();
    let disposition = match verdict.action {
        Action::Accept => Disposition::Accepted,
        Action::Hold => Disposition::Uncertain,
        Action::Reconnect => Disposition::Retry { after: TimeDelta::zero(), charge },
        Action::PutBack => Disposition::Retry { after: policy.delay(1, message, Patience::Ladder), charge },
        Action::Fail { .. } => Disposition::Failed(MessageReason::Refused),
        Action::Retry(_) if attempts.saturating_add(1) >= policy.max_attempts() => {
            Disposition::Failed(MessageReason::TooManyAttempts)
        }
        Action::Retry(patience) => {
            let after = policy.delay(attempts.saturating_add(1), message, patience);
            Disposition::Retry { after, charge }
        }
    };
    (disposition, verdict.relay)
}

/// What the outcome says against the address itself. A refusal that is not about the recipient, or
/// that will be tried again, says nothing.
pub const fn address_fault(verdict: Verdict, disposition: &Disposition) -> Option<AddressFault> {
    match (verdict.action, verdict.scope, disposition) {
        (Action::Fail { bad_address: true }, ..) => Some(AddressFault::Hard),
        (_, Scope::Recipient, Disposition::Failed(_)) => Some(AddressFault::Soft),
        _ => None,
    }
}

/// What a failure to connect tells about the relay. The message is put back uncharged.
pub fn relay_effect(failure: &RelayFailure) -> RelayEffect {
    match &failure.kind {
        RelayFailureKind::Unreachable => RelayEffect::Failing,
        RelayFailureKind::Certificate => RelayEffect::Pause(PauseKind::Certificate),
        RelayFailureKind::Insecure => RelayEffect::Pause(PauseKind::Insecure),
        RelayFailureKind::Auth(_) => RelayEffect::Pause(PauseKind::Auth),
        RelayFailureKind::Refused(reply) => {
            let wording = reply.text.to_lowercase();
            let crowded = reply.code / 100 == 4
                && (reply.code == 432 || rules::CROWDED.iter().any(|words| wording.contains(words)));
            if crowded { RelayEffect::Throttled } else { RelayEffect::Failing }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: MessageId = MessageId(5);

    fn broken(phase: Phase, stale: bool) -> HandOver {
        HandOver::Broken { phase, stale, error: String::new() }
    }

    fn decided(hand_over: &HandOver, attempts: u32) -> (Disposition, RelayEffect) {
        decide(classify(hand_over, &Overrides::NONE), ID, attempts, &RetryPolicy::default())
    }

    fn reply(code: u16, text: &str) -> Reply {
        Reply { code, enhanced: None, text: text.to_owned() }
    }

    #[test]
    fn an_acceptance_is_final_and_a_lost_answer_is_uncertain() {
        let accepted = HandOver::Accepted(reply(250, "queued"));
        assert_eq!(decided(&accepted, 3), (Disposition::Accepted, RelayEffect::Healthy));
        let unknown = HandOver::Unknown { error: String::new() };
        assert_eq!(decided(&unknown, 99), (Disposition::Uncertain, RelayEffect::Failing));
    }

    #[test]
    fn a_stale_connection_costs_nothing_and_is_replaced_at_once() {
        let at_once = Disposition::Retry { after: TimeDelta::zero(), charge: false };
        assert_eq!(decided(&broken(Phase::Mail, true), 99), (at_once, RelayEffect::None));
    }

    #[test]
    fn a_break_is_charged_only_once_the_relay_knows_the_recipient() {
        for (phase, charged) in [
            (Phase::Connect, false),
            (Phase::Auth, false),
            (Phase::Mail, false),
            (Phase::Rcpt, true),
            (Phase::Data, true),
            (Phase::Body, true),
        ] {
            let (disposition, effect) = decided(&broken(phase, false), 0);
            let Disposition::Retry { charge, .. } = disposition else { panic!("{disposition:?}") };
            assert_eq!((charge, effect), (charged, RelayEffect::Failing), "{phase}");
        }
    }

    #[test]
    fn the_last_charged_attempt_ends_in_failure_and_an_uncharged_one_never_does() {
        let last = RetryPolicy::default().max_attempts() - 1;
        let gone = Disposition::Failed(MessageReason::TooManyAttempts);
        assert_eq!(decided(&broken(Phase::Body, false), last).0, gone);
        assert_ne!(decided(&broken(Phase::Body, false), last - 1).0, gone);
        assert_ne!(decided(&broken(Phase::Mail, false), u32::MAX).0, gone);
    }

    #[test]
    fn failures_to_connect_map_to_the_breaker() {
        use PauseKind::{Auth, Certificate, Insecure};
        use RelayEffect::{Failing, Pause, Throttled};
        let effect = |phase, kind| relay_effect(&RelayFailure { phase, kind, error: String::new() });
        let refused = |code, text: &str| RelayFailureKind::Refused(reply(code, text));
        for (phase, kind, expected) in [
            (Phase::Connect, RelayFailureKind::Unreachable, Failing),
            (Phase::Tls, RelayFailureKind::Certificate, Pause(Certificate)),
            (Phase::Tls, RelayFailureKind::Insecure, Pause(Insecure)),
            (Phase::Greeting, refused(421, "try later"), Failing),
            (Phase::Greeting, refused(421, "Too many connections from you"), Throttled),
            (Phase::Greeting, refused(554, "too many connections, for ever"), Failing),
            (Phase::Ehlo, refused(502, "what is EHLO"), Failing),
            (Phase::Auth, refused(454, "temporary failure"), Failing),
            (Phase::Auth, refused(432, "Concurrent connections limit exceeded"), Throttled),
            (Phase::Auth, RelayFailureKind::Auth(Some(reply(535, "no"))), Pause(Auth)),
            (Phase::Auth, RelayFailureKind::Auth(None), Pause(Auth)),
        ] {
            assert_eq!(effect(phase, kind.clone()), expected, "{phase} {kind:?}");
        }
    }

    #[test]
    fn only_a_final_word_on_the_recipient_is_held_against_the_address() {
        let verdict = |scope, action| Verdict { scope, action, relay: RelayEffect::Answered };
        let (bad, failed) = (Action::Fail { bad_address: true }, Action::Fail { bad_address: false });
        let retry = Action::Retry(Patience::Ladder);
        let last = RetryPolicy::default().max_attempts() - 1;
        for (scope, action, attempts, fault) in [
            (Scope::Recipient, bad, 0, Some(AddressFault::Hard)),
            (Scope::Recipient, failed, 0, Some(AddressFault::Soft)),
            (Scope::Recipient, retry, last, Some(AddressFault::Soft)),
            (Scope::Recipient, retry, 0, None),
            (Scope::Message, failed, 0, None),
            (Scope::Message, retry, last, None),
            (Scope::Relay, Action::PutBack, last, None),
        ] {
            let verdict = verdict(scope, action);
            let (disposition, _) = decide(verdict, ID, attempts, &RetryPolicy::default());
            assert_eq!(address_fault(verdict, &disposition), fault, "{verdict:?} after {attempts}");
        }
    }

    #[test]
    fn the_reasons_of_a_pause_have_the_names_that_the_database_knows() {
        use PauseKind::{Account, Auth, Certificate, Insecure, Quota};
        let names = [Certificate, Insecure, Auth, Account, Quota].map(PauseKind::as_str);
        assert_eq!(names, ["certificate", "insecure", "auth", "account", "quota"]);
    }

    proptest! {
        #[test]
        fn only_message_and_recipient_scopes_spend_attempts_whatever_the_relay_says(
            code in 400u16..600, phase in 0usize..5, attempts in 0u32..30, text in ".{0,40}",
            enhanced in prop::option::of((0u16..10, 0u16..30)),
        ) {
            let phase = [Phase::Mail, Phase::Rcpt, Phase::Data, Phase::Body, Phase::Dot][phase];
            let enhanced = enhanced.map(|(subject, detail)| crate::domain::reply::Enhanced {
                class: code / 100, subject, detail,
            });
            let hand_over = HandOver::Refused { phase, reply: Reply { code, enhanced, text } };
            let verdict = classify(&hand_over, &Overrides::NONE);
            let (disposition, relay) = decide(verdict, ID, attempts, &RetryPolicy::default());
            prop_assert!(!matches!(disposition, Disposition::Accepted | Disposition::Uncertain));
            if let Disposition::Retry { charge, after } = disposition {
                prop_assert_eq!(charge, matches!(verdict.scope, Scope::Message | Scope::Recipient));
                prop_assert!(after > TimeDelta::zero());
            } else {
                prop_assert!(verdict.is_charged(), "a relay's trouble never ends a message");
            }
            prop_assert!(relay != RelayEffect::Healthy);
        }
    }
}
