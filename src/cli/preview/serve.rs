//! `digestd preview --serve`: a page with the digests of all orgs.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::{choose, gather, render};
use crate::app;
use crate::cli::session::{self, OrgWeek};
use crate::cli::{Global, out};
use crate::config::Config;
use crate::domain::address::Address;
use crate::domain::candidate::Candidate;
use crate::domain::week::WeekKey;
use crate::http::viewer::{self, Choice, Entry, List, Mail, Shelf, ShelfError};
use crate::lifecycle::{Exit, Shutdown};
use crate::render::Templates;
use crate::source::Source;
use crate::store::Store;

/// As many orgs as the list shows; whoever has more looks for a part of an id.
const LISTED: usize = 200;
/// Orgs read at once.
const PAGE: u32 = 500;
/// There is nothing to lose at the end.
const GRACE: Duration = Duration::from_secs(3);

pub(super) async fn run(
    global: &Global,
    config: Config,
    listen: SocketAddr,
    week: Option<WeekKey>,
) -> anyhow::Result<Exit> {
    let shutdown = Shutdown::new();
    shutdown.listen(GRACE).context("watching for signals")?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let listen = listener.local_addr().context("asking for our own address")?;
    let named = || session::variable("DIGESTD_CONFIG").map(PathBuf::from);
    let path = global.config.clone().or_else(named);
    let stamp = stamp(path.as_deref(), config.templates_dir.as_deref());
    let opened = Opened::new(config).await?;
    let shelf = Arc::new(Previews { path, week, current: Mutex::new((stamp, Arc::new(opened))) });
    out::data(format_args!("open http://{listen}/ in a browser; Ctrl-C ends it"));
    if !listen.ip().is_loopback() {
        out::note("note: whoever reaches this address can read the digests of all orgs");
    }
    viewer::serve(listener, shelf, shutdown.soft.clone()).await.context("serving the page")?;
    Ok(Exit::Ok)
}

/// The digests of all orgs, by the configuration and templates as they are now.
struct Previews {
    path: Option<PathBuf>,
    week: Option<WeekKey>,
    /// With the state of the files that it was made of.
    current: Mutex<(u64, Arc<Opened>)>,
}

/// A configuration and what it opens.
struct Opened {
    config: Config,
    store: Store,
    source: Source,
}

impl Opened {
    async fn new(config: Config) -> anyhow::Result<Self> {
        let store = session::open_untouched(&config).await?;
        let source = app::source_of(&config, &store)?;
        Ok(Self { config, store, source })
    }
}

impl Previews {
    /// What is configured now: read again if a file has changed since.
    async fn opened(&self) -> anyhow::Result<Arc<Opened>> {
        let mut current = self.current.lock().await;
        let now = stamp(self.path.as_deref(), current.1.config.templates_dir.as_deref());
        if current.0 != now {
            let config = Config::load(self.path.as_deref(), session::environment())?;
            let opened = Opened::new(config).await?;
            let old = std::mem::replace(&mut *current, (now, Arc::new(opened)));
            old.1.source.close().await;
            old.1.store.close().await;
        }
        Ok(Arc::clone(&current.1))
    }

    async fn find(&self, wanted: &str) -> anyhow::Result<List> {
        let opened = self.opened().await?;
        let wanted = wanted.to_lowercase();
        let mut list = List::default();
        let mut candidates = opened.source.candidates(None).await?;
        while let Some(page) = candidates.next_page(PAGE).await? {
            let orgs: Vec<_> = page.iter().map(|candidate| &candidate.org).collect();
            let names = opened.source.names(&orgs).await?;
            for candidate in &page {
                let entry = entry(candidate, names.get(&candidate.org));
                let words = format!("{} {} {}", entry.id, entry.title, entry.detail).to_lowercase();
                if !words.contains(&wanted) {
                    continue;
                }
                if list.entries.len() == LISTED {
                    list.more = true;
                    return Ok(list);
                }
                list.entries.push(entry);
            }
        }
        Ok(list)
    }

    async fn make(&self, choice: &Choice) -> anyhow::Result<Mail> {
        let opened = self.opened().await?;
        let Opened { config, store, source } = &*opened;
        let found = OrgWeek::find(config, store, source, &choice.id, self.week).await?;
        let input = gather(source, &found).await?;
        let mut reader = choose(&input, Some(choice.reader.as_str()).filter(|reader| !reader.is_empty()))?;
        if !choice.locale.is_empty() {
            reader.locale = Some(choice.locale.clone());
        }
        let previewed = render(config, &input, &reader, &found)?;
        let address = |recipient: &crate::domain::digest::Recipient| {
            recipient.address.as_ref().ok().map(Address::normal).map(str::to_owned)
        };
        let templates = Templates::load(config.templates_dir.as_deref())?;
        Ok(Mail {
            bytes: previewed.eml,
            readers: input.recipients.iter().filter_map(address).collect(),
            locales: templates.languages().into_iter().map(str::to_owned).collect(),
        })
    }
}

impl Shelf for Previews {
    fn title(&self) -> String {
        "Preview".to_owned()
    }

    fn list<'a>(&'a self, wanted: &'a str) -> BoxFuture<'a, Result<List, ShelfError>> {
        async { self.find(wanted).await.map_err(|error| told(&error)) }.boxed()
    }

    fn mail<'a>(&'a self, choice: &'a Choice) -> BoxFuture<'a, Result<Option<Mail>, ShelfError>> {
        async { self.make(choice).await.map(Some).map_err(|error| told(&error)) }.boxed()
    }

    fn version(&self) -> BoxFuture<'_, u64> {
        async {
            let current = self.current.lock().await;
            stamp(self.path.as_deref(), current.1.config.templates_dir.as_deref())
        }
        .boxed()
    }
}

fn entry(candidate: &Candidate, name: Option<&String>) -> Entry {
    let id = candidate.org.as_str().to_owned();
    let when = match &candidate.schedule {
        Ok(schedule) => {
            format!("{} {} {}", schedule.weekday, schedule.time.format("%H:%M"), schedule.zone.name())
        }
        Err(error) => error.to_string(),
    };
    let title = name.cloned().unwrap_or_else(|| id.clone());
    Entry { detail: format!("{id} · {when}"), title, id }
}

/// An error with its causes: whoever sees the page wrote the template or the query.
fn told(error: &anyhow::Error) -> ShelfError {
    ShelfError(error.chain().map(ToString::to_string).collect::<Vec<_>>().join(":\n"))
}

/// Changes with the configuration's file and with whatever lies in the folder of the templates.
fn stamp(config: Option<&Path>, templates: Option<&Path>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut look = |path: &Path| {
        if let Ok(about) = fs::metadata(path) {
            (path, about.len(), about.modified().ok()).hash(&mut hasher);
        }
    };
    if let Some(path) = config {
        look(path);
    }
    let files = templates.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    let mut files: Vec<PathBuf> = files.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    for path in &files {
        look(path);
    }
    // Fits a JavaScript number and an attribute alike.
    hasher.finish() >> 12
}
