//! What a newcomer meets first: sample data, three replicas, and an inbox that receives the mails.

pub mod inbox;
pub mod replicas;
pub mod sample;
