//! The demo's inbox, spoken to over real sockets, byte by byte.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use digestd::demo::inbox::{Inbox, InboxReport};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::support::eventually;

const SOON: Duration = Duration::from_secs(10);

/// A running inbox in a folder of its own.
struct Running {
    inbox: Arc<Inbox>,
    folder: TempDir,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let inbox = Arc::new(Inbox::bind(addr, folder.path()).await.unwrap());
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (inbox, stop) = (Arc::clone(&inbox), stop.clone());
            async move { inbox.run(stop).await }
        });
        Self { inbox, folder, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.inbox.addr()).await.unwrap()
    }

    /// The names of the files with this ending, in order.
    fn files(&self, ending: &str) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(ending)).collect();
        names.sort();
        names
    }
}

/// Sends all of `text` and reads until the server closes; gives the codes of the answers.
async fn dialogue(mut stream: TcpStream, text: &str) -> Vec<String> {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answers = String::new();
    tokio::time::timeout(SOON, stream.read_to_string(&mut answers)).await.expect("the server ends").unwrap();
    answers.lines().filter(|line| line.as_bytes()[3] == b' ').map(|line| line[..3].to_owned()).collect()
}

fn transaction(to: &str, id: &str) -> String {
    format!(
        "MAIL FROM:<digest@example.org> BODY=8BITMIME\r\nRCPT TO:<{to}>\r\nDATA\r\n\
         Subject: Your week\r\nX-Digestd-Id: {id}\r\nContent-Type: text/html\r\n\r\n..<b>hello</b>\r\n.\r\n"
    )
}

#[tokio::test]
async fn a_pipelined_mail_is_kept_with_its_html() {
    let running = Running::start().await;
    let text = format!("EHLO me\r\n{}QUIT\r\n", transaction("ann@example.org", "0af1"));
    assert_eq!(
        dialogue(running.connect().await, &text).await,
        ["220", "250", "250", "250", "354", "250", "221"]
    );
    assert_eq!(running.inbox.snapshot(), InboxReport { messages: 1, recipients: 1, duplicates: 0 });
    assert_eq!(running.files(".eml"), ["00001-0af1.eml"]);
    let kept = fs::read_to_string(running.folder.path().join("00001-0af1.eml")).unwrap();
    assert!(
        kept.starts_with("Subject: Your week\r\n") && kept.ends_with("\r\n\r\n.<b>hello</b>\r\n"),
        "{kept:?}"
    );
    let html = fs::read_to_string(running.folder.path().join("00001-0af1.html")).unwrap();
    assert_eq!(html, ".<b>hello</b>\r\n");
}

#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_understood() {
    let running = Running::start().await;
    let mut stream = running.connect().await;
    stream.set_nodelay(true).unwrap();
    for byte in format!("HELO me\r\n{}", transaction("ann@example.org", "1")).bytes() {
        stream.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(dialogue(stream, "QUIT\r\n").await.last().unwrap(), "221");
    assert_eq!(running.inbox.snapshot().messages, 1);
}

#[tokio::test]
async fn the_same_id_twice_for_one_address_is_a_duplicate() {
    let running = Running::start().await;
    let mails = [
        ("ann@example.org", "1"),
        ("bob@example.org", "1"),
        ("ann@example.org", "2"),
        ("Ann@Example.org", "1"),
        ("ann@example.org", "1"),
    ];
    let text: String = mails.iter().map(|(to, id)| transaction(to, id)).collect();
    dialogue(running.connect().await, &format!("EHLO me\r\n{text}QUIT\r\n")).await;
    assert_eq!(running.inbox.snapshot(), InboxReport { messages: 5, recipients: 2, duplicates: 2 });
    assert_eq!(running.files(".eml").len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_at_the_same_time_keep_all_their_mails() {
    let running = Running::start().await;
    let mut reports = running.inbox.watch();
    let mut clients = Vec::new();
    for client in 0..20 {
        let mails: String = (0..5)
            .map(|n| transaction(&format!("a{client}@example.org"), &format!("{client}-{n}")))
            .collect();
        let stream = running.connect().await;
        clients.push(tokio::spawn(
            async move { dialogue(stream, &format!("EHLO me\r\n{mails}QUIT\r\n")).await },
        ));
    }
    // What a progress bar would do.
    tokio::time::timeout(SOON, reports.wait_for(|report| report.messages == 100)).await.unwrap().unwrap();
    for client in clients {
        assert_eq!(client.await.unwrap().iter().filter(|code| *code == "354").count(), 5);
    }
    assert_eq!(running.inbox.snapshot(), InboxReport { messages: 100, recipients: 20, duplicates: 0 });
    assert_eq!((running.files(".eml").len(), running.files(".part").len()), (100, 0));
}

#[tokio::test]
async fn what_is_out_of_order_or_unknown_is_refused() {
    for (text, expected) in [
        ("RCPT TO:<a@b.c>\r\n", "503"),
        ("DATA\r\n", "503"),
        ("MAIL FROM:<a@b.c>\r\nDATA\r\n", "503"),
        ("MAIL FROM:<a@b.c>\r\nMAIL FROM:<a@b.c>\r\n", "503"),
        ("MAIL FROM:<a@b.c>\r\nRCPT TO:<nobody>\r\n", "501"),
        ("MAIL FROM:<a@b.c>\r\nRCPT TO:<a@b.c>\r\nRSET\r\nDATA\r\n", "503"),
        ("MAIL a@b.c\r\n", "501"),
        ("MAIL FROM:<a@b.c> SIZE=99999999\r\n", "552"),
        ("MAIL FROM:<a@b.c> RET=FULL\r\n", "555"),
        ("STARTTLS\r\n", "500"),
        ("MAIL FROM:<a@b.c> SIZE=10 SMTPUTF8\r\n", "250"),
        ("NOOP\r\n", "250"),
        ("VRFY a\r\n", "252"),
    ] {
        let running = Running::start().await;
        let codes = dialogue(running.connect().await, &format!("EHLO me\r\n{text}QUIT\r\n")).await;
        assert_eq!(codes[codes.len() - 2], expected, "{text:?}: {codes:?}");
        assert_eq!(running.inbox.snapshot(), InboxReport::default(), "{text:?}");
    }
}

#[tokio::test]
async fn a_command_without_an_end_is_cut_off() {
    let running = Running::start().await;
    let codes = dialogue(running.connect().await, &"x".repeat(3000)).await;
    assert_eq!(codes, ["220", "500"]);
}

#[tokio::test]
async fn a_mail_that_breaks_off_is_not_kept() {
    let running = Running::start().await;
    let mut stream = running.connect().await;
    let text = transaction("ann@example.org", "1");
    stream.write_all(text.strip_suffix(".\r\n").unwrap().as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(running.inbox.snapshot(), InboxReport::default());
    assert!(running.files("").is_empty());
}

#[tokio::test]
async fn a_stopped_inbox_says_good_bye_and_ends() {
    let running = Running::start().await;
    let mut stream = running.connect().await;
    let mut greeting = [0; 4];
    stream.read_exact(&mut greeting).await.unwrap();
    running.stop.cancel();
    let mut rest = String::new();
    tokio::time::timeout(SOON, stream.read_to_string(&mut rest)).await.expect("the server ends").unwrap();
    assert!(rest.ends_with("\r\n421 4.3.2 closing\r\n"), "{rest:?}");
    tokio::time::timeout(SOON, running.task).await.expect("run ends").unwrap();
}

#[tokio::test]
async fn a_second_inbox_in_the_folder_counts_on() {
    let first = Running::start().await;
    dialogue(first.connect().await, &format!("EHLO me\r\n{}QUIT\r\n", transaction("a@b.c", "1"))).await;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let second = Inbox::bind(addr, first.folder.path()).await.unwrap();
    let addr = second.addr();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { second.run(stop).await }
    });
    let stream = TcpStream::connect(addr).await.unwrap();
    dialogue(stream, &format!("EHLO me\r\n{}QUIT\r\n", transaction("a@b.c", "2"))).await;
    eventually("the second mail", SOON, async || (first.files(".eml").len() == 2).then_some(())).await;
    assert_eq!(first.files(".eml"), ["00001-1.eml", "00002-2.eml"]);
    stop.cancel();
    task.await.unwrap();
}
