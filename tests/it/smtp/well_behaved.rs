//! A relay that does everything right: what leaves, in how many writes, and how it is reused.

use digestd::domain::reply::{HandOver, Phase, RelayFailureKind};
use digestd::mail::transport::{SmtpSettings, TlsMode};

use super::{MESSAGE, address, assert_accepted, connect, hand_over, send, settings, tls_settings, transport};
use crate::support::smtp_server::{Script, ServerTls, SmtpServer};

#[tokio::test]
async fn a_message_arrives_byte_for_byte_and_is_counted_once() {
    let server = SmtpServer::start(Script::new()).await;
    let (outcome, _) = send(&server).await;
    let HandOver::Accepted(reply) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reply.text, "2.0.0 queued as 4XyZ");
    let accepted = server.accepted();
    assert_eq!(accepted.len(), 1);
    assert_eq!((accepted[0].from.as_str(), accepted[0].to.as_str()), ("digest@app.example", "b@x.org"));
    assert_eq!(accepted[0].data, MESSAGE);
}

#[tokio::test]
async fn bytes_that_could_smuggle_a_second_message_do_not_leave() {
    for message in [&b"Subject: x\r\n\r\nno end"[..], b"a\n.\nMAIL FROM:<b@x.org>\r\n", b"a\r.\r\r\n"] {
        let server = SmtpServer::start(Script::new()).await;
        let mut connection = connect(&server).await;
        super::assert_refused(&hand_over(&mut connection, "b@x.org", message).await, Phase::Body, 554);
        assert!(!connection.reusable(), "the relay still waits for a body");
        drop(connection);
        assert!(server.accepted().is_empty());
    }
}

#[tokio::test]
async fn a_large_message_full_of_dots_arrives_whole() {
    let server = SmtpServer::start(Script::new()).await;
    let mut connection = connect(&server).await;
    let message = b".leading dot\r\n..two\r\n.\r\nplain\r\n".repeat(20_000);
    assert_accepted(&hand_over(&mut connection, "b@x.org", &message).await);
    assert_eq!(server.accepted()[0].data, message);
}

#[tokio::test]
async fn the_envelope_leaves_in_one_write_where_pipelining_is_offered() {
    let server = SmtpServer::start(Script::new().offer("PIPELINING").offer("SIZE 100000")).await;
    let (outcome, connection) = send(&server).await;
    assert_accepted(&outcome);
    connection.quit().await;
    let expected =
        format!("MAIL FROM:<digest@app.example> SIZE={}\r\nRCPT TO:<b@x.org>\r\nDATA\r\n", MESSAGE.len());
    let chunks: Vec<_> =
        server.chunks().iter().map(|chunk| String::from_utf8_lossy(chunk).into_owned()).collect();
    assert_eq!(chunks[1], expected);
    assert_eq!(chunks[2], "Subject: hello\r\n\r\nOne line.\r\n..a line with a dot\r\n.\r\n");
    assert_eq!(chunks[3], "QUIT\r\n");
    assert_eq!(chunks.len(), 4, "{chunks:?}");
}

#[tokio::test]
async fn the_envelope_leaves_one_by_one_where_pipelining_is_not_offered() {
    let server = SmtpServer::start(Script::new()).await;
    assert_accepted(&send(&server).await.0);
    let chunks = server.chunks();
    assert_eq!(chunks[1], b"MAIL FROM:<digest@app.example>\r\n");
    assert_eq!(chunks[2], b"RCPT TO:<b@x.org>\r\n");
    assert_eq!(chunks[3], b"DATA\r\n");
}

#[tokio::test]
async fn many_messages_share_one_connection_without_noop_or_rset() {
    for script in [Script::new(), Script::new().offer("PIPELINING")] {
        let server = SmtpServer::start(script).await;
        let mut connection = connect(&server).await;
        for i in 0..20 {
            assert!(connection.reusable());
            assert_accepted(&hand_over(&mut connection, &format!("u{i}@x.org"), MESSAGE).await);
        }
        assert_eq!((server.accepted().len(), server.connections()), (20, 1));
        let commands = server.commands();
        assert_eq!(commands.len(), 1 + 3 * 20, "{commands:?}");
    }
}

#[tokio::test]
async fn a_dropped_connection_after_the_354_sends_nothing() {
    let server = SmtpServer::start(Script::new()).await;
    let mut connection = connect(&server).await;
    connection.envelope(&address("a@x.org"), &address("b@x.org"), 10).await.unwrap();
    assert!(!connection.reusable(), "the relay waits for a body");
    connection.quit().await;
    server.wait(std::time::Duration::from_secs(5), "the socket closes", |server| server.open() == 0).await;
    assert!(server.accepted().is_empty());
    assert!(!server.commands().contains(&"QUIT".to_owned()), "QUIT would be the body's first line");
}

#[tokio::test]
async fn implicit_tls_and_starttls_work_with_auth_and_a_client_certificate() {
    for (ours, theirs) in [(TlsMode::Implicit, ServerTls::Implicit), (TlsMode::StartTls, ServerTls::StartTls)]
    {
        let script = Script::new().tls(theirs).login("user", "pass word").client_certificate();
        let server = SmtpServer::start(script.offer("PIPELINING")).await;
        let certs = server.certs();
        let identity = digestd::mail::transport::ClientIdentity {
            chain_pem: certs.client.clone(),
            key_pem: certs.client_key.clone().into(),
        };
        let settings = SmtpSettings {
            client_identity: Some(identity),
            credentials: Some(("user".to_owned(), "pass word".into())),
            ..tls_settings(&server, ours)
        };
        let mut connection = transport(settings).connect().await.unwrap();
        for _ in 0..3 {
            assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
        }
        assert_eq!(server.accepted().len(), 3);
    }
}

#[tokio::test]
async fn a_large_message_arrives_whole_through_tls() {
    let server = SmtpServer::start(Script::new().tls(ServerTls::Implicit)).await;
    let mut connection = transport(tls_settings(&server, TlsMode::Implicit)).connect().await.unwrap();
    let message = b"forty characters of text in every line..\r\n".repeat(10_000);
    assert_accepted(&hand_over(&mut connection, "b@x.org", &message).await);
    assert_eq!(server.accepted()[0].data, message);
}

#[tokio::test]
async fn auth_login_is_used_where_plain_is_not_offered() {
    use crate::support::smtp_server::{Act, At};
    let script = Script::new()
        .login("user", "secret")
        .always(At::Ehlo, [Act::Raw(b"250-relay.test\r\n250-AUTH=LOGIN\r\n250 SIZE\r\n".to_vec())]);
    let server = SmtpServer::start(script).await;
    let settings = SmtpSettings {
        credentials: Some(("user".to_owned(), "secret".into())),
        auth_without_tls: true,
        ..settings(&server)
    };
    let mut connection = transport(settings).connect().await.unwrap();
    assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
}

#[tokio::test]
async fn a_wrong_password_is_an_auth_failure_with_the_reply() {
    let server = SmtpServer::start(Script::new().login("user", "right")).await;
    let settings = SmtpSettings {
        credentials: Some(("user".to_owned(), "wrong".into())),
        auth_without_tls: true,
        ..settings(&server)
    };
    let failure = transport(settings).connect().await.unwrap_err();
    assert!(matches!(&failure.kind, RelayFailureKind::Auth(Some(reply)) if reply.code == 535), "{failure:?}");
    assert!(!format!("{failure:?} {failure}").contains("wrong\""), "no password in the error");
}

#[tokio::test]
async fn a_relay_without_a_known_mechanism_is_an_auth_failure() {
    let server = SmtpServer::start(Script::new().offer("AUTH XOAUTH2")).await;
    let settings = SmtpSettings {
        credentials: Some(("user".to_owned(), "secret".into())),
        auth_without_tls: true,
        ..settings(&server)
    };
    let failure = transport(settings).connect().await.unwrap_err();
    assert!(matches!(failure.kind, RelayFailureKind::Auth(None)), "{failure:?}");
}

#[tokio::test]
async fn an_address_beyond_ascii_goes_only_where_smtputf8_is_offered() {
    let server = SmtpServer::start(Script::new()).await;
    let mut connection = connect(&server).await;
    super::assert_refused(&hand_over(&mut connection, "zoë@x.org", MESSAGE).await, Phase::Rcpt, 553);
    assert!(connection.reusable(), "nothing was said to the relay");
    assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);

    let server = SmtpServer::start(Script::new().offer("SMTPUTF8")).await;
    let mut connection = connect(&server).await;
    assert_accepted(&hand_over(&mut connection, "zoë@x.org", MESSAGE).await);
    assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
    let mails: Vec<_> = server.commands().into_iter().filter(|line| line.starts_with("MAIL")).collect();
    assert_eq!(mails, ["MAIL FROM:<digest@app.example> SMTPUTF8", "MAIL FROM:<digest@app.example>"]);
}

#[tokio::test]
async fn a_message_over_the_announced_size_is_not_even_tried() {
    let server = SmtpServer::start(Script::new().offer("SIZE 20")).await;
    let (outcome, connection) = send(&server).await;
    super::assert_refused(&outcome, Phase::Mail, 552);
    assert!(connection.reusable());
    assert_eq!(server.commands().len(), 1, "only EHLO");
}
