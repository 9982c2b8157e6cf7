//! What the parsers must bear, one function per target. The fuzzer calls them with whatever it
//! can think of; `tests/it/fuzz.rs` calls the same functions with seeded mutations of the corpus.

pub mod targets;
