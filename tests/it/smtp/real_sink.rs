//! Debian's `smtp-sink` as a second opinion: another implementation, with its own faults.
//!
//! It dumps each message that it took into a file of its own, and that is counted.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use digestd::domain::reply::Phase;
use digestd::mail::transport::{Connection, SmtpSettings, TlsMode};

use super::{MESSAGE, assert_accepted, assert_broken, assert_refused, assert_unknown, hand_over, transport};
use crate::support::{eventually, variable};

struct Sink {
    process: Child,
    port: u16,
    dumps: tempfile::TempDir,
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sink {
    async fn start(faults: &[&str]) -> Self {
        let folder = PathBuf::from(variable("DIGESTD_TEST_POSTFIX").unwrap_or("/usr".to_owned()));
        let dumps = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dumps.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(folder.join("sbin/smtp-sink"));
        if Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" {
            command.args(["-u", "nobody"]);
        }
        let process = command
            .env("LD_LIBRARY_PATH", folder.join("lib/postfix"))
            .args(["-d", &format!("{}/m.", dumps.path().display())])
            .args(faults)
            .args([&format!("127.0.0.1:{port}"), "64"])
            .stderr(Stdio::inherit())
            .spawn()
            .expect("smtp-sink starts; set DIGESTD_TEST_POSTFIX to the folder above its sbin/");
        let sink = Self { process, port, dumps };
        eventually("smtp-sink listens", Duration::from_secs(10), async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        sink
    }

    async fn connect(&self) -> Connection {
        let settings = SmtpSettings::new("127.0.0.1", self.port, TlsMode::Plaintext);
        transport(settings).connect().await.unwrap()
    }

    /// Counts the whole messages dumped, which happens a moment after the answer. A file is begun
    /// with the transaction, whatever becomes of it.
    async fn assert_took(&self, messages: usize) {
        let is_whole = |file: std::io::Result<std::fs::DirEntry>| {
            String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).contains("One line.")
        };
        let count = || {
            std::fs::read_dir(self.dumps.path()).unwrap().filter_map(|f| is_whole(f).then_some(())).count()
        };
        eventually("the dumps are complete", Duration::from_secs(10), async || {
            (count() >= messages).then_some(())
        })
        .await;
        assert_eq!(count(), messages);
    }
}

#[tokio::test]
async fn a_well_behaved_sink_takes_each_message_once_over_one_connection() {
    let sink = Sink::start(&[]).await;
    let mut connection = sink.connect().await;
    for i in 0..50 {
        assert!(connection.reusable());
        assert_accepted(&hand_over(&mut connection, &format!("u{i}@x.org"), MESSAGE).await);
    }
    connection.quit().await;
    sink.assert_took(50).await;
}

#[tokio::test]
async fn a_sink_that_takes_the_message_and_hangs_up_leaves_it_unknown() {
    let sink = Sink::start(&["-q", "."]).await;
    assert_unknown(&hand_over(&mut sink.connect().await, "b@x.org", MESSAGE).await);
    sink.assert_took(1).await;
}

#[tokio::test]
async fn a_sink_that_hangs_up_earlier_leaves_a_definite_break() {
    for (command, phase) in [("mail", Phase::Mail), ("rcpt", Phase::Rcpt), ("data", Phase::Data)] {
        let sink = Sink::start(&["-q", command]).await;
        assert_broken(&hand_over(&mut sink.connect().await, "b@x.org", MESSAGE).await, phase, false);
        sink.assert_took(0).await;
    }
}

#[tokio::test]
async fn a_sink_that_refuses_is_understood_at_every_step() {
    for (command, phase) in
        [("mail", Phase::Mail), ("rcpt", Phase::Rcpt), ("data", Phase::Data), (".", Phase::Dot)]
    {
        for (switch, code) in [("-f", 500), ("-r", 450)] {
            let sink = Sink::start(&[switch, command]).await;
            let mut connection = sink.connect().await;
            for _ in 0..2 {
                assert_refused(&hand_over(&mut connection, "b@x.org", MESSAGE).await, phase, code);
                assert!(connection.reusable());
            }
        }
        let sink = Sink::start(&["-Q", command]).await;
        let mut connection = sink.connect().await;
        assert_refused(&hand_over(&mut connection, "b@x.org", MESSAGE).await, phase, 421);
        assert!(!connection.reusable());
    }
}

#[tokio::test]
async fn a_sink_that_takes_its_time_is_waited_for() {
    let sink = Sink::start(&["-W", ".:1"]).await;
    assert_accepted(&hand_over(&mut sink.connect().await, "b@x.org", MESSAGE).await);
    sink.assert_took(1).await;
}
