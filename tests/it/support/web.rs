//! The HTTP server of the daemon in this process, and a client that says exactly what it is told to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use digestd::domain::address::Address;
use digestd::domain::ids::OrgId;
use digestd::domain::token::{KeyRing, Scope, SubscriptionRef};
use digestd::http::{Doors, HttpState, PageSettings, serve};
use digestd::metrics::Metrics;
use digestd::progress::Progress;
use digestd::store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server that stops when this is dropped.
pub struct Web {
    pub address: SocketAddr,
    pub keys: KeyRing,
    pub metrics: Metrics,
    pub progress: Progress,
    stop: CancellationToken,
    served: JoinHandle<io::Result<()>>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Web {
    pub async fn start(store: &Store) -> Self {
        Self::start_with(store, Doors::default()).await
    }

    /// With what is served to those who know a token.
    pub async fn start_with(store: &Store, doors: Doors) -> Self {
        let keys = KeyRing::new(&["k".repeat(32).into()]).expect("a key");
        let (metrics, progress) = (Metrics::new(), Progress::new());
        let settings = PageSettings {
            product: "Acme Weekly".to_owned(),
            settings_url: None,
            public_url: "https://www.acme.example/weekly/mail".to_owned(),
        };
        let state =
            HttpState::new(store.clone(), keys.clone(), metrics.clone(), progress.clone(), settings, doors);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(listener, state, stop.clone()));
        Self { address, keys, metrics, progress, stop, served }
    }

    /// Stops it and waits until it has.
    pub async fn stop(&mut self, within: Duration) {
        self.stop.cancel();
        let ended = tokio::time::timeout(within, &mut self.served).await.expect("an end in time");
        ended.expect("no panic").expect("no error");
    }

    /// The path of a link that the daemon would put into a mail.
    pub fn path(&self, org: &str, address: &str, scope: Scope) -> String {
        let org = OrgId::parse(org).expect("an id");
        let address = Address::parse(address).expect("an address");
        self.keys.sign(SubscriptionRef::derive(&org, address.normal()), scope).link("")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"").await
    }

    /// Posts a form of a browser.
    pub async fn post(&self, path: &str, form: &str) -> Answer {
        self.ask("POST", path, &[("content-type", "application/x-www-form-urlencoded")], form.as_bytes())
            .await
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").expect("a String");
        }
        write!(request, "content-length: {}\r\n\r\n", body.len()).expect("a String");
        let mut bytes = request.into_bytes();
        bytes.extend(body);
        self.raw(&bytes).await.expect("an answer")
    }

    /// Writes bytes, reads to the end. `None` where the server closed without a word.
    pub async fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        exchange(self.address, bytes).await
    }
}

/// An address for a server in another process. Free a moment ago; nobody else on this host asks for this
/// very port.
pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port")
}

/// One GET from a server in another process.
pub async fn get(address: SocketAddr, path: &str) -> Answer {
    ask_as(address, &address.to_string(), path).await
}

/// The same by whatever name.
pub async fn ask_as(address: SocketAddr, host: &str, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).await.expect("an answer")
}

async fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // A server may answer before it has read everything, and close.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    parse(&String::from_utf8_lossy(&answer))
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Answer { status, headers, body: body.to_owned() })
}
