//! Replies that bend the rules. After the dot each is a definite answer if it can be read at all:
//! the relay has the message, or it has not.

use digestd::domain::reply::{HandOver, Phase};

use super::{MESSAGE, assert_accepted, assert_broken, assert_refused, assert_unknown, hand_over, send};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

fn raw(bytes: &[u8]) -> [Act; 1] {
    [Act::Raw(bytes.to_vec())]
}

#[tokio::test]
async fn a_readable_acceptance_is_an_acceptance() {
    for bytes in [
        &b"250\r\n"[..],
        b"250\n",
        b"250 ok\n",
        b"250-a\n250 b\n",
        b"250 angenommen f\xfcr \xdcbermorgen\r\n",
        b"260 ok\r\n",
        b"299\r\n",
        b"250:ok\r\n",
        b"\r\n250 ok\r\n",
        b"250 a\x00b\r\n",
    ] {
        let server =
            SmtpServer::start(Script::new().times(1, At::Dot, [Act::Accept, raw(bytes)[0].clone()])).await;
        let (outcome, mut connection) = send(&server).await;
        assert_accepted(&outcome);
        assert_eq!(server.accepted().len(), 1);
        assert!(connection.reusable(), "{bytes:?}");
        assert_accepted(&hand_over(&mut connection, "c@x.org", MESSAGE).await);
    }
}

#[tokio::test]
async fn a_readable_refusal_is_a_refusal_at_every_step() {
    for (at, phase) in
        [(At::Mail, Phase::Mail), (At::Rcpt, Phase::Rcpt), (At::Data, Phase::Data), (At::Dot, Phase::Dot)]
    {
        for (bytes, code) in
            [(&b"571\r\n"[..], 571), (b"598 no\n", 598), (b"451\n", 451), (b"550 bo\xeete\r\n", 550)]
        {
            for script in [Script::new(), Script::new().offer("PIPELINING")] {
                let server = SmtpServer::start(script.times(1, at, raw(bytes))).await;
                let (outcome, mut connection) = send(&server).await;
                assert_refused(&outcome, phase, code);
                assert!(server.accepted().is_empty());
                assert!(connection.reusable(), "{bytes:?}");
                assert_accepted(&hand_over(&mut connection, "c@x.org", MESSAGE).await);
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_after_the_dot_is_unknown() {
    let endless_line = b"2".repeat(10_000);
    let endless_reply = b"250-again\r\n".repeat(10_000);
    for bytes in [
        &b"hello\r\n"[..],
        b"2500 ok\r\n",
        b"150 ok\r\n",
        b"250-a\r\n550 b\r\n",
        b"\xff\xfe\xfd\r\n",
        &endless_line,
        &endless_reply,
        b"354 go on\r\n",
        b"221 bye\r\n",
        b"334 more\r\n",
    ] {
        let server = SmtpServer::start(Script::new().always(At::Dot, raw(bytes))).await;
        let (outcome, connection) = send(&server).await;
        assert_unknown(&outcome);
        assert!(!connection.reusable());
    }
}

#[tokio::test]
async fn what_cannot_be_read_or_does_not_fit_before_the_body_is_a_definite_failure() {
    for (at, phase) in [(At::Mail, Phase::Mail), (At::Rcpt, Phase::Rcpt), (At::Data, Phase::Data)] {
        for bytes in [&b"hello\r\n"[..], b"250-a\r\n550 b\r\n", b"221 bye\r\n", b"999 what\r\n"] {
            for script in [Script::new(), Script::new().offer("PIPELINING")] {
                let server = SmtpServer::start(script.always(at, raw(bytes))).await;
                let (outcome, connection) = send(&server).await;
                assert_broken(&outcome, phase, false);
                assert!(!connection.reusable(), "{bytes:?}");
                drop(connection);
                assert!(server.accepted().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_250_in_place_of_the_354_does_not_let_the_body_go() {
    let server = SmtpServer::start(Script::new().always(At::Data, raw(b"250 ok\r\n"))).await;
    let (outcome, _) = send(&server).await;
    assert_broken(&outcome, Phase::Data, false);
    assert!(server.chunks().iter().all(|chunk| !chunk.starts_with(b"Subject")));
}

#[tokio::test]
async fn the_text_for_the_ledger_is_clean_and_short() {
    let long = format!("550 5.1.1 \x1b[31m\u{7}{}\r\n", "x".repeat(2000));
    let server = SmtpServer::start(Script::new().always(At::Rcpt, raw(long.as_bytes()))).await;
    let (outcome, _) = send(&server).await;
    let HandOver::Refused { reply, .. } = outcome else { panic!("{outcome:?}") };
    assert!(reply.text.chars().count() <= 500 && !reply.text.chars().any(char::is_control));
    assert!(reply.text.starts_with("5.1.1"));
}
