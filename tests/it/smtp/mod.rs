//! Submission against a relay that misbehaves by script: one file per misbehaviour.
//!
//! Each test compares what the client was told with what the relay counted as accepted.

use std::time::{Duration, Instant};

use digestd::domain::address::Address;
use digestd::domain::ids::OrgId;
use digestd::domain::message::MessageUid;
use digestd::domain::reply::{HandOver, Phase};
use digestd::domain::week::SendKey;
use digestd::mail::transport::{Connection, SmtpRelay, SmtpSettings, Timeouts, TlsMode, Transport};

use crate::support::smtp_server::SmtpServer;

mod answers_before_the_dot;
mod bare_and_odd_replies;
mod closes;
mod folder;
mod hangs;
mod limits_of_a_connection;
mod real_aiosmtpd;
mod real_postfix;
mod real_sink;
mod refuses;
mod scripted_server;
mod talks_too_much;
mod tls_flaws;
mod trickles;
mod well_behaved;

/// How long a hasty client waits: short, and yet far longer than anything on the loopback takes.
const PATIENCE: Duration = Duration::from_millis(700);

fn settings(server: &SmtpServer) -> SmtpSettings {
    SmtpSettings::new("127.0.0.1", server.port(), TlsMode::Plaintext)
}

/// A client that waits only briefly once the hello is over.
fn hasty(server: &SmtpServer) -> SmtpSettings {
    let timeouts = Timeouts { command: PATIENCE, body: PATIENCE, dot: PATIENCE, ..Timeouts::default() };
    SmtpSettings { timeouts, ..settings(server) }
}

/// The same towards a server that speaks TLS, with trust in its authority.
fn tls_settings(server: &SmtpServer, tls: TlsMode) -> SmtpSettings {
    SmtpSettings { tls, ca_pem: Some(server.certs().ca.clone()), ..settings(server) }
}

fn transport(settings: SmtpSettings) -> Transport {
    Transport::Smtp(SmtpRelay::new(settings).unwrap())
}

async fn connect(server: &SmtpServer) -> Connection {
    transport(settings(server)).connect().await.unwrap()
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn uid() -> MessageUid {
    MessageUid::derive(&OrgId::parse("acme").unwrap(), SendKey::parse("2026-W28").unwrap(), "b@x.org")
}

const MESSAGE: &[u8] = b"Subject: hello\r\n\r\nOne line.\r\n.a line with a dot\r\n";

/// One whole hand-over on an open connection.
async fn hand_over(connection: &mut Connection, to: &str, message: &[u8]) -> HandOver {
    match connection.envelope(&address("digest@app.example"), &address(to), message.len()).await {
        Ok(()) => connection.body(message, &uid()).await,
        Err(hand_over) => hand_over,
    }
}

/// One whole hand-over on a fresh connection.
async fn send(server: &SmtpServer) -> (HandOver, Connection) {
    send_as(settings(server)).await
}

/// The same with settings of one's own, in bounded time.
async fn send_as(settings: SmtpSettings) -> (HandOver, Connection) {
    let started = Instant::now();
    let mut connection = transport(settings).connect().await.unwrap();
    let outcome = hand_over(&mut connection, "b@x.org", MESSAGE).await;
    assert!(started.elapsed() < Duration::from_secs(10), "took {:?}", started.elapsed());
    (outcome, connection)
}

#[track_caller]
fn assert_refused(outcome: &HandOver, phase: Phase, code: u16) {
    match outcome {
        HandOver::Refused { phase: at, reply } if *at == phase && reply.code == code => {}
        other => panic!("expected {code} at {phase}, got {other:?}"),
    }
}

#[track_caller]
fn assert_broken(outcome: &HandOver, phase: Phase, stale: bool) {
    match outcome {
        HandOver::Broken { phase: at, stale: was, .. } if *at == phase && *was == stale => {}
        other => panic!("expected a break at {phase}, stale {stale}, got {other:?}"),
    }
}

#[track_caller]
fn assert_accepted(outcome: &HandOver) {
    assert!(matches!(outcome, HandOver::Accepted(_)), "expected acceptance, got {outcome:?}");
}

#[track_caller]
fn assert_unknown(outcome: &HandOver) {
    assert!(matches!(outcome, HandOver::Unknown { .. }), "expected an unknown outcome, got {outcome:?}");
}
