//! As much MIME as it takes to show a mail that digestd wrote: headers, parts, and their encodings.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// How deep parts may nest. Ours nest once.
const MAX_DEPTH: usize = 4;

/// Lenient about padding, as mails are.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A header's value, unfolded and trimmed, as it stands (see [`words`]).
pub fn header(message: &[u8], name: &str) -> Option<String> {
    let (head, _) = split(message);
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((found, value)) = line.split_once(':') else { continue };
        if !found.trim_end().eq_ignore_ascii_case(name) {
            continue;
        }
        let mut value = value.trim().to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with([' ', '\t'])) {
            value.push(' ');
            value.push_str(more.trim());
        }
        return Some(value);
    }
    None
}

/// The first HTML part, decoded.
pub fn html(message: &[u8]) -> Option<Vec<u8>> {
    find_part(message, "text/html", MAX_DEPTH)
}

/// The first plain text part, decoded.
pub fn text(message: &[u8]) -> Option<Vec<u8>> {
    find_part(message, "text/plain", MAX_DEPTH)
}

/// The header as it stands.
pub fn head(message: &[u8]) -> String {
    String::from_utf8_lossy(split(message).0).into_owned()
}

/// Decodes the encoded words of a header (RFC 2047). Unknown charsets stay as they are.
pub fn words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut after_word = false;
    while let Some(start) = rest.find("=?") {
        let Some((word, used)) = word(&rest[start..]) else {
            out.push_str(&rest[..start + 2]);
            rest = &rest[start + 2..];
            after_word = false;
            continue;
        };
        let between = &rest[..start];
        // White space between two encoded words is not part of the text.
        if !(after_word && between.trim().is_empty()) {
            out.push_str(between);
        }
        out.push_str(&word);
        rest = &rest[start + used..];
        after_word = true;
    }
    out.push_str(rest);
    out
}

fn find_part(part: &[u8], wanted: &str, depth: usize) -> Option<Vec<u8>> {
    let kind = header(part, "Content-Type").unwrap_or_default();
    let (_, body) = split(part);
    let lower = kind.to_ascii_lowercase();
    if lower.starts_with(wanted) {
        let encoding = header(part, "Content-Transfer-Encoding").unwrap_or_default();
        return Some(decode(body, &encoding));
    }
    if depth == 0 || !lower.starts_with("multipart/") {
        return None;
    }
    parts(body, &boundary(&kind)?).into_iter().find_map(|part| find_part(part, wanted, depth - 1))
}

/// The header and the body, parted at the first empty line.
fn split(message: &[u8]) -> (&[u8], &[u8]) {
    for end in ["\r\n\r\n", "\n\n"] {
        if let Some(at) = find(message, end.as_bytes()) {
            return (&message[..at], &message[at + end.len()..]);
        }
    }
    (message, &[])
}

fn boundary(kind: &str) -> Option<String> {
    let at = kind.to_ascii_lowercase().find("boundary=")?;
    let value = &kind[at + "boundary=".len()..];
    let value = value
        .strip_prefix('"')
        .map_or_else(|| value.split([';', ' ', '\t']).next(), |quoted| quoted.split('"').next())?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// What stands between the delimiter lines, without the line end that belongs to the next delimiter.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Vec<&'a [u8]> {
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut start = None;
    let mut at = 0;
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii_end();
        let last = text.strip_suffix(b"--").is_some_and(|text| text == delimiter.as_bytes());
        if last || text == delimiter.as_bytes() {
            if let Some(start) = start {
                parts.push(without_line_end(&body[start..at]));
            }
            if last {
                return parts;
            }
            start = Some(at + line.len());
        }
        at += line.len();
    }
    parts
}

fn without_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

fn decode(body: &[u8], encoding: &str) -> Vec<u8> {
    match encoding.to_ascii_lowercase().as_str() {
        "quoted-printable" => quoted_printable(body),
        "base64" => from_base64(body).unwrap_or_else(|| body.to_vec()),
        _ => body.to_vec(),
    }
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let packed: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(packed).ok()
}

/// RFC 2045 §6.7. A sign that encodes nothing stays as it is.
fn quoted_printable(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'=' {
            out.push(*byte);
        } else if let Some(after) = after.strip_prefix(b"\r\n").or_else(|| after.strip_prefix(b"\n")) {
            rest = after;
        } else if let Some(decoded) = after.get(..2).and_then(hex) {
            out.push(decoded);
            rest = &after[2..];
        } else {
            out.push(b'=');
        }
    }
    out
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(digits[0])? * 16 + digit(digits[1])?;
    u8::try_from(value).ok()
}

/// One encoded word at the start of `text`, and its length in bytes.
fn word(text: &str) -> Option<(String, usize)> {
    let mut fields = text.strip_prefix("=?")?.splitn(3, '?');
    let (charset, encoding, rest) = (fields.next()?, fields.next()?, fields.next()?);
    let (payload, _) = rest.split_once("?=")?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let bytes = match encoding {
        "B" | "b" => from_base64(payload.as_bytes())?,
        "Q" | "q" => quoted_printable(payload.replace('_', " ").as_bytes()),
        _ => return None,
    };
    let used = 2 + charset.len() + 1 + encoding.len() + 1 + payload.len() + 2;
    Some((String::from_utf8_lossy(&bytes).into_owned(), used))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::{header, html, text, words};

    const MAIL: &str = "Subject: =?utf-8?B?R3LDvMOfZQ==?= =?UTF-8?Q?_aus_K=C3=B6ln?=\r\n\
        X-Digestd-Id: 0af1\r\n\
        Content-Type: multipart/alternative;\r\n boundary=\"b1\"\r\n\r\n\
        --b1\r\nContent-Type: text/plain\r\n\r\nplain\r\n\
        --b1\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
        <p>K=C3=B6ln =\r\nis=3D=\r\n</p> = x\r\n--b1--\r\n";

    #[test]
    fn headers_are_unfolded_and_found_in_any_case() {
        assert_eq!(header(MAIL.as_bytes(), "x-digestd-id").as_deref(), Some("0af1"));
        let kind = header(MAIL.as_bytes(), "Content-Type");
        assert_eq!(kind.as_deref(), Some("multipart/alternative; boundary=\"b1\""));
        assert_eq!(header(MAIL.as_bytes(), "Content-Transfer-Encoding"), None);
    }

    #[test]
    fn the_html_part_is_decoded() {
        assert_eq!(String::from_utf8(html(MAIL.as_bytes()).unwrap()).unwrap(), "<p>Köln is=</p> = x");
        assert_eq!(text(MAIL.as_bytes()).unwrap(), b"plain");
        let base64 =
            "Content-Type: text/html\r\nContent-Transfer-Encoding: BASE64\r\n\r\nPGI+\r\neDwvYj4=\r\n";
        assert_eq!(html(base64.as_bytes()).unwrap(), b"<b>x</b>");
        assert_eq!(html(b"Content-Type: text/plain\r\n\r\nx"), None);
        assert_eq!(html(b"Content-Type: multipart/mixed\r\n\r\nx"), None);
    }

    #[test]
    fn encoded_words_become_text_and_others_stay() {
        let subject = header(MAIL.as_bytes(), "Subject").unwrap();
        assert_eq!(words(&subject), "Grüße aus Köln");
        assert_eq!(words("a =? b =?latin1?Q?x?= c"), "a =? b =?latin1?Q?x?= c");
        assert_eq!(words("Re: =?utf-8?q?x?= y"), "Re: x y");
    }

    #[test]
    fn our_reading_agrees_with_an_independent_parser() {
        // The two may differ on what is not valid, as the bare sign at the end.
        let valid = MAIL.replace(" = x", "");
        let parsed = mail_parser::MessageParser::default().parse(valid.as_bytes()).unwrap();
        assert_eq!(parsed.subject(), Some(words(&header(valid.as_bytes(), "Subject").unwrap()).as_str()));
        assert_eq!(parsed.body_html(0).unwrap().as_bytes(), html(valid.as_bytes()).unwrap());
    }
}
