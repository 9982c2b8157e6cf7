//! TLS towards the relay: certificates are always verified, TLS 1.2 at least.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use secrecy::ExposeSecret as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::settings::{ClientIdentity, SmtpSettings};
use super::transport::SettingsError;

/// What a handshake needs, made once per relay.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    pub(super) fn new(settings: &SmtpSettings) -> Result<Self, SettingsError> {
        let name = ServerName::try_from(settings.host.clone()).map_err(|_| SettingsError::Host)?;
        // The provider is named here, so that no process-wide choice by another crate matters.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SettingsError::Tls(error.to_string()))?
            .with_root_certificates(roots(settings.ca_pem.as_deref())?);
        let config = match &settings.client_identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = client(identity)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|_| SettingsError::ClientIdentity("key and certificate do not fit"))?
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(super) async fn handshake(&self, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), tcp).await
    }
}

/// Whether a failed handshake is about certificates or versions: retrying does not help, somebody
/// has to act.
pub(super) fn is_about_trust(error: &io::Error) -> bool {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, HandshakeFailure, InsufficientSecurity, ProtocolVersion, UnknownCA,
        UnrecognisedName, UnsupportedCertificate,
    };
    use rustls::Error as TlsError;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::AlertReceived(alert)) => matches!(
            alert,
            AccessDenied
                | BadCertificate
                | CertificateExpired
                | CertificateRequired
                | CertificateRevoked
                | CertificateUnknown
                | HandshakeFailure
                | InsufficientSecurity
                | ProtocolVersion
                | UnknownCA
                | UnrecognisedName
                | UnsupportedCertificate
        ),
        Some(
            TlsError::InvalidCertificate(_)
            | TlsError::NoCertificatesPresented
            | TlsError::UnsupportedNameType
            | TlsError::PeerIncompatible(_),
        ) => true,
        _ => false,
    }
}

fn roots(ca_pem: Option<&str>) -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    // A broken certificate among those of the system is not ours to complain about: what counts
    // is whether the relay's can be verified.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let Some(pem) = ca_pem else { return Ok(roots) };
    let bad = SettingsError::Authority;
    let own: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| bad("it is not PEM"))?;
    if own.is_empty() {
        return Err(bad("it holds no certificate"));
    }
    for certificate in own {
        // rustls knows X.509 version 3 only.
        roots.add(certificate).map_err(|_| bad("a certificate in it is not an X.509 v3 authority"))?;
    }
    Ok(roots)
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client(identity: &ClientIdentity) -> Result<ChainAndKey, SettingsError> {
    let bad = SettingsError::ClientIdentity;
    let chain = CertificateDer::pem_slice_iter(identity.chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad("the certificate is not PEM"))?;
    if chain.is_empty() {
        return Err(bad("the certificate is missing"));
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.expose_secret().as_bytes())
        .map_err(|_| bad("the key is not PEM"))?;
    Ok((chain, key))
}
