//! Certificates in files: who a server shows itself to be, and whom those who speak to it believe.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::config::{ConfigError, read};
use crate::domain::Timestamp;

/// All certificates of a PEM file, in their order; at least one.
pub fn in_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let invalid = |fault: String| ConfigError::Invalid {
        file: file.into(),
        fault,
    };
    let text = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| invalid(format!("holds a broken certificate: {error}")))?;
    match found.is_empty() {
        true => Err(invalid(
            "holds no certificate, name a file with -----BEGIN CERTIFICATE----- in it".to_string(),
        )),
        false => Ok(found),
    }
}

/// As it stands in a file.
pub fn as_text(certificate: &CertificateDer) -> String {
    const LINE: usize = 64;
    let text = BASE64.encode(certificate);
    let lines = text.as_bytes().chunks(LINE);
    let lines: Vec<&str> = lines
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let lines = lines.join("\n");
    format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
}

/// From when and until when a certificate holds. `None`: it does not say so in the usual way.
pub fn holds(certificate: &[u8]) -> Option<(Timestamp, Timestamp)> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let inside =
        |bytes| element(bytes).and_then(|(tag, inner, _)| (tag == SEQUENCE).then_some(inner));
    let mut rest = inside(inside(certificate)?)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Its number, how it is signed, by whom.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let validity = inside(rest)?;
    let (from_tag, from, rest) = element(validity)?;
    let (until_tag, until, _) = element(rest)?;
    Some((moment(from_tag, from)?, moment(until_tag, until)?))
}

/// The first element of some DER: its tag, what is in it, what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        // So many bytes tell the length.
        0x81..=0x84 => {
            let (length, after) = rest.split_at_checked(usize::from(first - 0x80))?;
            rest = after;
            length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (inner, after) = rest.split_at_checked(length)?;
    Some((tag, inner, after))
}

fn moment(tag: u8, text: &[u8]) -> Option<Timestamp> {
    /// With a year of two figures.
    const SHORT: u8 = 0x17;
    const LONG: u8 = 0x18;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let (year, rest) = match (tag, text.len()) {
        (SHORT, 12) if is_plain => {
            let (year, rest) = text.split_at(2);
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (LONG, 14) if is_plain => {
            let (year, rest) = text.split_at(4);
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i8>().ok();
    let time = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?;
    Some(Timestamp(time.timestamp().as_millisecond()))
}

/// Whom a client believes: servers that show one of the certificates of a file, under whatever name they are reached, and
/// those whose certificate was signed by one of them and holds for their name. Nobody else.
///
/// A file that has changed is read again when it is needed: a certificate that was renewed needs no restart.
#[derive(Debug, Clone)]
pub struct Trust {
    known: Arc<Known>,
}

#[derive(Debug)]
struct Known {
    file: PathBuf,
    believed: Mutex<Arc<Believed>>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Believed {
    certificates: Vec<CertificateDer<'static>>,
    /// `None`: none of them can sign others.
    signers: Option<Arc<WebPkiServerVerifier>>,
}

impl Trust {
    pub fn of_file(file: &Path) -> Result<Trust, ConfigError> {
        let provider = Arc::new(ring::default_provider());
        let believed = Believed::read(file, &provider)?;
        Ok(Trust {
            known: Arc::new(Known {
                file: file.into(),
                believed: Mutex::new(Arc::new(believed)),
                provider,
            }),
        })
    }

    /// How a client that believes them speaks.
    pub fn client_config(&self) -> ClientConfig {
        let provider = self.known.provider.clone();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows the usual versions");
        let verifier = Arc::new(Verifier(self.clone()));
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        builder.with_no_client_auth()
    }

    fn believed(&self) -> Arc<Believed> {
        let believed = self.known.believed.lock();
        believed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As the file is now, if it is another than before. One that cannot be read changes nothing.
    fn read_again(&self) -> Option<Arc<Believed>> {
        let read = Believed::read(&self.known.file, &self.known.provider).ok()?;
        let mut believed = (self.known.believed.lock()).unwrap_or_else(PoisonError::into_inner);
        if believed.certificates == read.certificates {
            return None;
        }
        *believed = Arc::new(read);
        Some(believed.clone())
    }
}

impl Believed {
    fn read(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Believed, ConfigError> {
        let certificates = in_file(file)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        Ok(Believed {
            certificates,
            // There is none without somebody who can sign.
            signers: verifier.build().ok(),
        })
    }

    fn check(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Whoever has its key is who was meant: the signature of the handshake shows that.
        if self.certificates.iter().any(|known| known == shown) {
            return Ok(ServerCertVerified::assertion());
        }
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let signers = self.signers.as_ref().ok_or(unknown)?;
        signers.verify_server_cert(shown, between, name, &[], now)
    }
}

#[derive(Debug)]
struct Verifier(Trust);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let check =
            |believed: Arc<Believed>| believed.check(end_entity, intermediates, server_name, now);
        check(self.0.believed()).or_else(|refused| match self.0.read_again() {
            Some(believed) => check(believed),
            None => Err(refused),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = self.0.known.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, &known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = self.0.known.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = self.0.known.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}
