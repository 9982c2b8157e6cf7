//! Sample data, and a mail inbox to look at.
