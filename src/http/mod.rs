//! Health, metrics, one-click unsubscribe, admin pages. The only module that names the web framework.
