//! A worker's own token. It draws the secret itself and keeps it in its folder before anything is sent, so that an answer that is lost
//! costs nothing: asked again with the same secret, the server answers the same. What travels is the secret's hash.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::{Receiver, after, select};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::folder::{Folder, FolderError, write_whole};
use super::machine_name;
use crate::client::{CallError, Client};
use crate::config::{ConfigError, WorkerConfig};
use crate::domain::TokenId;
use crate::domain::peer::Features;
use crate::domain::token::TokenText;
use crate::secrets::{hash_hex, random_secret};
use crate::wire::worker::{DrainRequest, EnrolAnswer, EnrolRequest, ServerAnswer, WORKER_TOO_OLD};

/// The file of the worker's folder that keeps its own token.
pub const FILE: &str = "token.json";
/// An exchange that is under way.
const PENDING: &str = "enrolment.json";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries while the server is away.
const PAUSE: Duration = Duration::from_secs(2);

/// Why a worker has no token. One line: what is wrong, what to do.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("no server is named")]
    NoServer,
    #[error("there is no randomness to be had: {0}")]
    Randomness(getrandom::Error),
    #[error(
        "the server refuses the enrolment: {0}; make a new one there with `stepward token new NAME --role enrolment`"
    )]
    Refused(String),
    /// The server does not understand this version of the worker any more.
    #[error("{0}")]
    TooOld(String),
    #[error("{0}")]
    Other(String),
    #[error("it was told to stop before the server answered")]
    Interrupted,
}

/// What the folder keeps of it.
#[derive(Debug, Serialize, Deserialize)]
struct Own {
    enrolment_id: i64,
    /// A hash of the enrolment's text: servers of two installations may give enrolments the same number. Version 0.1 did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enrolment_hash: Option<String>,
    secret: String,
    /// Not known before the server has answered.
    token_id: Option<i64>,
}

impl Own {
    /// Whether this token comes from the enrolment with this number and text.
    fn is_of(&self, enrolment_id: TokenId, text: &str) -> bool {
        let hash = self.enrolment_hash.as_deref();
        self.enrolment_id == enrolment_id.0 && hash.is_none_or(|hash| hash == hash_hex(text))
    }

    fn text(&self) -> Option<String> {
        let text = TokenText {
            token_id: TokenId(self.token_id?),
            secret: &self.secret,
            is_enrolment: false,
        };
        Some(text.write())
    }
}

/// What a worker shows that was given this: an enrolment is exchanged, once; with nothing given it is what the folder has.
///
/// A token that the folder has and that the server still takes comes before any other enrolment: one that is shown by mistake is
/// not used up, and takes nothing away.
pub fn token_for(
    config: &WorkerConfig,
    given: Option<&str>,
    signals: &Receiver<()>,
) -> Result<Option<String>, EnrolError> {
    let enrolment = given.and_then(|text| Some((text, TokenText::read(text)?)));
    let enrolment = enrolment.filter(|(_, parts)| parts.is_enrolment);
    if given.is_some() && enrolment.is_none() {
        return Ok(given.map(str::to_string));
    }
    let folder = Folder::open(&config.data_dir)?;
    let (file, pending) = (folder.file(FILE), folder.file(PENDING));
    let known = read(&file)?;
    let own = known.as_ref().and_then(Own::text);
    let Some((given, TokenText { token_id, .. })) = enrolment else {
        return Ok(own);
    };
    let is_the_same = known
        .as_ref()
        .is_some_and(|known| known.is_of(token_id, given));
    let mut installation = None;
    if own.is_none() || !is_the_same {
        // Before the server of another installation sees this worker's token or uses the enrolment up.
        installation = installation_of(config, given, signals)?;
        if let Some(installation) = &installation {
            folder.may_belong_to(installation)?;
        }
    }
    if let Some(own) = own
        && (is_the_same || is_taken(config, &own, signals)?)
    {
        if !is_the_same {
            log::warn!(
                "this worker has a token, which the server takes: the enrolment is not used"
            );
        }
        return Ok(Some(own));
    }
    let begun = read(&pending)?.filter(|own| own.is_of(token_id, given));
    let mut own = match begun {
        Some(own) => own,
        None => Own {
            enrolment_id: token_id.0,
            enrolment_hash: Some(hash_hex(given)),
            secret: random_secret().map_err(EnrolError::Randomness)?,
            token_id: None,
        },
    };
    keep(&pending, &own)?;
    own.token_id = Some(exchange(config, given, &own, signals)?);
    keep(&file, &own)?;
    if let Some(installation) = &installation {
        folder.belongs_to(installation)?;
    }
    // It says the same; the next enrolment writes over it.
    let _ = fs::remove_file(&pending);
    Ok(own.text())
}

/// Whether the server lets this token in.
fn is_taken(
    config: &WorkerConfig,
    token: &str,
    signals: &Receiver<()>,
) -> Result<bool, EnrolError> {
    let client = client(config, token)?;
    let nobody = DrainRequest {
        session: "of nobody".to_string(),
    };
    let answer: Result<IgnoredAny, _> = patiently(signals, || {
        client.post("/api/worker/drain", &nobody, TIMEOUT)
    })?;
    Ok(!answer.is_err_and(|error| error.is_about_token()))
}

/// Asks the server which installation it is. `None`: a server of version 0.1, or one that refuses the enrolment, which the exchange
/// will say.
fn installation_of(
    config: &WorkerConfig,
    enrolment: &str,
    signals: &Receiver<()>,
) -> Result<Option<String>, EnrolError> {
    let client = client(config, enrolment)?;
    let answer: Result<ServerAnswer, _> =
        patiently(signals, || client.get("/api/worker/enrol", TIMEOUT))?;
    Ok(answer.ok().map(|answer| answer.installation))
}

/// Calls the server with this token or enrolment.
fn client(config: &WorkerConfig, token: &str) -> Result<Client, EnrolError> {
    let server = config.server_url.as_deref().ok_or(EnrolError::NoServer)?;
    let trust = config.trust()?;
    let client = Client::trusting(server, Some(token), trust.as_ref());
    Ok(client.announcing(Features::OF_WORKER))
}

fn exchange(
    config: &WorkerConfig,
    given: &str,
    own: &Own,
    signals: &Receiver<()>,
) -> Result<i64, EnrolError> {
    let client = client(config, given)?;
    let server = config.server_url.as_deref().ok_or(EnrolError::NoServer)?;
    let request = EnrolRequest {
        name: match config.name.is_empty() {
            true => machine_name(),
            false => config.name.clone(),
        },
        secret_hash: hash_hex(&own.secret),
    };
    let answer: Result<EnrolAnswer, _> = patiently(signals, || {
        client.post("/api/worker/enrol", &request, TIMEOUT)
    })?;
    let is_refused = answer.as_ref().is_err_and(CallError::is_about_token);
    match answer {
        Ok(answer) => Ok(answer.token_id),
        Err(CallError::Refused { error, .. }) if is_refused => {
            Err(EnrolError::Refused(error.message))
        }
        Err(CallError::Refused { error, .. }) if error.code == WORKER_TOO_OLD => {
            let fault = format!("the server at {server} says: {}", error.message);
            Err(EnrolError::TooOld(fault))
        }
        Err(error) => {
            let fault = format!("the server at {server} does not enrol this worker: {error}");
            Err(EnrolError::Other(fault))
        }
    }
}

/// Asks until there is an answer: one that says no more than "later" is none, unless it is about the token.
fn patiently<T>(
    signals: &Receiver<()>,
    ask: impl Fn() -> Result<T, CallError>,
) -> Result<Result<T, CallError>, EnrolError> {
    let mut is_told = false;
    loop {
        let error = match ask() {
            Err(error) if error.passes() && !error.is_about_token() => error,
            answer => return Ok(answer),
        };
        if !is_told {
            is_told = true;
            log::warn!("the server does not answer yet, trying again and again: {error}");
        }
        select! {
            recv(signals) -> _ => return Err(EnrolError::Interrupted),
            recv(after(PAUSE)) -> _ => {}
        }
    }
}

fn read(file: &Path) -> Result<Option<Own>, EnrolError> {
    let unusable = |source| FolderError::Unusable {
        path: file.into(),
        source,
    };
    match fs::read(file) {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(own) => Ok(Some(own)),
            Err(error) => Err(unusable(error.into()).into()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(error).into()),
    }
}

fn keep(file: &Path, own: &Own) -> Result<(), EnrolError> {
    let json = serde_json::to_vec_pretty(own).expect("plain data");
    let kept = write_whole(file, &json);
    Ok(kept.map_err(|source| FolderError::Unusable {
        path: file.into(),
        source,
    })?)
}
