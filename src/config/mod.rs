//! Settings of server and worker: read, check, refuse what makes no sense. The example files show every key.

pub mod environment;
mod forms;
mod log;
mod notify;
mod origin;
pub mod schema;
mod server;
mod worker;

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde_yaml::Value;

use environment::{Lookup, SetVariable, Variable};

pub use log::{Log, LogFormat, LogLevel};
pub use notify::{Means, Notify, NotifyTarget, Reference, Text};
pub use origin::{Given, Origin, Setting, in_force};
pub use server::{
    Auth, Defaults, MAKE_CERTIFICATE, Recovery, ServerConfig, ServerLimits, Tls, listen_address,
};
pub use worker::{Docker, Kubernetes, WorkerConfig, WorkerLimits, leads_to_a_host};

/// Why settings are not taken. One line: which file, what, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{file} cannot be read: {source}{}", named_by.map_or_else(String::new, |name| format!("; {name} names it")))]
    Unreadable {
        file: PathBuf,
        source: io::Error,
        /// The setting, where it is not the settings file itself.
        named_by: Option<&'static str>,
    },
    #[error("{file}: {fault}")]
    Invalid { file: PathBuf, fault: String },
    /// The file alone would do, or there is none: it has to do with flags or the environment.
    #[error("{0}")]
    Refused(String),
}

impl ConfigError {
    /// Where the name of a file that is not there comes from.
    pub fn named_by(self, setting: &'static str) -> ConfigError {
        match self {
            ConfigError::Unreadable { file, source, .. } => ConfigError::Unreadable {
                file,
                source,
                named_by: Some(setting),
            },
            other => other,
        }
    }
}

/// A token stands alone in its file. Short ones can be guessed.
pub fn read_token(file: &Path) -> Result<String, ConfigError> {
    const TOKEN_BYTES_MIN: usize = 16;
    let text = read(file)?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES_MIN || !is_word(token) {
        let found = match (token.len(), is_word(token)) {
            (0, _) => "the file is empty".to_string(),
            (_, false) => {
                "it has blanks or other characters than printable ASCII in it".to_string()
            }
            (bytes, true) => format!("it has {bytes} bytes"),
        };
        let fault = format!(
            "holds no token: {found}, and a token is one word of at least {TOKEN_BYTES_MIN} bytes; make one with \
             `openssl rand -hex 32`"
        );
        let file = file.into();
        return Err(ConfigError::Invalid { file, fault });
    }
    Ok(token.to_string())
}

/// What can be sent as a token: letters, figures and signs, nothing between them.
pub fn is_word(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What is no plain file may never end, or never begin.
pub fn read(file: &Path) -> Result<String, ConfigError> {
    const BYTES_MAX: u64 = 1 << 20;
    let unreadable = |source| ConfigError::Unreadable {
        file: file.into(),
        source,
        named_by: None,
    };
    let invalid = |fault: &str| ConfigError::Invalid {
        file: file.into(),
        fault: fault.to_string(),
    };
    // Otherwise opening a pipe waits for somebody to write.
    let without_waiting = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(without_waiting)
        .open(file)
        .map_err(unreadable)?;
    if !opened.metadata().map_err(unreadable)?.is_file() {
        return Err(invalid("is not a plain file"));
    }
    let mut text = String::new();
    match opened.take(BYTES_MAX + 1).read_to_string(&mut text) {
        Ok(bytes) if bytes as u64 > BYTES_MAX => Err(invalid("is longer than 1 MiB")),
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(invalid("is not text in UTF-8"))
        }
        Err(error) => Err(unreadable(error)),
    }
}

/// What the settings of a server and those of a worker have in common.
trait Settings: DeserializeOwned + Default {
    /// Faults that the types alone would report in words that help nobody, or not report at all.
    fn misunderstanding(_file: &Value) -> Option<String> {
        None
    }

    fn fault(&self) -> Result<(), String>;

    /// The environment variables that set one of these settings each.
    fn variables() -> Vec<Variable>;
}

/// Defaults, then the file, then environment variables, then what `put_over` sets. The result is checked once. A missing file
/// name and an empty file both mean the defaults.
fn load<T: Settings>(
    file: Option<&Path>,
    lookup: Lookup,
    put_over: impl FnOnce(&mut T),
) -> Result<T, ConfigError> {
    let invalid = |fault, file: &Path| ConfigError::Invalid {
        file: file.into(),
        fault,
    };
    let (value, of_file) = match file {
        Some(file) => parse::<T>(&read(file)?).map_err(|fault| invalid(fault, file))?,
        None => (Value::Null, T::default()),
    };
    let fault_of_file = of_file.fault().err();
    let set = environment::find_set(T::variables(), lookup).map_err(ConfigError::Refused)?;
    let mut settings = match set.is_empty() {
        true => of_file,
        false => merged(&value, set.iter())
            .map_err(|fault| blame_variables::<T>(&value, &set, &fault))
            .map_err(ConfigError::Refused)?,
    };
    let fault_before = settings.fault().err();
    put_over(&mut settings);
    match (settings.fault(), file) {
        (Ok(()), _) => Ok(settings),
        (Err(fault), Some(file)) if fault_of_file.as_ref() == Some(&fault) => {
            Err(invalid(fault, file))
        }
        (Err(fault), _) if fault_before.as_ref() == Some(&fault) => Err(ConfigError::Refused(
            blame_variables::<T>(&value, &set, &fault),
        )),
        (Err(fault), _) => Err(ConfigError::Refused(fault)),
    }
}

fn merged<'a, T: Settings>(
    file: &Value,
    set: impl Iterator<Item = &'a SetVariable>,
) -> Result<T, String> {
    let merged = environment::merge(file, set);
    serde_yaml::from_value(merged).map_err(|error| in_plain_words(&error.to_string()))
}

/// Adds to a fault the variables without which the settings would not have it.
fn blame_variables<T: Settings>(file: &Value, set: &[SetVariable], fault: &str) -> String {
    let is_cause = |suspect: &&SetVariable| {
        let others = set.iter().filter(|other| other.name != suspect.name);
        let without = merged::<T>(file, others).and_then(|settings| settings.fault());
        without.err().as_deref() != Some(fault)
    };
    let causes: Vec<&str> = set.iter().filter(is_cause).map(|set| &*set.name).collect();
    match causes.is_empty() {
        true => fault.to_string(),
        false => format!("{fault}; see the variable {}", causes.join(" and ")),
    }
}

fn parse<T: Settings>(text: &str) -> Result<(Value, T), String> {
    let in_words = |error: serde_yaml::Error| in_plain_words(&error.to_string());
    let value: Value = serde_yaml::from_str(text).map_err(in_words)?;
    if let Some(fault) = T::misunderstanding(&value) {
        return Err(fault);
    }
    // From the text again, which knows the lines.
    let settings: Option<T> = serde_yaml::from_str(text).map_err(in_words)?;
    Ok((value, settings.unwrap_or_default()))
}

/// Serde speaks of Rust's types.
fn in_plain_words(fault: &str) -> String {
    const WORDS: [(&str, &str); 16] = [
        ("invalid type: ", "found "),
        ("invalid value: ", "found "),
        ("found unit value", "found nothing"),
        ("found map", "found a list of settings"),
        ("found sequence", "found a list"),
        (
            "expected a list of settings",
            "expected settings, each as KEY: VALUE",
        ),
        ("expected u32", "expected a whole number, 0 to 4294967295"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a list of NAME: VALUE"),
        ("expected a string", "expected text"),
        ("expected path string", "expected a path"),
        ("expected a boolean", "expected true or false"),
        ("unknown field", "unknown key"),
        ("unknown variant", "found"),
    ];
    let mut fault = fault.to_string();
    for (serde, ours) in WORDS {
        fault = fault.replace(serde, ours);
    }
    fault
}
