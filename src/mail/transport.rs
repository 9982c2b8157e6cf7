//! What the delivery loop holds: a relay or a folder, and connections to it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::folder::MailFolder;
use super::lenient::RawReply;
use super::session::Session;
pub use super::settings::{ClientIdentity, SmtpSettings, Timeouts, TlsMode};
use super::tls::{Tls, is_about_trust};
use crate::domain::address::Address;
use crate::domain::message::MessageUid;
use crate::domain::reply::{HandOver, Phase, RelayFailure, RelayFailureKind};

/// Where mail goes. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Transport {
    /// To an SMTP relay.
    Smtp(SmtpRelay),
    /// Into a folder, one file per message.
    Folder(MailFolder),
}

impl Transport {
    /// Opens a connection: TCP, TLS, greeting, EHLO, AUTH. Each step is bounded in time.
    pub async fn connect(&self) -> Result<Connection, RelayFailure> {
        match self {
            Self::Smtp(relay) => Ok(Connection::Smtp(Box::new(Session::open(relay).await?))),
            Self::Folder(folder) => Ok(Connection::Folder(folder.clone())),
        }
    }

    /// Connections to the relay that are open now.
    pub fn open_connections(&self) -> usize {
        match self {
            Self::Smtp(relay) => relay.open_sessions(),
            Self::Folder(_) => 0,
        }
    }

    /// The longest time between the first body byte and the outcome: how far the marker must
    /// extend the lease.
    pub fn hand_over_limit(&self) -> Duration {
        match self {
            Self::Smtp(relay) => {
                let timeouts = relay.settings().timeouts;
                timeouts.body + timeouts.dot + super::session::LATE_REPLY
            }
            Self::Folder(_) => Duration::from_mins(1),
        }
    }
}

/// A relay with everything that a connection needs, made once. Cheap to clone.
#[derive(Clone)]
pub struct SmtpRelay(Arc<Relay>);

struct Relay {
    settings: SmtpSettings,
    tls: Option<Tls>,
    /// Each open session holds a clone, and drops it however it ends.
    open: Arc<()>,
}

impl fmt::Debug for SmtpRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        write!(f, "SmtpRelay({}:{})", settings.host, settings.port)
    }
}

/// Why settings cannot work with any relay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The host is neither a name nor an address.
    #[error("the relay's host is neither a host name nor an IP address")]
    Host,
    /// The EHLO name would break the command.
    #[error("the name for EHLO must be a host name or an address literal")]
    Helo,
    /// A password without encryption.
    #[error("AUTH without TLS would show the password to the network")]
    PlainAuth,
    /// The file of own authorities.
    #[error("the file of trusted authorities cannot be used: {0}")]
    Authority(&'static str),
    /// The client certificate.
    #[error("the client certificate cannot be used: {0}")]
    ClientIdentity(&'static str),
    /// The TLS library refused the combination.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

impl SmtpRelay {
    /// Checks the settings and loads certificates. Reads the system's authorities from disk.
    pub fn new(settings: SmtpSettings) -> Result<Self, SettingsError> {
        let helo_ok = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if settings.helo.is_empty() || !settings.helo.chars().all(helo_ok) {
            return Err(SettingsError::Helo);
        }
        let plain = settings.tls == TlsMode::Plaintext;
        if plain && settings.credentials.is_some() && !settings.auth_without_tls {
            return Err(SettingsError::PlainAuth);
        }
        let tls = if plain { None } else { Some(Tls::new(&settings)?) };
        Ok(Self(Arc::new(Relay { settings, tls, open: Arc::new(()) })))
    }

    /// The settings it was made from.
    pub fn settings(&self) -> &SmtpSettings {
        &self.0.settings
    }

    fn open_sessions(&self) -> usize {
        Arc::strong_count(&self.0.open) - 1
    }

    /// What a session holds as long as it is open.
    pub(super) fn count_session(&self) -> Arc<()> {
        Arc::clone(&self.0.open)
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.0.tls.as_ref()
    }
}

impl RelayFailure {
    pub(super) fn new(phase: Phase, kind: RelayFailureKind, error: String) -> Self {
        Self { phase, kind, error }
    }

    pub(super) fn io(phase: Phase, error: &io::Error) -> Self {
        // A relay that misses our certificate says so after the handshake (RFC 8446 §4.4.2.4).
        let trust = is_about_trust(error);
        let kind = if trust { RelayFailureKind::Certificate } else { RelayFailureKind::Unreachable };
        Self::new(phase, kind, error.to_string())
    }

    pub(super) fn refused(phase: Phase, reply: &RawReply) -> Self {
        let error = format!("the relay answered {}", reply.code);
        Self::new(phase, RelayFailureKind::Refused(reply.to_reply()), error)
    }
}

/// An open connection, owned by one task. Dropping it closes the socket and nothing more.
#[derive(Debug)]
pub enum Connection {
    /// To a relay.
    Smtp(Box<Session>),
    /// To a folder, which is always open.
    Folder(MailFolder),
}

impl Connection {
    /// MAIL, RCPT and DATA; `Ok` after the 354. They leave in one write where the relay offers
    /// PIPELINING (RFC 2920), one by one elsewhere.
    ///
    /// After `Ok` the relay takes everything for the message until the dot. A body that must not
    /// be sent any more means: drop the connection.
    pub async fn envelope(&mut self, from: &Address, to: &Address, size: usize) -> Result<(), HandOver> {
        match self {
            Self::Smtp(session) => session.envelope(from, to, size).await,
            Self::Folder(_) => Ok(()),
        }
    }

    /// The body and the final dot. Only after an envelope that went well.
    pub async fn body(&mut self, bytes: &[u8], uid: &MessageUid) -> HandOver {
        match self {
            Self::Smtp(session) => session.body(bytes).await,
            Self::Folder(folder) => folder.write(bytes, uid).await,
        }
    }

    /// Whether the next message may use this connection: the dialogue is in step, the relay did not
    /// announce its end, and no limit of count, age or silence is reached.
    pub fn reusable(&self) -> bool {
        match self {
            Self::Smtp(session) => session.reusable(),
            Self::Folder(_) => true,
        }
    }

    /// Says goodbye and closes. Bounded; what the relay answers does not matter.
    pub async fn quit(self) {
        if let Self::Smtp(session) = self {
            session.quit().await;
        }
    }
}
