//! The protocol of digestd as a model: two replicas, a database, a guard and a relay, with crashes at
//! every step, freezes, expiring leases and lost answers, explored completely.
//!
//! A step of the model is one statement of the store, one word to the guard or one word to the relay,
//! and has the name that it has in the code. Whatever lies between two steps may be interrupted for as
//! long as the model likes: a frozen replica is one that takes no step while the others do.
//!
//! What is left out: time as a number (a lease runs out whenever that would hurt), batches (each
//! statement is about one row), the content of mails, and the relay's pace.

mod database;
pub mod mutation;
pub mod property;
pub mod protocol;
pub mod scenario;
pub mod state;
mod step;
