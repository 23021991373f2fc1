//! `stepward token`: make one, try one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::exit::{Exit, Fault};
use super::look::Show;
use super::reach::{NamedBy, Reach, Remote};
use super::say::{answer, answer_json, say};
use crate::client::CallError;
use crate::wire::api::{List, ScheduleJson};

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward token new /etc/stepward/token
  stepward token new - | ssh edge-1 'umask 077; cat > token'
  stepward token check --server https://jobs.example.org --token-file token")]
pub struct TokenArgs {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Subcommand)]
enum TokenVerb {
    /// Makes a token that nobody can guess, in a file that nobody else can read.
    New(NewArgs),
    /// Says whether the server takes the token that commands send from here.
    Check(CheckArgs),
}

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward token new /etc/stepward/token
  stepward token new -")]
struct NewArgs {
    /// The file to make, which must not exist; `-` prints the token.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    show: Show,
}

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward token check
  stepward token check --server https://jobs.example.org --token-file token")]
struct CheckArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    show: Show,
}

#[derive(Serialize)]
struct NewJson {
    file: Option<PathBuf>,
    /// Only where no file has it.
    token: Option<String>,
}

#[derive(Serialize)]
struct CheckedJson {
    server: String,
    needs_token: bool,
    /// Where the token comes from that was sent; `null`: none was.
    token_from: Option<String>,
    /// Whether whoever sends it is let in.
    allowed: bool,
}

/// Any answer that only those get who are let in.
const ASKED: &str = "/api/schedules?limit=1";
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: TokenArgs) -> anyhow::Result<Exit> {
    match args.verb {
        TokenVerb::New(args) => new(args),
        TokenVerb::Check(args) => check(args),
    }
}

fn new(args: NewArgs) -> anyhow::Result<Exit> {
    let token = random()?;
    let to_stdout = args.file == Path::new("-");
    if !to_stdout {
        keep(&args.file, &token)?;
    }
    let shown = Some(token).filter(|_| to_stdout);
    let file = Some(args.file).filter(|_| !to_stdout);
    if args.show.json {
        answer_json(&NewJson { file, token: shown });
        return Ok(Exit::Success);
    }
    if let Some(token) = shown {
        answer(token);
    }
    let file = match file {
        Some(file) => {
            say(format!("{} holds a new token", file.display()));
            fs::canonicalize(&file)
                .unwrap_or(file)
                .display()
                .to_string()
        }
        None => "FILE".to_string(),
    };
    say(format!(
        "server: write in server-config.yaml `auth: {{ token_file: {file} }}`, and restart it"
    ));
    say("workers: copy the file there, and write in worker-config.yaml `token_file: FILE`");
    say("commands: --token-file FILE, or STEPWARD_TOKEN_FILE; `stepward token check` tries it");
    Ok(Exit::Success)
}

/// 256 bits of it.
fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no randomness is to be had: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All of it or no file.
fn keep(file: &Path, token: &str) -> anyhow::Result<()> {
    let shown = file.display();
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let mut opened = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Fault::new(
            Exit::Conflict,
            format!(
                "{shown} exists, and nothing is overwritten: name another file, or move it away"
            ),
        )
        .into(),
        _ => anyhow!("{shown} cannot be made: {error}"),
    })?;
    let written = opened
        .write_all(format!("{token}\n").as_bytes())
        .and_then(|()| opened.sync_all());
    if written.is_err() {
        // Half a token helps nobody; why it is half is what is told.
        let _ = fs::remove_file(file);
    }
    written.with_context(|| format!("{shown} cannot be written"))
}

fn check(args: CheckArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let url = &remote.url;
    let needs_token = !is_let_in(&Remote::new(url, None, NamedBy::Caller), &remote)?;
    let allowed = !needs_token || (remote.client.has_token() && is_let_in(&remote, &remote)?);
    let token_from = remote.token_from.clone();
    let exit = match allowed {
        true => Exit::Success,
        false => Exit::NotAllowed,
    };
    if args.show.json {
        answer_json(&CheckedJson {
            server: url.clone(),
            needs_token,
            token_from,
            allowed,
        });
        return Ok(exit);
    }
    match (needs_token, allowed, token_from) {
        (false, _, None) => answer(format!("the server at {url} needs no token")),
        (false, _, Some(from)) => answer(format!(
            "the server at {url} needs no token, and does not look at the one from {from}"
        )),
        (true, true, from) => {
            let from = from.unwrap_or_default();
            answer(format!("the server at {url} takes the token from {from}"))
        }
        (true, false, Some(from)) => answer(format!(
            "the server at {url} does not take the token from {from}: it is not the one in its auth.token_file"
        )),
        (true, false, None) => answer(format!(
            "the server at {url} needs a token, and none is sent: name its file with --token-file or \
             STEPWARD_TOKEN_FILE"
        )),
    };
    Ok(exit)
}

fn is_let_in(asking: &Remote, named: &Remote) -> anyhow::Result<bool> {
    match asking.client.get::<List<ScheduleJson>>(ASKED, PATIENCE) {
        Ok(_) => Ok(true),
        Err(CallError::Refused {
            status: 401 | 403, ..
        }) => Ok(false),
        Err(other) => named.heard(Err(other)),
    }
}
