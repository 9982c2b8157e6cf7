//! Every row, and the only SQL of ours.
