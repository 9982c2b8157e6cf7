//! The `digestd` program.

fn main() {}
