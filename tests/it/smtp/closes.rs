//! A relay that closes or resets the connection.

use std::time::Duration;

use digestd::deliver::classify::{Action, classify};
use digestd::deliver::providers::Overrides;
use digestd::domain::reply::{HandOver, Phase, RelayFailureKind};

use super::{
    MESSAGE, address, assert_accepted, assert_broken, assert_unknown, connect, hand_over, send, settings,
    transport, uid,
};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

const LIMIT: Duration = Duration::from_secs(5);

fn scripts() -> [Script; 2] {
    [Script::new(), Script::new().offer("PIPELINING")]
}

#[tokio::test]
async fn before_the_hello_is_over_it_is_the_relays_matter() {
    for act in [Act::Close, Act::Reset] {
        for (at, phase) in
            [(At::Connect, Phase::Greeting), (At::Greeting, Phase::Greeting), (At::Ehlo, Phase::Ehlo)]
        {
            let server = SmtpServer::start(Script::new().always(at, [act.clone()])).await;
            let failure = transport(settings(&server)).connect().await.unwrap_err();
            assert_eq!((failure.phase, failure.kind), (phase, RelayFailureKind::Unreachable), "{act:?}");
        }
    }
}

#[tokio::test]
async fn nobody_listening_is_the_relays_matter() {
    let server = SmtpServer::start(Script::new()).await;
    let settings = settings(&server);
    drop(server);
    let failure = transport(settings).connect().await;
    // The listener's task ends at its next step; until then it may still accept, and be reset.
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind, RelayFailureKind::Unreachable);
}

#[tokio::test]
async fn in_the_envelope_it_is_a_break_at_that_step() {
    for act in [Act::Close, Act::Reset] {
        for (at, phase) in [(At::Mail, Phase::Mail), (At::Rcpt, Phase::Rcpt), (At::Data, Phase::Data)] {
            // One by one; in a pipelined envelope a reset may overtake the answers before it.
            let server = SmtpServer::start(Script::new().always(at, [act.clone()])).await;
            let (outcome, connection) = send(&server).await;
            assert_broken(&outcome, phase, false);
            assert!(!connection.reusable());
            assert!(server.accepted().is_empty());
        }
    }
}

#[tokio::test]
async fn in_a_pipelined_envelope_nothing_is_accepted() {
    for act in [Act::Close, Act::Reset] {
        for at in [At::Mail, At::Rcpt, At::Data] {
            let script = Script::new().offer("PIPELINING").always(at, [act.clone()]);
            let server = SmtpServer::start(script).await;
            let (outcome, connection) = send(&server).await;
            assert!(matches!(outcome, HandOver::Broken { stale: false, .. }), "{outcome:?}");
            assert!(!connection.reusable());
            assert!(server.accepted().is_empty());
        }
    }
}

#[tokio::test]
async fn a_used_connection_that_is_gone_was_merely_stale() {
    for act in [Act::Close, Act::Reset] {
        for script in scripts() {
            let server = SmtpServer::start(script.times(1, At::Dot, [Act::Normal, act.clone()])).await;
            let (outcome, mut connection) = send(&server).await;
            assert_accepted(&outcome);
            server.wait(LIMIT, "the relay closes", |server| server.open() == 0).await;
            let outcome = hand_over(&mut connection, "c@x.org", MESSAGE).await;
            assert_broken(&outcome, Phase::Mail, true);
            assert_eq!(classify(&outcome, &Overrides::NONE).action, Action::Reconnect);
            assert_eq!(server.accepted().len(), 1);
            assert_accepted(&hand_over(&mut connect(&server).await, "c@x.org", MESSAGE).await);
            assert_eq!(server.accepted().len(), 2);
        }
    }
}

#[tokio::test]
async fn a_421_on_a_used_connection_is_staleness_and_not_a_refusal() {
    for script in scripts() {
        let script = script.times(1, At::Mail, [Act::Normal]).times(
            1,
            At::Mail,
            [Act::reply("421 4.4.2 timeout, closing"), Act::Close],
        );
        let server = SmtpServer::start(script).await;
        let (outcome, mut connection) = send(&server).await;
        assert_accepted(&outcome);
        assert_broken(&hand_over(&mut connection, "c@x.org", MESSAGE).await, Phase::Mail, true);
        assert!(!connection.reusable());
        assert_eq!(server.accepted().len(), 1);
    }
}

#[tokio::test]
async fn between_the_354_and_the_body_it_is_definite() {
    for act in [Act::Close, Act::Reset] {
        for script in scripts() {
            let server = SmtpServer::start(script.always(At::Body, [act.clone()])).await;
            let mut connection = connect(&server).await;
            connection.envelope(&address("a@x.org"), &address("b@x.org"), MESSAGE.len()).await.unwrap();
            server.wait(LIMIT, "the relay closes", |server| server.open() == 0).await;
            assert_broken(&connection.body(MESSAGE, &uid()).await, Phase::Body, false);
            assert!(server.accepted().is_empty());
        }
    }
}

#[tokio::test]
async fn in_the_middle_of_a_body_that_fills_the_socket_it_is_definite() {
    let message = b"forty characters of text in every line..\r\n".repeat(500_000);
    for act in [Act::Close, Act::Reset] {
        let server = SmtpServer::start(Script::new().always(At::Body, [Act::Read(100), act])).await;
        let mut connection = connect(&server).await;
        assert_broken(&hand_over(&mut connection, "b@x.org", &message).await, Phase::Body, false);
        assert!(server.accepted().is_empty());
    }
}

#[tokio::test]
async fn after_the_dot_it_is_unknown_whether_or_not_the_relay_took_it() {
    for act in [Act::Close, Act::Reset] {
        for (acts, taken) in [(vec![Act::Accept, act.clone()], 1), (vec![act.clone()], 0)] {
            let server = SmtpServer::start(Script::new().always(At::Dot, acts)).await;
            let (outcome, connection) = send(&server).await;
            assert_unknown(&outcome);
            assert!(!connection.reusable());
            assert_eq!(classify(&outcome, &Overrides::NONE).action, Action::Hold);
            assert_eq!(server.accepted().len(), taken);
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_no_answer() {
    for bytes in [&b"250 2.0.0 o"[..], b"250-first\r\n", b"25"] {
        let script = Script::new().always(At::Dot, [Act::Raw(bytes.to_vec()), Act::Close]);
        let server = SmtpServer::start(script).await;
        assert_unknown(&send(&server).await.0);
    }
}

#[tokio::test]
async fn at_quit_it_does_not_matter() {
    for act in [Act::Close, Act::Reset, Act::reply("500 garbage"), Act::Raw(b"\xff\xff\r\n".to_vec())] {
        let server = SmtpServer::start(Script::new().always(At::Quit, [act])).await;
        let (outcome, connection) = send(&server).await;
        assert_accepted(&outcome);
        connection.quit().await;
        assert_eq!(server.accepted().len(), 1);
    }
}
