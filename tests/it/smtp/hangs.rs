//! A relay that says nothing: every wait is bounded, and nothing is known that is not known.

use std::time::{Duration, Instant};

use digestd::domain::reply::{Phase, RelayFailureKind};
use digestd::mail::transport::{SmtpSettings, Timeouts, TlsMode};

use super::{
    MESSAGE, PATIENCE, assert_accepted, assert_broken, assert_unknown, hand_over, hasty, send, send_as,
    settings, tls_settings, transport,
};
use crate::support::smtp_server::{Act, At, Script, ServerTls, SmtpServer};

#[tokio::test]
async fn each_step_of_the_hello_ends_in_time() {
    for (at, phase) in [(At::Greeting, Phase::Greeting), (At::Ehlo, Phase::Ehlo), (At::Auth, Phase::Auth)] {
        let script = Script::new().login("user", "secret").always(at, [Act::Hang]);
        let server = SmtpServer::start(script).await;
        let settings = SmtpSettings {
            credentials: Some(("user".to_owned(), "secret".into())),
            auth_without_tls: true,
            timeouts: Timeouts { greeting: PATIENCE, hello: PATIENCE, ..Timeouts::default() },
            ..settings(&server)
        };
        let started = Instant::now();
        let failure = transport(settings).connect().await.unwrap_err();
        assert_eq!((failure.phase, failure.kind), (phase, RelayFailureKind::Unreachable));
        assert!(
            (PATIENCE..Duration::from_secs(10)).contains(&started.elapsed()),
            "{phase}: {:?}",
            started.elapsed()
        );
    }
}

#[tokio::test]
async fn a_refused_ehlo_is_known_at_once_even_if_the_relay_hangs_after_it() {
    // lettre says QUIT after a refused EHLO, and would wait for the answer.
    let script = Script::new().always(At::Ehlo, [Act::reply("502 no"), Act::Hang]);
    let server = SmtpServer::start(script).await;
    let started = Instant::now();
    let failure = transport(settings(&server)).connect().await.unwrap_err();
    assert!(matches!(failure.kind, RelayFailureKind::Refused(_)));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_connection_that_is_never_answered_ends_in_time() {
    // Nobody accepts, so the kernel answers no more once its queue is full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(connected) = tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(addr)).await {
        waiting.push(connected.unwrap());
        assert!(waiting.len() < 100, "its queue is short");
    }
    let settings = SmtpSettings {
        timeouts: Timeouts { connect: PATIENCE, connect_total: PATIENCE, ..Timeouts::default() },
        ..SmtpSettings::new("127.0.0.1", addr.port(), TlsMode::Plaintext)
    };
    let started = Instant::now();
    let failure = transport(settings).connect().await.unwrap_err();
    assert_eq!((failure.phase, failure.kind), (Phase::Connect, RelayFailureKind::Unreachable));
    assert!((PATIENCE..Duration::from_secs(10)).contains(&started.elapsed()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_handshake_that_never_comes_ends_in_time() {
    let script = Script::new().tls(ServerTls::Implicit).always(At::Connect, [Act::Hang]);
    let server = SmtpServer::start(script).await;
    let mut settings = tls_settings(&server, TlsMode::Implicit);
    settings.timeouts.tls = PATIENCE;
    let failure = transport(settings).connect().await.unwrap_err();
    assert_eq!((failure.phase, failure.kind), (Phase::Tls, RelayFailureKind::Unreachable));
}

#[tokio::test]
async fn each_step_of_the_envelope_ends_in_time() {
    for script in [Script::new, || Script::new().offer("PIPELINING")] {
        for (at, phase) in [(At::Mail, Phase::Mail), (At::Rcpt, Phase::Rcpt), (At::Data, Phase::Data)] {
            let server = SmtpServer::start(script().always(at, [Act::Hang])).await;
            let (outcome, connection) = send_as(hasty(&server)).await;
            assert_broken(&outcome, phase, false);
            assert!(!connection.reusable());
            assert!(server.accepted().is_empty());
        }
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_a_definite_failure_in_time() {
    let message = b"forty characters of text in every line..\r\n".repeat(500_000);
    let server = SmtpServer::start(Script::new().always(At::Body, [Act::Hang])).await;
    let mut connection = transport(hasty(&server)).connect().await.unwrap();
    assert_broken(&hand_over(&mut connection, "b@x.org", &message).await, Phase::Body, false);
    assert!(server.accepted().is_empty());
}

/// The wait for a late reply once sent what was left of the body, and its dot: the relay took a message
/// that counted as broken and was sent again.
#[tokio::test]
async fn a_body_given_up_is_not_finished_while_the_reason_is_waited_for() {
    let message = b"forty characters of text in every line..\r\n".repeat(500_000);
    // Between the end of our patience, which begins once the message is encoded, and that of the second more.
    let late = [Act::Delay(PATIENCE + Duration::from_millis(900)), Act::Normal];
    let server = SmtpServer::start(Script::new().always(At::Body, late)).await;
    let mut connection = transport(hasty(&server)).connect().await.unwrap();
    assert_broken(&hand_over(&mut connection, "b@x.org", &message).await, Phase::Body, false);
    drop(connection);
    // The server reads to the end of the stream, and finds no dot in it.
    server.wait(Duration::from_secs(10), "the connection's end", |server| server.open() == 0).await;
    assert!(server.accepted().is_empty());
}

#[tokio::test]
async fn silence_after_the_dot_is_unknown_whether_or_not_the_relay_took_it() {
    for (acts, taken) in [(vec![Act::Accept, Act::Hang], 1), (vec![Act::Hang], 0)] {
        let server = SmtpServer::start(Script::new().always(At::Dot, acts)).await;
        let (outcome, connection) = send_as(hasty(&server)).await;
        assert_unknown(&outcome);
        assert!(!connection.reusable());
        assert_eq!(server.accepted().len(), taken);
    }
}

#[tokio::test]
async fn the_answer_to_the_dot_has_a_patience_of_its_own() {
    let slow = PATIENCE + PATIENCE / 2;
    let server = SmtpServer::start(Script::new().always(At::Dot, [Act::Delay(slow), Act::Normal])).await;
    let mut settings = hasty(&server);
    settings.timeouts.dot = Duration::from_secs(30);
    let mut connection = transport(settings).connect().await.unwrap();
    assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
}

#[tokio::test]
async fn quit_ends_in_time_and_changes_nothing() {
    let server = SmtpServer::start(Script::new().always(At::Quit, [Act::Hang])).await;
    let (outcome, connection) = send(&server).await;
    assert_accepted(&outcome);
    let started = Instant::now();
    connection.quit().await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
