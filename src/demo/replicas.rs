//! The demo's replicas: real processes of this very program.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::process::{Child, Command};

use crate::domain::ids::ReplicaId;

/// How long a replica gets to stop by itself.
const STOP: Duration = Duration::from_secs(10);

/// A running replica.
#[derive(Debug)]
pub struct Replica {
    /// Its number, from 1.
    pub number: usize,
    log: PathBuf,
    child: Child,
}

impl Replica {
    /// Starts replica `number` with the configuration in `folder`, on a clock moved by `shift`.
    pub fn start(folder: &Path, number: usize, shift: TimeDelta) -> io::Result<Self> {
        let log = folder.join(format!("replica-{number}.log"));
        let child = Command::new(std::env::current_exe()?)
            .args(["run", "--config", "digestd.toml", "--clock-shift-ms"])
            .arg(shift.num_milliseconds().to_string())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { number, log, child })
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it wrote to its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Who it is in the database, as its log says; `None` until it runs.
    pub fn id(&self) -> Option<ReplicaId> {
        self.log().lines().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["replica.id"].as_str()?.parse().ok().map(ReplicaId)
        })
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it where it stands, as `kill -9` does.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Asks it to stop, and waits; ends it if it does not.
    pub async fn stop(&mut self) {
        if let Some(pid) = self.pid() {
            // Rust can only kill; the polite signal is sent by the program for it.
            let asked = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
            if asked.is_ok_and(|status| status.success())
                && tokio::time::timeout(STOP, self.child.wait()).await.is_ok()
            {
                return;
            }
        }
        // It is a demo's child: nothing of it is worth keeping.
        let _ = self.child.kill().await;
    }
}
