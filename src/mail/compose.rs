//! From words to a message (RFC 5322). The same input always gives the same bytes.

use chrono::{DateTime, Datelike, Utc};
use lettre::address::Envelope;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MessageBuilder};

use super::header::{self, HeaderError};
use super::parts::Parts;
use super::wire::{self, WireFault};
use crate::domain::address::Address;
use crate::domain::digest::Rendered;
use crate::domain::message::MessageUid;
use crate::domain::text;

/// Names are for people; longer ones are abuse.
const MAX_NAME_CHARS: usize = 80;
/// The last guard on subjects; templates stay far below.
const MAX_SUBJECT_CHARS: usize = 150;
/// Keeps the header's line below 998 bytes; ours have about 150.
const MAX_URL_BYTES: usize = 900;

/// What stands in every message of this installation.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The display name in `From`: the operator's, never a tenant's.
    pub from_name: String,
    /// The address in `From`; its domain is also the right part of `Message-ID`.
    pub from: Address,
    /// Where answers go, if not to `from`.
    pub reply_to: Option<Address>,
    /// The right part of `List-Id`, `weekly-digest.<domain>`; usually the domain of `from`.
    pub list_id_domain: String,
    /// Fixed headers for the relay, checked by [`header::check`].
    pub headers: Vec<(String, String)>,
    /// The only address that gets mail, in staging; the real recipient then stands in a header.
    pub redirect_to: Option<Address>,
}

/// Why no message could be made. Says nothing personal.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// An address that lettre does not take.
    #[error("the {0} address cannot stand in a header")]
    Address(&'static str),
    /// A fixed header is refused.
    #[error("fixed header {name}")]
    Header {
        /// Its name.
        name: String,
        /// Why.
        source: HeaderError,
    },
    /// The unsubscribe link is not short, absolute and ASCII.
    #[error("the unsubscribe link cannot stand in a header")]
    UnsubscribeUrl,
    /// The time lies outside the years that a header can say.
    #[error("the date cannot stand in a header")]
    Date,
    /// The subject is empty after cleaning.
    #[error("the subject is empty")]
    EmptySubject,
    /// The builder refused, which no known input makes it do.
    #[error("building the message")]
    Build(#[source] lettre::error::Error),
    /// The result breaks a rule for bytes on the wire.
    #[error("the message must not be sent")]
    Wire(#[from] WireFault),
}

/// Makes the final bytes of one recipient's message: multipart/alternative, text before HTML.
pub fn compose(
    parts: Parts,
    to: &Address,
    to_name: Option<&str>,
    uid: &MessageUid,
    date: DateTime<Utc>,
    sender: &Sender,
    unsubscribe_url: Option<&str>,
) -> Result<Vec<u8>, ComposeError> {
    let recipient = mailbox(sender.redirect_to.as_ref().unwrap_or(to), to_name, "To")?;
    let from = mailbox(&sender.from, Some(&sender.from_name), "From")?;
    let envelope = Envelope::new(Some(from.email.clone()), vec![recipient.email.clone()])
        .map_err(ComposeError::Build)?;
    let mut message = Message::builder()
        .envelope(envelope)
        .from(from)
        .to(recipient)
        .subject(subject(&parts.subject)?)
        .date(in_range(date)?.into())
        .message_id(Some(format!("<{uid}@{}>", sender.from.domain())));
    if let Some(reply_to) = &sender.reply_to {
        message = message.reply_to(mailbox(reply_to, None, "Reply-To")?);
    }
    message = ours(message, uid, sender);
    if sender.redirect_to.is_some() {
        let name = HeaderName::new_from_ascii_str("X-Digestd-Original-To");
        message = message.raw_header(HeaderValue::new(name, to.mailbox().to_owned()));
    }
    if let Some(url) = unsubscribe_url {
        message = one_click(message, url)?;
    }
    message = fixed(message, sender)?;
    let bytes = message.multipart(parts.multipart(uid)).map_err(ComposeError::Build)?.formatted();
    let reached = sender.redirect_to.as_ref().unwrap_or(to);
    wire::check(&bytes, reached.needs_smtputf8() || sender.from.needs_smtputf8())?;
    Ok(bytes)
}

/// Marks a mail that a person sent to try things out.
pub fn mark_as_test(rendered: &mut Rendered) {
    rendered.subject.insert_str(0, "[Test] ");
}

/// Headers that tell machines what this is: bulk, automatic, not to be answered.
fn ours(message: MessageBuilder, uid: &MessageUid, sender: &Sender) -> MessageBuilder {
    // RFC 2919; holds no tenant's text.
    let list_id = format!("<weekly-digest.{}>", sender.list_id_domain);
    let headers = [
        (HeaderName::new_from_ascii_str("List-Id"), list_id),
        // RFC 3834 §5: no auto-replies, please.
        (HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned()),
        // Not “All”, which would cover bounces too.
        (
            HeaderName::new_from_ascii_str("X-Auto-Response-Suppress"),
            "OOF, AutoReply, DR, RN, NRN".to_owned(),
        ),
        // Not in any standard, but many vacation responders look at nothing else.
        (HeaderName::new_from_ascii_str("Precedence"), "bulk".to_owned()),
        // Survives relays that give mails a Message-ID of their own.
        (HeaderName::new_from_ascii_str("X-Digestd-Id"), uid.to_string()),
    ];
    headers
        .into_iter()
        .fold(message, |message, (name, value)| message.raw_header(HeaderValue::new(name, value)))
}

/// RFC 8058: one link, and the word that a POST to it is enough.
fn one_click(message: MessageBuilder, url: &str) -> Result<MessageBuilder, ComposeError> {
    let plain = |b: u8| b.is_ascii_graphic() && !b"<>\"\\,".contains(&b);
    let absolute = url.starts_with("https://") || url.starts_with("http://");
    if !absolute || url.len() > MAX_URL_BYTES || !url.bytes().all(plain) {
        return Err(ComposeError::UnsubscribeUrl);
    }
    let value = format!("<{url}>");
    let link = HeaderName::new_from_ascii_str("List-Unsubscribe");
    let post = HeaderName::new_from_ascii_str("List-Unsubscribe-Post");
    Ok(message
        // The encoder would fold before the link; some providers then see none. Checked above.
        .raw_header(HeaderValue::dangerous_new_pre_encoded(link, value.clone(), value))
        .raw_header(HeaderValue::new(post, "List-Unsubscribe=One-Click".to_owned())))
}

fn fixed(mut message: MessageBuilder, sender: &Sender) -> Result<MessageBuilder, ComposeError> {
    for (name, value) in &sender.headers {
        let refused = |source| ComposeError::Header { name: name.clone(), source };
        header::check(name, value).map_err(refused)?;
        let header = HeaderName::new_from_ascii(name.clone()).map_err(|_| refused(HeaderError::Name))?;
        message = message.raw_header(HeaderValue::new(header, value.clone()));
    }
    Ok(message)
}

fn mailbox(address: &Address, name: Option<&str>, header: &'static str) -> Result<Mailbox, ComposeError> {
    let email = address.mailbox().parse().map_err(|_| ComposeError::Address(header))?;
    // lettre panics on a line break in a name; cleaning leaves none.
    let name = name.map(|name| text::truncate(&text::clean(name), MAX_NAME_CHARS).into_owned());
    Ok(Mailbox::new(name.filter(|name| !name.is_empty()), email))
}

fn subject(text: &str) -> Result<String, ComposeError> {
    // Cleaned without breaking links once more: the template has done that, and the
    // joiners it set must stay.
    let line: String = text
        .chars()
        .map(|c| if c.is_control() || "\u{2028}\u{2029}".contains(c) { ' ' } else { c })
        .collect();
    let words: Vec<&str> = line.split_whitespace().collect();
    let subject = text::truncate(&words.join(" "), MAX_SUBJECT_CHARS).into_owned();
    if subject.is_empty() { Err(ComposeError::EmptySubject) } else { Ok(subject) }
}

/// lettre panics on years that HTTP dates cannot say.
fn in_range(date: DateTime<Utc>) -> Result<DateTime<Utc>, ComposeError> {
    if (1971..=9998).contains(&date.year()) { Ok(date) } else { Err(ComposeError::Date) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_one_line_and_not_empty() {
        assert_eq!(subject("a\r\nBcc: x\u{2028}b").unwrap(), "a Bcc: x b");
        assert!(matches!(subject("\r\n \u{7f}"), Err(ComposeError::EmptySubject)));
    }

    #[test]
    fn unsubscribe_links_fit_in_one_header_line() {
        let refused = |url: &str| one_click(Message::builder(), url).is_err();
        assert!(!refused("https://x.example/u/abc"));
        assert!(refused("https://x.example/\r\nBcc: a@b.io"));
        assert!(refused("https://x.example/>, <https://evil.example"));
        assert!(refused("mailto:a@b.io"));
        assert!(refused(&format!("https://x.example/{}", "a".repeat(900))));
    }
}
