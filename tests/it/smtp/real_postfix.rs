//! Postfix as a second opinion: OpenSSL, Cyrus SASL, and limits as relays really have them.

use digestd::domain::reply::{Phase, RelayFailure, RelayFailureKind};
use digestd::mail::transport::{Connection, SmtpSettings};

use super::{MESSAGE, assert_accepted, assert_refused, hand_over, transport};
use crate::support::certs::{Certs, Flaw, version_1};
use crate::support::postfix::{LOGIN, Postfix, Queued, greylist};

async fn connect(postfix: &Postfix) -> Connection {
    transport(postfix.settings(LOGIN.1)).connect().await.unwrap()
}

async fn refused(settings: SmtpSettings) -> RelayFailure {
    transport(settings).connect().await.unwrap_err()
}

fn recipients(queued: &[Queued]) -> Vec<&str> {
    queued.iter().map(|message| message.to.as_str()).collect()
}

#[tokio::test]
async fn postfix_takes_each_message_once_behind_tls_and_a_login() {
    let postfix = Postfix::start(&[]).await;
    let mut connection = connect(&postfix).await;
    let mut sent = Vec::new();
    for n in 0..20 {
        // What it cannot pass on stays in its own queue, and was accepted all the same.
        let to = format!("u{n}@{}.example", if n % 5 == 0 { "away" } else { "plain" });
        assert!(connection.reusable());
        assert_accepted(&hand_over(&mut connection, &to, MESSAGE).await);
        sent.push(to);
    }
    connection.quit().await;
    let queued = postfix.queued().await;
    let mut taken = recipients(&queued);
    taken.sort_unstable();
    sent.sort_unstable();
    assert_eq!(taken, sent);
    assert_eq!(queued.iter().filter(|message| message.status == "deferred").count(), 4);
}

#[tokio::test]
async fn a_wrong_password_an_unknown_authority_and_no_login_are_told_apart() {
    let postfix = Postfix::start(&[]).await;
    let failure = refused(postfix.settings("wrong")).await;
    assert!(matches!(&failure.kind, RelayFailureKind::Auth(Some(reply)) if reply.code == 535), "{failure:?}");

    let elsewhere = SmtpSettings { ca_pem: Some(Certs::new(Flaw::None).ca), ..postfix.settings(LOGIN.1) };
    let failure = refused(elsewhere).await;
    assert!(matches!(failure.kind, RelayFailureKind::Certificate), "{failure:?}");

    let anonymous = SmtpSettings { credentials: None, ..postfix.settings(LOGIN.1) };
    let mut connection = transport(anonymous).connect().await.unwrap();
    assert_refused(&hand_over(&mut connection, "b@plain.example", MESSAGE).await, Phase::Rcpt, 554);
    assert_eq!(postfix.queued().await, []);
}

#[tokio::test]
async fn a_certificate_of_the_first_version_is_somebodys_to_replace() {
    // It looked like a relay that is away, and was tried again for days.
    let (pem, key) = version_1();
    let certs = Certs { ca: pem.clone(), server: pem, server_key: key, ..Certs::new(Flaw::None) };
    let postfix = Postfix::start_with(certs, &[]).await;
    let failure = refused(postfix.settings(LOGIN.1)).await;
    assert_eq!((failure.phase, &failure.kind), (Phase::Tls, &RelayFailureKind::Certificate), "{failure}");
}

#[tokio::test]
async fn its_limits_are_heard_at_the_greeting_and_at_mail() {
    let postfix = Postfix::start(&[
        "smtpd_client_message_rate_limit = 3",
        "smtpd_client_connection_count_limit = 2",
        "anvil_rate_time_unit = 60s",
        "message_size_limit = 2000",
    ])
    .await;
    let mut connection = connect(&postfix).await;
    let mut second = connect(&postfix).await;
    let failure = refused(postfix.settings(LOGIN.1)).await;
    assert_eq!(failure.phase, Phase::Greeting);
    let RelayFailureKind::Refused(reply) = &failure.kind else { panic!("{failure:?}") };
    assert!(reply.code == 421 && reply.text.contains("too many connections"), "{reply:?}");

    // Its EHLO names the size, so it is not even asked.
    let large = [MESSAGE, &[b'x'; 2000]].concat();
    assert_refused(&hand_over(&mut second, "large@plain.example", &large).await, Phase::Mail, 552);
    for n in 0..3 {
        assert_accepted(&hand_over(&mut connection, &format!("u{n}@plain.example"), MESSAGE).await);
    }
    for connection in [&mut connection, &mut second] {
        assert_refused(&hand_over(connection, "u3@plain.example", MESSAGE).await, Phase::Mail, 450);
        assert!(connection.reusable());
    }
    assert_eq!(recipients(&postfix.queued().await).len(), 3);
}

#[tokio::test]
async fn a_greylisted_recipient_is_taken_on_the_same_connection_later() {
    let policy = greylist().await;
    let restrictions = format!(
        "smtpd_recipient_restrictions = check_policy_service inet:127.0.0.1:{policy}, permit_sasl_authenticated, reject"
    );
    let postfix = Postfix::start(&[&restrictions]).await;
    let mut connection = connect(&postfix).await;
    assert_refused(&hand_over(&mut connection, "a@grey.example", MESSAGE).await, Phase::Rcpt, 450);
    assert_accepted(&hand_over(&mut connection, "b@plain.example", MESSAGE).await);
    assert_accepted(&hand_over(&mut connection, "a@grey.example", MESSAGE).await);
    let queued = postfix.queued().await;
    let mut taken = recipients(&queued);
    taken.sort_unstable();
    assert_eq!(taken, ["a@grey.example", "b@plain.example"]);
}

#[tokio::test]
async fn a_client_that_makes_too_many_errors_is_hung_up_on_and_connects_again() {
    let gone = "smtpd_recipient_restrictions = check_recipient_access inline:{ {gone@plain.example = 550 5.1.1 no} }, \
                permit_sasl_authenticated, reject";
    let postfix = Postfix::start(&[gone, "smtpd_hard_error_limit = 4", "smtpd_error_sleep_time = 0"]).await;
    let mut connection = connect(&postfix).await;
    let mut refusals = 0;
    while connection.reusable() {
        let outcome = hand_over(&mut connection, "gone@plain.example", MESSAGE).await;
        assert!(!outcome.phase().as_str().contains("dot"), "{outcome:?}");
        refusals += 1;
        assert!(refusals < 10, "it hangs up after four errors");
    }
    let mut again = connect(&postfix).await;
    assert_accepted(&hand_over(&mut again, "b@plain.example", MESSAGE).await);
    assert_eq!(recipients(&postfix.queued().await), ["b@plain.example"]);
}
