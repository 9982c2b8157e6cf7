//! TOML file, then environment; every problem reported together.
