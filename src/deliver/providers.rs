//! What well-known relays mean by replies that the general table would misread.

use super::rules::{ACCOUNT, ANY, CONTENT, DOT, MAIL, PERMANENT, QUOTA, RCPT, Rule, SLOW_DOWN, TRANSIENT};

/// A relay whose replies are known in more detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Amazon Simple Email Service.
    Ses,
    /// Gmail and the Google Workspace relay.
    Google,
    /// Microsoft 365.
    Microsoft365,
    /// `SendGrid`.
    SendGrid,
}

impl Provider {
    /// Every provider.
    pub const ALL: [Self; 4] = [Self::Ses, Self::Google, Self::Microsoft365, Self::SendGrid];

    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ses => "ses",
            Self::Google => "google",
            Self::Microsoft365 => "microsoft365",
            Self::SendGrid => "sendgrid",
        }
    }

    /// Parses the name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == text)
    }

    /// The provider that a relay's host name belongs to.
    pub fn of_host(host: &str) -> Option<Self> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let within = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if within("amazonaws.com") || within("amazonaws.com.cn") {
            Some(Self::Ses)
        } else if within("gmail.com") || within("google.com") {
            Some(Self::Google)
        } else if within("office365.com") || within("outlook.com") {
            Some(Self::Microsoft365)
        } else if within("sendgrid.net") {
            Some(Self::SendGrid)
        } else {
            None
        }
    }

    const fn rules(self) -> &'static [Rule] {
        match self {
            Self::Ses => SES,
            Self::Google => GOOGLE,
            Self::Microsoft365 => MICROSOFT365,
            Self::SendGrid => SENDGRID,
        }
    }
}

/// Rules that come before the general table.
#[derive(Debug, Clone, Copy)]
pub struct Overrides(&'static [Rule]);

impl Overrides {
    /// The general table alone.
    pub const NONE: Self = Self(&[]);

    /// The rules of one provider.
    pub const fn of(provider: Provider) -> Self {
        Self(provider.rules())
    }

    /// The rules for a relay's host name.
    pub fn for_host(host: &str) -> Self {
        Provider::of_host(host).map_or(Self::NONE, Self::of)
    }

    pub(super) fn rules(&self) -> &'static [Rule] {
        self.0
    }
}

const SES: &[Rule] = &[
    Rule::new(ANY, (454, 454), QUOTA).says(&["daily message quota"]),
    Rule::new(ANY, (454, 454), SLOW_DOWN),
    Rule::new(ANY, PERMANENT, ACCOUNT).says(&["not verified", "sending paused", "account is paused"]),
];

const GOOGLE: &[Rule] = &[
    Rule::new(ANY, (450, 451), SLOW_DOWN).says(&["relay limit", "sending limit"]),
    Rule::new(ANY, (421, 454), SLOW_DOWN).status(7, 0),
    Rule::new(ANY, PERMANENT, QUOTA).status(4, 5),
];

const MICROSOFT365: &[Rule] = &[
    Rule::new(ANY, TRANSIENT, SLOW_DOWN).status(3, 2),
    // The mailbox that is full is the sender's own folder of sent mail.
    Rule::new(DOT, PERMANENT, ACCOUNT).status(2, 2),
    Rule::new(ANY, PERMANENT, ACCOUNT).status(7, 60),
    Rule::new(ANY, PERMANENT, ACCOUNT).status(1, 8),
    Rule::new(ANY, PERMANENT, QUOTA).says(&["submission quota exceeded", "recipient limit"]),
];

const SENDGRID: &[Rule] = &[
    Rule::new(ANY, TRANSIENT, QUOTA).says(&["maximum credits exceeded"]),
    Rule::new(MAIL, PERMANENT, ACCOUNT),
    Rule::new(RCPT, PERMANENT, ACCOUNT).says(&["verified sender identity", "from address"]),
    Rule::new(CONTENT, PERMANENT, ACCOUNT).says(&["verified sender identity", "from address"]),
];

#[cfg(test)]
mod tests {
    use super::super::classify::{Verdict, classify};
    use super::*;
    use crate::domain::reply::{HandOver, Phase};
    use crate::mail::reply_of_line;

    #[track_caller]
    fn check(provider: Provider, phase: Phase, line: &str, expected: Verdict) {
        let reply = reply_of_line(line).unwrap();
        let found = classify(&HandOver::Refused { phase, reply }, &Overrides::of(provider));
        assert_eq!(found, expected, "{} {phase}: {line}", provider.as_str());
    }

    #[test]
    fn every_override_is_met_by_the_reply_that_it_was_made_for() {
        use Phase::{Data, Dot, Mail, Rcpt};
        use Provider::{Google, Microsoft365, SendGrid, Ses};
        let rate = "454 Throttling failure: Maximum sending rate exceeded.";
        check(Ses, Dot, rate, SLOW_DOWN);
        check(Ses, Data, rate, SLOW_DOWN);
        check(Ses, Dot, "454 Throttling failure: Daily message quota exceeded.", QUOTA);
        check(Ses, Dot, "554 Message rejected: Email address is not verified.", ACCOUNT);
        check(Google, Rcpt, "450 4.2.1 Peak SMTP relay limit exceeded", SLOW_DOWN);
        check(Google, Mail, "421 4.7.0 Try again later", SLOW_DOWN);
        check(Google, Dot, "550 5.4.5 Daily user sending limit exceeded", QUOTA);
        check(Microsoft365, Mail, "432 4.3.2 Concurrent connections limit exceeded", SLOW_DOWN);
        check(Microsoft365, Dot, "554 5.2.2 mailbox full", ACCOUNT);
        check(Microsoft365, Dot, "550 5.7.60 client not permitted to send as this sender", ACCOUNT);
        check(Microsoft365, Rcpt, "550 5.1.8 bad outbound sender", ACCOUNT);
        check(Microsoft365, Dot, "554 5.2.0 submission quota exceeded", QUOTA);
        check(SendGrid, Dot, "451 Maximum credits exceeded", QUOTA);
        check(SendGrid, Mail, "550 unauthorised sender", ACCOUNT);
        check(SendGrid, Rcpt, "550 The from address does not match a verified Sender Identity", ACCOUNT);
        check(SendGrid, Dot, "550 The from address does not match a verified Sender Identity", ACCOUNT);
    }

    #[test]
    fn a_mailbox_that_does_not_exist_stays_the_recipients_matter_with_every_provider() {
        let reply = reply_of_line("550 5.1.1 no such user").unwrap();
        let hand_over = HandOver::Refused { phase: Phase::Rcpt, reply };
        for provider in Provider::ALL {
            let expected = classify(&hand_over, &Overrides::NONE);
            assert_eq!(classify(&hand_over, &Overrides::of(provider)), expected, "{}", provider.as_str());
        }
    }

    #[test]
    fn providers_are_known_by_name_and_by_host() {
        for provider in Provider::ALL {
            assert_eq!(Provider::parse(provider.as_str()), Some(provider));
        }
        assert_eq!(Provider::of_host("email-smtp.eu-west-1.amazonaws.com"), Some(Provider::Ses));
        assert_eq!(Provider::of_host("SMTP-relay.Gmail.com."), Some(Provider::Google));
        assert_eq!(Provider::of_host("smtp.office365.com"), Some(Provider::Microsoft365));
        assert_eq!(Provider::of_host("smtp.sendgrid.net"), Some(Provider::SendGrid));
        assert_eq!(Provider::of_host("notgmail.com"), None);
        assert_eq!(Provider::of_host("localhost"), None);
    }
}
