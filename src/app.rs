//! The composition root: configuration in, running parts out.
