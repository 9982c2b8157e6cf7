//! A relay that answers while the body is still on its way.

use digestd::domain::reply::Phase;

use super::{assert_broken, assert_refused, connect, hand_over};
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

/// More than the sockets on both sides hold.
fn large() -> Vec<u8> {
    b"forty characters of text in every line..\r\n".repeat(500_000)
}

#[tokio::test]
async fn a_refusal_stops_the_body_and_is_definite() {
    for after in [Act::Hang, Act::Delay(std::time::Duration::from_millis(50))] {
        let acts = [Act::Read(1000), Act::reply("552 5.3.4 too large"), after, Act::Close];
        let server = SmtpServer::start(Script::new().always(At::Body, acts)).await;
        let mut connection = connect(&server).await;
        assert_refused(&hand_over(&mut connection, "b@x.org", &large()).await, Phase::Body, 552);
        assert!(!connection.reusable());
        assert!(server.accepted().is_empty());
    }
}

#[tokio::test]
async fn an_acceptance_before_the_dot_is_not_believed() {
    let acts = [Act::Read(1000), Act::reply("250 2.0.0 thanks, enough"), Act::Hang];
    let server = SmtpServer::start(Script::new().always(At::Body, acts)).await;
    let mut connection = connect(&server).await;
    assert_broken(&hand_over(&mut connection, "b@x.org", &large()).await, Phase::Body, false);
    assert!(!connection.reusable());
}
