//! When a message is tried again, and when it is given up.
