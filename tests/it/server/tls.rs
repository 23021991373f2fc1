//! TLS at the edge: which certificate is shown, who believes it, and what becomes of those who speak something else.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use stepward::certificate::Trust;
use stepward::client::{CallError, Silence};
use stepward::config::ConfigError;
use stepward::server::StartError;
use stepward::wire::api::Health;

use super::*;

/// A certificate and its key, as they are written into files.
struct Pair {
    cert: String,
    key: String,
}

/// For these names, signed by itself.
fn self_signed(names: &[&str]) -> Pair {
    let key = KeyPair::generate().unwrap();
    let cert = params(names).self_signed(&key).unwrap();
    Pair {
        cert: cert.pem(),
        key: key.serialize_pem(),
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    CertificateParams::new(names).unwrap()
}

/// Somebody who signs for others.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = params(&[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed_by(authority: &CertifiedIssuer<'static, KeyPair>, params: CertificateParams) -> Pair {
    let key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&key, authority).unwrap();
    Pair {
        cert: cert.pem(),
        key: key.serialize_pem(),
    }
}

struct TlsHouse {
    house: ServerHouse,
    files: TempDir,
}

impl TlsHouse {
    fn new(pair: &Pair) -> TlsHouse {
        TlsHouse::with(pair, Limits::default())
    }

    fn with(pair: &Pair, limits: Limits) -> TlsHouse {
        let files = tempfile::tempdir().unwrap();
        write(files.path(), pair);
        let house = ServerHouse::with(limits, |config| {
            config.tls.cert_file = Some(files.path().join("cert.pem"));
            config.tls.key_file = Some(files.path().join("key.pem"));
        });
        TlsHouse { house, files }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.files.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// By this name, and how it goes for whoever believes the certificates of this file.
    fn reach(&self, host: &str, trust: Option<&Trust>) -> Result<Health, String> {
        let url = format!("https://{host}:{}", self.house.server.address().port());
        let client = Client::trusting(&url, None, trust);
        client.get("/healthz", PATIENCE).map_err(|error| {
            assert!(matches!(
                error,
                CallError::Unreachable(Silence::NotBelieved(_))
            ));
            error.to_string()
        })
    }

    fn connect(
        &self,
        config: ClientConfig,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let stream = TcpStream::connect(self.house.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    /// The certificate that is shown to whoever comes now.
    fn shown(&self) -> String {
        let stream = self.connect(self.trust().client_config()).unwrap();
        let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
        format!("{shown:?}")
    }

    /// As whoever may look into the data folder.
    fn trust(&self) -> Trust {
        Trust::of_file(&self.house.path().join("data/certificate.pem")).unwrap()
    }
}

fn write(folder: &Path, pair: &Pair) {
    // As whoever renews does it: a whole file takes the place of the former one.
    for (name, text) in [("cert.pem", &pair.cert), ("key.pem", &pair.key)] {
        let new = folder.join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, folder.join(name)).unwrap();
    }
}

#[test]
fn whoever_believes_the_certificate_or_its_signer_is_served() {
    let house = TlsHouse::new(&self_signed(&["localhost"]));
    let trust = house.trust();
    house.reach("localhost", Some(&trust)).unwrap();
    // The very certificate is believed under whatever name.
    house.reach("127.0.0.1", Some(&trust)).unwrap();

    let authority = authority();
    let house = TlsHouse::new(&signed_by(&authority, params(&["localhost"])));
    let root = house.file("root.pem", &authority.pem());
    let trust = Trust::of_file(&root).unwrap();
    house.reach("localhost", Some(&trust)).unwrap();
    let other_name = house.reach("127.0.0.1", Some(&trust)).unwrap_err();
    assert!(
        other_name.starts_with("its certificate is for other names than this address: "),
        "{other_name}"
    );
    for stranger in [None, Some(self_signed(&["localhost"]))] {
        let trust = stranger.map(|pair| Trust::of_file(&house.file("other.pem", &pair.cert)));
        let trust = trust.transpose().unwrap();
        assert_eq!(
            house.reach("localhost", trust.as_ref()).unwrap_err(),
            "its certificate is signed by nobody who is known here: name a file with it, or with the one that signed it, \
             by ca_file, --ca-file or STEPWARD_CA_FILE"
        );
    }
}

#[test]
fn one_who_signs_and_shows_the_same_certificate_is_believed_too() {
    // What `openssl req -x509` makes.
    let mut params = params(&["localhost"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let house = TlsHouse::new(&Pair {
        cert: cert.pem(),
        key: key.serialize_pem(),
    });
    house.reach("localhost", Some(&house.trust())).unwrap();
}

#[test]
fn an_expired_certificate_is_shown_and_refused_by_those_who_check_it() {
    let authority = authority();
    let mut params = params(&["localhost"]);
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let house = TlsHouse::new(&signed_by(&authority, params));
    let root = house.file("root.pem", &authority.pem());
    let trust = Trust::of_file(&root).unwrap();
    assert_eq!(
        house.reach("localhost", Some(&trust)).unwrap_err(),
        "its certificate has expired: renew it there, and look whether the clocks are right"
    );
    // Its own worker, and whoever else has the very certificate, is not locked out.
    house.reach("localhost", Some(&house.trust())).unwrap();
    // And whoever looks after it is told: by a problem on the first page, by a number to alert on.
    let url = format!("https://{}", house.house.server.address());
    let client = Client::trusting(&url, None, Some(&house.trust()));
    let shown = |path: &str| {
        let mut text = String::new();
        let mut body = client.text(path, PATIENCE).unwrap();
        body.read_to_string(&mut text).unwrap();
        text
    };
    let overview = shown("/");
    assert!(
        overview.contains("the certificate has expired"),
        "{overview}"
    );
    let metrics = shown("/metrics");
    let ends = "\nstepward_certificate_expires_timestamp_seconds 1009843200\n";
    assert!(metrics.contains(ends), "{metrics}");
}

#[test]
fn a_renewed_certificate_is_shown_to_whoever_comes_and_believed_without_a_restart() {
    let house = TlsHouse::new(&self_signed(&["localhost"]));
    let first = house.shown();
    let trust = house.trust();
    let stays = Client::trusting(
        &format!("https://{}", house.house.server.address()),
        None,
        Some(&trust),
    );
    let healthy = || stays.get::<Health>("/healthz", PATIENCE);
    healthy().unwrap();
    write(house.files.path(), &self_signed(&["localhost"]));
    until("the new one is shown", || house.shown() != first);
    healthy().unwrap();
    house.reach("localhost", Some(&trust)).unwrap();
}

#[test]
fn files_that_make_no_sense_change_nothing() {
    let house = TlsHouse::new(&self_signed(&["localhost"]));
    let trust = house.trust();
    let first = house.shown();
    fs::write(house.files.path().join("key.pem"), "rubbish").unwrap();
    fs::remove_file(house.files.path().join("cert.pem")).unwrap();
    // Longer than two looks: nothing can be awaited that does not happen.
    std::thread::sleep(Duration::from_millis(2_500));
    house.reach("localhost", Some(&trust)).unwrap();
    let next = self_signed(&["localhost"]);
    write(house.files.path(), &next);
    until("what is good again is taken", || house.shown() != first);
}

#[test]
fn a_start_refuses_files_that_no_client_could_believe() {
    let (one, other) = (self_signed(&["localhost"]), self_signed(&["localhost"]));
    let folder = tempfile::tempdir().unwrap();
    let refused = |cert: Option<&str>, key: Option<&str>, mode: u32| {
        let files = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        for (file, text) in files.iter().zip([cert, key]) {
            let _ = fs::remove_file(file);
            if let Some(text) = text {
                fs::write(file, text).unwrap();
                fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let mut config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: folder.path().join("data"),
            ..ServerConfig::default()
        };
        let [cert_file, key_file] = files;
        (config.tls.cert_file, config.tls.key_file) = (Some(cert_file), Some(key_file));
        match Server::start(&config) {
            Err(StartError::Config(
                fault @ (ConfigError::Unreadable { .. } | ConfigError::Invalid { .. }),
            )) => fault
                .to_string()
                .replace(&format!("{}/", folder.path().display()), ""),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it starts"),
        }
    };
    let (cert, key) = (Some(one.cert.as_str()), Some(one.key.as_str()));
    let none =
        "cert.pem cannot be read: No such file or directory (os error 2); tls.cert_file names it";
    assert_eq!(refused(None, key, 0o600), none);
    let none =
        "key.pem cannot be read: No such file or directory (os error 2); tls.key_file names it";
    assert_eq!(refused(cert, None, 0o600), none);
    assert_eq!(
        refused(key, key, 0o600),
        "cert.pem: holds no certificate, name a file with -----BEGIN CERTIFICATE----- in it"
    );
    assert_eq!(
        refused(cert, cert, 0o600),
        "key.pem: holds no key, name a file with -----BEGIN PRIVATE KEY----- in it"
    );
    assert_eq!(
        refused(cert, Some(&other.key), 0o600),
        "key.pem: is not the key of the first certificate in cert.pem; name the two files that were made together with \
         tls.key_file and tls.cert_file"
    );
    assert_eq!(
        refused(cert, key, 0o644),
        "key.pem: is a key that every user of this machine can use: chmod o= key.pem"
    );
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert_eq!(
        refused(cert, Some(locked), 0o600),
        "key.pem: is locked with a password, which nobody can type here: write it without"
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let fault = refused(Some(broken), key, 0o600);
    assert!(
        fault.starts_with("cert.pem: holds a certificate that cannot be shown: "),
        "{fault}"
    );
}

#[test]
fn whoever_speaks_plain_http_is_told_what_to_write() {
    let house = TlsHouse::new(&self_signed(&["localhost"]));
    let answer = house.house.get("/api/jobs");
    assert_eq!(answer.refused(400), "https_only");
    assert_eq!(
        answer.message(),
        "this port speaks https: write https:// instead of http:// in the address"
    );
    // What is neither is let go.
    let mut line = house.house.line();
    line.send([0xff; 64]);
    assert!(line.is_closed());
}

#[test]
fn a_handshake_has_its_time_and_everything_ends_with_a_goodbye() {
    let short = Duration::from_millis(300);
    let limits = Limits {
        header_timeout: short,
        ..Limits::default()
    };
    let house = TlsHouse::with(&self_signed(&["localhost"]), limits);
    // Silence, and a greeting that breaks off.
    for bytes in [&b""[..], &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]] {
        let mut line = house.house.line();
        line.send(bytes);
        assert!(line.is_closed());
    }
    // An idle connection ends in time too, and with the word for it: without it, reading would be an error.
    let mut stream = house.connect(house.trust().client_config()).unwrap();
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: jobs.example.org\r\n\r\n");
    stream.write_all(ask("/healthz").as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    // Browsers come by TLS alone from now on.
    assert!(
        said.contains("\r\nstrict-transport-security: max-age=31536000\r\n"),
        "{said}"
    );
    // And nobody learns that of their own machine.
    let local = "GET /healthz HTTP/1.1\r\nhost: localhost:7717\r\nconnection: close\r\n\r\n";
    let mut stream = house.connect(house.trust().client_config()).unwrap();
    stream.write_all(local.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(!said.contains("strict-transport-security"), "{said}");
}

#[test]
fn http_1_1_is_what_is_spoken_over_tls_1_2_or_newer() {
    let house = TlsHouse::new(&self_signed(&["localhost"]));
    let config = |protocols: &[&str]| {
        let mut config = house.trust().client_config();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config
    };
    let stream = house.connect(config(&["h2", "http/1.1"])).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(house.connect(config(&["h2"])).is_err());
    // A greeting of TLS 1.1, with nothing newer in it, gets an alert.
    let mut line = house.house.line();
    let mut hello = vec![
        0x16, 0x03, 0x01, 0x00, 0x2d, 0x01, 0x00, 0x00, 0x29, 0x03, 0x02,
    ];
    hello.extend([7; 32]);
    hello.extend([0x00, 0x00, 0x02, 0x00, 0x2f, 0x01, 0x00]);
    line.send(hello);
    assert_eq!(line.first_byte(), Some(0x15));
}
