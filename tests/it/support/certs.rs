//! Certificates made for one test run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PublicKeyData as _,
    SigningKey as _, date_time_ymd,
};

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

/// A certificate for `localhost` of the first version, signed by itself, and its key: tools of the nineties make
/// such. No library here does, so its few fields (RFC 5280, 4.1) are put together by hand.
pub fn version_1() -> (String, String) {
    const ECDSA_WITH_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    const COMMON_NAME: &[u8] = &[6, 3, 0x55, 4, 3];
    let sequence = |parts: &[&[u8]]| der(0x30, parts);
    let key = KeyPair::generate().unwrap();
    let name = sequence(&[&der(0x31, &[&sequence(&[COMMON_NAME, &der(0x0c, &[b"localhost"])])])]);
    let validity = sequence(&[&der(0x17, &[b"200101000000Z"]), &der(0x17, &[b"491231235959Z"])]);
    let public = key.subject_public_key_info();
    let signed = sequence(&[&der(2, &[&[1]]), ECDSA_WITH_SHA256, &name, &validity, &name, &public]);
    let signature = der(3, &[&[0], &key.sign(&signed).unwrap()]);
    let text = BASE64.encode(sequence(&[&signed, ECDSA_WITH_SHA256, &signature]));
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    (pem, key.serialize_pem())
}

/// A tag, a length below 64 KiB, and what has that length.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let length: &[u8] = match (high, low) {
        (0, 0..=127) => &[low],
        (0, _) => &[0x81, low],
        _ => &[0x82, high, low],
    };
    [&[tag], length, &content].concat()
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}
