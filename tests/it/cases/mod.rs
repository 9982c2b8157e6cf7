//! What went wrong in comparable systems, tried here. The first comment of each test tells the symptom.

mod clock_set_back;
mod duplicates;
mod late_changes;
mod migrations;
mod missed;
mod opt_ins;
mod periodic;
mod poison;
mod pools;
mod sqlite;
mod transactions;
mod write_back;
