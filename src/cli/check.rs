//! `digestd check`: tries each part by itself and says what is wrong.

use std::fmt;
use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::failure::store_hint;
use super::{Global, out, session};
use crate::app;
use crate::clock::{Clock, host_now};
use crate::config::{Config, DatabaseUrl, GuardStore, RelayUrl};
use crate::domain::reply::{RelayFailure, RelayFailureKind};
use crate::lifecycle::Exit;
use crate::mail::transport::Transport;
use crate::render::Templates;
use crate::source::operator::Survey;
use crate::store::Store;
use crate::store::migrate::MigrateMode;

#[derive(Debug, Args)]
#[command(after_help = "Sends no mail and writes nothing.
Ends with 1 if anything failed, with 78 if the configuration did.")]
pub(super) struct Arguments {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// How one part did.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    ok: bool,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Line {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), hint: None }
    }

    fn failed(name: &'static str, error: impl Into<anyhow::Error>, hint: Option<&str>) -> Self {
        Self { name, ok: false, detail: format!("{:#}", error.into()), hint: hint.map(str::to_owned) }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7} {:10} {}", if self.ok { "ok" } else { "failed" }, self.name, self.detail)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n{:18} hint: {hint}", ""))
    }
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let mut lines = vec![Line::ok("config", "every key is understood")];
    lines.extend(database(&config).await);
    lines.push(templates(&config));
    lines.push(relay(&config).await);
    lines.extend(guard(&config).await);
    if arguments.json {
        out::json(&lines)?;
    } else {
        lines.iter().for_each(out::data);
    }
    Ok(if lines.iter().all(|line| line.ok) { Exit::Ok } else { Exit::ProblemFound })
}

/// Database, schema and source: each needs the one before it.
async fn database(config: &Config) -> Vec<Line> {
    let store = match app::open_store(config, Clock::Database) {
        Ok(store) => store,
        Err(error) => return vec![Line::failed("database", error, None)],
    };
    // An SQLite file that is missing is made by the first replica, not by a look.
    if let DatabaseUrl::Sqlite(path) = &config.database.url
        && !path.exists()
    {
        return vec![missing_file(path)];
    }
    let mut lines = Vec::new();
    let now = match store.try_connect().await {
        Ok(()) => store.now().await,
        Err(error) => Err(error),
    };
    match now {
        Ok(now) => {
            let apart = (host_now() - now).num_milliseconds().unsigned_abs();
            lines.push(Line::ok(
                "database",
                format!("{} answers; its clock and ours are {apart} ms apart", store.kind()),
            ));
        }
        Err(error) => {
            let hint = store_hint(&error);
            lines.push(Line::failed("database", error, hint));
            return lines;
        }
    }
    match store.migrate(MigrateMode::Check).await {
        Ok(report) => lines.push(Line::ok("schema", format!("version {} is current", report.version))),
        Err(error) => {
            let hint = store_hint(&error);
            lines.push(Line::failed("schema", error, hint));
            return lines;
        }
    }
    lines.push(source(config, &store).await);
    lines.extend(write_back(config).await);
    lines
}

fn missing_file(path: &Path) -> Line {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Line::ok("database", format!("{} will be made by the first start", path.display()));
    }
    let error = anyhow::anyhow!("the folder {} does not exist", folder.display());
    Line::failed("database", error, Some("make it, or correct database.url"))
}

async fn source(config: &Config, store: &Store) -> Line {
    match survey(config, store).await {
        Ok(Some(survey)) => {
            let detail = format!("answers: {} orgs with {} recipients", survey.orgs, survey.recipients);
            let problems = survey.problems();
            let hint = (!problems.is_empty()).then(|| problems.join("; "));
            Line { hint, ..Line::ok("source", detail) }
        }
        Ok(None) => built_in(config, store).await,
        Err(error) => Line::failed("source", error, None),
    }
}

async fn survey(config: &Config, store: &Store) -> anyhow::Result<Option<Survey>> {
    let source = app::source_of(config, store)?;
    source.check().await?;
    Ok(source.survey().await?)
}

async fn built_in(config: &Config, store: &Store) -> Line {
    let asked = async {
        let source = app::source_of(config, store)?;
        Ok::<_, anyhow::Error>(source.candidates(None).await?.next_page(1).await?)
    };
    match asked.await {
        Ok(None) => Line {
            hint: Some("`digestd import` fills the built-in directory".to_owned()),
            ..Line::ok("source", "answers, but no org has an admin who wants the digest")
        },
        Ok(Some(_)) => Line::ok("source", "answers and has orgs to mail"),
        Err(error) => Line::failed("source", error, None),
    }
}

/// Whether opt-outs can be written back, where that is wanted.
async fn write_back(config: &Config) -> Option<Line> {
    let write_back = match app::write_back_of(config) {
        Ok(write_back) => write_back?,
        Err(error) => return Some(Line::failed("opt_out", error, None)),
    };
    let line = match write_back.check().await {
        Ok(()) if write_back.knows_both_ways() => Line::ok("opt_out", "opt-outs can be written back"),
        Ok(()) => {
            let hint = "opt_out.sql does not use :opted_out, so re-subscriptions are not written back";
            Line { hint: Some(hint.to_owned()), ..Line::ok("opt_out", "opt-outs can be written back") }
        }
        Err(error) => {
            let hint = "may the role of opt_out.url run opt_out.sql? Its parameters are :org_id, :user_id, :email, \
                        :opted_out and :at";
            Line::failed("opt_out", error, Some(hint))
        }
    };
    Some(line)
}

fn templates(config: &Config) -> Line {
    match Templates::load(config.templates_dir.as_deref()) {
        Ok(templates) => {
            let mut languages = templates.languages();
            languages.sort_unstable();
            Line::ok("templates", format!("compile; languages: {}", languages.join(", ")))
        }
        Err(error) => {
            Line::failed("templates", error, Some("templates.dir holds the operator's own templates"))
        }
    }
}

async fn relay(config: &Config) -> Line {
    if let RelayUrl::Directory(folder) = &config.relay.url {
        return Line::ok("relay", format!("mails are written as files to {}", folder.display()));
    }
    let transport: Transport = match app::transport_of(&config.relay) {
        Ok(transport) => transport,
        Err(error) => return Line::failed("relay", error, None),
    };
    match transport.connect().await {
        Ok(connection) => {
            connection.quit().await;
            let login = if config.relay.login.is_some() {
                "greeting and login are fine"
            } else {
                "the greeting is fine"
            };
            Line::ok("relay", format!("{}: {login}", config.relay.url))
        }
        Err(failure) => {
            let hint = relay_hint(&failure);
            Line::failed("relay", failure, Some(hint))
        }
    }
}

/// Where fingerprints are kept, if anywhere.
async fn guard(config: &Config) -> Option<Line> {
    let kept = &config.guard.as_ref()?.store;
    if matches!(kept, GuardStore::Sql) {
        let hint = "a backup of that database holds the guard's memory of then: restored, it lets everything pass \
                    again; guard.backend = \"redis\" keeps it elsewhere";
        let hint = Some(hint.to_owned());
        return Some(Line { hint, ..Line::ok("guard", "remembers in the state database") });
    }
    Some(match app::ask_guard(config).await {
        Ok(()) => Line::ok("guard", "Redis answers"),
        Err(error) => {
            Line::failed("guard", error, Some("is guard.url right, and may this host reach that port?"))
        }
    })
}

fn relay_hint(failure: &RelayFailure) -> &'static str {
    match failure.kind {
        RelayFailureKind::Unreachable => "is relay.url right, and may this host reach that port?",
        RelayFailureKind::Certificate => {
            "the certificate must fit the host of relay.url; relay.tls_ca_file adds an authority"
        }
        RelayFailureKind::Insecure => "does the relay offer STARTTLS on this port? smtps:// begins with TLS",
        RelayFailureKind::Refused(_) => "the relay does not want this host right now; its operators know why",
        RelayFailureKind::Auth(_) => "are relay.username and relay.password_file right?",
    }
}
