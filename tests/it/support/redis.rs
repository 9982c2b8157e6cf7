//! A real Redis on a free port of loopback, killed, frozen and started again at will.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Client, Connection, TlsCertificates};
use tempfile::TempDir;

use super::certs::Certs;
use super::eventually;

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(20);

/// A running Redis; it ends with this value.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    keeps: bool,
    tls: Option<Certs>,
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

    /// Starts one that speaks nothing but TLS, with this certificate for `localhost`.
    pub async fn start_tls(certs: Certs) -> Self {
        let mut redis = Self::absent();
        for (name, pem) in
            [("ca.pem", &certs.ca), ("server.pem", &certs.server), ("server.key", &certs.server_key)]
        {
            std::fs::write(redis.folder.path().join(name), pem).expect("a certificate");
        }
        redis.tls = Some(certs);
        redis.restart().await;
        redis
    }

    /// A port on which nothing listens: a Redis that has not been started yet.
    pub fn absent() -> Self {
        Self { port: free_port(), keeps: false, tls: None, folder: folder(), child: None }
    }

    async fn launch(keeps: bool) -> Self {
        let mut redis = Self::absent();
        redis.keeps = keeps;
        redis.restart().await;
        redis
    }

    /// `redis://127.0.0.1:PORT/`, or `rediss://localhost:PORT/`.
    pub fn url(&self) -> String {
        match self.tls {
            None => format!("redis://127.0.0.1:{}/", self.port),
            Some(_) => format!("rediss://localhost:{}/", self.port),
        }
    }

    /// A connection of the test's own, to look at what is in it.
    pub fn connection(&self) -> Connection {
        self.client().get_connection().expect("a running server")
    }

    fn client(&self) -> Client {
        match &self.tls {
            None => Client::open(self.url()),
            Some(certs) => {
                let root_cert = Some(certs.ca.clone().into_bytes());
                Client::build_with_tls(self.url(), TlsCertificates { client_tls: None, root_cert })
            }
        }
        .expect("a URL")
    }

    /// Where it listens, as its own options have it.
    fn door(&self) -> Vec<String> {
        let port = self.port.to_string();
        if self.tls.is_none() {
            return vec!["--port".to_owned(), port];
        }
        let file = |name: &str| path(&self.folder.path().join(name));
        let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
        let options = [
            ["--port", "0"],
            ["--tls-port", &port],
            ["--tls-ca-cert-file", &ca],
            ["--tls-cert-file", &cert],
            ["--tls-key-file", &key],
            ["--tls-auth-clients", "no"],
        ];
        options.concat().into_iter().map(str::to_owned).collect()
    }

    /// Starts it, on the same port and with what it has kept.
    pub async fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let child = Command::new("redis-server")
            .args(self.door())
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", if self.keeps { "yes" } else { "no" }, "--appendfsync", "always"])
            .args(["--dir", &path(self.folder.path())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server, from the Debian package of that name");
        self.child = Some(child);
        let (client, tls, port) = (self.client(), self.tls.is_some(), self.port);
        eventually("Redis answers", START, async || {
            if tls {
                // Its certificate may be one that no client should trust.
                return std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(|_| String::new());
            }
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
