//! A real `digestd run`, started with an environment of its own and ended with its value.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::relay::free_port;
use crate::world::variable;

pub struct Replica {
    child: Child,
    folder: TempDir,
    http: u16,
}

impl Replica {
    /// Starts one on a database and a relay, with more settings.
    pub fn start(database: &str, relay: &str, settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let http = free_port();
        let binary =
            variable("DIGESTD_BENCH_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_digestd").to_owned());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(binary);
        command
            .arg("run")
            .current_dir(folder.path())
            .env_clear()
            .env("DIGESTD__DATABASE__URL", database)
            .env("DIGESTD__RELAY__URL", relay)
            .env("DIGESTD__RELAY__FROM", "Digests <digests@example.org>")
            .env("DIGESTD__PUBLIC_URL", "https://digest.example.org")
            .env("DIGESTD__HTTP__LISTEN", format!("127.0.0.1:{http}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for (name, value) in settings {
            command.env(name, value);
        }
        Self { child: command.spawn().unwrap(), folder, http }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in megabytes, as the kernel counts it.
    pub fn resident_mb(&self) -> f64 {
        self.status_mb("VmRSS:")
    }

    /// The most that was resident since the start, in megabytes.
    pub fn peak_mb(&self) -> f64 {
        self.status_mb("VmHWM:")
    }

    fn status_mb(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    /// One of its metrics, by name and labels; zero where it has not counted anything.
    pub async fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).await.unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let line = answer.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// Panics with its log if it has ended.
    pub fn must_live(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            panic!("digestd has ended with {status}:\n{log}");
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
