//! How fast messages leave: the hand-over path alone, against Debian's `smtp-sink`, beside Debian's
//! `smtp-source` in the same run.
//!
//! ```text
//! cargo bench --bench hand_over -- [FOLDER OF smtp-sink AND smtp-source]
//! ```
//!
//! Each figure is the median of several rounds in which both clients take turns.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run may say so bluntly")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use digestd::domain::address::Address;
use digestd::domain::ids::OrgId;
use digestd::domain::message::MessageUid;
use digestd::domain::reply::HandOver;
use digestd::domain::week::SendKey;
use digestd::mail::transport::{SmtpRelay, SmtpSettings, TlsMode, Transport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const ROUNDS: usize = 5;
const HOLD: Duration = Duration::from_millis(20);

fn main() {
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or("/usr/sbin".into());
    let folder = PathBuf::from(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let port = free_port();
    let sink = Sink::start(&folder, port);
    let slow_port = runtime.block_on(slow_proxy(port));
    println!("{:<22} {:>12} {:>12} {:>7}", "8 KB, messages/s", "digestd", "smtp-source", "ratio");
    for (name, port, connections, messages) in [
        ("fast, 8 connections", port, 8, 20_000),
        ("fast, 32 connections", port, 32, 20_000),
        ("20 ms, 8 connections", slow_port, 8, 400),
        ("20 ms, 32 connections", slow_port, 32, 1600),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(runtime.block_on(digestd(port, connections, messages)));
            theirs.push(smtp_source(&folder, port, connections, messages));
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!("{name:<22} {ours:>12.0} {theirs:>12.0} {:>7.2}", ours / theirs);
    }
    drop(sink);
}

async fn digestd(port: u16, connections: usize, messages: usize) -> f64 {
    let mut settings = SmtpSettings::new("127.0.0.1", port, TlsMode::Plaintext);
    settings.max_messages_per_connection = u32::MAX;
    let transport = Transport::Smtp(SmtpRelay::new(settings).unwrap());
    let body = b"Subject: bench\r\n\r\n"
        .iter()
        .copied()
        .chain(b"sixty-two characters of text, and then the end of the line..\r\n".repeat(128));
    let body: Vec<u8> = body.take(8 * 1024 - 2).chain(*b"\r\n").collect();
    let started = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (transport, body) = (transport.clone(), body.clone());
            tokio::spawn(async move {
                let (from, to) = (Address::parse("a@x.org").unwrap(), Address::parse("b@x.org").unwrap());
                let uid = MessageUid::derive(
                    &OrgId::parse("acme").unwrap(),
                    SendKey::parse("2026-W28").unwrap(),
                    to.normal(),
                );
                let mut connection = transport.connect().await.unwrap();
                for _ in 0..messages / connections {
                    connection.envelope(&from, &to, body.len()).await.unwrap();
                    let outcome = connection.body(&body, &uid).await;
                    assert!(matches!(outcome, HandOver::Accepted(_)), "{outcome:?}");
                }
                connection.quit().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    rate(messages, started)
}

fn smtp_source(folder: &Path, port: u16, connections: usize, messages: usize) -> f64 {
    let started = Instant::now();
    let status = tool(folder, "smtp-source")
        .args(["-d", "-s", &connections.to_string(), "-m", &messages.to_string(), "-l", "8192"])
        .args(["-f", "a@x.org", "-t", "b@x.org", &format!("127.0.0.1:{port}")])
        .status()
        .unwrap();
    assert!(status.success());
    rate(messages, started)
}

#[expect(clippy::cast_precision_loss, reason = "some thousands of messages")]
fn rate(messages: usize, started: Instant) -> f64 {
    messages as f64 / started.elapsed().as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A tool of Debian's postfix package, installed or merely unpacked.
fn tool(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(folder.join(name));
    command.env("LD_LIBRARY_PATH", folder.join("../lib/postfix"));
    command
}

struct Sink(Child);

impl Sink {
    fn start(folder: &Path, port: u16) -> Self {
        let mut command = tool(folder, "smtp-sink");
        let user: &[&str] = if folder == Path::new("/usr/sbin") { &[] } else { &["-u", "nobody"] };
        let child = command
            .args(user)
            .args([&format!("127.0.0.1:{port}"), "256"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sink = Self(child);
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "smtp-sink does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        sink
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Passes everything on, the relay's words 20 ms later.
async fn slow_proxy(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let relay = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                client.set_nodelay(true).unwrap();
                relay.set_nodelay(true).unwrap();
                pass(client, relay).await;
            });
        }
    });
    own
}

async fn pass(client: TcpStream, relay: TcpStream) {
    let (mut client_read, mut client_write) = client.into_split();
    let (mut relay_read, mut relay_write) = relay.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut client_read, &mut relay_write).await });
    let (sender, mut receiver) = mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut room = [0; 4096];
        while let Ok(n @ 1..) = relay_read.read(&mut room).await {
            if sender.send((tokio::time::Instant::now() + HOLD, room[..n].to_vec())).is_err() {
                break;
            }
        }
    });
    while let Some((due, bytes)) = receiver.recv().await {
        tokio::time::sleep_until(due).await;
        if client_write.write_all(&bytes).await.is_err() {
            break;
        }
    }
}
