//! What a relay answers, and how one hand-over went.

use std::fmt;

/// The steps of a submission, in order (RFC 5321 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Name look-up and TCP.
    Connect,
    /// The TLS handshake.
    Tls,
    /// The relay's greeting.
    Greeting,
    /// EHLO.
    Ehlo,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Rcpt,
    /// DATA, up to the 354.
    Data,
    /// The message, before its final dot.
    Body,
    /// After the final dot.
    Dot,
}

impl Phase {
    /// The name in the ledger and in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Greeting => "greeting",
            Self::Ehlo => "ehlo",
            Self::Auth => "auth",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Data => "data",
            Self::Body => "body",
            Self::Dot => "dot",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reply of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The three-digit code.
    pub code: u16,
    /// The enhanced status code (RFC 3463), where the text begins with one.
    pub enhanced: Option<Enhanced>,
    /// The text, sanitised and cut; may hold addresses, so it is for the ledger and not for logs.
    pub text: String,
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.text.is_empty() {
            write!(f, " {}", self.text)?;
        }
        Ok(())
    }
}

/// An enhanced status code, `class.subject.detail` (RFC 3463 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Enhanced {
    /// 2, 4 or 5.
    pub class: u16,
    /// 1 address, 2 mailbox, 3 system, 4 network, 5 protocol, 6 content, 7 policy.
    pub subject: u16,
    /// The detail within the subject.
    pub detail: u16,
}

/// Why no connection came about, or none that may be used. Says nothing about any message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connecting to the relay failed at {phase}: {error}")]
pub struct RelayFailure {
    /// The step that failed.
    pub phase: Phase,
    /// What kind of failure it is.
    pub kind: RelayFailureKind,
    /// What happened, for logs: without addresses and without the relay's wording.
    pub error: String,
}

/// The kinds of failure to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayFailureKind {
    /// No address, no connection, a reset, the end, or no answer in time.
    Unreachable,
    /// The relay's certificate, or ours, is not good enough, or no TLS version fits.
    Certificate,
    /// The relay does not offer STARTTLS, or somebody spoke into it.
    Insecure,
    /// The relay answered greeting, EHLO, STARTTLS or AUTH with a refusal that may pass.
    Refused(Reply),
    /// The relay does not take our credentials (with its reply), or offers no way to give them.
    Auth(Option<Reply>),
}

/// How one hand-over went, as exactly as can be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandOver {
    /// 2xx to the final dot.
    Accepted(Reply),
    /// A negative reply: certainly not accepted.
    Refused {
        /// Which step was refused.
        phase: Phase,
        /// What the relay said.
        reply: Reply,
    },
    /// No usable reply, and the final dot never left: certainly not accepted.
    Broken {
        /// The step at which it broke.
        phase: Phase,
        /// Whether this was the first command on a connection used before: it was merely stale.
        stale: bool,
        /// What happened, without addresses.
        error: String,
    },
    /// The final dot left, or may have left, and no usable answer came.
    Unknown {
        /// What happened, without addresses.
        error: String,
    },
}

impl HandOver {
    /// The step that the outcome is about.
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Accepted(_) | Self::Unknown { .. } => Phase::Dot,
            Self::Refused { phase, .. } | Self::Broken { phase, .. } => *phase,
        }
    }

    /// What was said, for the ledger; may hold addresses, so it is not for logs.
    pub fn note(&self) -> String {
        match self {
            Self::Accepted(reply) | Self::Refused { reply, .. } => reply.to_string(),
            Self::Broken { error, .. } | Self::Unknown { error } => error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_is_noted_with_its_phase_and_what_was_said() {
        let reply = |text: &str| Reply { code: 450, enhanced: None, text: text.to_owned() };
        let error = || "the connection was reset".to_owned();
        for (hand_over, phase, note) in [
            (HandOver::Accepted(reply("2.0.0 queued")), "dot", "450 2.0.0 queued"),
            (HandOver::Refused { phase: Phase::Mail, reply: reply("") }, "mail", "450"),
            (HandOver::Broken { phase: Phase::Body, stale: false, error: error() }, "body", &error()),
            (HandOver::Unknown { error: error() }, "dot", &error()),
        ] {
            assert_eq!((hand_over.phase().as_str(), hand_over.note().as_str()), (phase, note));
            assert_eq!(hand_over.phase().to_string(), phase);
        }
    }
}
