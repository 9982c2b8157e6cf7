//! A real Redis on a free port of loopback, killed, frozen and started again at will.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Client, Connection};
use tempfile::TempDir;

use super::eventually;

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(20);

/// A running Redis; it ends with this value.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    keeps: bool,
    folder: TempDir,
    child: Option<Child>,
}

impl Redis {
    /// Starts one that forgets everything when it ends.
    pub async fn start() -> Self {
        Self::launch(false).await
    }

    /// Starts one that writes every command to its disk.
    pub async fn start_durable() -> Self {
        Self::launch(true).await
    }

    /// A port on which nothing listens: a Redis that has not been started yet.
    pub fn absent() -> Self {
        Self { port: free_port(), keeps: false, folder: folder(), child: None }
    }

    async fn launch(keeps: bool) -> Self {
        let mut redis = Self::absent();
        redis.keeps = keeps;
        redis.restart().await;
        redis
    }

    /// `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A plain connection, to look at what is in it.
    pub fn connection(&self) -> Connection {
        Client::open(self.url()).expect("a URL").get_connection().expect("a running server")
    }

    /// Starts it, on the same port and with what it has kept.
    pub async fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", if self.keeps { "yes" } else { "no" }, "--appendfsync", "always"])
            .args(["--dir", &path(self.folder.path())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server, from the Debian package of that name");
        self.child = Some(child);
        let client = Client::open(self.url()).expect("a URL");
        eventually("Redis answers", START, async || {
            let mut connection = client.get_connection().ok()?;
            redis::cmd("PING").query::<String>(&mut connection).ok()
        })
        .await;
    }

    /// Ends it where it stands.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only for a process that is gone already.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Freezes it where it stands: its port still takes connections, and nobody answers.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("a running server").id();
        let kill = format!("kill -s {name} {id}");
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Free a moment ago; nobody else asks for it in between but by chance.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("digestd-test-redis-").tempdir().expect("a temporary folder")
}

fn path(folder: &Path) -> String {
    folder.display().to_string()
}
