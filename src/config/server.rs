//! Settings of the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_yaml::Value;

use super::environment::{self, Lookup, Variable, server_variables};
use super::{ConfigError, Log, Notify, WorkerConfig, read_token};
use super::{forms, notify};
use crate::domain::retention::Retention as Bounds;
use crate::domain::settings::Settings;
use crate::words::shell_path;

/// What the README says, too: a certificate of one's own.
pub const MAKE_CERTIFICATE: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
    -keyout key.pem -out cert.pem -subj /CN=jobs -addext subjectAltName=DNS:localhost && chmod 600 key.pem";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct ServerConfig {
    #[serde(deserialize_with = "listen")]
    pub listen: SocketAddr,
    #[serde(deserialize_with = "forms::or_default")]
    pub tls: Tls,
    /// Whether others may reach it without TLS.
    pub plain_http: bool,
    #[serde(deserialize_with = "data_dir")]
    pub data_dir: PathBuf,
    pub workflows_dir: Option<PathBuf>,
    #[serde(deserialize_with = "forms::switch")]
    pub embedded_worker: Option<WorkerConfig>,
    #[serde(deserialize_with = "forms::or_default")]
    pub auth: Auth,
    #[serde(deserialize_with = "forms::or_default")]
    pub secrets: SecretPlaces,
    #[serde(deserialize_with = "forms::or_default")]
    pub recovery: Recovery,
    #[serde(deserialize_with = "forms::or_default")]
    pub retention: Retention,
    #[serde(deserialize_with = "forms::or_default")]
    pub defaults: Defaults,
    #[serde(deserialize_with = "forms::or_default")]
    pub limits: ServerLimits,
    /// How people reach this server, for links in messages.
    pub public_url: Option<String>,
    #[serde(deserialize_with = "forms::or_default")]
    pub notify: Notify,
    #[serde(deserialize_with = "forms::or_default")]
    pub log: Log,
    #[serde(deserialize_with = "forms::or_default")]
    pub backup: Backup,
}

/// Where the certificate is that the server shows, and its key: both or neither.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Tls {
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// Those that the server makes by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Backup {
    pub dir: Option<PathBuf>,
    pub every_hours: u32,
    pub keep: u32,
    /// A command that each goes through before it is kept, such as `age -r age1…`. Empty: none.
    #[serde(deserialize_with = "forms::or_default")]
    pub pipe: Vec<String>,
}

impl Default for Backup {
    fn default() -> Backup {
        Backup {
            dir: None,
            every_hours: 24,
            keep: 7,
            pipe: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Auth {
    pub token_file: Option<PathBuf>,
    /// Whether a token is asked for on loopback, too. `None`: the database of the data folder says so. At other addresses a token is
    /// always asked for.
    pub required: Option<bool>,
}

/// The places that secrets of workflow files may come from. References in these settings themselves are not restricted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct SecretPlaces {
    /// Folders, with everything below them, and single files.
    #[serde(deserialize_with = "secret_files")]
    pub allow_files: Vec<PathBuf>,
    /// `None`: no variable is allowed.
    pub allow_env_prefix: Option<String>,
}

impl Default for SecretPlaces {
    fn default() -> SecretPlaces {
        SecretPlaces {
            allow_files: vec![PathBuf::from("/etc/stepward/secrets")],
            allow_env_prefix: Some("STEPWARD_SECRET_".to_string()),
        }
    }
}

impl SecretPlaces {
    fn check(&self) -> Result<(), String> {
        if let Some(path) = self.allow_files.iter().find(|path| !path.is_absolute()) {
            return Err(format!(
                "secrets.allow_files has {:?}, which is not an absolute path; write one such as /etc/stepward/secrets",
                path.display().to_string()
            ));
        }
        // Whoever leaves it empty by mistake would allow every variable of the server.
        if self
            .allow_env_prefix
            .as_deref()
            .is_some_and(|prefix| prefix.trim().is_empty())
        {
            return Err(
                "secrets.allow_env_prefix is empty, which would allow every variable; name the beginning of the allowed names, \
                 or write null to allow none"
                    .to_string(),
            );
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRecovery")]
pub struct Recovery {
    pub heartbeat_interval_secs: u32,
    pub heartbeat_timeout_secs: u32,
    pub sweep_interval_secs: u32,
    pub unmatched_step_timeout_secs: u32,
    pub ack_timeout_secs: u32,
    pub prepare_timeout_secs: u32,
    pub report_grace_secs: u32,
    pub cancel_grace_secs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Defaults {
    pub step_timeout_secs: u32,
    pub job_timeout_secs: u32,
}

/// Limits for one token, or for one address where no token is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct ServerLimits {
    /// Percentage of all event streams, downloads and waiting requests that one caller may hold.
    pub share_percent: u32,
    /// Jobs that it may submit.
    pub submissions_per_sec: u32,
    pub submissions_burst: u32,
    pub logins_per_minute: u32,
    /// Sessions that its workers may open.
    pub session_opens_per_sec: u32,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            share_percent: 25,
            submissions_per_sec: 1_000,
            submissions_burst: 20_000,
            logins_per_minute: 10,
            session_opens_per_sec: 200,
        }
    }
}

impl ServerLimits {
    fn check(&self) -> Result<(), String> {
        let each = [
            ("share_percent", self.share_percent),
            ("submissions_per_sec", self.submissions_per_sec),
            ("submissions_burst", self.submissions_burst),
            ("logins_per_minute", self.logins_per_minute),
            ("session_opens_per_sec", self.session_opens_per_sec),
        ];
        if let Some((key, _)) = each.iter().find(|(_, limit)| *limit == 0) {
            let no_limit = match *key {
                "share_percent" => "100",
                _ => "a large number",
            };
            return Err(format!(
                "limits.{key} is 0, it must be at least 1; {no_limit} is no limit"
            ));
        }
        match self.share_percent {
            ..=100 => Ok(()),
            percent => Err(format!(
                "limits.share_percent is {percent}, it must be at most 100, which is no limit"
            )),
        }
    }
}

/// How long what has happened is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRetention")]
pub struct Retention {
    pub job_days: u32,
    pub log_days: u32,
    pub event_days: u32,
    pub audit_days: u32,
    pub message_days: u32,
    pub idempotency_key_days: u32,
    pub schedule_fire_days: u32,
    pub worker_hours: u32,
}

/// Settings of which one follows from the other, as (the one that follows, the one that it follows from). A setting follows only
/// if it was not set and the other one was.
pub(super) const FOLLOWING: [(&str, &str); 6] = [
    (
        "recovery.heartbeat_interval_secs",
        "recovery.heartbeat_timeout_secs",
    ),
    (
        "recovery.heartbeat_timeout_secs",
        "recovery.heartbeat_interval_secs",
    ),
    ("recovery.ack_timeout_secs", "recovery.prepare_timeout_secs"),
    ("recovery.prepare_timeout_secs", "recovery.ack_timeout_secs"),
    ("retention.log_days", "retention.job_days"),
    ("retention.event_days", "retention.job_days"),
];

/// `recovery` as it is written: a setting that has to fit another one may be left open.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
struct WrittenRecovery {
    #[serde(deserialize_with = "written")]
    heartbeat_interval_secs: Option<u32>,
    #[serde(deserialize_with = "written")]
    heartbeat_timeout_secs: Option<u32>,
    sweep_interval_secs: u32,
    unmatched_step_timeout_secs: u32,
    #[serde(deserialize_with = "written")]
    ack_timeout_secs: Option<u32>,
    #[serde(deserialize_with = "written")]
    prepare_timeout_secs: Option<u32>,
    report_grace_secs: u32,
    cancel_grace_secs: u32,
}

/// `retention` as it is written.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
struct WrittenRetention {
    job_days: u32,
    #[serde(deserialize_with = "written")]
    log_days: Option<u32>,
    #[serde(deserialize_with = "written")]
    event_days: Option<u32>,
    audit_days: u32,
    message_days: u32,
    idempotency_key_days: u32,
    schedule_fire_days: u32,
    worker_hours: u32,
}

/// Null is no number: only a setting that is left out is left open.
fn written<'de, D: Deserializer<'de>>(written: D) -> Result<Option<u32>, D::Error> {
    u32::deserialize(written).map(Some)
}

impl From<WrittenRecovery> for Recovery {
    fn from(written: WrittenRecovery) -> Recovery {
        let default = Recovery::default();
        let (interval, timeout) = (
            written.heartbeat_interval_secs,
            written.heartbeat_timeout_secs,
        );
        // Four heartbeats fit into the timeout, as they do by default.
        let interval_for = |timeout: u32| default.heartbeat_interval_secs.min(timeout / 4).max(1);
        let timeout_for = |interval: u32| {
            default
                .heartbeat_timeout_secs
                .max(interval.saturating_mul(4))
        };
        let (ack, prepare) = (written.ack_timeout_secs, written.prepare_timeout_secs);
        Recovery {
            heartbeat_interval_secs: interval
                .or(timeout.map(interval_for))
                .unwrap_or(default.heartbeat_interval_secs),
            heartbeat_timeout_secs: timeout
                .or(interval.map(timeout_for))
                .unwrap_or(default.heartbeat_timeout_secs),
            ack_timeout_secs: ack.unwrap_or_else(|| {
                default
                    .ack_timeout_secs
                    .min(prepare.unwrap_or(u32::MAX))
                    .max(1)
            }),
            prepare_timeout_secs: prepare
                .unwrap_or_else(|| default.prepare_timeout_secs.max(ack.unwrap_or_default())),
            sweep_interval_secs: written.sweep_interval_secs,
            unmatched_step_timeout_secs: written.unmatched_step_timeout_secs,
            report_grace_secs: written.report_grace_secs,
            cancel_grace_secs: written.cancel_grace_secs,
        }
    }
}

impl From<WrittenRetention> for Retention {
    fn from(written: WrittenRetention) -> Retention {
        let default = Retention::default();
        let job_days = written.job_days;
        Retention {
            job_days,
            log_days: written.log_days.unwrap_or(default.log_days.min(job_days)),
            event_days: written
                .event_days
                .unwrap_or(default.event_days.max(job_days)),
            audit_days: written.audit_days,
            message_days: written.message_days,
            idempotency_key_days: written.idempotency_key_days,
            schedule_fire_days: written.schedule_fire_days,
            worker_hours: written.worker_hours,
        }
    }
}

impl Default for WrittenRecovery {
    fn default() -> WrittenRecovery {
        let default = Recovery::default();
        WrittenRecovery {
            heartbeat_interval_secs: None,
            heartbeat_timeout_secs: None,
            sweep_interval_secs: default.sweep_interval_secs,
            unmatched_step_timeout_secs: default.unmatched_step_timeout_secs,
            ack_timeout_secs: None,
            prepare_timeout_secs: None,
            report_grace_secs: default.report_grace_secs,
            cancel_grace_secs: default.cancel_grace_secs,
        }
    }
}

impl Default for WrittenRetention {
    fn default() -> WrittenRetention {
        let default = Retention::default();
        WrittenRetention {
            job_days: default.job_days,
            log_days: None,
            event_days: None,
            audit_days: default.audit_days,
            message_days: default.message_days,
            idempotency_key_days: default.idempotency_key_days,
            schedule_fire_days: default.schedule_fire_days,
            worker_hours: default.worker_hours,
        }
    }
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7717)),
            tls: Tls::default(),
            plain_http: false,
            data_dir: PathBuf::from(".stepward"),
            workflows_dir: None,
            embedded_worker: None,
            auth: Auth::default(),
            secrets: SecretPlaces::default(),
            recovery: Recovery::default(),
            retention: Retention::default(),
            defaults: Defaults::default(),
            limits: ServerLimits::default(),
            public_url: None,
            notify: Notify::new(),
            log: Log::default(),
            backup: Backup::default(),
        }
    }
}

impl Default for Recovery {
    fn default() -> Recovery {
        let settings = Settings::default();
        Recovery {
            heartbeat_interval_secs: secs(settings.heartbeat_interval_ms),
            heartbeat_timeout_secs: secs(settings.heartbeat_timeout_ms),
            sweep_interval_secs: secs(settings.sweep_interval_ms),
            unmatched_step_timeout_secs: secs(settings.unmatched_step_timeout_ms),
            ack_timeout_secs: secs(settings.ack_timeout_ms),
            prepare_timeout_secs: secs(settings.prepare_timeout_ms),
            report_grace_secs: secs(settings.report_grace_ms),
            cancel_grace_secs: secs(settings.cancel_grace_ms),
        }
    }
}

impl Default for Defaults {
    fn default() -> Defaults {
        let settings = Settings::default();
        Defaults {
            step_timeout_secs: secs(settings.step_timeout_ms),
            job_timeout_secs: secs(settings.job_timeout_ms),
        }
    }
}

const DAY_SECS: u32 = 24 * 3_600;

impl Default for Retention {
    fn default() -> Retention {
        let bounds = Bounds::default();
        let days = |ms| secs(ms) / DAY_SECS;
        Retention {
            job_days: days(bounds.job_ms),
            log_days: days(bounds.log_ms),
            event_days: days(bounds.event_ms),
            audit_days: days(bounds.audit_ms),
            message_days: days(bounds.message_ms),
            idempotency_key_days: days(bounds.key_ms),
            schedule_fire_days: days(bounds.fire_ms),
            worker_hours: secs(bounds.worker_ms) / 3_600,
        }
    }
}

impl Retention {
    /// What the reaper needs of it.
    pub fn bounds(&self) -> Bounds {
        let hours = |hours: u32| i64::from(hours) * 3_600_000;
        let days = |days: u32| 24 * hours(days);
        Bounds {
            job_ms: days(self.job_days),
            log_ms: days(self.log_days),
            event_ms: days(self.event_days),
            audit_ms: days(self.audit_days),
            message_ms: days(self.message_days),
            key_ms: days(self.idempotency_key_days),
            fire_ms: days(self.schedule_fire_days),
            worker_ms: hours(self.worker_hours),
        }
    }

    fn check(&self) -> Result<(), String> {
        let each = [
            ("job_days", self.job_days),
            ("log_days", self.log_days),
            ("event_days", self.event_days),
            ("audit_days", self.audit_days),
            ("message_days", self.message_days),
            ("idempotency_key_days", self.idempotency_key_days),
            ("schedule_fire_days", self.schedule_fire_days),
            ("worker_hours", self.worker_hours),
        ];
        // Nobody means "at once", and whoever means "for ever" can say so.
        if let Some((key, _)) = each.iter().find(|(_, bound)| *bound == 0) {
            return Err(format!(
                "retention.{key} is 0, it must be at least 1; a large number such as 36500 keeps it for ever"
            ));
        }
        let (jobs, logs, events) = (self.job_days, self.log_days, self.event_days);
        if logs > jobs {
            return Err(format!(
                "retention.log_days is {logs}, it must be at most {jobs} (retention.job_days): logs go with their job"
            ));
        }
        if events < jobs {
            return Err(format!(
                "retention.event_days is {events}, it must be at least {jobs} (retention.job_days): a job keeps its events"
            ));
        }
        let keys = self.idempotency_key_days;
        if keys < KEY_DAYS_MIN {
            return Err(format!(
                "retention.idempotency_key_days is {keys}, it must be at least {KEY_DAYS_MIN}: so long the same key is \
                 promised to answer with the same job"
            ));
        }
        Ok(())
    }
}

/// Whoever repeats a request does so within a week.
const KEY_DAYS_MIN: u32 = 7;

fn secs(ms: i64) -> u32 {
    u32::try_from(ms / 1_000).expect("the defaults are small")
}

impl ServerConfig {
    /// Loads the file alone, without the environment.
    pub fn load(file: Option<&Path>) -> Result<ServerConfig, ConfigError> {
        ServerConfig::load_from(file, &|_| None, |_| ())
    }

    /// Loads the file, then puts over it what variables of this process say, then what `put_over` sets.
    pub fn load_with(
        file: Option<&Path>,
        put_over: impl FnOnce(&mut ServerConfig),
    ) -> Result<ServerConfig, ConfigError> {
        ServerConfig::load_from(file, &environment::of_process, put_over)
    }

    /// The same as `load_with`, with variables from `lookup`.
    pub fn load_from(
        file: Option<&Path>,
        lookup: Lookup,
        put_over: impl FnOnce(&mut ServerConfig),
    ) -> Result<ServerConfig, ConfigError> {
        super::load(file, lookup, put_over)
    }

    /// Whether the server asks for a token. `by_default` says whether it does where the settings leave that open.
    pub fn asks_for_token(&self, by_default: bool) -> bool {
        let is_loopback = self.listen.ip().is_loopback();
        // A token file was always enough to be asked, whatever `auth.required` said.
        !is_loopback || self.auth.token_file.is_some() || self.auth.required.unwrap_or(by_default)
    }

    /// What to type where nobody can be let in as an admin.
    pub fn first_token(&self) -> String {
        let data_dir = shell_path(&self.data_dir);
        format!("stepward token new NAME --role admin --data-dir {data_dir}")
    }

    /// What opens everything, if there is a file for it.
    pub fn token(&self) -> Result<Option<String>, ConfigError> {
        let token = self.auth.token_file.as_deref().map(read_token);
        token
            .transpose()
            .map_err(|fault| fault.named_by("auth.token_file"))
    }

    /// How it is reached at this address.
    pub fn own_url(&self, address: SocketAddr) -> String {
        format!("{}://{address}", self.tls.scheme())
    }

    /// What the engine needs of it.
    pub fn settings(&self) -> Settings {
        let ms = |secs: u32| i64::from(secs) * 1_000;
        Settings {
            heartbeat_interval_ms: ms(self.recovery.heartbeat_interval_secs),
            heartbeat_timeout_ms: ms(self.recovery.heartbeat_timeout_secs),
            sweep_interval_ms: ms(self.recovery.sweep_interval_secs),
            unmatched_step_timeout_ms: ms(self.recovery.unmatched_step_timeout_secs),
            ack_timeout_ms: ms(self.recovery.ack_timeout_secs),
            prepare_timeout_ms: ms(self.recovery.prepare_timeout_secs),
            report_grace_ms: ms(self.recovery.report_grace_secs),
            cancel_grace_ms: ms(self.recovery.cancel_grace_secs),
            step_timeout_ms: ms(self.defaults.step_timeout_secs),
            job_timeout_ms: ms(self.defaults.job_timeout_secs),
        }
    }

    pub fn check(&self) -> Result<(), String> {
        if self.data_dir.as_os_str().is_empty() {
            return Err("data_dir is empty, name a folder".to_string());
        }
        if let Some(folder) = &self.workflows_dir
            && folder.as_os_str().is_empty()
        {
            return Err("workflows_dir is empty, name a folder or write null".to_string());
        }
        self.check_encryption()?;
        if let Some(folder) = &self.backup.dir {
            if folder.as_os_str().is_empty() {
                return Err("backup.dir is empty, name a folder or write null".to_string());
            }
            if folder.starts_with(&self.data_dir) {
                return Err(
                    "backup.dir is in data_dir and would be lost with it, name a folder elsewhere"
                        .to_string(),
                );
            }
        }
        if let Some(program) = self.backup.pipe.first() {
            if program.is_empty() {
                return Err("backup.pipe begins with an empty word, name a program".to_string());
            }
            if self.backup.pipe.iter().any(|word| word.contains('\0')) {
                return Err(
                    "backup.pipe has a NUL byte in a word, which no program can be given"
                        .to_string(),
                );
            }
            if self.backup.dir.is_none() {
                return Err(
                    "backup.pipe is for backups that the server makes by itself, and it makes none: set backup.dir, \
                     or leave backup.pipe out"
                        .to_string(),
                );
            }
        }
        if let Some(worker) = &self.embedded_worker {
            let check = worker.check();
            check.map_err(|fault| format!("embedded_worker: {fault}"))?;
        }
        if let Some(url) = &self.public_url {
            notify::check_url(url).map_err(|fault| format!("public_url {fault}"))?;
        }
        notify::check(&self.notify)?;
        self.secrets.check()?;
        let Recovery {
            heartbeat_interval_secs: interval,
            heartbeat_timeout_secs: timeout,
            ..
        } = self.recovery;
        let each = [
            ("recovery.heartbeat_interval_secs", interval),
            (
                "recovery.sweep_interval_secs",
                self.recovery.sweep_interval_secs,
            ),
            (
                "recovery.unmatched_step_timeout_secs",
                self.recovery.unmatched_step_timeout_secs,
            ),
            ("recovery.ack_timeout_secs", self.recovery.ack_timeout_secs),
            (
                "defaults.step_timeout_secs",
                self.defaults.step_timeout_secs,
            ),
            ("defaults.job_timeout_secs", self.defaults.job_timeout_secs),
            ("backup.every_hours", self.backup.every_hours),
            ("backup.keep", self.backup.keep),
        ];
        if let Some((key, _)) = each.iter().find(|(_, secs)| *secs == 0) {
            return Err(format!("{key} is 0, it must be at least 1"));
        }
        // One lost packet must not cost a worker its steps: leave room for two missed beats.
        let timeout_min = interval.saturating_mul(3);
        if timeout < timeout_min {
            return Err(format!(
                "recovery.heartbeat_timeout_secs is {timeout}, it must be at least {timeout_min} \
                 (3 x recovery.heartbeat_interval_secs, which is {interval})"
            ));
        }
        let Recovery {
            ack_timeout_secs: ack,
            prepare_timeout_secs: prepare,
            ..
        } = self.recovery;
        if prepare < ack {
            return Err(format!(
                "recovery.prepare_timeout_secs is {prepare}, it must be at least {ack} \
                 (recovery.ack_timeout_secs)"
            ));
        }
        self.limits.check()?;
        self.retention.check()
    }
}

impl ServerConfig {
    /// Whether whoever listens on the line learns what is said.
    fn check_encryption(&self) -> Result<(), String> {
        let Tls {
            cert_file,
            key_file,
        } = &self.tls;
        for (key, file) in [("tls.cert_file", cert_file), ("tls.key_file", key_file)] {
            if file
                .as_ref()
                .is_some_and(|file| file.as_os_str().is_empty())
            {
                return Err(format!("{key} is empty, name a file or write null"));
            }
        }
        let (named, missing) = match (cert_file, key_file) {
            (Some(_), None) => ("tls.cert_file", "tls.key_file"),
            (None, Some(_)) => ("tls.key_file", "tls.cert_file"),
            (Some(_), Some(_)) if self.plain_http => {
                let fault = "plain_http is true and tls.cert_file is set, which is spoken then: leave out one of them";
                return Err(fault.to_string());
            }
            (Some(_), Some(_)) => {
                let public_url = self.public_url.as_deref();
                return match public_url.filter(|url| url.starts_with("http://")) {
                    Some(url) => Err(format!(
                        "public_url is {url} and tls.cert_file is set: write https:// in public_url"
                    )),
                    None => Ok(()),
                };
            }
            (None, None) if self.listen.ip().is_loopback() || self.plain_http => return Ok(()),
            (None, None) => {
                // The next thing that would be missed: one start is enough to learn of both.
                let token = match self.auth.token_file {
                    Some(_) => String::new(),
                    None => format!(
                        "; unless there is a valid token of role admin, make one with `{}`",
                        self.first_token()
                    ),
                };
                return Err(format!(
                    "listen is {}, and what others send there could be read by anybody between: make a certificate with \
                     `{MAKE_CERTIFICATE}`, or take one that you have, and name it and its key with tls.cert_file and \
                     tls.key_file, or write plain_http: true if a tunnel, a proxy or a network that you trust is between{token}",
                    self.listen
                ));
            }
        };
        Err(format!(
            "{named} is set and {missing} is not: name both files, or neither"
        ))
    }
}

impl Tls {
    /// Certificate and key. `None`: plain HTTP is spoken.
    pub fn files(&self) -> Option<(&Path, &Path)> {
        Some((self.cert_file.as_deref()?, self.key_file.as_deref()?))
    }

    /// What addresses begin with.
    pub fn scheme(&self) -> &'static str {
        match self.files() {
            Some(_) => "https",
            None => "http",
        }
    }
}

impl super::Settings for ServerConfig {
    fn misunderstanding(file: &Value) -> Option<String> {
        match file.get("embedded_worker")? {
            worker if worker.get("log").is_some() => {
                let why = "this worker writes to the log of the server that it is in";
                Some(format!(
                    "embedded_worker.log cannot be set, leave it out: {why}"
                ))
            }
            worker => {
                let mut keys = ["server_url", "token", "token_file", "ca_file"].into_iter();
                let key = keys.find(|key| worker.get(key).is_some())?;
                Some(format!(
                    "embedded_worker.{key} cannot be set, leave it out: this worker reaches the server that it is in, \
                     with that server's own token"
                ))
            }
        }
    }

    fn fault(&self) -> Result<(), String> {
        self.check()
    }

    fn variables() -> Vec<Variable> {
        server_variables()
    }
}

pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let write = "write an address such as 127.0.0.1:7717, names but localhost are not looked up";
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port
            .parse()
            .ok()
            .map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        None => text.parse().ok(),
    };
    address.ok_or_else(|| write.to_string())
}

/// The key without a value means the default.
fn data_dir<'de, D: Deserializer<'de>>(written: D) -> Result<PathBuf, D::Error> {
    let named = Option::deserialize(written)?;
    Ok(named.unwrap_or_else(|| ServerConfig::default().data_dir))
}

/// The key without a value means the default. An empty list means that no file is allowed.
fn secret_files<'de, D: Deserializer<'de>>(written: D) -> Result<Vec<PathBuf>, D::Error> {
    let named = Option::deserialize(written)?;
    Ok(named.unwrap_or_else(|| SecretPlaces::default().allow_files))
}

fn listen<'de, D: Deserializer<'de>>(written: D) -> Result<SocketAddr, D::Error> {
    // A port alone is a number.
    let value = Value::deserialize(written)?;
    let address = listen_address(value.as_str().unwrap_or_default());
    address.map_err(|fault| D::Error::custom(format!("listen: {fault}")))
}
