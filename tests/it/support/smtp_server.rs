//! A scripted SMTP server: real sockets, and exactly the misbehaviour that a test asks for.
//!
//! ```ignore
//! let relay = SmtpServer::start(
//!     Script::new()
//!         .offer("PIPELINING")
//!         .times(2, At::Rcpt, [Act::reply("450 4.2.0 come back later")])
//!         .to("gone@x.org", At::Rcpt, [Act::reply("550 5.1.1 no such user")])
//!         .always(At::Dot, [Act::Accept, Act::Close]),
//! )
//! .await;
//! // … point a client at relay.port() …
//! assert_eq!(relay.accepted().len(), 1);
//! ```
//!
//! The server counts a transaction as accepted when it takes the responsibility for it: at
//! [`Act::Accept`], at a scripted answer to the dot that begins with 2, or by default. That
//! count, not what the client believes, is what tests compare the ledger with.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::certs::{Certs, Flaw};

/// A moment of the dialogue at which the script may step in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    /// Right after the TCP connection, before anything is read or written, TLS included.
    Connect,
    /// The greeting.
    Greeting,
    /// The answer to EHLO.
    Ehlo,
    /// The answer to STARTTLS; the handshake follows if the answer begins with 2.
    StartTls,
    /// The answer to AUTH.
    Auth,
    /// The answer to MAIL.
    Mail,
    /// The answer to RCPT.
    Rcpt,
    /// The answer to DATA; the body follows if it begins with 3.
    Data,
    /// After the 354, before the body is read.
    Body,
    /// The whole body with its dot was read: the answer to it.
    Dot,
    /// The answer to RSET.
    Rset,
    /// The answer to QUIT.
    Quit,
}

/// What the script does then. A list of these is done in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// What a well-behaved server would do here.
    Normal,
    /// Writes exactly these bytes.
    Raw(Vec<u8>),
    /// Writes these bytes one by one, each after a pause.
    Trickle(Vec<u8>, Duration),
    /// Waits.
    Delay(Duration),
    /// Reads this many bytes and forgets them.
    Read(usize),
    /// Takes the message and says nothing.
    Accept,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Says nothing any more, and keeps the connection.
    Hang,
}

impl Act {
    /// One line, with its CRLF.
    pub fn reply(line: &str) -> Self {
        Self::Raw(format!("{line}\r\n").into_bytes())
    }
}

/// Where the server speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerTls {
    /// Nowhere.
    #[default]
    None,
    /// From the first byte.
    Implicit,
    /// After STARTTLS, which it offers.
    StartTls,
}

#[derive(Debug)]
struct Rule {
    at: At,
    acts: Vec<Act>,
    /// How often it may still apply; `None` for always.
    left: Option<usize>,
    /// Only in transactions to this address.
    to: Option<String>,
}

/// Decides what to do at a moment of the transaction to an address; `None` leaves it to the rules.
pub type Mood = Box<dyn FnMut(At, &str) -> Option<Vec<Act>> + Send>;

/// What a server does. Its mood comes first, then the rules in the order in which they were added.
#[derive(Default)]
pub struct Script {
    mood: Option<Mood>,
    rules: Vec<Rule>,
    offers: Vec<String>,
    tls: ServerTls,
    flaw: Flaw,
    client_certificate: bool,
    login: Option<(String, String)>,
    mechanisms: Option<String>,
    /// After so many messages a connection's next MAIL is answered 421.
    per_connection: Option<usize>,
}

impl Script {
    /// A well-behaved server without extensions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers an extension in the answer to EHLO.
    pub fn offer(mut self, extension: &str) -> Self {
        self.offers.push(extension.to_owned());
        self
    }

    /// Speaks TLS.
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = tls;
        self
    }

    /// Speaks TLS with a certificate that something is wrong with.
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = flaw;
        self
    }

    /// Asks for a client certificate.
    pub fn client_certificate(mut self) -> Self {
        self.client_certificate = true;
        self
    }

    /// Offers AUTH PLAIN and LOGIN, wants this login, and refuses MAIL without it.
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Offers these for the login, and no other.
    pub fn mechanisms(mut self, mechanisms: &str) -> Self {
        self.mechanisms = Some(mechanisms.to_owned());
        self
    }

    /// Asks this at every moment.
    pub fn mood(mut self, mood: impl FnMut(At, &str) -> Option<Vec<Act>> + Send + 'static) -> Self {
        self.mood = Some(Box::new(mood));
        self
    }

    /// Takes so many messages on one connection, then says 421 to MAIL and closes.
    pub fn per_connection(mut self, messages: usize) -> Self {
        self.per_connection = Some(messages);
        self
    }

    /// Does this every time.
    pub fn always(self, at: At, acts: impl Into<Vec<Act>>) -> Self {
        self.rule(at, acts, None, None)
    }

    /// Does this the first `n` times, over all connections.
    pub fn times(self, n: usize, at: At, acts: impl Into<Vec<Act>>) -> Self {
        self.rule(at, acts, Some(n), None)
    }

    /// Does this in transactions to one address.
    pub fn to(self, address: &str, at: At, acts: impl Into<Vec<Act>>) -> Self {
        self.rule(at, acts, None, Some(address))
    }

    fn rule(mut self, at: At, acts: impl Into<Vec<Act>>, left: Option<usize>, to: Option<&str>) -> Self {
        self.rules.push(Rule { at, acts: acts.into(), left, to: to.map(str::to_owned) });
        self
    }
}

/// A transaction that the server took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The reverse path, without brackets.
    pub from: String,
    /// The recipient, without brackets.
    pub to: String,
    /// The message as it was meant: without the dot and without dot-stuffing.
    pub data: Vec<u8>,
    /// The connection's number, from 0.
    pub connection: usize,
}

#[derive(Default)]
struct Seen {
    accepted: Vec<Accepted>,
    commands: Vec<String>,
    chunks: Vec<Vec<u8>>,
    connections: usize,
    open: usize,
    most_open: usize,
}

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Seen>,
    acceptor: Option<TlsAcceptor>,
}

/// A running server; it ends with all its connections when it is dropped.
pub struct SmtpServer {
    addr: SocketAddr,
    certs: Option<Certs>,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SmtpServer {
    /// Listens on a free port of 127.0.0.1 and serves by the script.
    pub async fn start(script: Script) -> Self {
        Self::start_on("127.0.0.1:0", script).await
    }

    /// The same on a given address, for a relay that goes away and comes back.
    pub async fn start_on(addr: &str, script: Script) -> Self {
        let certs = (script.tls != ServerTls::None).then(|| Certs::new(script.flaw));
        let acceptor = certs.as_ref().map(|certs| acceptor(certs, script.client_certificate));
        let shared = Arc::new(Shared { script: Mutex::new(script), seen: Mutex::default(), acceptor });
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self { addr, certs, shared, task }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// The certificates of a server that speaks TLS.
    pub fn certs(&self) -> &Certs {
        self.certs.as_ref().expect("only a server that speaks TLS has certificates")
    }

    /// Gives the server another script; open connections follow it from their next step on.
    /// What concerns TLS stays as it was.
    pub fn rescript(&self, script: Script) {
        *self.shared.script.lock().unwrap() = script;
    }

    /// What it took, in order.
    pub fn accepted(&self) -> Vec<Accepted> {
        self.shared.seen.lock().unwrap().accepted.clone()
    }

    /// What it took since it was asked last; forgets that and everything read.
    pub fn take_accepted(&self) -> Vec<Accepted> {
        let mut seen = self.shared.seen.lock().unwrap();
        seen.commands.clear();
        seen.chunks.clear();
        std::mem::take(&mut seen.accepted)
    }

    /// Every command line read, in order, over all connections; AUTH without its argument.
    pub fn commands(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().commands.clone()
    }

    /// What each read from a socket returned: shows what the client wrote at once.
    pub fn chunks(&self) -> Vec<Vec<u8>> {
        self.shared.seen.lock().unwrap().chunks.clone()
    }

    /// How many connections were ever made.
    pub fn connections(&self) -> usize {
        self.shared.seen.lock().unwrap().connections
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.shared.seen.lock().unwrap().open
    }

    /// How many connections were open at once, at most.
    pub fn most_open(&self) -> usize {
        self.shared.seen.lock().unwrap().most_open
    }

    /// Waits until the fact holds, at most for the time given; panics after it.
    pub async fn wait(&self, limit: Duration, what: &str, fact: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !fact(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(limit, waiting).await.is_ok(), "not within {limit:?}: {what}");
    }
}

fn acceptor(certs: &Certs, client_certificate: bool) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(certs.server.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certs.server_key.as_bytes()).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if client_certificate {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certs.ca.as_bytes()).unwrap()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        tcp.set_nodelay(true).ok();
        let number = {
            let mut seen = shared.seen.lock().unwrap();
            seen.connections += 1;
            seen.open += 1;
            seen.most_open = seen.most_open.max(seen.open);
            seen.connections - 1
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let peer = Peer::new(Box::new(tcp), number, Arc::clone(&shared));
            // A client that goes away is what many tests are about.
            let _ = peer.serve().await;
            shared.seen.lock().unwrap().open -= 1;
        });
        while connections.try_join_next().is_some() {}
    }
}

trait Wire: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    fn tcp(&self) -> &TcpStream;
    fn into_tcp(self: Box<Self>) -> Option<TcpStream>;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
    fn into_tcp(self: Box<Self>) -> Option<TcpStream> {
        Some(*self)
    }
}

impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
    fn into_tcp(self: Box<Self>) -> Option<TcpStream> {
        None
    }
}

/// Whether the dialogue goes on, and the first byte that was answered.
enum Flow {
    On(Option<u8>),
    End,
}

struct Peer {
    wire: Box<dyn Wire>,
    buffer: Vec<u8>,
    number: usize,
    shared: Arc<Shared>,
    encrypted: bool,
    logged_in: bool,
    from: String,
    to: String,
    taken: usize,
}

impl Peer {
    fn new(wire: Box<dyn Wire>, number: usize, shared: Arc<Shared>) -> Self {
        let (from, to) = (String::new(), String::new());
        let (buffer, taken) = (Vec::new(), 0);
        Self { wire, buffer, number, shared, encrypted: false, logged_in: false, from, to, taken }
    }

    async fn serve(mut self) -> io::Result<()> {
        if let Flow::End = self.step(At::Connect, "").await? {
            return Ok(());
        }
        let implicit = self.shared.script.lock().unwrap().tls == ServerTls::Implicit;
        if implicit {
            self = self.handshake().await?;
        }
        if let Flow::End = self.step(At::Greeting, "220 relay.test ESMTP").await? {
            return Ok(());
        }
        loop {
            let Some(line) = self.line().await? else { return Ok(()) };
            let verb = line.split([' ', ':']).next().unwrap_or("").to_ascii_uppercase();
            let flow = match verb.as_str() {
                "EHLO" | "HELO" => self.ehlo().await?,
                "STARTTLS" => match self.step(At::StartTls, "220 go ahead").await? {
                    Flow::On(Some(b'2')) => {
                        self = self.handshake().await?;
                        Flow::On(None)
                    }
                    flow => flow,
                },
                "AUTH" => self.auth(&line).await?,
                "MAIL" => self.mail(&line).await?,
                "RCPT" => self.rcpt(&line).await?,
                "DATA" => self.data().await?,
                "RSET" => {
                    self.from.clear();
                    self.to.clear();
                    self.step(At::Rset, "250 2.0.0 forgotten").await?
                }
                "QUIT" => {
                    self.step(At::Quit, "221 2.0.0 bye").await?;
                    Flow::End
                }
                _ => {
                    self.write(b"500 5.5.2 what?\r\n").await?;
                    Flow::On(None)
                }
            };
            if let Flow::End = flow {
                return Ok(());
            }
        }
    }

    async fn handshake(mut self) -> io::Result<Self> {
        let acceptor = self.shared.acceptor.clone().ok_or(io::ErrorKind::Unsupported)?;
        let tcp = self.wire.into_tcp().ok_or(io::ErrorKind::Unsupported)?;
        self.wire = Box::new(acceptor.accept(tcp).await?);
        self.buffer.clear();
        self.encrypted = true;
        Ok(self)
    }

    async fn ehlo(&mut self) -> io::Result<Flow> {
        let reply = {
            let script = self.shared.script.lock().unwrap();
            let mut lines = vec!["relay.test".to_owned()];
            lines.extend(script.offers.iter().cloned());
            if script.tls == ServerTls::StartTls && !self.encrypted {
                lines.push("STARTTLS".to_owned());
            }
            if script.login.is_some() {
                lines.push(format!("AUTH {}", script.mechanisms.as_deref().unwrap_or("PLAIN LOGIN")));
            }
            let last = lines.len() - 1;
            let line =
                |(i, text): (usize, &String)| format!("250{}{text}", if i == last { ' ' } else { '-' });
            lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\r\n")
        };
        self.step(At::Ehlo, &reply).await
    }

    async fn auth(&mut self, line: &str) -> io::Result<Flow> {
        let mut words = line.split(' ').skip(1);
        let mechanism = words.next().unwrap_or("").to_ascii_uppercase();
        let decode = |text: &str| String::from_utf8(BASE64.decode(text.trim()).unwrap_or_default());
        let given = match (mechanism.as_str(), words.next()) {
            ("PLAIN", Some(initial)) => {
                let text = decode(initial).unwrap_or_default();
                let mut parts = text.split('\0').skip(1).map(str::to_owned);
                Some((parts.next().unwrap_or_default(), parts.next().unwrap_or_default()))
            }
            ("LOGIN", None) => {
                self.write(b"334 VXNlcm5hbWU6\r\n").await?;
                let user = self.line().await?.unwrap_or_default();
                self.write(b"334 UGFzc3dvcmQ6\r\n").await?;
                let password = self.line().await?.unwrap_or_default();
                Some((decode(&user).unwrap_or_default(), decode(&password).unwrap_or_default()))
            }
            _ => None,
        };
        let right = given.is_some() && given == self.shared.script.lock().unwrap().login;
        let normal = if right { "235 2.7.0 welcome" } else { "535 5.7.8 wrong user or password" };
        let flow = self.step(At::Auth, normal).await?;
        self.logged_in = matches!(flow, Flow::On(Some(b'2')));
        Ok(flow)
    }

    async fn mail(&mut self, line: &str) -> io::Result<Flow> {
        let limit = self.shared.script.lock().unwrap().per_connection;
        if limit.is_some_and(|limit| self.taken >= limit) {
            return self
                .play(&[Act::reply("421 4.7.0 too many messages on this connection"), Act::Close], "")
                .await;
        }
        let wants_login = self.shared.script.lock().unwrap().login.is_some();
        let normal = match (wants_login && !self.logged_in, self.from.is_empty()) {
            (true, _) => "530 5.7.0 log in first",
            (false, false) => "503 5.5.1 a transaction is open",
            (false, true) => "250 2.1.0 sender ok",
        };
        let flow = self.step(At::Mail, normal).await?;
        if let Flow::On(Some(b'2')) = flow {
            self.from = path(line);
        }
        Ok(flow)
    }

    async fn rcpt(&mut self, line: &str) -> io::Result<Flow> {
        let asked = path(line);
        let before = std::mem::replace(&mut self.to, asked);
        let normal = if self.from.is_empty() { "503 5.5.1 MAIL first" } else { "250 2.1.5 recipient ok" };
        let flow = self.step(At::Rcpt, normal).await?;
        if !matches!(flow, Flow::On(Some(b'2'))) {
            self.to = before;
        }
        Ok(flow)
    }

    async fn data(&mut self) -> io::Result<Flow> {
        let ready = !self.from.is_empty() && !self.to.is_empty();
        let normal = if ready { "354 go ahead" } else { "503 5.5.1 no valid recipients" };
        let flow = self.step(At::Data, normal).await?;
        if !matches!(flow, Flow::On(Some(b'3'))) {
            return Ok(flow);
        }
        if let Flow::End = self.step(At::Body, "").await? {
            return Ok(Flow::End);
        }
        let Some(data) = self.body().await? else { return Ok(Flow::End) };
        let valid = !self.from.is_empty() && !self.to.is_empty();
        let transaction = Accepted {
            from: std::mem::take(&mut self.from),
            to: self.to.clone(),
            data,
            connection: self.number,
        };
        let normal = if valid { "250 2.0.0 queued as 4XyZ" } else { "554 5.5.1 no valid recipients" };
        let acts = self.acts(At::Dot);
        let takes = |act: &Act| match act {
            Act::Normal => valid,
            Act::Accept => true,
            Act::Raw(bytes) | Act::Trickle(bytes, _) => bytes.first() == Some(&b'2'),
            _ => false,
        };
        if acts.iter().any(takes) {
            self.taken += 1;
            self.shared.seen.lock().unwrap().accepted.push(transaction);
        }
        self.to.clear();
        self.play(&acts, normal).await
    }

    async fn step(&mut self, at: At, normal: &str) -> io::Result<Flow> {
        let acts = self.acts(at);
        self.play(&acts, normal).await
    }

    /// The first rule that applies; without one, what is normal.
    fn acts(&self, at: At) -> Vec<Act> {
        let mut script = self.shared.script.lock().unwrap();
        let to = self.to.as_str();
        if let Some(acts) = script.mood.as_mut().and_then(|mood| mood(at, to)) {
            return acts;
        }
        let applies = |rule: &&mut Rule| {
            rule.at == at && rule.left != Some(0) && rule.to.as_deref().is_none_or(|only| only == to)
        };
        match script.rules.iter_mut().find(applies) {
            Some(rule) => {
                rule.left = rule.left.map(|left| left - 1);
                rule.acts.clone()
            }
            None => vec![Act::Normal],
        }
    }

    async fn play(&mut self, acts: &[Act], normal: &str) -> io::Result<Flow> {
        let mut first = None;
        for act in acts {
            match act {
                Act::Normal if normal.is_empty() => {}
                Act::Normal => {
                    first = first.or(normal.bytes().next());
                    self.write(format!("{normal}\r\n").as_bytes()).await?;
                }
                Act::Raw(bytes) => {
                    first = first.or(bytes.first().copied());
                    self.write(bytes).await?;
                }
                Act::Trickle(bytes, pause) => {
                    first = first.or(bytes.first().copied());
                    for byte in bytes {
                        tokio::time::sleep(*pause).await;
                        self.write(&[*byte]).await?;
                    }
                }
                Act::Delay(time) => tokio::time::sleep(*time).await,
                Act::Read(wanted) => self.skip(*wanted).await?,
                Act::Accept => {}
                Act::Close => {
                    self.wire.shutdown().await.ok();
                    return Ok(Flow::End);
                }
                Act::Reset => {
                    socket2::SockRef::from(self.wire.tcp()).set_linger(Some(Duration::ZERO))?;
                    return Ok(Flow::End);
                }
                Act::Hang => std::future::pending().await,
            }
        }
        Ok(Flow::On(first))
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes).await?;
        self.wire.flush().await
    }

    /// Reads more; `false` at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = vec![0; 64 * 1024];
        let n = self.wire.read(&mut chunk).await?;
        chunk.truncate(n);
        self.buffer.extend_from_slice(&chunk);
        if n > 0 {
            self.shared.seen.lock().unwrap().chunks.push(chunk);
        }
        Ok(n > 0)
    }

    async fn skip(&mut self, wanted: usize) -> io::Result<()> {
        while self.buffer.len() < wanted && self.fill().await? {}
        self.buffer.drain(..wanted.min(self.buffer.len()));
        Ok(())
    }

    /// A command line without its CRLF; `None` at the end.
    async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).take(end).collect();
                let line = String::from_utf8_lossy(&line).into_owned();
                let shown = if line.to_ascii_uppercase().starts_with("AUTH ") { "AUTH" } else { &line };
                self.shared.seen.lock().unwrap().commands.push(shown.to_owned());
                return Ok(Some(line));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// The body without its dot and dot-stuffing; `None` if the client went away in it.
    async fn body(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            // A body of nothing but the dot has no CRLF before it.
            let end = if self.buffer.starts_with(b".\r\n") {
                Some((0, 3))
            } else {
                find(&self.buffer[searched..], b"\r\n.\r\n").map(|at| (searched + at + 2, searched + at + 5))
            };
            if let Some((end, rest)) = end {
                let stuffed: Vec<u8> = self.buffer.drain(..rest).take(end).collect();
                return Ok(Some(unstuff(&stuffed)));
            }
            searched = self.buffer.len().saturating_sub(4);
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }
}

/// What stands between the first pair of angle brackets.
fn path(line: &str) -> String {
    let inner = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or("", |(path, _)| path).to_owned()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn unstuff(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
    }
    out
}
