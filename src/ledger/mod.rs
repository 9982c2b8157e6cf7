//! The stories: what happened to an org's digest, and why.
