//! The fingerprint check across sends and installations.
