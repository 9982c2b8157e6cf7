//! What one replica does for all: retention, closing weeks, gauges.
