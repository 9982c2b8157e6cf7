//! A small, real SMTP server that keeps every mail in a folder: the demo's inbox and `digestd inbox`.
//!
//! It speaks RFC 5321 with PIPELINING, SIZE, 8BITMIME and SMTPUTF8, over plain TCP. It delivers nothing
//! onward. It counts what it accepted per recipient and `X-Digestd-Id`, so that a mail sent twice is seen.

mod files;
mod session;
mod shelf;

pub use files::write_index;
pub use shelf::InboxShelf;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::http::viewer::mime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// More connections than this wait in the listen queue.
const MAX_CONNECTIONS: usize = 256;

/// How long a stopping inbox waits for transactions that have begun.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Why an inbox could not open.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The address is taken or not ours.
    #[error("could not listen for mail on {addr}")]
    Bind {
        /// Where it wanted to listen.
        addr: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The folder can't be made or read.
    #[error("could not use {} for mails", path.display())]
    Folder {
        /// The folder asked for.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// What an inbox has accepted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InboxReport {
    /// Accepted transactions.
    pub messages: usize,
    /// Distinct addresses that got mail.
    pub recipients: usize,
    /// Mails that an address had already got, by `X-Digestd-Id`.
    pub duplicates: usize,
}

/// A listening inbox. [`Inbox::run`] serves it; the counts can be read meanwhile.
#[derive(Debug)]
pub struct Inbox {
    listener: TcpListener,
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Inbox {
    /// Listens on `addr` (port 0: any free one) and keeps mails in `folder`, which is made if missing.
    /// Numbers go on after the mails that are there already.
    pub async fn bind(addr: SocketAddr, folder: &Path) -> Result<Self, InboxError> {
        let last = files::prepare(folder)
            .await
            .map_err(|source| InboxError::Folder { path: folder.to_owned(), source })?;
        let bind = async || {
            let listener = TcpListener::bind(addr).await?;
            let addr = listener.local_addr()?;
            Ok((listener, addr))
        };
        let (listener, addr) = bind().await.map_err(|source| InboxError::Bind { addr, source })?;
        Ok(Self { listener, addr, shared: Arc::new(Shared::new(folder.to_owned(), last)) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The counts now.
    pub fn snapshot(&self) -> InboxReport {
        *self.shared.report.borrow()
    }

    /// The counts as they change, for a progress bar.
    pub fn watch(&self) -> watch::Receiver<InboxReport> {
        self.shared.report.subscribe()
    }

    /// Serves until `stop`; transactions under way then have a short while to end.
    pub async fn run(&self, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut sessions = JoinSet::new();
        while let Some(stream) = self.next_connection(&stop).await {
            // Reaps the ended ones, so that the set holds open connections only.
            while sessions.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
            let (shared, stop) = (Arc::clone(&self.shared), stop.clone());
            sessions.spawn(async move {
                if let Err(error) = session::serve(stream, &shared, &stop).await {
                    tracing::debug!(error = %error, "a connection to the inbox broke");
                }
                drop(place);
            });
        }
        // Those that are not done by then are aborted with the set.
        drop(tokio::time::timeout(STOP_GRACE, async { while sessions.join_next().await.is_some() {} }).await);
    }

    async fn next_connection(&self, stop: &CancellationToken) -> Option<TcpStream> {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => return Some(stream),
                Err(error) => {
                    tracing::warn!(error = %error, "the inbox could not accept a connection");
                    // Out of file descriptors, most likely: asking again at once would only spin.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// A whole mail, as the client handed it over.
#[derive(Debug)]
struct Mail {
    to: Vec<String>,
    /// With its header, dots unstuffed.
    bytes: Vec<u8>,
}

/// What all connections write to.
#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    last: AtomicUsize,
    seen: Mutex<Seen>,
    report: watch::Sender<InboxReport>,
}

#[derive(Debug, Default)]
struct Seen {
    recipients: HashSet<String>,
    /// How often an address got the mail with an id.
    deliveries: HashMap<(String, String), usize>,
}

impl Shared {
    fn new(folder: PathBuf, last: usize) -> Self {
        Self {
            folder,
            last: AtomicUsize::new(last),
            seen: Mutex::default(),
            report: watch::Sender::new(InboxReport::default()),
        }
    }

    /// Writes the mail to the folder and only then counts it.
    async fn keep(&self, mail: Mail) -> io::Result<usize> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let id = mime::header(&mail.bytes, "X-Digestd-Id");
        files::save(&self.folder, number, id.as_deref(), mail.bytes).await?;
        self.count(&mail.to, id.as_deref());
        Ok(number)
    }

    fn count(&self, to: &[String], id: Option<&str>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut duplicates = 0;
        for address in to {
            let address = address.to_lowercase();
            seen.recipients.insert(address.clone());
            // A mail without an id can't be told from another.
            if let Some(id) = id {
                let times = seen.deliveries.entry((address, id.to_owned())).or_default();
                *times += 1;
                duplicates += usize::from(*times > 1);
            }
        }
        let recipients = seen.recipients.len();
        // Sent under the lock, so that the counts never go back.
        self.report.send_modify(|report| {
            report.messages += 1;
            report.recipients = recipients;
            report.duplicates += duplicates;
        });
    }
}
