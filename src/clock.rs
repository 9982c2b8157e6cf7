//! The one clock of decisions: the database's, or one that a test gives.
