//! The whole job, by real processes of the real binary.

mod addresses;
mod admin_pages;
mod chaos;
mod clocks;
mod crashes;
mod database_away;
mod demo;
mod ends;
mod freeze;
mod guard_tls;
mod hygiene;
mod opt_out;
mod outage;
mod panics;
mod pooler;
mod postfix;
mod preview;
mod relay;
mod replicas;
mod requests;
mod restore;
mod shutdown;
mod start;
mod storm;
