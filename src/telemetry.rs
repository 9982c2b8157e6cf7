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
    let of = |name: &str| {
        let rest = metadata.target().strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    if of("digestd") {
        return true;
    }
    // A server's notice is written by a function or a trigger of somebody else's, with values in it.
    if of("sqlx::postgres::notice") {
        return false;
    }
    *metadata.level() <= if of("sqlx") { Level::ERROR } else { Level::INFO }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_second_call_and_a_broken_filter_change_nothing() {
        init(LogFormat::Json, "info,[{");
        init(LogFormat::Text, "info");
    }

    /// A function of the application's that warned about an odd address had it in our log, at the default
    /// filter and at any wider one.
    #[test]
    fn the_driver_of_the_database_speaks_of_errors_only_and_never_repeats_a_notice() {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer({
            let kept = kept.clone();
            move || kept.clone()
        });
        let everything = EnvFilter::new("trace");
        let logs =
            tracing_subscriber::registry().with(everything).with(lines.with_filter(filter_fn(may_speak)));
        tracing::subscriber::with_default(logs, || {
            tracing::error!(target: "sqlx::postgres::notice", "a notice");
            tracing::warn!(target: "sqlx::query", "a slow statement");
            tracing::error!(target: "sqlx::pool", "a lost pool");
            tracing::info!(target: "sqlxx", "another library");
            tracing::debug!(target: "rustls", "a handshake");
            tracing::trace!(target: "digestd::deliver", "a message");
            tracing::trace!(target: "digestdx", "a stranger");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let told: Vec<&str> = text.lines().map(|line| line.rsplit_once(": ").unwrap().1).collect();
        assert_eq!(told, ["a lost pool", "another library", "a message"]);
    }

    #[test]
    fn the_filter_that_the_configuration_has_by_default_can_be_parsed() {
        let config = crate::config::Config::parse("", []).unwrap();
        EnvFilter::try_new(config.log.filter).unwrap();
    }
}
