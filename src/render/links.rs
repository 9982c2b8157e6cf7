//! Links that may stand in a mail.

use std::fmt;

use crate::domain::address::Address;

/// Longer ones are cut by clients and gateways anyway.
const MAX_URL_BYTES: usize = 2000;

/// Whether plain `http` links may stand in a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    /// `https` and `mailto` only.
    Refused,
    /// For an installation whose own public URL is `http`: trials on one machine.
    Allowed,
}

/// A link that was checked: `https` or `mailto`, ASCII, no user name before the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafeUrl(String);

/// Why a text is not a link that may stand in a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an absolute https or mailto link")]
pub struct UrlError;

impl SafeUrl {
    /// Checks a link. Other schemes, controls, blanks, quotes, brackets and
    /// `user@host` tricks are refused; letters beyond ASCII are encoded.
    pub fn parse(text: &str, http: Http) -> Result<Self, UrlError> {
        let text = text.trim();
        let odd = |c: char| c.is_control() || c.is_whitespace() || "\"'<>\\`{}|^".contains(c);
        if text.len() > MAX_URL_BYTES || text.chars().any(odd) {
            return Err(UrlError);
        }
        let (scheme, rest) = text.split_once(':').ok_or(UrlError)?;
        match scheme.to_ascii_lowercase().as_str() {
            "mailto" => {
                let address = Address::parse(rest).map_err(|_| UrlError)?;
                Ok(Self(encode(&format!("mailto:{}", address.mailbox()))))
            }
            "https" => web("https", rest),
            "http" if http == Http::Allowed => web("http", rest),
            _ => Err(UrlError),
        }
    }

    /// The link, not escaped for HTML.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn web(scheme: &str, rest: &str) -> Result<SafeUrl, UrlError> {
    let rest = rest.strip_prefix("//").ok_or(UrlError)?;
    let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(host_end);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, format!(":{port}")),
        _ => (authority, String::new()),
    };
    let host = idna::domain_to_ascii_strict(host).map_err(|_| UrlError)?;
    if host.is_empty() || host.contains(['@', ':']) {
        return Err(UrlError);
    }
    Ok(SafeUrl(encode(&format!("{scheme}://{host}{port}{path}"))))
}

fn encode(url: &str) -> String {
    let mut out = String::with_capacity(url.len());
    for byte in url.bytes() {
        if byte.is_ascii() {
            out.push(char::from(byte));
        } else {
            out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    out
}

fn hex(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).map_or('0', |digit| digit.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_mailto_pass() {
        let ok = |text| SafeUrl::parse(text, Http::Refused).map(|url| url.to_string()).ok();
        assert_eq!(ok("https://app.example/a?b=1&c#d").unwrap(), "https://app.example/a?b=1&c#d");
        assert_eq!(ok(" HTTPS://App.Example:8443 ").unwrap(), "https://app.example:8443");
        assert_eq!(ok("https://bücher.example/ü").unwrap(), "https://xn--bcher-kva.example/%C3%BC");
        assert_eq!(ok("mailto:a@x.io").unwrap(), "mailto:a@x.io");
        for bad in [
            "",
            "/relative",
            "//x.io/",
            "http://x.io/",
            "javascript:alert(1)",
            "java\nscript:alert(1)",
            "data:text/html,x",
            "https:x.io",
            "https:///x",
            "https://good.example@evil.example/",
            "https://x.io/\"onclick=",
            "https://x.io/<b>",
            "https://x.io/\u{202e}",
            "https://x.io\\@evil.example",
            "mailto:a@x.io?bcc=b@x.io",
            "https://x y.io/",
        ] {
            if bad.contains('\u{202e}') {
                // Encoded, it can no longer turn anything round.
                assert!(ok(bad).unwrap().is_ascii());
            } else {
                assert_eq!(ok(bad), None, "{bad}");
            }
        }
        assert!(SafeUrl::parse("http://127.0.0.1:8080/x", Http::Allowed).is_ok());
        assert!(ok(&format!("https://x.io/{}", "a".repeat(3000))).is_none());
    }
}
