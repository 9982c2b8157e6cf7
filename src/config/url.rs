//! Addresses of databases, hosts and pages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use secrecy::SecretString;

use super::kind::Kind;
use super::text::Setting;

/// The address of a database. `Debug` shows its kind only: URLs hold passwords.
#[derive(Clone)]
pub enum DatabaseUrl {
    /// `postgres://…`, whole.
    Postgres(SecretString),
    /// The path of a SQLite file.
    Sqlite(PathBuf),
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(_) => f.write_str("Postgres(…)"),
            Self::Sqlite(path) => write!(f, "Sqlite({})", path.display()),
        }
    }
}

impl Setting for DatabaseUrl {
    fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path == ":memory:" || path.is_empty() || path.contains('?') {
                return Err(Some("write sqlite: and the path of a file; all replicas share it".to_owned()));
            }
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        match rest {
            Some(rest) if !rest.is_empty() && !text.contains(char::is_whitespace) => {
                let query = rest.split_once('?').map_or("", |(_, query)| query);
                // Not told by name: an unescaped ? in a password makes its rest a name.
                if query.split('&').any(|part| !part.is_empty() && !is_parameter(part)) {
                    let known = PARAMETERS.join(", ");
                    return Err(Some(format!(
                        "after the ? stand {known}, each with a value; in a user's name or a password write %3F for ?"
                    )));
                }
                Ok(Self::Postgres(text.into()))
            }
            _ => Err(None),
        }
    }
}

/// What the driver knows behind the `?`. Of anything else it would write name and value into the log.
const PARAMETERS: [&str; 11] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "application_name",
    "options",
    "statement-cache-capacity",
];
/// Other spellings of them, and what is better said before the `?`.
const SPELLINGS: [&str; 7] =
    ["ssl-mode", "ssl-root-cert", "ssl-ca", "ssl-cert", "ssl-key", "user", "password"];

fn is_parameter(part: &str) -> bool {
    part.split_once('=').is_some_and(|(name, _)| {
        let bracketed = name.starts_with("options[") && name.ends_with(']');
        bracketed || PARAMETERS.contains(&name) || SPELLINGS.contains(&name)
    })
}

/// A host name, an IPv4 address, or an IPv6 address in brackets.
pub(super) fn is_host(text: &str) -> bool {
    if let Some(six) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return six.parse::<Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether a host never leaves this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Splits `host[:port]`; an IPv6 address stands in brackets.
pub(super) fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, u32::parse(port, Kind::Int(1, 65535)).ok()?),
        _ => (text, u32::from(default_port)),
    };
    is_host(host).then_some((host.to_owned(), u16::try_from(port).ok()?))
}

/// An absolute address without a trailing slash, so that paths can be appended.
pub(super) fn http_url(text: &str) -> Result<String, Option<String>> {
    let (scheme, rest) = text.split_once("://").ok_or(None)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = path.bytes().all(|b| b.is_ascii_graphic() && !b"?#<>\"\\".contains(&b));
    let (host, _) = host_and_port(authority, 443).filter(|_| plain).ok_or(None)?;
    match scheme {
        "https" => {}
        "http" if is_loopback(&host) => {}
        "http" => return Err(Some("write https://; plain http:// is for loopback hosts only".to_owned())),
        _ => return Err(None),
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// The address of a listener for a browser on the same machine.
pub(super) fn browsable(listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    format!("http://{}", SocketAddr::new(ip, listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_addresses_are_https_or_on_loopback_and_lose_a_trailing_slash() {
        let parse = |text| http_url(text).ok();
        assert_eq!(parse("https://x.io/"), Some("https://x.io".into()));
        assert_eq!(parse("https://x.io:8443/a/b"), Some("https://x.io:8443/a/b".into()));
        assert_eq!(parse("http://[::1]:8080"), Some("http://[::1]:8080".into()));
        for refused in [
            "x.io",
            "http://x.io",
            "https://u:p@x.io",
            "https://x.io/?a",
            "ftp://x.io",
            "https://",
            "https://x.io/a b",
        ] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }

    #[test]
    fn database_addresses_are_parsed_to_their_kind_and_hide_themselves() {
        let parse = |text| DatabaseUrl::parse(text, Kind::DatabaseUrl).ok().map(|url| format!("{url:?}"));
        assert_eq!(parse("sqlite:./a.db"), Some("Sqlite(./a.db)".into()));
        assert_eq!(parse("sqlite:///var/a.db"), Some("Sqlite(/var/a.db)".into()));
        assert_eq!(parse("postgresql://u:hunter2@h/d"), Some("Postgres(…)".into()));
        let known =
            "postgres://u:hunter2@h/d?sslmode=require&options[search_path]=app&application_name=digestd";
        assert_eq!(parse(known), Some("Postgres(…)".into()));
        for refused in [
            "mysql://h/d",
            "sqlite:",
            "sqlite::memory:",
            "postgres://",
            "h/d",
            "",
            "postgres://u?hunter2@h/d",
            "postgres://h/d?sslmod=disable",
        ] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }
}
