//! The whole job, by real processes of the real binary.

mod addresses;
mod clocks;
mod crashes;
mod demo;
mod replicas;
mod restore;
mod start;
