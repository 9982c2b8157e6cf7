//! The real binary, started, watched, signalled and killed.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{eventually, variable};

/// Variables that a child keeps from the test's own environment; nothing else reaches it, so that a
/// developer's `DIGESTD__…` can't change a test.
const KEPT: [&str; 4] = ["PATH", "HOME", "LLVM_PROFILE_FILE", "RUST_BACKTRACE"];

/// What can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The orchestrator's polite stop.
    Terminate,
    /// Ctrl-C.
    Interrupt,
    /// Freezes it where it stands.
    Freeze,
    /// Lets a frozen one go on.
    Thaw,
    /// Ends it where it stands.
    Kill,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "TERM",
            Self::Interrupt => "INT",
            Self::Freeze => "STOP",
            Self::Thaw => "CONT",
            Self::Kill => "KILL",
        }
    }
}

/// How to start a `digestd`; finish with [`Launch::start`].
#[derive(Debug)]
pub struct Launch {
    name: String,
    folder: PathBuf,
    command: Command,
}

impl Launch {
    /// `digestd ARGUMENTS` in `folder`, with its output in `<name>.out` and its log in `<name>.log` there.
    pub fn new(folder: &Path, name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_digestd"));
        command.args(arguments).current_dir(folder).env_clear().stdin(Stdio::null());
        for kept in KEPT {
            if let Some(value) = variable(kept) {
                command.env(kept, value);
            }
        }
        Self { name: name.to_owned(), folder: folder.to_owned(), command }
    }

    /// Writes `text` to `<name>.toml` and adds `--config` with its path.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        let path = self.folder.join(format!("{}.toml", self.name));
        fs::write(&path, text).expect("the configuration");
        self.command.arg("--config").arg(path);
        self
    }

    /// Sets one variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Shifts its host's clock, by libfaketime and in its words: `-2h`.
    #[must_use]
    pub fn clock(self, shift: &str) -> Self {
        self.env("LD_PRELOAD", &libfaketime().display().to_string())
            .env("FAKETIME", shift)
            // Only the time of day is wrong on such a host; timers go on as they do.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// Starts it. A second start under one name appends to the same files.
    pub fn start(mut self) -> Process {
        let log = self.folder.join(format!("{}.log", self.name));
        let out = self.folder.join(format!("{}.out", self.name));
        self.command.stdout(append_to(&out)).stderr(append_to(&log));
        let child = self.command.spawn().expect("the binary under test");
        Process { name: self.name, log, out, child }
    }
}

/// A running `digestd`. It never outlives this value.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    out: PathBuf,
    child: Child,
}

impl Process {
    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// What it wrote to standard output so far.
    pub fn output(&self) -> String {
        read(&self.out)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Waits until its log holds `text`. Panics at the deadline, or once it has ended without.
    pub async fn logged(&mut self, text: &str, within: Duration) {
        let deadline = Instant::now() + within;
        eventually(&format!("“{text}” in the log of {}", self.name), within * 2, async || {
            // Asked before the look: what it wrote before its end is then surely read.
            let ended = self.ended();
            let log = self.log();
            if log.contains(text) {
                return Some(());
            }
            let name = &self.name;
            assert!(ended.is_none(), "{name} ended ({ended:?}) without “{text}”:\n{log}");
            assert!(Instant::now() < deadline, "{name} did not log “{text}” within {within:?}:\n{log}");
            None
        })
        .await;
    }

    /// Waits for its end.
    pub async fn exit(&mut self, within: Duration) -> ExitStatus {
        let what = format!("the end of {} (log: {})", self.name, self.log.display());
        eventually(&what, within, async || self.ended()).await
    }

    /// Sends a signal. By the shell's own `kill`, which every POSIX system has.
    pub fn signal(&self, signal: Signal) {
        let kill = format!("kill -s {} {}", signal.name(), self.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(sent.success(), "{} is not there to be signalled", self.name);
    }

    /// Ends it where it stands, as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only for a process that is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("---- log of {} ----\n{}", self.name, self.log());
        }
    }
}

/// The library that shifts a process's clock. Without it this test fails; it is never skipped.
fn libfaketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("/usr/lib").filter_map(Result::ok);
    folders
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.exists())
        .expect("libfaketime is not here; scripts/setup installs the package faketime")
}

fn append_to(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("a file for the output")
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

mod tests {
    use super::{Launch, Signal};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(10);

    /// A shell in the binary's place, so that these tests are about the support alone.
    fn shell(folder: &std::path::Path, script: &str) -> Launch {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder);
        Launch { name: "shell".to_owned(), folder: folder.to_owned(), command }
    }

    #[tokio::test]
    async fn a_process_is_watched_by_its_log_and_stopped_by_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'exit 7' TERM; echo ready >&2; echo data; while :; do sleep 0.01; done";
        let mut process = shell(folder.path(), script).start();
        process.logged("ready", SOON).await;
        assert!(process.ended().is_none());
        process.signal(Signal::Terminate);
        assert_eq!(process.exit(SOON).await.code(), Some(7));
        assert_eq!(process.output(), "data\n");
    }

    #[tokio::test]
    async fn a_frozen_process_dies_with_its_handle() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(folder.path(), "echo ready >&2; exec sleep 1000").start();
        process.logged("ready", SOON).await;
        process.signal(Signal::Freeze);
        let id = process.id();
        drop(process);
        let found =
            Command::new("sh").args(["-c", &format!("kill -s CONT {id} 2>/dev/null")]).status().unwrap();
        assert!(!found.success(), "process {id} outlived its handle");
    }

    #[tokio::test]
    async fn every_other_signal_ends_or_leaves_it_as_its_name_says() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(folder.path(), "echo ready >&2; exec sleep 1000").start();
        process.logged("ready", SOON).await;
        process.signal(Signal::Freeze);
        process.signal(Signal::Thaw);
        process.signal(Signal::Interrupt);
        assert_eq!(process.exit(SOON).await.signal(), Some(2));

        let mut process = shell(folder.path(), "exec sleep 1000").start();
        process.signal(Signal::Kill);
        assert_eq!(process.exit(SOON).await.signal(), Some(9));
    }

    #[tokio::test]
    async fn the_binary_sees_only_the_environment_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let launch =
            Launch::new(folder.path(), "replica", &["run"]).config("# empty\n").env("DIGESTD__X", "1");
        let names: Vec<_> =
            launch.command.get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        assert!(names.contains(&"DIGESTD__X".to_owned()) && names.contains(&"PATH".to_owned()), "{names:?}");
        assert!(!names.contains(&"CARGO_MANIFEST_DIR".to_owned()), "{names:?}");
        assert_eq!(std::fs::read_to_string(folder.path().join("replica.toml")).unwrap(), "# empty\n");
    }

    #[tokio::test]
    #[should_panic(expected = "without “never”")]
    async fn waiting_for_a_line_ends_with_the_process() {
        let folder = tempfile::tempdir().unwrap();
        shell(folder.path(), "exit 0").start().logged("never", SOON).await;
    }
}
