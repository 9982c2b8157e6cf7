//! Certificates made for one test run.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flaw {
    /// Nothing: valid for `localhost` and 127.0.0.1, signed by the run's authority.
    #[default]
    None,
    /// Its last day has passed.
    Expired,
    /// It names another host.
    OtherHost,
    /// Signed by an authority that nobody was told about.
    Untrusted,
}

/// An authority and what it signed, as PEM.
#[derive(Debug, Clone)]
pub struct Certs {
    /// The authority that clients are told to trust.
    pub ca: String,
    /// The server's certificate.
    pub server: String,
    /// The server's key.
    pub server_key: String,
    /// A client certificate of the same authority.
    pub client: String,
    /// The client's key.
    pub client_key: String,
}

impl Certs {
    /// Makes an authority, a server certificate with the flaw, and a client certificate.
    pub fn new(flaw: Flaw) -> Self {
        let trusted = authority("digestd test authority");
        let other = authority("somebody else's authority");
        let issuer = if flaw == Flaw::Untrusted { &other } else { &trusted };
        let host = if flaw == Flaw::OtherHost { "mail.elsewhere.test" } else { "localhost" };
        let mut names = vec![host.to_owned()];
        if flaw != Flaw::OtherHost {
            names.push("127.0.0.1".to_owned());
        }
        let mut server = CertificateParams::new(names).unwrap();
        if flaw == Flaw::Expired {
            server.not_before = date_time_ymd(2020, 1, 1);
            server.not_after = date_time_ymd(2020, 2, 1);
        }
        let client = CertificateParams::new(vec!["client.test".to_owned()]).unwrap();
        let (server_key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        Self {
            ca: trusted.pem(),
            server: server.signed_by(&server_key, issuer).unwrap().pem(),
            server_key: server_key.serialize_pem(),
            client: client.signed_by(&client_key, &trusted).unwrap().pem(),
            client_key: client_key.serialize_pem(),
        }
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}
