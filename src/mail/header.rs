//! The operator's fixed headers, such as a message stream or a configuration set.

/// Far below the line limit of 998, with room for the name.
const MAX_VALUE_BYTES: usize = 900;
/// lettre takes no longer name.
const MAX_NAME_BYTES: usize = 76;

/// Headers that digestd writes itself, or that change where a mail goes or how it is read.
const RESERVED: [&str; 22] = [
    "auto-submitted",
    "bcc",
    "cc",
    "date",
    "dkim-signature",
    "from",
    "in-reply-to",
    "list-id",
    "list-unsubscribe",
    "list-unsubscribe-post",
    "message-id",
    "mime-version",
    "precedence",
    "received",
    "references",
    "reply-to",
    "return-path",
    "sender",
    "subject",
    "to",
    "x-auto-response-suppress",
    "x-digestd-id",
];

/// Why a fixed header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Empty, too long, or with other characters than letters, digits and hyphens.
    #[error("a header's name has letters, digits and hyphens only")]
    Name,
    /// A header of ours, or one that decides where the mail goes.
    #[error("this header is set by digestd or would change where the mail goes")]
    Reserved,
    /// Empty, too long, or with characters outside printable ASCII.
    #[error("a header's value has 1 to {MAX_VALUE_BYTES} printable ASCII characters")]
    Value,
}

/// Checks one fixed header; configuration does so at the start, composing once more.
pub fn check(name: &str, value: &str) -> Result<(), HeaderError> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(token) {
        return Err(HeaderError::Name);
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || lower.starts_with("content-") || lower.starts_with("resent-") {
        return Err(HeaderError::Reserved);
    }
    let printable = |b: u8| (b' '..=b'~').contains(&b);
    let fits = (1..=MAX_VALUE_BYTES).contains(&value.len());
    if !fits || value.trim() != value || !value.bytes().all(printable) {
        return Err(HeaderError::Value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_headers_cannot_redirect_or_inject() {
        assert_eq!(check("X-PM-Message-Stream", "digests"), Ok(()));
        assert_eq!(check("Feedback-ID", "a:b:digest:acme"), Ok(()));
        assert_eq!(check("bCC", "x@x.io"), Err(HeaderError::Reserved));
        assert_eq!(check("Content-Type", "text/plain"), Err(HeaderError::Reserved));
        assert_eq!(check("Resent-To", "x@x.io"), Err(HeaderError::Reserved));
        assert_eq!(check("X A", "b"), Err(HeaderError::Name));
        assert_eq!(check("X:A", "b"), Err(HeaderError::Name));
        assert_eq!(check("", "b"), Err(HeaderError::Name));
        assert_eq!(check("X-A", "b\r\nBcc: x@x.io"), Err(HeaderError::Value));
        assert_eq!(check("X-A", "é"), Err(HeaderError::Value));
        assert_eq!(check("X-A", ""), Err(HeaderError::Value));
        assert_eq!(check("X-A", &"a".repeat(901)), Err(HeaderError::Value));
    }
}
