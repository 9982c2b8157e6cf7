//! Where mails go.

use std::fmt;
use std::path::PathBuf;

use super::kind::Kind;
use super::text::Setting;
use super::url::{host_and_port, is_loopback};

/// Where mails go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayUrl {
    /// To an SMTP server.
    Smtp(SmtpUrl),
    /// Into files of a folder.
    Directory(PathBuf),
}

/// An SMTP server and how to be safe with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpUrl {
    /// A name, an IPv4 address, or an IPv6 address in brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// When TLS begins.
    pub security: Security,
}

/// When TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// From the first byte (RFC 8314 §3.3).
    ImplicitTls,
    /// After STARTTLS, which must succeed (RFC 3207).
    StartTls,
    /// Never.
    Plaintext,
}

impl SmtpUrl {
    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Smtp(SmtpUrl { host, port, security }) = self else {
            let Self::Directory(dir) = self else { return Ok(()) };
            return write!(f, "file:{}", dir.display());
        };
        match security {
            Security::ImplicitTls => write!(f, "smtps://{host}:{port}"),
            Security::StartTls => write!(f, "smtp://{host}:{port}?tls=starttls"),
            Security::Plaintext => write!(f, "smtp+plaintext://{host}:{port}"),
        }
    }
}

impl Setting for RelayUrl {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        if let Some(dir) = text.strip_prefix("file:") {
            let dir = dir.strip_prefix("//").unwrap_or(dir);
            return if dir.is_empty() { Err(None) } else { Ok(Self::Directory(PathBuf::from(dir))) };
        }
        let (scheme, rest) = text.split_once("://").ok_or(None)?;
        if rest.contains('@') {
            let hint = "take user and password out of the URL; set relay.username and relay.password_file";
            return Err(Some(hint.to_owned()));
        }
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (security, default_port) = match (scheme, query) {
            ("smtps", "") => (Security::ImplicitTls, 465),
            ("smtp", "tls=starttls") => (Security::StartTls, 587),
            ("smtp", "") => {
                let hint = "add ?tls=starttls, or use smtps:// for TLS from the first byte";
                return Err(Some(hint.to_owned()));
            }
            ("smtp+plaintext", "") => (Security::Plaintext, 25),
            _ => return Err(None),
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = host_and_port(authority, default_port).ok_or(None)?;
        Ok(Self::Smtp(SmtpUrl { host, port, security }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let parsed = RelayUrl::parse(text, Kind::RelayUrl).ok().map(|url| url.to_string());
        assert_eq!(parsed.as_deref(), expected, "{text}");
    }

    #[test]
    fn relay_addresses_say_when_tls_begins() {
        check("smtps://mx.x.io", Some("smtps://mx.x.io:465"));
        check("smtps://mx.x.io:2465/", Some("smtps://mx.x.io:2465"));
        check("smtp://mx.x.io?tls=starttls", Some("smtp://mx.x.io:587?tls=starttls"));
        check("smtp+plaintext://[::1]:2525", Some("smtp+plaintext://[::1]:2525"));
        check("file:./mail", Some("file:./mail"));
        check("file:///var/mail", Some("file:/var/mail"));
        check("smtp://mx.x.io", None);
        check("smtp://mx.x.io?tls=opportunistic", None);
        check("smtps://user:hunter2@mx.x.io", None);
        check("smtps://mx.x.io:0", None);
        check("smtps://", None);
        check("mx.x.io", None);
        check("file:", None);
    }

    #[test]
    fn a_bare_smtp_address_is_refused_with_the_two_safe_forms() {
        let hint = RelayUrl::parse("smtp://mx.x.io", Kind::RelayUrl).unwrap_err().unwrap();
        assert!(hint.contains("?tls=starttls") && hint.contains("smtps://"), "{hint}");
    }
}
