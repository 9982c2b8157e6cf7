//! A relay that answers byte by byte: a trickle that goes on is no reason to wait for ever.

use std::time::Duration;

use digestd::domain::reply::Phase;

use super::{assert_accepted, assert_broken, assert_unknown, hasty, send, send_as};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

fn trickle(text: &str, pause: Duration) -> [Act; 1] {
    [Act::Trickle(text.as_bytes().to_vec(), pause)]
}

/// Far shorter than the deadline of a step, so that only a total can end it.
const SLOW: Duration = Duration::from_millis(50);

#[tokio::test]
async fn an_endless_answer_ends_at_the_deadline_of_its_step() {
    let endless = "250-again\r\n".repeat(100);
    for (at, phase) in [(At::Mail, Phase::Mail), (At::Rcpt, Phase::Rcpt), (At::Data, Phase::Data)] {
        let server = SmtpServer::start(Script::new().always(at, trickle(&endless, SLOW))).await;
        assert_broken(&send_as(hasty(&server)).await.0, phase, false);
        assert!(server.accepted().is_empty());
    }
}

#[tokio::test]
async fn an_endless_answer_to_the_dot_is_unknown() {
    let server = SmtpServer::start(Script::new().always(At::Dot, trickle(&"2".repeat(1000), SLOW))).await;
    assert_unknown(&send_as(hasty(&server)).await.0);
}

#[tokio::test]
async fn answers_cut_into_single_bytes_are_put_together() {
    let quick = Duration::from_millis(1);
    let script = Script::new()
        .offer("PIPELINING")
        .always(At::Greeting, trickle("220-relay\r\n220 test\r\n", quick))
        .always(At::Mail, trickle("250 ok\r\n", quick))
        .always(At::Rcpt, trickle("250-2.1.5 yes\r\n250 2.1.5 indeed\r\n", quick))
        .always(At::Data, trickle("354 go\r\n", quick))
        .always(At::Dot, trickle("250 2.0.0 queued\r\n", quick));
    let server = SmtpServer::start(script).await;
    assert_accepted(&send(&server).await.0);
    assert_eq!(server.accepted().len(), 1);
}
