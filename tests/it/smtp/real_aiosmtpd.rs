//! aiosmtpd as a second opinion on TLS and AUTH: OpenSSL on the other side.

use std::io::Write as _;
use std::process::Stdio;

use digestd::domain::reply::{Phase, RelayFailureKind};
use digestd::mail::transport::{SmtpSettings, TlsMode};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{MESSAGE, assert_accepted, assert_refused, hand_over, transport};
use crate::support::certs::{Certs, Flaw};
use crate::support::variable;

struct Peer {
    lines: Lines<BufReader<ChildStdout>>,
    port: u16,
    certs: Certs,
    _process: Child,
}

impl Peer {
    async fn start(mode: &str) -> Self {
        let certs = Certs::new(Flaw::None);
        let file = |pem: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(pem.as_bytes()).unwrap();
            file
        };
        let (certificate, key) = (file(&certs.server), file(&certs.server_key));
        let python = variable("DIGESTD_TEST_AIOSMTPD").unwrap_or("python3".to_owned());
        let mut process = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/smtp/aiosmtpd_peer.py"))
            .arg(mode)
            .args([certificate.path(), key.path()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("Python starts; set DIGESTD_TEST_AIOSMTPD to one that has aiosmtpd");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("the peer prints its port").parse().unwrap();
        Self { lines, port, certs, _process: process }
    }

    fn settings(&self, tls: TlsMode, password: &str) -> SmtpSettings {
        SmtpSettings {
            ca_pem: Some(self.certs.ca.clone()),
            credentials: Some(("user".to_owned(), password.into())),
            ..SmtpSettings::new("localhost", self.port, tls)
        }
    }
}

#[tokio::test]
async fn openssl_on_the_other_side_takes_each_message_once() {
    for (mode, tls) in [("implicit", TlsMode::Implicit), ("starttls", TlsMode::StartTls)] {
        let mut peer = Peer::start(mode).await;
        let mut connection = transport(peer.settings(tls, "päss word")).connect().await.unwrap();
        for i in 0..5 {
            assert_accepted(&hand_over(&mut connection, &format!("u{i}@x.org"), MESSAGE).await);
            let line = peer.lines.next_line().await.unwrap().unwrap();
            assert_eq!(line, format!("took u{i}@x.org {}", MESSAGE.len()));
            assert_refused(&hand_over(&mut connection, "gone@x.org", MESSAGE).await, Phase::Rcpt, 550);
            assert!(connection.reusable());
        }
        connection.quit().await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_from_a_broken_connection() {
    for (mode, tls) in [("implicit", TlsMode::Implicit), ("starttls", TlsMode::StartTls)] {
        let peer = Peer::start(mode).await;
        let failure = transport(peer.settings(tls, "wrong")).connect().await.unwrap_err();
        assert!(
            matches!(&failure.kind, RelayFailureKind::Auth(Some(reply)) if reply.code == 535),
            "{failure:?}"
        );
    }
}
