//! The hand-over path alone, without a database, beside Debian's `smtp-source`.

use std::time::Instant;

use digestd::domain::address::Address;
use digestd::domain::ids::OrgId;
use digestd::domain::message::MessageUid;
use digestd::domain::reply::HandOver;
use digestd::domain::week::SendKey;
use digestd::mail::transport::{SmtpRelay, SmtpSettings, TlsMode, Transport};

use crate::figures::{line, rate, title};
use crate::relay::{Sink, slow_proxy, smtp_source};
use crate::world::body;

const ROUNDS: usize = 5;

pub async fn run() {
    let sink = Sink::start();
    let slow_port = slow_proxy(sink.port).await;
    title("hand-over, 8 KB, messages/s", "digestd", "smtp-source");
    for (name, port, connections, messages) in [
        ("fast, 8 connections", sink.port, 8, 20_000),
        ("fast, 32 connections", sink.port, 32, 20_000),
        ("20 ms, 8 connections", slow_port, 8, 400),
        ("20 ms, 32 connections", slow_port, 32, 1600),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(digestd(port, connections, messages).await);
            theirs.push(smtp_source(port, connections, messages).await);
        }
        line(name, ours, theirs);
    }
}

async fn digestd(port: u16, connections: usize, messages: usize) -> f64 {
    let mut settings = SmtpSettings::new("127.0.0.1", port, TlsMode::Plaintext);
    settings.max_messages_per_connection = u32::MAX;
    let transport = Transport::Smtp(SmtpRelay::new(settings).unwrap());
    let body = body();
    let started = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (transport, body) = (transport.clone(), body.clone());
            tokio::spawn(async move {
                let (from, to) = (Address::parse("a@x.org").unwrap(), Address::parse("b@x.org").unwrap());
                let uid = MessageUid::derive(
                    &OrgId::parse("acme").unwrap(),
                    SendKey::parse("2026-W28").unwrap(),
                    to.normal(),
                );
                let mut connection = transport.connect().await.unwrap();
                for _ in 0..messages / connections {
                    connection.envelope(&from, &to, body.len()).await.unwrap();
                    let outcome = connection.body(&body, &uid).await;
                    assert!(matches!(outcome, HandOver::Accepted(_)), "{outcome:?}");
                }
                connection.quit().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    rate(messages, started)
}
