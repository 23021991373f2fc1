//! `stepward token`: who is let in. Makes tokens, lists them, revokes them, tries one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::announce;
use super::columns::Columns;
use super::columns::Room::{Any, Wide};
use super::exit::{Exit, Fault};
use super::files::{refuse_anothers, refuse_no_database};
use super::look::{Look, Show};
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer, answer_json, answer_json_list, print, say};
use super::sheet::joined;
use super::table::Cell;
use super::words::{ago, shell_path, until};
use crate::client::CallError;
use crate::clock::SystemClock;
use crate::domain::token::{CONSOLE, Role};
use crate::domain::{Now, TokenId};
use crate::engine::{Engine, EngineError, Settings};
use crate::language::duration;
use crate::secrets::random_secret;
use crate::server::api::show;
use crate::server::api::tokens::Drawn;
use crate::server::error::ApiError;
use crate::store::{DATABASE_FILE, LOCK_FILE, Store, StoreOptions};
use crate::token_files::keep_out_of_repositories;
use crate::wire::api::{MadeTokenJson, MeJson, NewTokenRequest, TokenJson};

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward token new ada --role admin --data-dir /var/lib/stepward
  stepward token new grafana --role viewer --to /etc/stepward/grafana.token
  stepward token new edge-1 --role enrolment --tags script,gpu
  stepward token ls
  stepward token revoke edge-1
  stepward token check --server https://jobs.example.org --token-file token")]
pub struct TokenArgs {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Subcommand)]
enum TokenVerb {
    /// Makes a token, and prints it once.
    ///
    /// viewer looks at everything but tokens; operator also runs, cancels, retries and approves; admin does all; worker runs steps; an
    /// enrolment lets one worker make a token of its own, once, within an hour.
    New(NewArgs),
    /// Lists tokens: what they let do, and when they were last used.
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Has a token let nobody in any more.
    Revoke(RevokeArgs),
    /// Says whether the server takes the token that commands send from here, and as whose.
    Check(CheckArgs),
    /// Makes the one token that opens everything, in a file for `auth.token_file`.
    File(FileArgs),
}

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward token new ada --role admin --data-dir .stepward
  stepward token new grafana --role viewer --expires 365d
  stepward token new edge-1 --role enrolment --tags script,gpu --to enrolment")]
struct NewArgs {
    /// What events call whoever shows it.
    #[arg(value_parser = name)]
    name: String,
    /// What it lets do: viewer, operator, admin, worker or enrolment.
    #[arg(long, value_parser = role)]
    role: Role,
    /// All tags that its worker may offer.
    #[arg(long, value_delimiter = ',')]
    tags: Option<Vec<String>>,
    /// After which time it lets nobody in, such as 90d; an enrolment ends after an hour unless this says otherwise.
    #[arg(long, value_name = "DURATION", value_parser = expiry_secs)]
    expires: Option<u32>,
    /// A file to make for it, which must not exist, instead of printing it.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    show: Show,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward token ls\n  stepward token ls --json",
    after_help = "Columns: token, name, role, status, last used, tags, made, by"
)]
struct LsArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    show: Show,
}

#[derive(Args)]
#[command(before_help = "Examples:\n  stepward token revoke edge-1\n  stepward token revoke 7")]
struct RevokeArgs {
    /// Its number, or its name if no other has it.
    #[arg(value_parser = name)]
    token: String,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    show: Show,
}

/// Of a server that runs, or of its data folder while it does not: somebody must make the first token.
#[derive(Args)]
struct Place {
    /// The data folder of a server that does not run.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward token file /etc/stepward/token
  stepward token file -")]
struct FileArgs {
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
struct FileJson {
    file: Option<PathBuf>,
    /// Only where no file has it.
    token: Option<String>,
}

#[derive(Serialize)]
struct MadeJson {
    file: Option<PathBuf>,
    /// Only where no file has it.
    text: Option<String>,
    token: TokenJson,
}

#[derive(Serialize)]
struct CheckedJson {
    server: String,
    needs_token: bool,
    /// Where the token comes from that was sent; `null`: none was.
    token_from: Option<String>,
    /// Whether whoever sends it is let in.
    allowed: bool,
    /// As whom.
    name: Option<String>,
    role: Option<String>,
}

const WHO_AM_I: &str = "/api/me";
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: TokenArgs) -> anyhow::Result<Exit> {
    match args.verb {
        TokenVerb::New(args) => new(args),
        TokenVerb::Ls(args) => list(args),
        TokenVerb::Revoke(args) => revoke(args),
        TokenVerb::Check(args) => check(args),
        TokenVerb::File(args) => file(args),
    }
}

fn role(word: &str) -> Result<Role, String> {
    Role::from_word(word).ok_or_else(|| {
        let roles: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        format!("there are {}", roles.join(", "))
    })
}

fn expiry_secs(text: &str) -> Result<u32, String> {
    let ms = duration::parse(text).map_err(|_| "write a duration such as 90d or 2h".to_string())?;
    u32::try_from(ms / 1_000).map_err(|_| "that is too long".to_string())
}

fn new(args: NewArgs) -> anyhow::Result<Exit> {
    let folder = args.place.folder(StoreOptions::default())?;
    if let Some(file) = &args.to {
        // Before there is a token that nobody would get to see.
        keep(file, "")?;
    }
    let asked = NewTokenRequest {
        name: args.name,
        role: args.role.to_string(),
        tags: args.tags,
        expires_in_secs: args.expires,
    };
    let made = match folder {
        Some(folder) => folder.make(asked),
        None => args.place.reach.server().and_then(|remote| {
            let made: MadeTokenJson = remote.post("/api/tokens", &asked)?;
            Ok(made)
        }),
    };
    let MadeTokenJson { token, text } = made.inspect_err(|_| {
        if let Some(file) = &args.to {
            // It is empty; what went wrong is told.
            let _ = fs::remove_file(file);
        }
    })?;
    if let Some(file) = &args.to {
        fs::write(file, format!("{text}\n"))
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let shown = Some(text).filter(|_| args.to.is_none());
    if args.show.json {
        answer_json(&MadeJson {
            file: args.to,
            text: shown,
            token,
        });
        return Ok(Exit::Success);
    }
    let (id, name, role) = (token.id, &token.name, &token.role);
    match (&shown, &args.to) {
        (Some(text), _) => {
            say(format!("token {id} of {name}, {role}; it is shown once:"));
            answer(text);
        }
        (None, Some(file)) => say(format!(
            "token {id} of {name}, {role}, is in {}",
            file.display()
        )),
        (None, None) => {}
    }
    let file = args.to.as_deref().map_or("FILE".to_string(), shell_path);
    match args.role {
        Role::Enrolment => {
            if let Some(at) = token.expires_at {
                say(format!("it can be used once, and ends {}", until(at)));
            }
            say(format!(
                "on the worker's machine: stepward worker --server URL --token-file {file}"
            ));
        }
        Role::Worker => say(format!(
            "on the worker's machine: stepward worker --server URL --token-file {file}"
        )),
        Role::Viewer | Role::Operator | Role::Admin => say(format!(
            "commands: --token-file {file}, or STEPWARD_TOKEN_FILE; browsers: type it at the login page"
        )),
    }
    Ok(Exit::Success)
}

fn list(args: LsArgs) -> anyhow::Result<Exit> {
    let tokens = match args.place.existing_folder(StoreOptions::looking())? {
        Some(folder) => folder.all()?,
        None => {
            let remote = args.place.reach.server()?;
            remote.all("/api/tokens", "after", usize::MAX)?
        }
    };
    if args.show.json {
        answer_json_list(tokens);
        return Ok(Exit::Success);
    }
    if tokens.is_empty() {
        say("there are no tokens, make one with `stepward token new NAME --role admin`");
        return Ok(Exit::Success);
    }
    let look = &args.show.look();
    print(&table(&tokens, look).text(look));
    Ok(Exit::Success)
}

fn table(tokens: &[TokenJson], look: &Look) -> Columns {
    let mut table = Columns::new(
        look,
        &[
            ("TOKEN", Any),
            ("NAME", Any),
            ("ROLE", Any),
            ("STATUS", Any),
            ("LAST USED", Any),
            ("TAGS", Wide),
            ("MADE", Wide),
            ("BY", Wide),
        ],
    );
    for token in tokens {
        let mut status = match (token.status.as_str(), token.expires_at) {
            ("good", Some(at)) => format!("good, ends {}", until(at)),
            (status, _) => status.to_string(),
        };
        if token.unasked {
            status.push_str(", made while nobody was asked");
        }
        table.row(vec![
            Cell::number(token.id),
            Cell::new(&token.name),
            Cell::new(&token.role),
            Cell::new(status),
            Cell::new(token.used_at.map_or("never".to_string(), ago)),
            Cell::new(token.tags.as_deref().map_or("any".to_string(), joined)),
            Cell::new(ago(token.created_at)),
            Cell::new(&token.made_by),
        ]);
    }
    table
}

fn revoke(args: RevokeArgs) -> anyhow::Result<Exit> {
    let token: TokenJson = match args.place.existing_folder(StoreOptions::default())? {
        Some(folder) => folder.revoke(&args.token)?,
        None => {
            let remote = args.place.reach.server()?;
            remote.delete(&format!("/api/tokens/{}", in_url(&args.token)))?
        }
    };
    if args.show.json {
        answer_json(&token);
        return Ok(Exit::Success);
    }
    let (id, name) = (token.id, &token.name);
    answer(format!("token {id} of {name} lets nobody in any more"));
    if let Some(made) = token.made_token_id {
        say(format!(
            "it was used before: a worker has token {made} of it, which still lets it in; to end that too: stepward token revoke {made}"
        ));
    }
    Ok(Exit::Success)
}

impl Place {
    /// The data folder, if it is to be opened here.
    fn folder(&self, options: StoreOptions) -> anyhow::Result<Option<DataFolder>> {
        let Some(folder) = &self.data_dir else {
            return Ok(None);
        };
        self.reach.or_folder(folder)?;
        DataFolder::open(folder, options).map(Some)
    }

    /// The data folder, if it is to be opened here. It must have a database already.
    fn existing_folder(&self, options: StoreOptions) -> anyhow::Result<Option<DataFolder>> {
        if let Some(folder) = &self.data_dir {
            refuse_no_database(folder)?;
        }
        self.folder(options)
    }
}

/// The data folder of a server that does not run.
struct DataFolder {
    engine: Engine,
    now: Now,
}

impl DataFolder {
    fn open(folder: &Path, options: StoreOptions) -> anyhow::Result<DataFolder> {
        let shown = folder.display();
        if let Some((announced, _)) = announce::of_folder(folder) {
            let url = announced.url;
            return Err(Fault::new(
                Exit::Conflict,
                format!(
                    "the server of {shown} runs: leave --data-dir out and write --server {url}, with a token of role admin; or stop it first"
                ),
            )
            .into());
        }
        refuse_anothers(folder)?;
        if folder.exists() && !folder.join(DATABASE_FILE).exists() && has_files(folder) {
            return Err(Fault::usage(format!(
                "{shown} is no data folder: it has files, and no {DATABASE_FILE}"
            )));
        }
        let is_new = !folder.join(DATABASE_FILE).exists();
        let store = Store::open(folder, options)?;
        if is_new {
            keep_out_of_repositories(folder);
        }
        let settings = Settings::default();
        let now = SystemClock::continuing(store.begun_up(), &settings).now();
        let engine = Engine::new(store, settings).by(CONSOLE);
        Ok(DataFolder { engine, now })
    }

    fn make(&self, asked: NewTokenRequest) -> anyhow::Result<MadeTokenJson> {
        let role = role(&asked.role).map_err(anyhow::Error::msg)?;
        let drawn = Drawn::of(asked, role, CONSOLE, false, self.now);
        let drawn = drawn.map_err(|error| anyhow!("no randomness is to be had: {error}"))?;
        let (token, text) = drawn.make(&self.engine, self.now).map_err(refused)?;
        Ok(MadeTokenJson {
            text,
            token: show::token(&token, self.now),
        })
    }

    fn all(&self) -> anyhow::Result<Vec<TokenJson>> {
        let tokens = self.engine.tokens(TokenId(0), u32::MAX)?;
        Ok(tokens
            .iter()
            .map(|token| show::token(token, self.now))
            .collect())
    }

    fn revoke(&self, selector: &str) -> anyhow::Result<TokenJson> {
        let selected = self.engine.select_token(selector, self.now);
        // Whoever has the folder can make another.
        let revoked = selected.and_then(|id| self.engine.revoke_token(id, false, self.now));
        Ok(show::token(&revoked.map_err(refused)?, self.now))
    }
}

/// As a server would refuse it, which keeps to itself what its database says.
fn refused(error: EngineError) -> anyhow::Error {
    match error {
        EngineError::Store(error) => error.into(),
        error => {
            let refused = ApiError::from(error);
            Fault::new(Exit::of_status(refused.status), refused.message).into()
        }
    }
}

/// Besides what is left by whoever held it for a while.
fn has_files(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name() != LOCK_FILE)
}

fn file(args: FileArgs) -> anyhow::Result<Exit> {
    let token = random_secret().map_err(|error| anyhow!("no randomness is to be had: {error}"))?;
    let to_stdout = args.file == Path::new("-");
    if !to_stdout {
        keep(&args.file, &token)?;
    }
    let shown = Some(token).filter(|_| to_stdout);
    let file = Some(args.file).filter(|_| !to_stdout);
    if args.show.json {
        answer_json(&FileJson { file, token: shown });
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

/// How the server takes what it was sent.
enum Welcome {
    As(MeJson),
    /// A worker's token, which may not even ask that.
    AsWorker,
    No,
}

fn check(args: CheckArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let url = &remote.url;
    let without = welcome(&remote.without_token(), &remote)?;
    let needs_token = matches!(without, Welcome::No);
    let welcome = match needs_token && remote.client.has_token() {
        true => welcome(&remote, &remote)?,
        false => without,
    };
    let allowed = !matches!(welcome, Welcome::No);
    let (name, role) = match welcome {
        Welcome::As(me) if needs_token => (Some(me.name), Some(me.role)),
        Welcome::AsWorker => (None, Some(Role::Worker.to_string())),
        Welcome::As(_) | Welcome::No => (None, None),
    };
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
            name,
            role,
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
            let whose = match (name, role) {
                (Some(name), Some(role)) => format!(" as {name}, {role}"),
                (None, Some(role)) => format!(" as that of a {role}"),
                _ => String::new(),
            };
            answer(format!(
                "the server at {url} takes the token from {from}{whose}"
            ))
        }
        (true, false, Some(from)) => answer(format!(
            "the server at {url} does not take the token from {from}: it is not known there, was revoked or has expired"
        )),
        (true, false, None) => {
            let ignored = remote.token_ignored.as_ref();
            let ignored = ignored.map_or_else(String::new, |why| format!("{why}; or "));
            answer(format!(
                "the server at {url} needs a token, and none is sent: {ignored}name its file with --token-file or \
                 STEPWARD_TOKEN_FILE"
            ))
        }
    };
    Ok(exit)
}

fn welcome(asking: &Remote, named: &Remote) -> anyhow::Result<Welcome> {
    match asking.client.get::<MeJson>(WHO_AM_I, PATIENCE) {
        Ok(me) => Ok(Welcome::As(me)),
        Err(CallError::Refused { status: 403, .. }) => Ok(Welcome::AsWorker),
        Err(CallError::Refused { status: 401, .. }) => Ok(Welcome::No),
        Err(other) => named.heard(Err(other)),
    }
}
