//! One binary for every integration test, so that the crate is linked once.
#![cfg(test)]

#[macro_use]
mod support;

mod calendar;
mod cases;
mod cleanup;
mod cli;
mod cli_ledger;
mod cli_mail;
mod cli_queue;
mod config;
mod deploy;
mod flow;
mod fuzz;
mod golden;
mod guard;
mod hard_days;
mod http;
mod import;
mod inbox;
mod ledger;
mod looks;
mod many_old_rows;
mod metrics_docs;
mod moves;
mod render;
mod sim;
mod smtp;
mod source;
mod store;
mod tidy;
