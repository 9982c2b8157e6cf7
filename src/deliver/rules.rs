//! The outcome table: what a refusal means, by phase, code, enhanced code and wording.
//!
//! The first rule that applies counts. The first digit of the reply code is never overruled by
//! wording: words only tell whom a refusal is about.

use super::classify::{Action, PauseKind, RelayEffect, Scope, Verdict};
use crate::domain::reply::{Phase, Reply};
use crate::domain::retry::Patience;

/// One row of the table.
#[derive(Debug)]
pub struct Rule {
    phases: &'static [Phase],
    codes: (u16, u16),
    status: Status,
    says: &'static [&'static str],
    /// What it means.
    pub verdict: Verdict,
}

/// What the enhanced code must be (RFC 3463), its class aside.
#[derive(Debug, Clone, Copy)]
enum Status {
    Any,
    /// There is none.
    Bare,
    Subject(u16),
    Exactly(u16, u16),
}

impl Rule {
    pub(super) const fn new(phases: &'static [Phase], codes: (u16, u16), verdict: Verdict) -> Self {
        Self { phases, codes, status: Status::Any, says: &[], verdict }
    }

    const fn bare(mut self) -> Self {
        self.status = Status::Bare;
        self
    }

    const fn subject(mut self, subject: u16) -> Self {
        self.status = Status::Subject(subject);
        self
    }

    pub(super) const fn status(mut self, subject: u16, detail: u16) -> Self {
        self.status = Status::Exactly(subject, detail);
        self
    }

    /// Any of these stands in the text, which is compared in lower case.
    pub(super) const fn says(mut self, words: &'static [&'static str]) -> Self {
        self.says = words;
        self
    }

    /// Whether the row is about this reply; `wording` is its text in lower case.
    pub(super) fn applies(&self, phase: Phase, reply: &Reply, wording: &str) -> bool {
        let status = match (self.status, reply.enhanced) {
            (Status::Any, _) | (Status::Bare, None) => true,
            (Status::Subject(subject), Some(code)) => code.subject == subject,
            (Status::Exactly(subject, detail), Some(code)) => {
                (code.subject, code.detail) == (subject, detail)
            }
            _ => false,
        };
        status
            && self.phases.contains(&phase)
            && (self.codes.0..=self.codes.1).contains(&reply.code)
            && (self.says.is_empty() || self.says.iter().any(|words| wording.contains(words)))
    }
}

pub(super) const MAIL: &[Phase] = &[Phase::Mail];
pub(super) const RCPT: &[Phase] = &[Phase::Rcpt];
pub(super) const DATA: &[Phase] = &[Phase::Data];
/// An answer to the body before its dot means what the same answer to the dot means.
pub(super) const DOT: &[Phase] = &[Phase::Body, Phase::Dot];
/// Once the recipient is taken.
pub(super) const CONTENT: &[Phase] = &[Phase::Data, Phase::Body, Phase::Dot];
pub(super) const ANY: &[Phase] = &[Phase::Mail, Phase::Rcpt, Phase::Data, Phase::Body, Phase::Dot];

pub(super) const TRANSIENT: (u16, u16) = (400, 499);
pub(super) const PERMANENT: (u16, u16) = (500, 599);

const fn only(code: u16) -> (u16, u16) {
    (code, code)
}

const fn verdict(scope: Scope, action: Action, relay: RelayEffect) -> Verdict {
    Verdict { scope, action, relay }
}

pub(super) const SLOW_DOWN: Verdict = verdict(Scope::Relay, Action::PutBack, RelayEffect::Throttled);
pub(super) const ACCOUNT: Verdict =
    verdict(Scope::Relay, Action::PutBack, RelayEffect::Pause(PauseKind::Account));
pub(super) const QUOTA: Verdict =
    verdict(Scope::Relay, Action::PutBack, RelayEffect::Pause(PauseKind::Quota));
const CLOSING: Verdict = verdict(Scope::Relay, Action::PutBack, RelayEffect::Failing);
const GREYLISTED: Verdict =
    verdict(Scope::Recipient, Action::Retry(Patience::Greylisted), RelayEffect::Answered);
const NO_SUCH_MAILBOX: Verdict =
    verdict(Scope::Recipient, Action::Fail { bad_address: true }, RelayEffect::Answered);
const RECIPIENT_REFUSED: Verdict =
    verdict(Scope::Recipient, Action::Fail { bad_address: false }, RelayEffect::Answered);
const RECIPIENT_POLICY: Verdict =
    verdict(Scope::Recipient, Action::Retry(Patience::Policy), RelayEffect::PolicyRefusal);
const MESSAGE_POLICY: Verdict =
    verdict(Scope::Message, Action::Retry(Patience::Policy), RelayEffect::PolicyRefusal);
const LATER: Verdict = verdict(Scope::Message, Action::Retry(Patience::Ladder), RelayEffect::Answered);
const LATER_ELSEWHERE: Verdict =
    verdict(Scope::Message, Action::Retry(Patience::Ladder), RelayEffect::Failing);
const TOO_LARGE: Verdict =
    verdict(Scope::Message, Action::Fail { bad_address: false }, RelayEffect::Answered);
/// Final for this message, and yet perhaps about us: it feeds the streak.
const MESSAGE_REFUSED: Verdict =
    verdict(Scope::Message, Action::Fail { bad_address: false }, RelayEffect::PolicyRefusal);

/// For a reply that no row knows, such as one at a phase that no hand-over has.
pub(super) const UNHEARD_OF: Verdict = LATER;

/// Wording of a relay that wants fewer connections, in a 4xx.
pub(super) const CROWDED: &[&str] = &["too many", "concurrent connections", "connection limit", "rate limit"];

/// Wording of a relay that wants less mail, in a 4xx.
const TOO_FAST: &[&str] = &[
    "throttl",
    "sending rate",
    "rate limit",
    "ratelimit",
    "rate exceeded",
    "too many messages",
    "too many mails",
    "too many emails",
    "too fast",
    "slow down",
    "message quota",
    "sending quota",
    "sending limit",
];

/// Wording of a policy, in a 5xx without an enhanced code.
const POLICY: &[&str] = &[
    "relay",
    "denied",
    "policy",
    "block",
    "blacklist",
    "spam",
    "not permitted",
    "not allowed",
    "authenticat",
];

/// The table. Rows of one phase stand together, the special before the general.
pub(super) const TABLE: &[Rule] = &[
    // MAIL: the sender is the same for all, so a refusal is about us, unless it is about size.
    Rule::new(MAIL, only(421), CLOSING),
    Rule::new(MAIL, TRANSIENT, SLOW_DOWN),
    Rule::new(MAIL, PERMANENT, TOO_LARGE).status(3, 4),
    Rule::new(MAIL, only(552), TOO_LARGE).bare(),
    Rule::new(MAIL, PERMANENT, ACCOUNT),
    // RCPT: about the recipient, unless it speaks of the sender or of policy.
    Rule::new(
        RCPT,
        only(421),
        verdict(Scope::Recipient, Action::Retry(Patience::Ladder), RelayEffect::Failing),
    ),
    Rule::new(RCPT, TRANSIENT, GREYLISTED),
    Rule::new(RCPT, PERMANENT, ACCOUNT).status(1, 7),
    Rule::new(RCPT, PERMANENT, ACCOUNT).status(1, 8),
    Rule::new(RCPT, PERMANENT, NO_SUCH_MAILBOX).subject(1),
    Rule::new(RCPT, PERMANENT, NO_SUCH_MAILBOX).status(2, 1),
    Rule::new(RCPT, PERMANENT, NO_SUCH_MAILBOX).status(2, 2),
    Rule::new(RCPT, PERMANENT, RECIPIENT_POLICY).subject(7),
    Rule::new(RCPT, only(530), RECIPIENT_POLICY),
    Rule::new(RCPT, only(554), RECIPIENT_POLICY).bare(),
    Rule::new(RCPT, only(571), RECIPIENT_POLICY).bare(),
    Rule::new(RCPT, PERMANENT, RECIPIENT_POLICY).bare().says(POLICY),
    Rule::new(RCPT, PERMANENT, RECIPIENT_REFUSED),
    // DATA, body and dot: about the message, unless it speaks of speed or of policy.
    Rule::new(CONTENT, TRANSIENT, SLOW_DOWN).says(TOO_FAST),
    Rule::new(DATA, only(421), LATER_ELSEWHERE),
    Rule::new(CONTENT, TRANSIENT, LATER),
    Rule::new(CONTENT, PERMANENT, TOO_LARGE).status(3, 4),
    Rule::new(CONTENT, only(552), TOO_LARGE),
    Rule::new(CONTENT, PERMANENT, MESSAGE_POLICY).subject(7),
    Rule::new(CONTENT, only(530), MESSAGE_POLICY),
    Rule::new(CONTENT, only(571), MESSAGE_POLICY).bare(),
    Rule::new(DATA, only(554), MESSAGE_POLICY).bare(),
    Rule::new(CONTENT, PERMANENT, RECIPIENT_REFUSED).subject(1),
    Rule::new(CONTENT, PERMANENT, RECIPIENT_REFUSED).subject(2),
    Rule::new(CONTENT, PERMANENT, MESSAGE_REFUSED),
];

#[cfg(test)]
mod tests {
    use super::super::classify::classify;
    use super::super::providers::Overrides;
    use super::*;
    use crate::domain::reply::HandOver;
    use crate::mail::reply_of_line;

    #[track_caller]
    fn check(phase: Phase, line: &str, expected: Verdict) {
        let reply = reply_of_line(line).unwrap();
        let found = classify(&HandOver::Refused { phase, reply }, &Overrides::NONE);
        assert_eq!(found, expected, "{phase}: {line}");
    }

    #[test]
    fn mail_refusals_are_about_us() {
        check(Phase::Mail, "421 4.3.2 closing", CLOSING);
        check(Phase::Mail, "451 4.3.0 later", SLOW_DOWN);
        check(Phase::Mail, "452 4.3.1 full", SLOW_DOWN);
        check(Phase::Mail, "450 busy", SLOW_DOWN);
        check(Phase::Mail, "552 5.3.4 too big", TOO_LARGE);
        check(Phase::Mail, "552 too big", TOO_LARGE);
        check(Phase::Mail, "552 5.2.2 over quota", ACCOUNT);
        check(Phase::Mail, "550 5.7.1 sender refused", ACCOUNT);
        check(Phase::Mail, "553 who", ACCOUNT);
        check(Phase::Mail, "530 5.7.0 log in", ACCOUNT);
        check(Phase::Mail, "554 5.2.0 no", ACCOUNT);
    }

    #[test]
    fn rcpt_refusals_are_about_the_recipient_or_a_policy() {
        for line in ["450 4.2.0 busy", "451 4.7.1 greylisted", "452 4.2.2 full", "450 later"] {
            check(Phase::Rcpt, line, GREYLISTED);
        }
        for line in
            ["550 5.1.1 no user", "553 5.1.3 bad", "551 5.1.6 moved", "552 5.2.2 full", "550 5.2.1 off"]
        {
            check(Phase::Rcpt, line, NO_SUCH_MAILBOX);
        }
        for line in ["550 no such user", "553 5.6.7 no SMTPUTF8", "501 5.5.4 what", "550 5.4.1 no route"] {
            check(Phase::Rcpt, line, RECIPIENT_REFUSED);
        }
        for line in [
            "550 5.7.1 refused",
            "554 5.7.1 relay access denied",
            "554 no",
            "530 5.5.1 log in",
            "571 no",
            "550 relaying denied",
            "550 blocked",
        ] {
            check(Phase::Rcpt, line, RECIPIENT_POLICY);
        }
        check(Phase::Rcpt, "550 5.1.8 bad sender's system", ACCOUNT);
        check(
            Phase::Rcpt,
            "421 4.3.2 closing",
            verdict(Scope::Recipient, Action::Retry(Patience::Ladder), RelayEffect::Failing),
        );
    }

    #[test]
    fn data_refusals_are_about_the_message_or_a_policy() {
        check(Phase::Data, "451 4.3.0 later", LATER);
        check(Phase::Data, "421 4.3.2 closing", LATER_ELSEWHERE);
        check(Phase::Data, "454 Throttling failure: maximum sending rate exceeded", SLOW_DOWN);
        check(Phase::Data, "550 5.7.1 refused", MESSAGE_POLICY);
        check(Phase::Data, "554 no", MESSAGE_POLICY);
        check(Phase::Data, "571 no", MESSAGE_POLICY);
        check(Phase::Data, "550 no", MESSAGE_REFUSED);
        check(Phase::Data, "503 5.5.1 no recipients", MESSAGE_REFUSED);
    }

    #[test]
    fn dot_refusals_are_definite_whatever_the_code() {
        for phase in [Phase::Body, Phase::Dot] {
            check(phase, "421 4.3.2 closing", LATER);
            check(phase, "451 4.3.0 later", LATER);
            check(phase, "450 4.2.2 mailbox full", LATER);
            check(phase, "454 4.7.0 Throttling failure", SLOW_DOWN);
            check(phase, "451 4.4.2 rate limit reached", SLOW_DOWN);
            check(phase, "452 4.3.1 too many messages", SLOW_DOWN);
            check(phase, "552 5.3.4 too big", TOO_LARGE);
            check(phase, "554 5.3.4 too big", TOO_LARGE);
            check(phase, "552 5.2.3 too big for this mailbox", TOO_LARGE);
            check(phase, "554 5.7.1 spam", MESSAGE_POLICY);
            check(phase, "550 5.1.1 no user", RECIPIENT_REFUSED);
            check(phase, "554 transaction failed", MESSAGE_REFUSED);
            check(phase, "550 5.6.0 bad content", MESSAGE_REFUSED);
        }
    }

    #[test]
    fn every_row_of_the_table_can_apply() {
        // A row that an earlier one always hides would be a mistake in the order.
        for (i, rule) in TABLE.iter().enumerate() {
            let subject_detail = match rule.status {
                Status::Any => vec![None, Some((9, 9))],
                Status::Bare => vec![None],
                Status::Subject(subject) => vec![Some((subject, 29))],
                Status::Exactly(subject, detail) => vec![Some((subject, detail))],
            };
            let hit = (rule.codes.0..=rule.codes.1).any(|code| {
                subject_detail.iter().any(|pair| {
                    let class = code / 100;
                    let enhanced = pair.map(|(subject, detail)| crate::domain::reply::Enhanced {
                        class,
                        subject,
                        detail,
                    });
                    let text = rule.says.first().copied().unwrap_or("").to_owned();
                    let reply = Reply { code, enhanced, text: text.clone() };
                    rule.phases.iter().any(|phase| {
                        TABLE.iter().position(|rule| rule.applies(*phase, &reply, &text)) == Some(i)
                    })
                })
            });
            assert!(hit, "row {i} never applies: {rule:?}");
        }
    }
}
