//! Every metric, its unit and its meaning.
