//! What a relay offers after EHLO, and what that means for an envelope.

use super::lenient::RawReply;
use crate::domain::address::Address;
use crate::domain::reply::{Enhanced, HandOver, Phase, Reply};

/// The ways to log in that we know, the preferred one last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AuthMechanism {
    Login,
    Plain,
}

/// What the relay offered after EHLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Offers {
    pub(super) pipelining: bool,
    pub(super) smtputf8: bool,
    pub(super) auth: Option<AuthMechanism>,
    /// The largest message taken, in bytes; 0 where the relay names no limit (RFC 1870 §4).
    pub(super) size: Option<usize>,
}

impl Offers {
    pub(super) fn read(reply: &RawReply) -> Self {
        let mut offers = Self::default();
        for line in reply.lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            // Some relays write AUTH=PLAIN, as drafts of RFC 4954 did.
            let mut words = line.split([' ', '=']).filter(|word| !word.is_empty());
            match words.next() {
                Some("PIPELINING") => offers.pipelining = true,
                Some("SMTPUTF8") => offers.smtputf8 = true,
                Some("SIZE") => {
                    offers.size = Some(words.next().and_then(|limit| limit.parse().ok()).unwrap_or(0));
                }
                Some("AUTH") => words.for_each(|word| match word {
                    "PLAIN" => offers.auth = offers.auth.max(Some(AuthMechanism::Plain)),
                    "LOGIN" => offers.auth = offers.auth.max(Some(AuthMechanism::Login)),
                    _ => {}
                }),
                _ => {}
            }
        }
        offers
    }

    /// What the relay is known to refuse is not sent to it.
    pub(super) fn check(&self, from: &Address, to: &Address, size: usize) -> Result<(), HandOver> {
        if (from.needs_smtputf8() || to.needs_smtputf8()) && !self.smtputf8 {
            let text = "the relay does not offer SMTPUTF8, which this address needs";
            return Err(refused_by_us(Phase::Rcpt, 553, (5, 6, 7), text));
        }
        if self.size.is_some_and(|limit| limit > 0 && limit < size) {
            let text = "the message is larger than the relay announces to take";
            return Err(refused_by_us(Phase::Mail, 552, (5, 3, 4), text));
        }
        Ok(())
    }

    pub(super) fn mail_command(&self, from: &Address, size: usize, to_needs_utf8: bool) -> String {
        let size = self.size.map(|_| format!(" SIZE={size}")).unwrap_or_default();
        let utf8 = if from.needs_smtputf8() || to_needs_utf8 { " SMTPUTF8" } else { "" };
        format!("MAIL FROM:<{}>{size}{utf8}\r\n", from.mailbox())
    }
}

/// A refusal that the relay would have given, had it been asked.
pub(super) fn refused_by_us(
    phase: Phase,
    code: u16,
    (class, subject, detail): (u16, u16, u16),
    text: &str,
) -> HandOver {
    let enhanced = Some(Enhanced { class, subject, detail });
    HandOver::Refused { phase, reply: Reply { code, enhanced, text: text.to_owned() } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offers(lines: &[&str]) -> Offers {
        let lines = std::iter::once("relay.test").chain(lines.iter().copied()).map(str::to_owned).collect();
        Offers::read(&RawReply { code: 250, lines })
    }

    #[test]
    fn offers_are_read_in_any_case_and_in_old_spellings() {
        let read = offers(&["pipelining", "SmtpUtf8", "AUTH LOGIN", "AUTH=PLAIN XOAUTH2", "SIZE 1000"]);
        assert!(read.pipelining && read.smtputf8);
        assert_eq!(read.auth, Some(AuthMechanism::Plain));
        assert_eq!(read.size, Some(1000));
        assert_eq!(offers(&["SIZE"]).size, Some(0));
        assert_eq!(offers(&["SIZE many"]).size, Some(0));
        assert_eq!(offers(&["XPIPELINING", "SIZELESS"]), Offers::default());
        assert_eq!(
            Offers::read(&RawReply { code: 250, lines: vec!["PIPELINING".into()] }),
            Offers::default()
        );
    }

    #[test]
    fn mail_names_only_what_was_offered() {
        let from = Address::parse("a@x.org").unwrap();
        assert_eq!(offers(&[]).mail_command(&from, 7, false), "MAIL FROM:<a@x.org>\r\n");
        assert_eq!(offers(&["SIZE"]).mail_command(&from, 7, false), "MAIL FROM:<a@x.org> SIZE=7\r\n");
        let both = offers(&["SIZE", "SMTPUTF8"]).mail_command(&from, 7, true);
        assert_eq!(both, "MAIL FROM:<a@x.org> SIZE=7 SMTPUTF8\r\n");
    }

    proptest! {
        // A line break or a bracket in an address once let a stranger add a recipient.
        #[test]
        fn no_address_can_add_a_command_or_a_parameter(text in r"[ -~\r\n<>é]{0,8}@[ -~\r\n<>]{0,6}x\.org") {
            if let Ok(address) = Address::parse(&text) {
                let command = offers(&["SIZE", "SMTPUTF8"]).mail_command(&address, 7, false);
                let rest = command.strip_prefix("MAIL FROM:<").and_then(|rest| rest.strip_suffix("\r\n"));
                let (path, parameters) = rest.and_then(|rest| rest.split_once('>')).unwrap();
                prop_assert!(!path.contains(|c: char| c.is_control() || c == ' ' || c == '<'));
                prop_assert!(parameters == " SIZE=7" || parameters == " SIZE=7 SMTPUTF8");
            }
        }
    }
}
