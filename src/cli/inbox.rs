//! `digestd inbox`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;

use super::out;
use crate::config::LogFormat;
use crate::demo::inbox::{Inbox, InboxShelf, write_index};
use crate::http::viewer;
use crate::lifecycle::{Exit, Shutdown};
use crate::telemetry;

/// How long a stopping inbox may take; there is nothing to lose.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(after_help = "Speaks SMTP without TLS and delivers nothing onward. Point a replica at it by
  DIGESTD__RELAY__URL=smtp+plaintext://127.0.0.1:2525")]
pub(super) struct Arguments {
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2525")]
    listen: SocketAddr,
    /// The folder for the mails
    #[arg(long, value_name = "DIR", default_value = "inbox")]
    dir: PathBuf,
    /// Show the mails on a page here
    #[arg(long, value_name = "ADDR")]
    page: Option<SocketAddr>,
}

pub(super) async fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    telemetry::init(LogFormat::Text, "info");
    let shutdown = Shutdown::new();
    shutdown.listen(GRACE).context("watching for signals")?;
    let inbox = Inbox::bind(arguments.listen, &arguments.dir).await?;
    out::data(format_args!(
        "listening for mail on {}; mails go to {}",
        inbox.addr(),
        arguments.dir.display()
    ));
    if let Some(page) = arguments.page {
        let listener = TcpListener::bind(page).await.with_context(|| format!("listening on {page}"))?;
        let page = listener.local_addr().context("asking for our own address")?;
        out::data(format_args!("showing them on http://{page}/"));
        let shelf = Arc::new(InboxShelf::new(arguments.dir.clone()));
        tokio::spawn(viewer::serve(listener, shelf, shutdown.soft.clone()));
    }
    inbox.run(shutdown.soft.clone()).await;
    let index = write_index(&arguments.dir).context("writing the list of mails")?;
    let report = inbox.snapshot();
    out::data(format_args!(
        "accepted {} to {}, {}; see {}",
        out::counted(count(report.messages), "mail"),
        out::counted(count(report.recipients), "recipient"),
        out::counted(count(report.duplicates), "duplicate"),
        index.display()
    ));
    Ok(Exit::Ok)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
