//! A relay whose TLS is not good enough. Nothing is said to it that matters.

use digestd::domain::reply::{Phase, RelayFailureKind};
use digestd::mail::transport::{SettingsError, SmtpRelay, SmtpSettings, TlsMode};

use super::{settings, tls_settings, transport};
use crate::support::certs::Flaw;
use crate::support::smtp_server::{Script, ServerTls, SmtpServer};

#[tokio::test]
async fn a_certificate_that_is_expired_untrusted_or_another_hosts_is_refused() {
    for flaw in [Flaw::Expired, Flaw::OtherHost, Flaw::Untrusted] {
        for (ours, theirs) in
            [(TlsMode::Implicit, ServerTls::Implicit), (TlsMode::StartTls, ServerTls::StartTls)]
        {
            let server =
                SmtpServer::start(Script::new().tls(theirs).flaw(flaw).login("user", "secret")).await;
            let settings = SmtpSettings {
                credentials: Some(("user".to_owned(), "secret".into())),
                ..tls_settings(&server, ours)
            };
            let failure = transport(settings).connect().await.unwrap_err();
            assert_eq!(
                (failure.phase, &failure.kind),
                (Phase::Tls, &RelayFailureKind::Certificate),
                "{flaw:?}"
            );
            assert!(!server.commands().contains(&"AUTH".to_owned()));
        }
    }
}

#[tokio::test]
async fn an_authority_that_nobody_named_is_not_trusted() {
    let server = SmtpServer::start(Script::new().tls(ServerTls::Implicit)).await;
    let settings = SmtpSettings { ca_pem: None, ..tls_settings(&server, TlsMode::Implicit) };
    let failure = transport(settings).connect().await.unwrap_err();
    assert_eq!(failure.kind, RelayFailureKind::Certificate);
}

#[tokio::test]
async fn a_missing_client_certificate_is_somebodys_to_fix() {
    let server = SmtpServer::start(Script::new().tls(ServerTls::Implicit).client_certificate()).await;
    let failure = transport(tls_settings(&server, TlsMode::Implicit)).connect().await.unwrap_err();
    assert_eq!(failure.kind, RelayFailureKind::Certificate, "{failure}");
}

#[tokio::test]
async fn a_relay_without_starttls_gets_no_password() {
    let tls = SmtpServer::start(Script::new().tls(ServerTls::StartTls)).await;
    let server = SmtpServer::start(Script::new().login("user", "secret")).await;
    let settings = SmtpSettings {
        port: server.port(),
        credentials: Some(("user".to_owned(), "secret".into())),
        ..tls_settings(&tls, TlsMode::StartTls)
    };
    let failure = transport(settings).connect().await.unwrap_err();
    assert_eq!((failure.phase, failure.kind), (Phase::Tls, RelayFailureKind::Insecure));
    assert_eq!(server.commands(), ["EHLO localhost"]);
}

#[tokio::test]
async fn a_relay_that_speaks_plainly_on_a_tls_port_is_a_failure_in_time() {
    let tls = SmtpServer::start(Script::new().tls(ServerTls::Implicit)).await;
    let server = SmtpServer::start(Script::new()).await;
    let settings = SmtpSettings { port: server.port(), ..tls_settings(&tls, TlsMode::Implicit) };
    let failure = transport(settings).connect().await.unwrap_err();
    assert_eq!(failure.phase, Phase::Tls);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_is_sent() {
    let server = SmtpServer::start(Script::new()).await;
    let refused = |change: &dyn Fn(&mut SmtpSettings)| {
        let mut settings = settings(&server);
        change(&mut settings);
        SmtpRelay::new(settings).unwrap_err()
    };
    let login = || Some(("user".to_owned(), "secret".into()));
    assert_eq!(refused(&|s| s.credentials = login()), SettingsError::PlainAuth);
    assert_eq!(refused(&|s| s.helo = "a b\r\nMAIL".to_owned()), SettingsError::Helo);
    assert_eq!(refused(&|s| s.helo.clear()), SettingsError::Helo);
    let tls = |s: &mut SmtpSettings| s.tls = TlsMode::Implicit;
    assert_eq!(
        refused(&|s| {
            tls(s);
            s.host = "not a host".to_owned();
        }),
        SettingsError::Host
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for pem in ["", "nothing", broken] {
        let error = refused(&|s| {
            tls(s);
            s.ca_pem = Some(pem.to_owned());
        });
        assert!(matches!(error, SettingsError::Authority(_)), "{error}");
    }
    assert_eq!(server.connections(), 0);
}
