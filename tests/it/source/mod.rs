//! The operator's own database as a source, on both databases, from configuration alone.

mod adapted;
mod adopting;
mod batches;
mod leaks;
mod shape;
mod story;
mod times;
mod types;

use std::fmt::Write as _;

use digestd::config::Config;
use digestd::domain::digest::{DigestInput, Row, SectionBody};
use digestd::domain::ids::OrgId;
use digestd::domain::schedule::Period;
use digestd::domain::week::SendKey;
use digestd::source::operator::Operator;
use digestd::source::{Gathered, Question, Source, SourceError};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::support::backend::{Kind, TestDatabase};
use crate::support::fixtures::{due_org, monday};

/// An application's database, and digestd's configuration for it.
struct App {
    database: TestDatabase,
    config: Config,
}

impl App {
    /// Fills the database by a script, and reads the part of the configuration that is about it.
    async fn new(database: TestDatabase, script: &str, toml: &str) -> Self {
        let dialect = |text: &str| match database.kind {
            Kind::Postgres => text.to_owned(),
            Kind::Sqlite => text.replace("= ANY(:org_ids)", "IN (:org_ids)"),
        };
        let url = &database.url;
        let text = format!(
            "public_url = \"http://127.0.0.1:8080\"\n{}",
            dialect(toml).replace("[source]", &format!("[source]\nurl = \"{url}\""))
        );
        let config = Config::parse(&text, []).unwrap_or_else(|error| panic!("{error}"));
        execute(&database, script).await;
        Self { database, config }
    }

    fn open(&self) -> Operator {
        let source = self.config.source.as_ref().expect("a source");
        Operator::open(source, &self.config.sections, &self.config.schedule.default).expect("queries of ours")
    }

    /// What the source gives, once it has passed its own check.
    async fn checked(&self) -> Source {
        let source = Source::Operator(self.open());
        source.check().await.unwrap_or_else(|error| panic!("{error}"));
        source
    }
}

/// Runs a script in an application's database, which may have to be made first.
async fn execute(database: &TestDatabase, script: &str) {
    let script = AssertSqlSafe(script.to_owned());
    match database.kind {
        Kind::Postgres => {
            let mut connection = PgConnection::connect(&database.url).await.expect("a connection");
            sqlx::raw_sql(script).execute(&mut connection).await.map(drop)
        }
        Kind::Sqlite => {
            let url = format!("{}?mode=rwc", database.url);
            let mut connection = SqliteConnection::connect(&url).await.expect("a connection");
            sqlx::raw_sql(script).execute(&mut connection).await.map(drop)
        }
    }
    .expect("a script of ours");
}

fn orgs(names: &[&str]) -> Vec<OrgId> {
    names.iter().map(|name| OrgId::parse(name).expect("an id")).collect()
}

/// The week from 29 June to 5 July 2026 in Berlin.
fn period() -> Period {
    due_org("any", monday()).period
}

/// Gathers the digests that are due at [`monday`].
async fn gather(source: &Source, names: &[&str]) -> Result<Vec<DigestInput>, SourceError> {
    let orgs = orgs(names);
    let (due, period) = (due_org("any", monday()), period());
    let question =
        Question { orgs: &orgs, key: SendKey::Week(due.slot.week), slot_at: monday(), period: &period };
    let gathered = source.gather(&question).await?;
    Ok(gathered
        .into_values()
        .map(|answer| match answer {
            Gathered::Digest(input) => *input,
            Gathered::BadZone(error) => panic!("{error}"),
        })
        .collect())
}

/// Digests in words, the same for both databases: they write dates in different ways.
fn told(digests: &[DigestInput]) -> String {
    let mut told = String::new();
    for digest in digests {
        writeln!(told, "{} {}", digest.org, digest.org_name).expect("memory");
        for recipient in &digest.recipients {
            let address = match &recipient.address {
                Ok(address) => address.normal().to_owned(),
                Err(broken) => format!("broken {}", broken.raw),
            };
            let name = recipient.name.as_deref().unwrap_or("-");
            let locale = recipient.locale.as_deref().unwrap_or("-");
            writeln!(told, "  to {} {address} {name} {locale}", recipient.user).expect("memory");
        }
        for section in &digest.sections {
            told += &body(&section.title, &section.body);
        }
    }
    told
}

fn body(title: &str, body: &SectionBody) -> String {
    let mut told = String::new();
    match body {
        SectionBody::Omitted => writeln!(told, "  {title}: omitted").expect("memory"),
        SectionBody::Figures(figures) => {
            for figure in &figures.shown {
                let previous = figure.previous.as_ref().map_or("-", |amount| amount.text());
                writeln!(told, "  {title}: {} {} ({previous})", figure.label, figure.value.text())
                    .expect("memory");
            }
        }
        SectionBody::Rows(rows) => {
            for shown in &rows.shown {
                writeln!(told, "  {title} of {}: {}", rows.total, row(shown)).expect("memory");
            }
        }
        SectionBody::PersonalRows(by_user) => {
            for (user, rows) in by_user {
                for shown in &rows.shown {
                    writeln!(told, "  {title} for {user} of {}: {}", rows.total, row(shown)).expect("memory");
                }
            }
        }
    }
    told
}

fn row(row: &Row) -> String {
    let text = serde_json::to_string(row).expect("JSON").replace("+00:00\"", "\"");
    text.replace("2026-06-30T", "2026-06-30 ").replace("2026-07-01T", "2026-07-01 ")
}
