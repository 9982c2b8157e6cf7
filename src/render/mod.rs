//! From gathered data to words: templates, filters, the size budget.
