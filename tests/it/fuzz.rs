//! A seeded slice of the fuzz targets in `fuzz/`: the same functions over the same corpus, mutated.

use std::fs;
use std::path::Path;

use crate::support::{Chance, scale, seed};

#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// Bytes that parsers like to stumble over.
const SPICE: [&[u8]; 16] = [
    b"\r\n", b"\n", b"\0", b"'", b"\"", b"$$", b"/*", b"*/", b"--", b":from", b"::", b"[", b"]]", b"250 ",
    b"\xff", b"=",
];

#[test]
fn hostile_tokens_open_nothing() {
    slice("token", targets::token);
}

#[test]
fn hostile_configurations_are_refused_in_words() {
    slice("config", targets::config);
}

#[test]
fn hostile_replies_are_read_the_same_however_they_are_cut() {
    slice("reply", targets::reply);
}

#[test]
fn hostile_sql_is_left_alone_or_refused() {
    slice("scan", targets::scan_sql);
}

/// Calls a target with its corpus and mutations of it.
fn slice(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut corpus: Vec<Vec<u8>> = fs::read_dir(&folder)
        .expect("a corpus")
        .map(|file| fs::read(file.expect("an entry").path()).expect("a file"))
        .collect();
    assert!(!corpus.is_empty(), "no corpus in {}", folder.display());
    corpus.sort();
    for input in &corpus {
        target(input);
    }
    let mut chance = Chance(seed());
    for _ in 0..scale(500, 20_000) {
        let mut input = pick(&mut chance, &corpus).clone();
        for _ in 0..=chance.below(4) {
            mutate(&mut chance, &mut input, &corpus);
        }
        target(&input);
    }
}

fn mutate(chance: &mut Chance, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = index(chance, input.len() + 1);
    match chance.below(5) {
        0 => input.truncate(at),
        1 => drop(input.splice(at..at, pick(chance, &SPICE).iter().copied())),
        2 => drop(input.drain(at..(at + index(chance, 9)).min(input.len()))),
        3 if at < input.len() => input[at] ^= 1 << chance.below(8),
        _ => {
            let other = pick(chance, corpus);
            let from = index(chance, other.len() + 1);
            input.splice(at.., other[from..].iter().copied());
        }
    }
}

fn pick<'a, T>(chance: &mut Chance, items: &'a [T]) -> &'a T {
    &items[index(chance, items.len())]
}

fn index(chance: &mut Chance, len: usize) -> usize {
    usize::try_from(chance.below(len as u64)).expect("below a usize")
}
