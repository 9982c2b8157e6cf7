//! Two independent parsers read every golden mail, and agree on what it says.

use std::process::Command;

use digestd::domain::digest::DigestInput;
use digestd::render::sample;
use mail_parser::{MessageParser, MimeHeaders};
use serde_json::{Value, json};

use super::render::{eml, normal, quiet, render};

/// Names that parsers have read as two mailboxes, as none, or as another header.
const NAMES: [Option<&str>; 9] = [
    None,
    Some("Ana"),
    Some("Müller, Jörg"),
    Some("Müller, Jörg <x@y.z>"),
    Some("\"quoted\" \\ (comment) [list]; group:"),
    Some("نور حداد"),
    Some("👩‍💻 =?utf-8?q?fake?="),
    Some("a\r\nBcc: victim@example.org"),
    Some(
        "A name that is so long that it has to be folded, and folded once more: ÄÖÜ äöü ÄÖÜ äöü ÄÖÜ äöü ÄÖÜ äöü",
    ),
];

fn digests() -> Vec<DigestInput> {
    let mut digests = vec![normal(), quiet()];
    digests.extend(sample::samples().into_iter().map(|(_, digest)| digest));
    digests
}

/// What mail-parser says.
fn parsed(bytes: &[u8]) -> Value {
    let message = MessageParser::default().parse(bytes).expect("a mail");
    let boxes = |address: Option<&mail_parser::Address<'_>>| -> Value {
        let all = address.and_then(|address| address.as_list()).unwrap_or_default();
        let one = |a: &mail_parser::Addr<'_>| {
            json!([a.name().unwrap_or_default(), a.address().unwrap_or_default()])
        };
        all.iter().map(one).collect()
    };
    let lines = |text: Option<std::borrow::Cow<'_, str>>| {
        text.unwrap_or_default().replace("\r\n", "\n").trim_end_matches('\n').to_owned()
    };
    let kind = |part: &mail_parser::MessagePart<'_>| {
        let kind = part.content_type().expect("a type");
        format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or_default())
    };
    json!({
        "headers": message.headers().iter().map(|header| header.name().to_lowercase()).collect::<Vec<_>>(),
        "subject": message.subject(),
        "from": boxes(message.from()),
        "to": boxes(message.to()),
        "reply_to": boxes(message.reply_to()),
        "message_id": message.message_id(),
        "parts": message.parts.iter().map(kind).collect::<Vec<_>>(),
        "text": lines(message.body_text(0)),
        "html": lines(message.body_html(0)),
        "defects": [],
    })
}

#[test]
fn python_and_mail_parser_agree_on_every_golden_mail_and_find_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut expected, mut files) = (Vec::new(), Vec::new());
    for (n, digest) in digests().iter().enumerate() {
        for locale in ["en", "de", "ar"] {
            let rendered = render(digest, locale);
            for (m, name) in NAMES.iter().enumerate() {
                let bytes = eml(&rendered, "ana@acme.example", *name).expect("a mail");
                assert!(bytes.is_ascii());
                assert!(bytes.split(|byte| *byte == b'\n').all(|line| line.len() <= 999));
                let file = folder.path().join(format!("{n}-{locale}-{m}.eml"));
                std::fs::write(&file, &bytes).expect("a file");
                files.push(file);
                expected.push(parsed(&bytes));
            }
        }
    }
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden_reader.py");
    let read = Command::new("python3")
        .arg(reader)
        .args(&files)
        .output()
        .expect("python3; scripts/setup installs it");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let output = String::from_utf8(read.stdout).expect("JSON");
    let found: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(found.len(), expected.len());
    for ((found, expected), file) in found.iter().zip(&expected).zip(&files) {
        for (field, value) in expected.as_object().expect("an object") {
            assert_eq!(&found[field], value, "{field} of {}", file.display());
        }
        assert_eq!(found["to"].as_array().map(Vec::len), Some(1), "one mailbox");
        assert!(!found["headers"].as_array().expect("a list").contains(&json!("bcc")));
    }
}
