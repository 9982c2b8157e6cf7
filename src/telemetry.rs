//! Logs: format, filters, field names.
