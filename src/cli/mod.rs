//! What a person types. The only module that prints.
