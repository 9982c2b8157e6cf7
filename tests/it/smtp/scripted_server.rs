//! The scripted server itself, talked to by hand.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::smtp_server::{Act, At, Script, SmtpServer};

struct Hand(BufReader<TcpStream>);

impl Hand {
    async fn new(relay: &SmtpServer) -> Self {
        Self(BufReader::new(TcpStream::connect(relay.addr()).await.unwrap()))
    }

    async fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    /// The next line, or nothing at the end or after a reset.
    async fn hear(&mut self) -> String {
        let mut line = String::new();
        let reading = tokio::time::timeout(Duration::from_secs(10), self.0.read_line(&mut line));
        let _ = reading.await.expect("the server answers or closes");
        line
    }

    async fn ask(&mut self, text: &str) -> String {
        self.say(text).await;
        self.hear().await
    }
}

#[tokio::test]
async fn a_transaction_counts_once_and_its_dots_are_unstuffed() {
    let relay = SmtpServer::start(Script::new()).await;
    let mut hand = Hand::new(&relay).await;
    assert!(hand.hear().await.starts_with("220"));
    assert!(hand.ask("EHLO me\r\n").await.starts_with("250 "));
    assert!(hand.ask("MAIL FROM:<a@x.org>\r\n").await.starts_with("250"));
    assert!(hand.ask("RCPT TO:<b@x.org>\r\n").await.starts_with("250"));
    assert!(hand.ask("DATA\r\n").await.starts_with("354"));
    assert!(hand.ask("one\r\n..two\r\n.\r\n").await.starts_with("250"));
    let accepted = relay.accepted();
    assert_eq!(accepted.len(), 1);
    assert_eq!((accepted[0].from.as_str(), accepted[0].to.as_str()), ("a@x.org", "b@x.org"));
    assert_eq!(accepted[0].data, b"one\r\n.two\r\n");
}

#[tokio::test]
async fn an_acceptance_without_an_answer_counts_and_a_refusal_does_not() {
    let script = Script::new().times(1, At::Dot, [Act::reply("451 4.3.0 not now")]).times(
        1,
        At::Dot,
        [Act::Accept, Act::Close],
    );
    let relay = SmtpServer::start(script).await;
    let mut hand = Hand::new(&relay).await;
    hand.hear().await;
    for expected in ["451", ""] {
        hand.ask("MAIL FROM:<a@x.org>\r\n").await;
        hand.ask("RCPT TO:<b@x.org>\r\n").await;
        hand.ask("DATA\r\n").await;
        let answer = hand.ask("text\r\n.\r\n").await;
        assert!(answer.starts_with(expected) && answer.is_empty() == expected.is_empty(), "{answer}");
    }
    assert_eq!(relay.accepted().len(), 1);
}
