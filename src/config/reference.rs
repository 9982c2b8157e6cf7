//! The reference, written from the table of keys: `config/digestd.toml`, and the tables of
//! `docs/configuration.md`. A test compares both with what is written here.

use std::fmt::Write as _;

use super::keys::{FILE_SUFFIX, Key};
use super::kind::Kind;
use super::table::{KEYS, SECTION_KEYS, TABLES};

const WIDTH: usize = 98;

const HEAD: &str = "\
The configuration of digestd, with every key.

A key that is written shows its default; one that is commented out has none and shows an
example. Each can also be set by the environment, which wins over this file: [relay] url is
DIGESTD__RELAY__URL, and [relay.timeouts] reply is DIGESTD__RELAY__TIMEOUTS__REPLY.

This file is written from the table of keys in src/config/table.rs. Copy it, and keep in the copy
what you change.";

const HEADERS: &str = "Fixed headers of every mail.";

const SECTIONS: &str = "\
The digest's parts, in the order of the mail, each with a query against [source]. Repeat [[section]] for
each of them.";

/// The commented file with every key.
pub fn toml() -> String {
    let mut text = String::new();
    comment(&mut text, HEAD);
    for key in KEYS.iter().filter(|key| !key.path.contains('.')) {
        entry(&mut text, key, key.path, false);
    }
    for (table, doc) in TABLES {
        text.push('\n');
        comment(&mut text, doc);
        line(&mut text, format_args!("[{table}]"));
        for (key, name) in keys_of(table) {
            entry(&mut text, key, name, false);
        }
    }
    text.push('\n');
    comment(&mut text, HEADERS);
    line(&mut text, format_args!("[headers]"));
    line(&mut text, format_args!("# X-SES-CONFIGURATION-SET = \"digests\""));
    text.push('\n');
    comment(&mut text, SECTIONS);
    line(&mut text, format_args!("# [[section]]"));
    for key in SECTION_KEYS {
        entry(&mut text, key, key.path, true);
    }
    text
}

/// The tables of keys for the page.
pub fn markdown() -> String {
    let mut text = String::new();
    rows(&mut text, KEYS.iter().filter(|key| !key.path.contains('.')).map(|key| (key, key.path)));
    for (table, doc) in TABLES {
        line(&mut text, format_args!("\n## `[{table}]`\n\n{doc}\n"));
        rows(&mut text, keys_of(table));
    }
    line(
        &mut text,
        format_args!(
            "\n## `[headers]`\n\n{HEADERS} Each key is a header's name, each value its text. In the file only.\n"
        ),
    );
    line(&mut text, format_args!("## `[[section]]`\n\n{} In the file only.\n", SECTIONS.replace('\n', " ")));
    rows(&mut text, SECTION_KEYS.iter().map(|key| (key, key.path)));
    text
}

fn keys_of(table: &str) -> impl Iterator<Item = (&'static Key, &'static str)> {
    KEYS.iter().filter_map(move |key| {
        let (parent, name) = key.path.rsplit_once('.')?;
        (parent == table).then_some((key, name))
    })
}

fn entry(text: &mut String, key: &Key, name: &str, off: bool) {
    text.push('\n');
    comment(text, key.doc);
    if key.kind.is_telling() {
        comment(text, &format!("Value: {}.", key.kind.form()));
    }
    match key.default {
        Some(default) if !off => line(text, format_args!("{name} = {}", literal(key.kind, default))),
        Some(default) => line(text, format_args!("# {name} = {}", literal(key.kind, default))),
        None if key.secret && key.example.is_empty() => {}
        None => line(text, format_args!("# {name} = {}", literal(key.kind, key.example))),
    }
    if key.secret {
        line(text, format_args!("# {name}{FILE_SUFFIX} = \"{}\"", secret_file(key)));
    }
}

fn rows(text: &mut String, keys: impl Iterator<Item = (&'static Key, &'static str)>) {
    line(text, format_args!("| key | default | value | meaning |\n|---|---|---|---|"));
    for (key, name) in keys {
        let twin = if key.secret { format!(", `{name}{FILE_SUFFIX}`") } else { String::new() };
        let default =
            key.default.map_or_else(|| "–".to_owned(), |default| format!("`{}`", literal(key.kind, default)));
        let cells = format!("`{name}`{twin} | {default} | {} | {}", cell(&key.kind.form()), cell(key.doc));
        line(text, format_args!("| {cells} |"));
    }
}

/// Angle brackets and bars mean something in Markdown.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn literal(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Int(..) | Kind::Bool => value.to_owned(),
        Kind::Durations => {
            let parts: Vec<String> = value.split(", ").map(|part| format!("\"{part}\"")).collect();
            format!("[{}]", parts.join(", "))
        }
        _ => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

fn secret_file(key: &Key) -> String {
    format!("/run/secrets/{}", key.path.replace(['.', '_'], "-"))
}

fn comment(text: &mut String, words: &str) {
    for paragraph in words.split('\n') {
        let mut row = String::from("#");
        for word in paragraph.split_whitespace() {
            if row.chars().count() + word.chars().count() >= WIDTH {
                line(text, format_args!("{row}"));
                row = String::from("#");
            }
            row.push(' ');
            row.push_str(word);
        }
        line(text, format_args!("{row}"));
    }
}

fn line(text: &mut String, row: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{row}");
}
