//! Submission against a relay that misbehaves by script: one file per misbehaviour.

mod scripted_server;
