//! Links within the pages.

use std::fmt::Write as _;

/// A path with a query.
pub(super) fn link(path: &str, query: &[(&str, &str)]) -> String {
    let mut link = path.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(link, "{}{name}={}", if at == 0 { '?' } else { '&' }, encoded(value));
    }
    link
}

/// The path that a log-in leads to: one of ours, or the first page.
pub(super) fn own_path(asked: &str) -> &str {
    let rest = asked.strip_prefix("/admin");
    let ours = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    let plain = asked.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if ours && plain && !asked.starts_with("/admin/log") { asked } else { "/admin" }
}

/// RFC 3986 §2.3: all but the unreserved characters.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_whole() {
        assert_eq!(
            link("/admin/org", &[("id", "a&b=c#ü/"), ("week", "2026-W28")]),
            "/admin/org?id=a%26b%3Dc%23%C3%BC%2F&week=2026-W28"
        );
        assert_eq!(link("/admin", &[]), "/admin");
    }

    #[test]
    fn a_log_in_leads_to_a_page_of_ours_only() {
        for own in ["/admin", "/admin?week=2026-W28", "/admin/queue?state=failed"] {
            assert_eq!(own_path(own), own);
        }
        for other in [
            "",
            "/",
            "//evil.example",
            "https://evil.example/admin",
            "/adminevil",
            "/admin\\@evil.example",
            "/admin\r\nSet-Cookie: x=y",
            "/admin/login?next=/admin",
            "/admin/logout",
            "/u/token",
        ] {
            assert_eq!(own_path(other), "/admin", "{other}");
        }
    }
}
