//! What a newcomer meets first: sample data, and an inbox that receives the mails.

pub mod inbox;
