//! Debian's `smtp-sink` and `smtp-source`, and a proxy that holds the relay's words.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::figures::rate;
use crate::world::variable;

/// How long the proxy holds each word of the relay.
const HOLD: Duration = Duration::from_millis(20);

/// A sink that takes everything, for as long as this value lives.
pub struct Sink {
    child: Child,
    pub port: u16,
}

impl Sink {
    pub fn start() -> Self {
        let port = free_port();
        let mut command = tool("smtp-sink");
        let installed = folder().as_path() == Path::new("/usr/sbin");
        let user: &[&str] = if installed { &[] } else { &["-u", "nobody"] };
        let child = command
            .args(user)
            .args([&format!("127.0.0.1:{port}"), "256"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sink = Self { child, port };
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "smtp-sink does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        sink
    }
}

impl Sink {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Messages a second of the reference client: connections that stay open, 8 KB each.
pub async fn smtp_source(port: u16, connections: usize, messages: usize) -> f64 {
    let started = Instant::now();
    let mut command = tool("smtp-source");
    command.args(["-d", "-s", &connections.to_string(), "-m", &messages.to_string(), "-l", "8192"]).args([
        "-f",
        "a@x.org",
        "-t",
        "b@x.org",
        &format!("127.0.0.1:{port}"),
    ]);
    // Waiting for it must not hold up the proxy between the two.
    let status = tokio::process::Command::from(command).status().await.unwrap();
    assert!(status.success());
    rate(messages, started)
}

fn folder() -> PathBuf {
    variable("DIGESTD_BENCH_POSTFIX")
        .map_or_else(|| "/usr/sbin".into(), |above| PathBuf::from(above).join("sbin"))
}

/// A tool of Debian's postfix package, installed or merely unpacked.
fn tool(name: &str) -> Command {
    let folder = folder();
    let mut command = Command::new(folder.join(name));
    command.env("LD_LIBRARY_PATH", folder.join("../lib/postfix"));
    command
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Passes everything on, the relay's words 20 ms later.
pub async fn slow_proxy(port: u16) -> u16 {
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
