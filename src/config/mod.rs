//! TOML file, then environment, then secrets from files; every problem reported together.
//!
//! The layers are read as text with its origin (`file`, `environment`, `secret`),
//! merged (`layer`), and only then made typed and checked (`validate`). The table in
//! [`table`] drives all of it, and the reference in `config/` and `docs/` too ([`mod@reference`]).

mod environment;
mod file;
pub mod keys;
mod kind;
mod layer;
mod parts;
mod problem;
mod reader;
pub mod reference;
mod relay_url;
mod secret;
mod settings;
pub mod table;
mod text;
mod url;
mod validate;
mod words;

use std::path::{Path, PathBuf};

pub use problem::{ConfigError, Problem};
pub use relay_url::{RelayUrl, Security, SmtpUrl};
pub use settings::{
    Brand, ClaimSettings, Config, Database, Delivery, Digest, Guard, GuardStore, Log, Login, OptOut, Relay,
    Retention, Reuse, Schedule, SectionQuery, Source, Suppression, Tick, Timeouts,
};
pub use text::{Mailbox, Pace};
pub use url::DatabaseUrl;
pub use words::{
    Empty, FirstStart, LogFormat, Migrate, OnError, OnUnavailable, OnUncertain, Provider, SectionKind,
};

/// The variable that names the file where `--config` does not.
pub const FILE_VARIABLE: &str = "DIGESTD_CONFIG";

impl Config {
    /// Loads the configuration: built-in defaults, then the file, then the environment.
    /// Without a path the file is the one that [`FILE_VARIABLE`] names, or none.
    pub fn load(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let environment: Vec<(String, String)> = environment.into_iter().collect();
        let named = environment.iter().find(|(name, text)| name == FILE_VARIABLE && !text.is_empty());
        let path = path.map(Path::to_owned).or_else(|| named.map(|(_, text)| PathBuf::from(text)));
        let mut problems = Vec::new();
        let file = path.map(|path| file::read(&path, &mut problems)).unwrap_or_default();
        Self::from_layers(file, environment, problems)
    }

    /// Loads the configuration from a file's text instead of a file.
    pub fn parse(
        text: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let file = file::parse("digestd.toml", text, &mut problems);
        Self::from_layers(file, environment, problems)
    }

    fn from_layers(
        file: file::File,
        environment: impl IntoIterator<Item = (String, String)>,
        mut problems: Vec<Problem>,
    ) -> Result<Self, ConfigError> {
        let environment = environment::read(environment, &mut problems);
        let mut values = layer::merge(file.layer, environment, &mut problems);
        secret::read_files(&mut values, &mut problems);
        let raw = layer::Raw {
            values,
            sections: file.sections,
            headers: file.headers,
            incomplete: file.incomplete,
        };
        match validate::build(&raw, &mut problems) {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError::new(problems)),
        }
    }
}
