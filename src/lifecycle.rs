//! Signals, and stopping in two steps.
