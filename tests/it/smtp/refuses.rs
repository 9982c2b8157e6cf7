//! A relay that refuses, politely, at every step; and what the program makes of it.

use digestd::deliver::classify::{Action, PauseKind, RelayEffect, Scope, classify};
use digestd::deliver::providers::Overrides;
use digestd::domain::reply::{Phase, RelayFailureKind};
use digestd::domain::retry::Patience;
use digestd::mail::transport::SmtpSettings;

use super::{MESSAGE, assert_accepted, assert_refused, connect, hand_over, send, settings, transport};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

const STEPS: [(At, Phase); 4] =
    [(At::Mail, Phase::Mail), (At::Rcpt, Phase::Rcpt), (At::Data, Phase::Data), (At::Dot, Phase::Dot)];

/// With and without pipelining.
fn scripts() -> [Script; 2] {
    [Script::new(), Script::new().offer("PIPELINING")]
}

#[tokio::test]
async fn a_refusal_is_definite_at_every_step_and_the_connection_goes_on() {
    for (at, phase) in STEPS {
        for (code, line) in [(451, "451 4.3.0 not now"), (550, "550 5.0.0 never"), (571, "571 odd")] {
            for script in scripts() {
                let server = SmtpServer::start(script.times(1, at, [Act::reply(line)])).await;
                let (outcome, mut connection) = send(&server).await;
                assert_refused(&outcome, phase, code);
                assert!(server.accepted().is_empty());
                assert!(connection.reusable(), "after {line} at {phase}");
                assert_accepted(&hand_over(&mut connection, "c@x.org", MESSAGE).await);
                assert_eq!((server.accepted().len(), server.connections()), (1, 1));
                assert_eq!(server.accepted()[0].to, "c@x.org");
            }
        }
    }
}

#[tokio::test]
async fn after_a_421_the_connection_is_not_used_again() {
    for (at, phase) in STEPS {
        for script in scripts() {
            let server = SmtpServer::start(script.times(1, at, [Act::reply("421 4.3.2 closing")])).await;
            let (outcome, connection) = send(&server).await;
            assert_refused(&outcome, phase, 421);
            assert!(!connection.reusable());
            assert!(server.accepted().is_empty());
        }
    }
}

#[tokio::test]
async fn many_refused_recipients_in_a_row_leave_each_other_alone() {
    for script in scripts() {
        let server =
            SmtpServer::start(script.to("gone@x.org", At::Rcpt, [Act::reply("550 5.1.1 gone")])).await;
        let mut connection = connect(&server).await;
        for _ in 0..5 {
            assert_refused(&hand_over(&mut connection, "gone@x.org", MESSAGE).await, Phase::Rcpt, 550);
            assert_accepted(&hand_over(&mut connection, "here@x.org", MESSAGE).await);
        }
        assert_eq!((server.accepted().len(), server.connections()), (5, 1));
        assert!(server.accepted().iter().all(|accepted| accepted.to == "here@x.org"));
    }
}

#[tokio::test]
async fn a_354_after_a_refused_recipient_is_answered_with_the_dot_alone() {
    // A relay may answer DATA before it knows that no recipient is left (RFC 2920 §3.1).
    let script = Script::new().offer("PIPELINING").times(1, At::Rcpt, [Act::reply("550 5.1.1 gone")]).times(
        1,
        At::Data,
        [Act::reply("354 go on")],
    );
    let server = SmtpServer::start(script).await;
    let (outcome, mut connection) = send(&server).await;
    assert_refused(&outcome, Phase::Rcpt, 550);
    assert!(server.accepted().is_empty());
    assert!(connection.reusable());
    assert_accepted(&hand_over(&mut connection, "c@x.org", MESSAGE).await);
    assert_eq!((server.accepted().len(), server.connections()), (1, 1));
}

#[tokio::test]
async fn a_354_after_a_refused_sender_is_never_answered_with_an_empty_message() {
    let script = Script::new()
        .offer("PIPELINING")
        .times(1, At::Mail, [Act::reply("550 5.7.1 not you")])
        .always(At::Rcpt, [Act::reply("250 fine")])
        .always(At::Data, [Act::reply("354 go on")]);
    let server = SmtpServer::start(script).await;
    let (outcome, connection) = send(&server).await;
    assert_refused(&outcome, Phase::Mail, 550);
    assert!(!connection.reusable());
    connection.quit().await;
    server.wait(std::time::Duration::from_secs(5), "the socket closes", |server| server.open() == 0).await;
    assert!(server.accepted().is_empty());
}

#[tokio::test]
async fn a_refused_rset_means_a_new_connection_and_costs_nothing() {
    for script in scripts() {
        let script = script
            .times(1, At::Rcpt, [Act::reply("550 5.1.1 gone")])
            .always(At::Rset, [Act::reply("502 5.5.1 no RSET here")]);
        let server = SmtpServer::start(script).await;
        let (_, mut connection) = send(&server).await;
        super::assert_broken(&hand_over(&mut connection, "c@x.org", MESSAGE).await, Phase::Mail, true);
        assert!(!connection.reusable());
        assert!(server.accepted().is_empty());
    }
}

#[tokio::test]
async fn a_refused_greeting_or_ehlo_is_the_relays_matter() {
    for (at, phase) in [(At::Greeting, Phase::Greeting), (At::Ehlo, Phase::Ehlo)] {
        for (code, line) in [(421, "421 too many connections"), (554, "554 no SMTP here"), (502, "502 what")]
        {
            let server = SmtpServer::start(Script::new().always(at, [Act::reply(line)])).await;
            let failure = transport(settings(&server)).connect().await.unwrap_err();
            assert_eq!(failure.phase, phase);
            assert!(matches!(&failure.kind, RelayFailureKind::Refused(reply) if reply.code == code));
        }
    }
}

#[tokio::test]
async fn auth_tells_a_refusal_for_now_from_one_for_good() {
    for (line, for_good) in [
        ("454 4.7.0 later", false),
        ("432 4.3.2 crowded", false),
        ("535 5.7.8 wrong", true),
        ("534 5.7.9 too weak", true),
        ("538 5.7.11 encrypt", true),
        ("530 5.7.0 first", true),
    ] {
        let script = Script::new().login("user", "secret").always(At::Auth, [Act::reply(line)]);
        let server = SmtpServer::start(script).await;
        let settings = SmtpSettings {
            credentials: Some(("user".to_owned(), "secret".into())),
            auth_without_tls: true,
            ..settings(&server)
        };
        let failure = transport(settings).connect().await.unwrap_err();
        assert_eq!(failure.phase, Phase::Auth);
        let found = matches!(failure.kind, RelayFailureKind::Auth(Some(_)));
        assert_eq!(found, for_good, "{line}: {failure:?}");
    }
}

#[tokio::test]
async fn every_row_of_the_outcome_table_is_met_through_a_real_socket() {
    use Action::{PutBack, Retry};
    use RelayEffect::{Answered, Failing, Pause, PolicyRefusal, Throttled};
    use Scope::{Message, Recipient, Relay};
    let fail = |bad_address| Action::Fail { bad_address };
    let account = Pause(PauseKind::Account);
    let rows = [
        (At::Mail, "421 4.3.2 closing", Relay, PutBack, Failing),
        (At::Mail, "451 4.3.0 later", Relay, PutBack, Throttled),
        (At::Mail, "452 4.3.1 full", Relay, PutBack, Throttled),
        (At::Mail, "550 5.7.1 not you", Relay, PutBack, account),
        (At::Mail, "554 5.2.0 no", Relay, PutBack, account),
        (At::Mail, "552 5.3.4 too large", Message, fail(false), Answered),
        (At::Rcpt, "421 4.3.2 closing", Recipient, Retry(Patience::Ladder), Failing),
        (At::Rcpt, "450 4.2.0 later", Recipient, Retry(Patience::Greylisted), Answered),
        (At::Rcpt, "451 4.7.1 greylisted", Recipient, Retry(Patience::Greylisted), Answered),
        (At::Rcpt, "550 5.1.1 gone", Recipient, fail(true), Answered),
        (At::Rcpt, "552 5.2.2 full", Recipient, fail(true), Answered),
        (At::Rcpt, "550 no", Recipient, fail(false), Answered),
        (At::Rcpt, "554 5.7.1 relay access denied", Recipient, Retry(Patience::Policy), PolicyRefusal),
        (At::Rcpt, "571 no", Recipient, Retry(Patience::Policy), PolicyRefusal),
        (At::Rcpt, "550 5.1.8 bad sender", Relay, PutBack, account),
        (At::Data, "421 4.3.2 closing", Message, Retry(Patience::Ladder), Failing),
        (At::Data, "451 4.3.0 later", Message, Retry(Patience::Ladder), Answered),
        (At::Data, "454 Throttling failure", Relay, PutBack, Throttled),
        (At::Data, "550 5.7.1 no", Message, Retry(Patience::Policy), PolicyRefusal),
        (At::Data, "550 no", Message, fail(false), PolicyRefusal),
        (At::Dot, "421 4.3.2 closing", Message, Retry(Patience::Ladder), Answered),
        (At::Dot, "451 4.3.0 later", Message, Retry(Patience::Ladder), Answered),
        (At::Dot, "454 4.7.0 Throttling failure", Relay, PutBack, Throttled),
        (At::Dot, "552 5.3.4 too large", Message, fail(false), Answered),
        (At::Dot, "550 5.7.1 no", Message, Retry(Patience::Policy), PolicyRefusal),
        (At::Dot, "554 transaction failed", Message, fail(false), PolicyRefusal),
    ];
    for (at, line, scope, action, relay) in rows {
        for script in scripts() {
            let server = SmtpServer::start(script.always(at, [Act::reply(line)])).await;
            let (outcome, _) = send(&server).await;
            let verdict = classify(&outcome, &Overrides::NONE);
            assert_eq!(
                (verdict.scope, verdict.action, verdict.relay),
                (scope, action, relay),
                "{line} at {at:?}: {outcome:?}"
            );
            assert!(server.accepted().is_empty());
        }
    }
}

#[tokio::test]
async fn a_relay_that_recovers_is_used_on_over_the_same_connection() {
    let down = || Script::new().always(At::Mail, [Act::reply("451 4.3.0 out of disk")]);
    let server = SmtpServer::start(down()).await;
    let (outcome, mut connection) = send(&server).await;
    assert_refused(&outcome, Phase::Mail, 451);
    server.rescript(Script::new());
    assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
    server.rescript(down());
    assert_refused(&hand_over(&mut connection, "b@x.org", MESSAGE).await, Phase::Mail, 451);
    assert_eq!((server.accepted().len(), server.connections()), (1, 1));
}
