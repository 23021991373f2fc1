//! The certificate that the server shows: read from files, and read again when they have changed.
//!
//! A renewed certificate is shown to whoever connects from then on; connections that are there go on. Files that make no sense
//! change nothing but the log: what was good stays in force.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate;
use crate::clock::wall_time;
use crate::config::{ConfigError, read};
use crate::domain::Timestamp;
use crate::essential::spawn_essential;
use crate::whole_file;
use crate::words::calendar_time;

/// How often the files are looked at. What has changed is taken when it looks the same once more: certificate and key are
/// seldom written at the same instant.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is spoken after the handshake. Nobody who asks for something else alone is let in.
const ALPN: &[u8] = b"http/1.1";

/// The certificate that is shown, in the data folder: whoever is on this machine and may look there believes it, whatever names
/// it has, and whatever becomes of the files that it was read from.
pub const SHOWN_FILE: &str = "certificate.pem";

/// Certificate and key, as they are in force.
pub struct Identity {
    cert_file: PathBuf,
    key_file: PathBuf,
    in_force: RwLock<Arc<InForce>>,
    /// Why the files as they are now are not what is shown.
    refused: Mutex<Option<String>>,
    /// Where it is told which one is.
    shown_file: OnceLock<PathBuf>,
}

struct InForce {
    certificate: CertificateDer<'static>,
    config: Arc<rustls::ServerConfig>,
}

impl Identity {
    /// Refuses what no client could believe; one that has expired is only told of in the log.
    pub fn load(cert_file: &Path, key_file: &Path) -> Result<Identity, ConfigError> {
        let in_force = load(cert_file, key_file)?;
        Ok(Identity {
            cert_file: cert_file.into(),
            key_file: key_file.into(),
            in_force: RwLock::new(Arc::new(in_force)),
            refused: Mutex::default(),
            shown_file: OnceLock::new(),
        })
    }

    /// Tells in this folder, from now on, which certificate is shown.
    pub fn tell_in(&self, data_dir: &Path) {
        self.shown_file.get_or_init(|| data_dir.join(SHOWN_FILE));
        self.tell(&[&self.in_force().certificate]);
    }

    pub fn config(&self) -> Arc<rustls::ServerConfig> {
        self.in_force().config.clone()
    }

    /// When the certificate that is shown begins and ends to hold. `None`: it does not say so in words of ours.
    pub fn holds(&self) -> Option<(Timestamp, Timestamp)> {
        certificate::holds(&self.in_force().certificate)
    }

    /// Why the server would not start again with the files as they are now.
    pub fn refused(&self) -> Option<String> {
        let refused = self.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn in_force(&self) -> Arc<InForce> {
        let in_force = self.in_force.read();
        in_force.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whoever reads at the same time sees all of it or the former one.
    fn tell(&self, certificates: &[&CertificateDer]) {
        let Some(file) = self.shown_file.get() else {
            return;
        };
        let text: String = certificates
            .iter()
            .map(|one| certificate::as_text(one))
            .collect();
        if let Err(error) = whole_file::write(file, 0o666, text.as_bytes()) {
            let file = file.display();
            log::warn!("{file} cannot be written, commands here need --ca-file: {error}");
        }
    }

    fn renew(&self) {
        let cert_file = self.cert_file.display();
        let loaded = load(&self.cert_file, &self.key_file);
        let refused = loaded.as_ref().err().map(ToString::to_string);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        match loaded {
            Ok(renewed) => {
                let (former, renewed) = (self.in_force(), Arc::new(renewed));
                // At no instant is one shown that is not told.
                self.tell(&[&renewed.certificate, &former.certificate]);
                let in_force = self.in_force.write();
                *in_force.unwrap_or_else(PoisonError::into_inner) = renewed.clone();
                self.tell(&[&renewed.certificate]);
                log::info!("the certificate of {cert_file} has changed, the new one is shown");
            }
            Err(fault) => {
                log::warn!("the certificate has changed and the former one stays: {fault}");
            }
        }
    }

    /// How the files look: whoever writes one changes it.
    fn look(&self) -> [Option<Look>; 2] {
        [&self.cert_file, &self.key_file].map(|file| file.metadata().ok().map(Look::of))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    mode: u32,
}

impl Look {
    fn of(file: Metadata) -> Look {
        Look {
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            mode: file.mode(),
        }
    }
}

fn load(cert_file: &Path, key_file: &Path) -> Result<InForce, ConfigError> {
    let chain = certificate::in_file(cert_file).map_err(|it| it.named_by("tls.cert_file"))?;
    let key = read_key(key_file).map_err(|it| it.named_by("tls.key_file"))?;
    let certificate = chain[0].clone();
    let provider = Arc::new(ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows the usual versions")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => ConfigError::Invalid {
            file: key_file.into(),
            fault: format!(
                "is not the key of the first certificate in {}; name the two files that were made together with \
                 tls.key_file and tls.cert_file",
                cert_file.display()
            ),
        },
        error => ConfigError::Invalid {
            file: cert_file.into(),
            fault: format!("holds a certificate that cannot be shown: {error}"),
        },
    })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    let validity = certificate::holds(&certificate);
    if let Some(said) = validity.and_then(|validity| out_of_date(validity, wall_time())) {
        log::warn!("{} {said}: clients refuse it", cert_file.display());
    }
    Ok(InForce {
        certificate,
        config: Arc::new(config),
    })
}

/// What is wrong with the time of a certificate, after its name.
pub fn out_of_date((from, until): (Timestamp, Timestamp), now: Timestamp) -> Option<String> {
    let day = |at: Timestamp| calendar_time(at).strftime("%Y-%m-%d %H:%M UTC").to_string();
    match () {
        () if until <= now => Some(format!("has expired, at {}", day(until))),
        () if from > now => Some(format!("does not hold yet, only from {}", day(from))),
        () => None,
    }
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    const OTHERS: u32 = 0o007;
    let invalid = |fault: String| ConfigError::Invalid {
        file: file.into(),
        fault,
    };
    let text = read(file)?;
    let mode = file
        .metadata()
        .map_or(0, |found| found.permissions().mode());
    if mode & OTHERS != 0 {
        return Err(invalid(format!(
            "is a key that every user of this machine can use: chmod o= {}",
            file.display()
        )));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        PemError::NoItemsFound if text.contains("ENCRYPTED PRIVATE KEY") => invalid(
            "is locked with a password, which nobody can type here: write it without".to_string(),
        ),
        PemError::NoItemsFound => {
            invalid("holds no key, name a file with -----BEGIN PRIVATE KEY----- in it".to_string())
        }
        error => invalid(format!("holds a broken key: {error}")),
    })
}

/// The thread that looks whether the files have changed. It ends when this is dropped.
pub struct Watching {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    pub fn start(identity: Arc<Identity>) -> io::Result<Watching> {
        let (stop, stopped) = bounded(0);
        let thread = spawn_essential("certificate", move || watch(&identity, &stopped))?;
        Ok(Watching {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the watch over the certificate met a bug");
        }
    }
}

fn watch(identity: &Identity, stopped: &Receiver<()>) {
    let mut taken = identity.look();
    let mut last = taken;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK_EVERY) {
        let look = identity.look();
        if look != taken && look == last {
            identity.renew();
            taken = look;
        }
        last = look;
    }
}
