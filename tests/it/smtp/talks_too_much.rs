//! A relay that says more than it was asked. An answer taken for another one is how a message is
//! reported as sent that was not.

use std::time::Duration;

use digestd::domain::reply::{Phase, RelayFailureKind};
use digestd::mail::transport::TlsMode;

use super::{
    MESSAGE, address, assert_accepted, assert_broken, assert_refused, connect, hand_over, send, settings,
    tls_settings, transport, uid,
};
use crate::support::smtp_server::{Act, At, Script, ServerTls, SmtpServer};

const LIMIT: Duration = Duration::from_secs(5);

fn raw(bytes: &[u8]) -> [Act; 1] {
    [Act::Raw(bytes.to_vec())]
}

#[tokio::test]
async fn two_answers_in_the_envelope_never_end_in_a_false_acceptance() {
    for (at, bytes) in [
        (At::Mail, &b"250 ok\r\n250 ok\r\n"[..]),
        (At::Rcpt, b"250 ok\r\n250 ok\r\n"),
        (At::Data, b"354 go\r\n250 ok\r\n"),
        (At::Data, b"354 go\r\n354 go\r\n"),
    ] {
        for script in [Script::new(), Script::new().offer("PIPELINING")] {
            let server = SmtpServer::start(script.always(at, raw(bytes))).await;
            let (outcome, connection) = send(&server).await;
            assert!(matches!(outcome, digestd::domain::reply::HandOver::Broken { .. }), "{at:?} {outcome:?}");
            assert!(!connection.reusable());
            drop(connection);
            assert!(server.accepted().is_empty(), "{at:?}");
        }
    }
}

#[tokio::test]
async fn a_second_answer_to_the_dot_does_not_answer_the_next_message() {
    for script in [Script::new(), Script::new().offer("PIPELINING")] {
        let server = SmtpServer::start(script.times(1, At::Dot, raw(b"250 ok\r\n250 ok\r\n"))).await;
        let (outcome, mut connection) = send(&server).await;
        assert_accepted(&outcome);
        assert!(!connection.reusable());
        // Used against the advice it does no harm either.
        assert_broken(&hand_over(&mut connection, "c@x.org", MESSAGE).await, Phase::Mail, true);
        assert_eq!(server.accepted().len(), 1);
    }
}

#[tokio::test]
async fn a_late_second_answer_is_noticed_before_the_next_body() {
    for script in [Script::new(), Script::new().offer("PIPELINING")] {
        let late = [Act::Normal, Act::Delay(Duration::from_millis(30)), Act::reply("250 again")];
        let server = SmtpServer::start(script.times(1, At::Dot, late)).await;
        let (outcome, mut connection) = send(&server).await;
        assert_accepted(&outcome);
        let outcome = hand_over(&mut connection, "c@x.org", MESSAGE).await;
        assert!(matches!(outcome, digestd::domain::reply::HandOver::Broken { .. }), "{outcome:?}");
        drop(connection);
        assert_eq!(server.accepted().len(), 1);
    }
}

#[tokio::test]
async fn the_first_of_two_answers_to_the_dot_counts() {
    let server = SmtpServer::start(Script::new().always(At::Dot, raw(b"451 no\r\n250 ok\r\n"))).await;
    let (outcome, connection) = send(&server).await;
    assert_refused(&outcome, Phase::Dot, 451);
    assert!(!connection.reusable());
    assert!(server.accepted().is_empty());
}

#[tokio::test]
async fn an_announced_end_while_idle_is_staleness() {
    let parting = [Act::Normal, Act::reply("421 4.4.2 idle too long"), Act::Close];
    let server = SmtpServer::start(Script::new().times(1, At::Dot, parting)).await;
    let (outcome, mut connection) = send(&server).await;
    assert_accepted(&outcome);
    server.wait(LIMIT, "the relay closes", |server| server.open() == 0).await;
    assert_broken(&hand_over(&mut connection, "c@x.org", MESSAGE).await, Phase::Mail, true);
}

#[tokio::test]
async fn words_after_the_354_stop_the_body() {
    let script = Script::new().always(At::Body, [Act::reply("250 2.0.0 already queued")]);
    let server = SmtpServer::start(script).await;
    let mut connection = connect(&server).await;
    connection.envelope(&address("a@x.org"), &address("b@x.org"), MESSAGE.len()).await.unwrap();
    // The words are on their way; nothing shows when they arrived but a failing hand-over.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_broken(&connection.body(MESSAGE, &uid()).await, Phase::Body, false);
    drop(connection);
    assert!(server.accepted().is_empty());
}

#[tokio::test]
async fn words_after_the_consent_to_starttls_are_an_attack() {
    for injected in [&b"220 go\r\n250 injected\r\n"[..], b"220 go\r\n2", b"220 go\r\n\x16\x03\x01"] {
        let script = Script::new().tls(ServerTls::StartTls).always(At::StartTls, raw(injected));
        let server = SmtpServer::start(script).await;
        let failure = transport(tls_settings(&server, TlsMode::StartTls)).connect().await.unwrap_err();
        assert_eq!((failure.phase, failure.kind), (Phase::Tls, RelayFailureKind::Insecure));
        assert_eq!(server.commands(), ["EHLO localhost", "STARTTLS"], "nothing else was said");
    }
}

#[tokio::test]
async fn words_after_the_greeting_are_not_taken_for_an_answer_to_ehlo() {
    let script = Script::new().always(At::Greeting, raw(b"220 relay\r\n250 PIPELINING\r\n"));
    let server = SmtpServer::start(script).await;
    let failure = transport(settings(&server)).connect().await.unwrap_err();
    assert_eq!((failure.phase, failure.kind), (Phase::Greeting, RelayFailureKind::Unreachable));
}
