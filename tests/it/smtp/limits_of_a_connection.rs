//! When a healthy connection is given up.

use std::time::Duration;

use super::{MESSAGE, assert_accepted, hand_over, send, settings, transport};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

#[tokio::test]
async fn after_its_share_of_messages_refused_ones_included() {
    let server = SmtpServer::start(Script::new().times(1, At::Rcpt, [Act::reply("550 5.1.1 gone")])).await;
    let mut settings = settings(&server);
    settings.max_messages_per_connection = 3;
    let mut connection = transport(settings).connect().await.unwrap();
    for _ in 0..3 {
        assert!(connection.reusable());
        hand_over(&mut connection, "b@x.org", MESSAGE).await;
    }
    assert!(!connection.reusable());
    assert_eq!(server.accepted().len(), 2);
}

#[tokio::test]
async fn at_its_age_or_after_silence() {
    let server = SmtpServer::start(Script::new()).await;
    for (age, idle) in [(Duration::ZERO, Duration::from_mins(1)), (Duration::from_mins(1), Duration::ZERO)] {
        let mut settings = settings(&server);
        (settings.max_connection_age, settings.max_idle) = (age, idle);
        let mut connection = transport(settings).connect().await.unwrap();
        assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
        assert!(!connection.reusable());
    }
}

#[tokio::test]
async fn after_an_envelope_that_was_given_up_half_way() {
    let server = SmtpServer::start(Script::new().times(2, At::Rcpt, [Act::Hang])).await;
    let mut connection = super::connect(&server).await;
    let (from, to) = (super::address("a@x.org"), super::address("b@x.org"));
    let given_up = tokio::time::timeout(Duration::from_millis(50), connection.envelope(&from, &to, 10)).await;
    assert!(given_up.is_err(), "the relay hangs");
    assert!(!connection.reusable(), "the answer to RCPT may still come");
    drop(connection);
    assert!(server.accepted().is_empty());
}

#[tokio::test]
async fn messages_over_many_connections_at_once_are_each_accepted_once() {
    let server = SmtpServer::start(Script::new().offer("PIPELINING")).await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let transport = transport(settings(&server));
            tokio::spawn(async move {
                let mut connection = transport.connect().await.unwrap();
                for i in 0..25 {
                    assert_accepted(
                        &hand_over(&mut connection, &format!("u{task}-{i}@x.org"), MESSAGE).await,
                    );
                }
                connection.quit().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut to: Vec<_> = server.accepted().into_iter().map(|accepted| accepted.to).collect();
    to.sort();
    to.dedup();
    assert_eq!((to.len(), server.accepted().len(), server.connections()), (200, 200, 8));
    let _ = send(&server).await;
}
