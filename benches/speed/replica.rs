//! A real `digestd run`, started with an environment of its own and ended with its value.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::relay::free_port;
use crate::world::variable;

pub struct Replica {
    child: Child,
    folder: TempDir,
}

impl Replica {
    /// Starts one on a database and a relay, with more settings.
    pub fn start(database: &str, relay: &str, settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
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
            .env("DIGESTD__HTTP__LISTEN", format!("127.0.0.1:{}", free_port()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for (name, value) in settings {
            command.env(name, value);
        }
        Self { child: command.spawn().unwrap(), folder }
    }

    /// Resident memory in megabytes, as the kernel counts it.
    pub fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
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
