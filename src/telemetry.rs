//! Logs: on standard error, as text for people or JSON for collectors.

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::LogFormat;

/// Sets up the process's logs. `filter` has the syntax of `RUST_LOG`.
///
/// A filter that cannot be parsed is replaced by `info` with a warning, and a second call
/// changes nothing: logs must never be the reason that mails are not sent.
pub fn init(format: LogFormat, filter: &str) {
    let (parsed, refused) = match EnvFilter::try_new(filter) {
        Ok(parsed) => (parsed, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let registry = tracing_subscriber::registry().with(parsed);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // On a terminal the layer decides about colour by itself and respects NO_COLOR.
    let lines = if std::io::stderr().is_terminal() { lines } else { lines.with_ansi(false) };
    let set = match format {
        LogFormat::Text => registry.with(lines.with_filter(filter_fn(may_speak))).try_init(),
        LogFormat::Json => {
            registry.with(lines.json().flatten_event(true).with_filter(filter_fn(may_speak))).try_init()
        }
    };
    if let (Ok(()), Some(error)) = (set, refused) {
        tracing::warn!(%error, "the log filter cannot be parsed; the level is info");
    }
}

/// Below *info* only our own modules may speak, whatever the filter says. Libraries print what passes
/// through them: paths with unsubscribe tokens, statements, bytes of a handshake.
fn may_speak(metadata: &Metadata<'_>) -> bool {
    let ours = metadata.target() == "digestd" || metadata.target().starts_with("digestd::");
    ours || *metadata.level() <= Level::INFO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_and_a_broken_filter_change_nothing() {
        init(LogFormat::Json, "info,[{");
        init(LogFormat::Text, "info");
    }

    #[test]
    fn the_filter_that_the_configuration_has_by_default_can_be_parsed() {
        let config = crate::config::Config::parse("", []).unwrap();
        EnvFilter::try_new(config.log.filter).unwrap();
    }
}
