//! Unsubscribe tokens: opaque, signed, without an address in them.
