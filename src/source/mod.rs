//! Who gets a digest and what stands in it.

pub mod import;
