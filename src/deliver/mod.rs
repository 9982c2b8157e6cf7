//! From the outbox to the relay.
