//! How to reach the relay, already validated as far as words go.

use std::time::Duration;

use secrecy::SecretString;

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// TLS from the first byte (RFC 8314 §3.3), usually port 465.
    Implicit,
    /// STARTTLS (RFC 3207), usually port 587. A relay that does not offer it is refused.
    StartTls,
    /// No encryption: for a relay on this host or a private network.
    Plaintext,
}

/// A certificate by which the relay knows us.
#[derive(Debug, Clone)]
pub struct ClientIdentity {
    /// The certificate and its chain, as PEM.
    pub chain_pem: String,
    /// The key, as PEM.
    pub key_pem: SecretString,
}

/// How to reach the relay.
#[derive(Debug, Clone)]
pub struct SmtpSettings {
    /// Host name or IP address; the certificate must name it.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: TlsMode,
    /// Authorities trusted besides those of the system, as PEM.
    pub ca_pem: Option<String>,
    /// A certificate by which the relay knows us.
    pub client_identity: Option<ClientIdentity>,
    /// User and password for AUTH.
    pub credentials: Option<(String, SecretString)>,
    /// Whether the password may travel unencrypted. Only ever for a relay on this host.
    pub auth_without_tls: bool,
    /// How we name ourselves in EHLO: a host name or an address literal.
    pub helo: String,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// A connection is given up after so many messages.
    pub max_messages_per_connection: u32,
    /// A connection is given up at this age.
    pub max_connection_age: Duration,
    /// A connection is not used again after this much silence.
    pub max_idle: Duration,
}

impl SmtpSettings {
    /// The defaults for one relay.
    pub fn new(host: impl Into<String>, port: u16, tls: TlsMode) -> Self {
        Self {
            host: host.into(),
            port,
            tls,
            ca_pem: None,
            client_identity: None,
            credentials: None,
            auth_without_tls: false,
            helo: "localhost".to_owned(),
            timeouts: Timeouts::default(),
            max_messages_per_connection: 100,
            max_connection_age: Duration::from_mins(5),
            max_idle: Duration::from_secs(5),
        }
    }
}

/// How long each step may take. Each is a total: a trickle of bytes does not prolong it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One address of the relay.
    pub connect: Duration,
    /// Name look-up and all addresses together.
    pub connect_total: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The greeting, which some relays delay on purpose.
    pub greeting: Duration,
    /// EHLO, STARTTLS and AUTH, each.
    pub hello: Duration,
    /// MAIL, RCPT, DATA and RSET, each.
    pub command: Duration,
    /// The body, until its last byte was taken.
    pub body: Duration,
    /// The answer to the final dot. RFC 5321 §4.5.3.2.6 asks for ten minutes; less makes
    /// uncertain messages out of slow ones.
    pub dot: Duration,
    /// QUIT.
    pub quit: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            connect_total: Duration::from_secs(30),
            tls: Duration::from_secs(15),
            greeting: Duration::from_mins(1),
            hello: Duration::from_secs(30),
            command: Duration::from_mins(1),
            body: Duration::from_mins(3),
            dot: Duration::from_mins(10),
            quit: Duration::from_secs(2),
        }
    }
}
