//! Who is due, and handing over to the outbox.

pub mod due;
