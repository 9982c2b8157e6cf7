//! A real Postfix on loopback: STARTTLS, SASL, its own limits, its own queue and its own log.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use digestd::mail::transport::{SmtpSettings, TlsMode};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::certs::{Certs, Flaw};
use super::{eventually, variable};

/// Its only user and that one's password.
pub const LOGIN: (&str, &str) = ("digest", "right");
/// How long a start or a line in its log may take on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A running Postfix; it ends with this value.
#[derive(Debug)]
pub struct Postfix {
    master: Child,
    folder: TempDir,
    port: u16,
    certs: Certs,
}

/// What Postfix says of one transaction that it has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The envelope recipient.
    pub to: String,
    /// The message's own Message-ID.
    pub message_id: String,
    /// What Postfix made of it afterwards: `sent` or `deferred`.
    pub status: String,
}

impl Postfix {
    /// Starts one whose `main.cf` has these lines too. Mail to `away.example` stays in its queue.
    pub async fn start(lines: &[&str]) -> Self {
        Self::start_with(Certs::new(Flaw::None), lines).await
    }

    /// The same with a certificate of one's own.
    pub async fn start_with(certs: Certs, lines: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
        write("cert.pem", &certs.server);
        write("key.pem", &certs.server_key);
        // Nothing listens on that port.
        write("transport", "/@away\\.example$/ smtp:[127.0.0.1]:1\n");
        let port = free_port();
        let programs = PathBuf::from(variable("DIGESTD_TEST_POSTFIX").unwrap_or("/usr".to_owned()));
        assert!(
            programs.join("sbin/saslpasswd2").exists(),
            "no Postfix below {}; scripts/unpack-postfix fetches one and prints what DIGESTD_TEST_POSTFIX must be",
            programs.display()
        );
        let master = as_root(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/postfix.sh"))
            .args([programs.as_path(), folder.path()])
            .arg(port.to_string())
            .args(lines)
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell");
        let postfix = Self { master, folder, port, certs };
        eventually("Postfix listens", SOON, async || TcpStream::connect(("127.0.0.1", port)).await.ok())
            .await;
        postfix
    }

    /// `smtp://127.0.0.1:PORT?tls=starttls`.
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}?tls=starttls", self.port)
    }

    /// How a client gets in.
    pub fn settings(&self, password: &str) -> SmtpSettings {
        SmtpSettings {
            ca_pem: Some(self.certs.ca.clone()),
            credentials: Some((LOGIN.0.to_owned(), password.into())),
            ..SmtpSettings::new("localhost", self.port, TlsMode::StartTls)
        }
    }

    /// The authority that clients have to trust, as PEM.
    pub fn ca(&self) -> &str {
        &self.certs.ca
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Every transaction that it has accepted so far, once it has said what became of each.
    pub async fn queued(&self) -> Vec<Queued> {
        eventually("Postfix tells the end of all that it took", SOON, async || told(&self.log())).await
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        // Its master may be root's; the others end when it does.
        let _ = as_root("kill").arg(self.master.id().to_string()).status();
        let _ = self.master.wait();
        if std::thread::panicking() {
            eprintln!("---- log of Postfix ----\n{}", self.log());
        }
    }
}

/// Reads its log; `None` while the end of one is missing.
fn told(log: &str) -> Option<Vec<Queued>> {
    // Nov 30 15:17:18 relay postfix/smtpd[16806]: CAF2898C482: client=localhost[127.0.0.1], …
    let entries = log.lines().filter_map(|line| {
        let (_, entry) = line.split_once("]: ")?;
        let (id, said) = entry.split_once(": ")?;
        id.chars().all(|c| c.is_ascii_alphanumeric()).then_some((id, said))
    });
    let mut taken: BTreeMap<&str, Option<Queued>> = BTreeMap::new();
    let mut message_ids = BTreeMap::new();
    for (id, said) in entries {
        if let Some(message_id) = said.strip_prefix("message-id=") {
            message_ids.insert(id, message_id);
        } else if said.ends_with("(queue active)") {
            taken.entry(id).or_default();
        } else if let Some((to, rest)) = said.strip_prefix("to=<").and_then(|rest| rest.split_once(">, ")) {
            let (_, status) = rest.split_once("status=")?;
            let status = status.split(' ').next()?.to_owned();
            let message_id = (*message_ids.get(id)?).to_owned();
            taken.insert(id, Some(Queued { to: to.to_owned(), message_id, status }));
        }
    }
    // Postfix takes the responsibility when cleanup has a message, a moment before its queue says so.
    (taken.len() == message_ids.len()).then(|| taken.into_values().collect()).flatten()
}

/// A policy server as Postfix asks it: the first try of each recipient in `grey.example` must wait.
/// Answers on the port until the runtime ends.
pub async fn greylist() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        let known = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
        while let Ok((peer, _)) = listener.accept().await {
            let known = std::sync::Arc::clone(&known);
            tokio::spawn(async move {
                let (read, mut write) = peer.into_split();
                let mut lines = BufReader::new(read).lines();
                let mut recipient = String::new();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(address) = line.strip_prefix("recipient=") {
                        address.clone_into(&mut recipient);
                    }
                    if line.is_empty() {
                        let new = recipient.ends_with("@grey.example")
                            && known.lock().expect("no panic").insert(recipient.clone());
                        let action =
                            if new { "defer_if_permit greylisted, come back later" } else { "dunno" };
                        let answer = format!("action={action}\n\n");
                        if write.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port()
}

/// A command with the rights that Postfix needs.
fn as_root(program: &str) -> Command {
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", program]);
        sudo
    }
}

mod tests {
    use super::told;

    #[test]
    fn a_transaction_is_told_only_once_its_end_is() {
        let taken = "Nov 30 15:17:18 relay postfix/cleanup[168]: CAF28: message-id=<1@x.org>\n\
             Nov 30 15:17:18 relay postfix/smtpd[168]: NOQUEUE: reject: RCPT from localhost[127.0.0.1]: 450 no\n\
             Nov 30 15:17:18 relay postfix/qmgr[141]: CAF28: from=<d@x.org>, size=306, nrcpt=1 (queue active)\n";
        assert_eq!(told(""), Some(Vec::new()));
        assert_eq!(told(taken), None);
        let end = "Nov 30 15:17:19 relay postfix/discard[17]: CAF28: to=<a@x.org>, relay=none, delay=0.1, \
             delays=0/0/0/0, dsn=2.0.0, status=sent (x)\n";
        let told = told(&format!("{taken}{end}")).unwrap();
        assert_eq!((told.len(), told[0].to.as_str(), told[0].status.as_str()), (1, "a@x.org", "sent"));
        assert_eq!(told[0].message_id, "<1@x.org>");
    }
}
