//! Subject, text and HTML as they stand in a message, and one encoding of them for several recipients.

use lettre::message::header::{ContentTransferEncoding, ContentType};
use lettre::message::{Body, MultiPart, SinglePart};

use crate::domain::digest::Rendered;
use crate::domain::message::MessageUid;
use crate::domain::token::UnsubscribeToken;

/// What one recipient's message is made of, besides its headers.
#[derive(Debug, Clone)]
pub struct Parts {
    /// In words; the message's builder encodes and cleans it.
    pub(super) subject: String,
    text: Encoded,
    html: Encoded,
}

/// A body as quoted-printable, or as base64 where most of it is beyond ASCII. Never as it is:
/// encoded, no line is too long, no CR is bare and no dot starts a line by accident.
#[derive(Debug, Clone)]
struct Encoded {
    bytes: Vec<u8>,
    encoding: ContentTransferEncoding,
}

/// Parts with gaps, for recipients whose mails differ in nothing but their tokens.
#[derive(Debug)]
pub struct Mould {
    parts: Parts,
    gaps: Gaps,
}

/// The places of all the characters of a stand-in, in both bodies.
#[derive(Debug)]
struct Gaps {
    text: Vec<usize>,
    html: Vec<usize>,
}

impl Parts {
    /// Encodes a digest in words.
    pub fn encode(words: &Rendered) -> Self {
        Self {
            subject: words.subject.clone(),
            text: Encoded::of(&words.text),
            html: Encoded::of(&words.html),
        }
    }

    /// multipart/alternative, text before HTML.
    pub(super) fn multipart(self, uid: &MessageUid) -> MultiPart {
        // `=_` occurs in no quoted-printable or base64 body, so no text can end a part early.
        MultiPart::alternative()
            .boundary(format!("=_digestd_{uid}"))
            .singlepart(self.text.part(ContentType::TEXT_PLAIN))
            .singlepart(self.html.part(ContentType::TEXT_HTML))
    }
}

impl Mould {
    /// Makes one of words that hold a [stand-in](UnsubscribeToken::stand_in). `None` where the encoding
    /// hides it, as base64 does.
    pub fn new(words: &Rendered, stand_in: &UnsubscribeToken) -> Option<Self> {
        let parts = Parts::encode(words);
        let found = |words: &str, encoded: &Encoded| {
            let gaps = encoded.places(stand_in.as_str().as_bytes());
            let expected = words.matches(stand_in.as_str()).count() * stand_in.as_str().len();
            (gaps.len() == expected).then_some(gaps)
        };
        let gaps = Gaps { text: found(&words.text, &parts.text)?, html: found(&words.html, &parts.html)? };
        Some(Self { parts, gaps })
    }

    /// The parts of the recipient whose token this is. The same bytes as encoding their words: tokens are of one
    /// length, and of characters that quoted-printable leaves as they are.
    pub fn fill(&self, token: &UnsubscribeToken) -> Parts {
        let mut parts = self.parts.clone();
        let letters = || token.as_str().bytes().cycle();
        for (bytes, gaps) in
            [(&mut parts.text.bytes, &self.gaps.text), (&mut parts.html.bytes, &self.gaps.html)]
        {
            for (place, letter) in gaps.iter().zip(letters()) {
                bytes[*place] = letter;
            }
        }
        parts
    }
}

impl Encoded {
    fn of(text: &str) -> Self {
        let text = crlf(text);
        let beyond_ascii = text.bytes().filter(|b| !b.is_ascii()).count();
        let encoding = if beyond_ascii * 3 > text.len() {
            ContentTransferEncoding::Base64
        } else {
            ContentTransferEncoding::QuotedPrintable
        };
        // Both encodings take any input; the fallback chooses by itself.
        let body = Body::new_with_encoding(text, encoding).unwrap_or_else(Body::new);
        Self { encoding: body.encoding(), bytes: body.into_vec() }
    }

    fn part(self, content_type: ContentType) -> SinglePart {
        let body = Body::dangerous_pre_encoded(self.bytes, self.encoding);
        SinglePart::builder().header(content_type).body(body)
    }

    /// Where the characters of each occurrence of a word stand. A soft line break (RFC 2045 §6.7) may lie between.
    fn places(&self, word: &[u8]) -> Vec<usize> {
        let mut at = Vec::with_capacity(self.bytes.len());
        let mut place = 0;
        while let Some(rest) = self.bytes.get(place..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with(b"=\r\n") {
                place += 3;
            } else {
                at.push(place);
                place += 1;
            }
        }
        let is_word = |window: &&[usize]| window.iter().zip(word).all(|(place, b)| self.bytes[*place] == *b);
        at.windows(word.len()).filter(is_word).flatten().copied().collect()
    }
}

/// CRLF at every line end, and at the end. A bare CR is a line end as well.
fn crlf(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 32 + 2);
    for line in text.split_terminator('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.contains(['\r', '\0']) {
            out.push_str(&line.replace('\0', "").replace('\r', "\r\n"));
        } else {
            out.push_str(line);
        }
        out.push_str("\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::SecretString;

    use super::*;
    use crate::domain::ids::OrgId;
    use crate::domain::token::{KeyRing, Scope, SubscriptionRef};

    #[test]
    fn every_kind_of_line_end_becomes_crlf() {
        assert_eq!(crlf("a\nb\r\nc\rd"), "a\r\nb\r\nc\r\nd\r\n");
        assert_eq!(crlf("a\n\n"), "a\r\n\r\n");
        assert_eq!(crlf("a\r\r\n\0b\n"), "a\r\n\r\nb\r\n");
        assert_eq!(crlf(""), "");
    }

    fn words(text: &str) -> Rendered {
        let html = format!("<p>{text}</p>\n");
        Rendered { subject: "s".to_owned(), text: format!("{text}\n"), html }
    }

    fn bytes(parts: Parts) -> [Vec<u8>; 2] {
        [parts.text.bytes, parts.html.bytes]
    }

    proptest! {
        #[test]
        fn a_filled_mould_is_the_encoding_of_the_filled_words_wherever_the_lines_break(
            indent in 0_usize..90,
            org in "[a-z]{1,8}",
        ) {
            let keys = KeyRing::new(&[SecretString::from("0123456789abcdef0123456789abcdef")]).unwrap();
            let reference = SubscriptionRef::derive(&OrgId::parse(&org).unwrap(), "ana@example.org");
            let (stand_in, token) = (UnsubscribeToken::stand_in(), keys.sign(reference, Scope::Org));
            let (before, link) = ("ü=".repeat(indent % 7) + &"x".repeat(indent), stand_in.as_str());
            let with_gaps = words(&format!("{before}{link}?{link}\n\nhttps://x.example/u/{link} ä"));
            let whole = words(&with_gaps.text.trim_end().replace(link, token.as_str()));
            let mould = Mould::new(&with_gaps, &stand_in).unwrap();
            prop_assert_eq!(bytes(mould.fill(&token)), bytes(Parts::encode(&whole)));
        }
    }

    #[test]
    fn base64_hides_the_gaps() {
        let stand_in = UnsubscribeToken::stand_in();
        let arabic = words(&format!("{} {}", "مرحبا".repeat(40), stand_in.as_str()));
        assert!(Mould::new(&arabic, &stand_in).is_none());
    }
}
