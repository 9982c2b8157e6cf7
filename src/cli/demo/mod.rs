//! `digestd demo`.

mod folder;

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use chrono::{DateTime, TimeDelta, Utc, Weekday};
use clap::Args;
use comfy_table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use folder::Folder;

use super::out;
use crate::app;
use crate::clock::{Clock, host_now};
use crate::config::{Config, LogFormat};
use crate::demo::inbox::{Inbox, InboxReport, InboxShelf, write_index};
use crate::demo::replicas::Replica;
use crate::demo::sample::{self, Sample};
use crate::domain::ids::ReplicaId;
use crate::domain::message::MessageState;
use crate::domain::schedule::{WeeklySchedule, parse_time};
use crate::domain::week::WeekKey;
use crate::domain::zone::Zone;
use crate::http::viewer;
use crate::lifecycle::{Exit, Shutdown};
use crate::store::Store;
use crate::store::migrate::MigrateMode;
use crate::store::stats::ReplicaWork;
use crate::telemetry;

/// Replicas of the demo.
const REPLICAS: usize = 3;
/// Real time between the start and Monday 08:00, so that the replicas are up when the slot opens.
const HEAD_START: TimeDelta = TimeDelta::seconds(3);
/// The longest that the demo waits for its mails.
const PATIENCE: Duration = Duration::from_mins(3);

#[derive(Debug, Args)]
#[command(
    after_help = "Three replicas, real processes on one SQLite file, race through a Monday 08:00. Everything lies in
  one folder: the database, the replicas' logs and configuration, and each mail as .eml and .html."
)]
pub(super) struct Arguments {
    /// The folder to work in; a folder of an earlier demo is emptied
    #[arg(long, value_name = "DIR", default_value = "digestd-demo")]
    dir: PathBuf,
    /// How many sample organisations to make
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u16).range(1..=5000))]
    orgs: u16,
    /// Kill one replica in the middle, as kill -9 does
    #[arg(long)]
    kill: bool,
    /// End when every mail has arrived, instead of waiting for Ctrl-C
    #[arg(long)]
    exit: bool,
}

/// A demo under way.
struct Demo {
    folder: Folder,
    store: Store,
    inbox: Arc<Inbox>,
    sample: Sample,
    replicas: Vec<Replica>,
}

pub(super) async fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    telemetry::init(LogFormat::Text, "warn");
    let shutdown = Shutdown::new();
    shutdown.listen(Duration::from_secs(10)).context("watching for signals")?;
    let mut demo = prepare(arguments).await?;
    let inbox_stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (inbox, stop) = (Arc::clone(&demo.inbox), inbox_stop.clone());
        async move { inbox.run(stop).await }
    });
    let outcome = shutdown.soft.run_until_cancelled(demo.play(arguments.kill)).await;
    let exit = match outcome {
        Some(played) => {
            let exit = demo.show(played?).await?;
            if !arguments.exit {
                demo.show_mails(&shutdown).await?;
                out::note("The replicas go on running. Ctrl-C ends the demo; the folder stays.");
                shutdown.soft.cancelled().await;
            }
            exit
        }
        None => Exit::Ok,
    };
    for replica in &mut demo.replicas {
        replica.stop().await;
    }
    inbox_stop.cancel();
    serving.await.context("ending the inbox")?;
    demo.store.close().await;
    Ok(exit)
}

/// Makes the folder, the database with its sample, the inbox and the configuration.
async fn prepare(arguments: &Arguments) -> anyhow::Result<Demo> {
    let held = Folder::empty(&arguments.dir)?;
    let folder = held.path();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let inbox = Arc::new(Inbox::bind(any_port, &folder.join("mails")).await?);
    let text = configuration(inbox.addr().port());
    fs::write(folder.join("digestd.toml"), &text).context("writing the configuration")?;
    let database = folder.join("digestd.db").display().to_string();
    let config = Config::parse(&text, [("DIGESTD__DATABASE__URL".to_owned(), format!("sqlite:{database}"))])?;
    let monday = monday_at_eight()?;
    let shift = monday - HEAD_START - host_now();
    let store = app::open_store(&config, Clock::Shifted(shift))?;
    store.migrate(MigrateMode::Auto).await?;
    let sample = sample::fill(&store, arguments.orgs.into(), monday).await?;
    let replicas = (1..=REPLICAS)
        .map(|number| Replica::start(folder, number, shift))
        .collect::<Result<_, _>>()
        .context("starting the replicas")?;
    out::note(format_args!(
        "{} with {} who want their weekly digest, and {} who do not.",
        out::counted(count(sample.orgs), "organisation"),
        out::counted(count(sample.recipients), "admin"),
        out::grouped(count(sample.opted_out)),
    ));
    Ok(Demo { folder: held, store, inbox, sample, replicas })
}

/// The slot of this ISO week in the sample's zones, whichever day it is today.
fn monday_at_eight() -> anyhow::Result<DateTime<Utc>> {
    let zone = Zone::parse("Europe/Berlin")?;
    let week = WeekKey::of(zone.local(host_now()).date());
    let schedule = WeeklySchedule { weekday: Weekday::Mon, time: parse_time("08:00")?, zone };
    Ok(schedule.slot_in(week).at)
}

fn configuration(inbox_port: u16) -> String {
    format!(
        r#"# The demo's replicas. A real installation has PostgreSQL and a relay with TLS.
public_url = "http://127.0.0.1:8080/"

[database]
url = "sqlite:digestd.db"

[relay]
url = "smtp+plaintext://127.0.0.1:{inbox_port}"
from = "Weekly digest <digest@example.com>"
# Slow enough to watch, and to kill a replica in the middle.
pace = "60/s"

[schedule]
first_start = "catch_up"
weekday = "monday"
time = "08:00"

[http]
listen = "127.0.0.1:0"

[tick]
interval = "1s"

[claim]
# Small batches, so that a small sample is shared; a short lease, so that a killed replica's
# claims are taken over while you watch.
batch = 10
lease = "5s"

[delivery]
lease = "20s"
poll = "100ms"

[relay.timeouts]
connect = "1s"
tls = "1s"
greeting = "2s"
login = "2s"
envelope = "2s"
body = "2s"
reply = "5s"

[log]
format = "json"
"#
    )
}

/// How it ended.
struct Played {
    took: Duration,
    inbox: InboxReport,
    killed: Option<usize>,
    complete: bool,
}

impl Demo {
    /// Waits until every digest has arrived, drawing a bar, and kills a replica on the way if asked to.
    async fn play(&mut self, kill: bool) -> anyhow::Result<Played> {
        self.introduce().await?;
        let bar = ProgressBar::new(count(self.sample.recipients));
        let style = "{msg}  [{bar:40}] {pos} of {len} mails  {elapsed}";
        bar.set_style(ProgressStyle::with_template(style).context("the bar")?.progress_chars("=> "));
        bar.set_message("Monday 08:00");
        let began = Instant::now();
        let mut killed = None;
        let complete = loop {
            let inbox = self.inbox.snapshot();
            bar.set_position(count(inbox.messages));
            if kill && killed.is_none() && inbox.messages * 3 > self.sample.recipients {
                killed = Some(self.kill_one(&bar).await?);
            }
            if self.is_settled().await? {
                break true;
            }
            if began.elapsed() > PATIENCE {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let inbox = self.inbox.snapshot();
        bar.set_position(count(inbox.messages));
        bar.finish();
        Ok(Played { took: began.elapsed(), inbox, killed, complete })
    }

    async fn introduce(&mut self) -> anyhow::Result<()> {
        for at in 0..self.replicas.len() {
            let started = Instant::now();
            while self.replicas[at].id().is_none() {
                let replica = &mut self.replicas[at];
                if replica.has_ended() || started.elapsed() > PATIENCE {
                    bail!("replica {} did not start; its log says:\n{}", replica.number, replica.log());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let pid = self.replicas[at].pid().unwrap_or_default();
            out::note(format_args!("Replica {} runs as process {pid}.", self.replicas[at].number));
        }
        Ok(())
    }

    async fn kill_one(&mut self, bar: &ProgressBar) -> anyhow::Result<usize> {
        let victim = &mut self.replicas[0];
        victim.kill().await.context("killing a replica")?;
        let number = victim.number;
        bar.suspend(|| {
            out::note(format_args!("Replica {number} was killed. The others take over what it held."));
        });
        Ok(number)
    }

    /// Shows the mails on a page, until the end.
    async fn show_mails(&self, shutdown: &Shutdown) -> anyhow::Result<()> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any_port).await.context("listening for a browser")?;
        let page = listener.local_addr().context("asking for our own address")?;
        let mails = Arc::new(InboxShelf::new(self.folder.path().join("mails")));
        tokio::spawn(viewer::serve(listener, mails, shutdown.soft.clone()));
        out::note(format_args!("Look at the mails on http://{page}/"));
        Ok(())
    }

    /// Whether every org's send is settled and no message is under way.
    async fn is_settled(&self) -> anyhow::Result<bool> {
        let stats = self.store.stats().await?;
        let busy: u64 = [MessageState::Pending, MessageState::Leased, MessageState::Sending]
            .iter()
            .map(|state| stats.messages_in(*state))
            .sum();
        Ok(busy == 0 && stats.settled_sends() >= count(self.sample.orgs))
    }

    /// The final table, and where to look.
    async fn show(&mut self, played: Played) -> anyhow::Result<Exit> {
        let index = write_index(&self.folder.path().join("mails")).context("writing the list of mails")?;
        let uncertain = self.store.stats().await?.messages_in(MessageState::Uncertain);
        let claimed: HashMap<ReplicaId, ReplicaWork> =
            self.store.work_by_replica().await?.into_iter().collect();
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
        table.set_header(["replica", "sends won", "messages written", ""]);
        for replica in &self.replicas {
            let work = replica.id().and_then(|id| claimed.get(&id)).copied().unwrap_or_default();
            let note = if played.killed == Some(replica.number) { "killed" } else { "" };
            table.add_row([
                replica.number.to_string(),
                out::grouped(work.sends),
                out::grouped(work.messages),
                note.to_owned(),
            ]);
        }
        let total = claimed.values().fold(ReplicaWork::default(), |sum, work| ReplicaWork {
            sends: sum.sends + work.sends,
            messages: sum.messages + work.messages,
        });
        table.add_row([
            "all".to_owned(),
            out::grouped(total.sends),
            out::grouped(total.messages),
            String::new(),
        ]);
        out::data(&table);
        let InboxReport { messages, duplicates, .. } = played.inbox;
        out::data(format_args!("organisations  {}", out::grouped(count(self.sample.orgs))));
        out::data(format_args!("admins         {}", out::grouped(count(self.sample.recipients))));
        out::data(format_args!("mails arrived  {}", out::grouped(count(messages))));
        out::data(format_args!("duplicates     {}", out::grouped(count(duplicates))));
        if uncertain > 0 {
            out::data(format_args!(
                "uncertain      {}  (handed over when the replica died; held, never repeated on a guess)",
                out::grouped(uncertain)
            ));
        }
        out::data(format_args!("took           {:.1} s", played.took.as_secs_f64()));
        out::note(format_args!("Mails:    {}", index.display()));
        out::note(format_args!("Logs:     {}", self.folder.path().join("replica-1.log").display()));
        out::note(format_args!("Database: {}", self.folder.path().join("digestd.db").display()));
        let all_there = messages + usize::try_from(uncertain).unwrap_or(usize::MAX) >= self.sample.recipients;
        Ok(if played.complete && duplicates == 0 && all_there { Exit::Ok } else { Exit::ProblemFound })
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
