//! What people should know about who may come in: a server that asks nobody, tokens that anybody could have made, steps that can read
//! tokens, and a data folder that other users can change.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use super::App;
use super::first_start::FirstTokens;
use crate::clock::wall_time;
use crate::domain::token::Token;
use crate::sealer::KEY_FILE;
use crate::store::DATABASE_FILE;
use crate::token_files::{ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE};
use crate::wire::api::{NoticeJson, Severity};
use crate::words::{count, shell_path, shell_word};

/// More names than this are not listed in one sentence.
const NAMES_MAX: usize = 10;

/// Whether and why the server asks for a token.
#[derive(Debug)]
pub struct Door {
    /// Whether this is `stepward server`. `dev`, `run` and `demo` are open on purpose.
    pub is_for_others: bool,
    /// Whether the database says that the server asks by default.
    pub is_folder_closed: bool,
    /// The tokens that this start has written into the data folder.
    pub first_tokens: Option<FirstTokens>,
    /// Where the server listens: the port that was chosen, if the settings name none.
    pub address: SocketAddr,
}

/// Returns the notices about authentication. Names of tokens are included only for callers that may list tokens.
pub fn notices(app: &App, may_list_tokens: bool) -> Vec<NoticeJson> {
    let notices = [
        open_folder(app),
        unasked_tokens(app, may_list_tokens),
        steps_read_tokens(app),
        writable_folder(app),
    ];
    notices.into_iter().flatten().collect()
}

/// A data folder of version 0.1 whose settings do not say whether to ask.
fn open_folder(app: &App) -> Option<NoticeJson> {
    let (door, config) = (&app.door, &app.config);
    let is_by_default = door.is_for_others
        && !door.is_folder_closed
        && !app.gate.asks_for_token()
        && config.auth.required.is_none();
    is_by_default.then(|| NoticeJson {
        code: "auth_not_required".to_string(),
        severity: Severity::Problem,
        message: format!(
            "every user and every step on this machine can do everything here: the server at {} asks nobody for a token, because \
             version 0.1 created the data folder and the settings do not have auth.required",
            app.door.address
        ),
        fix: format!(
            "write `auth: {{ required: true }}` in the settings of the server and restart it; it then writes a token for you to {}. \
             To stay open, write `auth: {{ required: false }}`",
            shell_path(&config.data_dir.join(ADMIN_TOKEN_FILE))
        ),
        page: "/settings".to_string(),
    })
}

/// Reports valid tokens that were made while the server asked nobody for a token: anybody on the machine could have made them.
fn unasked_tokens(app: &App, may_list_tokens: bool) -> Option<NoticeJson> {
    if !app.gate.asks_for_token() {
        return None;
    }
    // If the database cannot be read, this says nothing: the health of the store reports that.
    let tokens = app.engine.unasked_tokens(wall_time()).ok()?;
    if tokens.is_empty() {
        return None;
    }
    let which = match (tokens.len(), may_list_tokens) {
        (1, true) => format!("token {} was", described(&tokens[0])),
        (n, true) => format!("{} were", listed(&tokens, n)),
        (1, false) => "a valid token was".to_string(),
        (n, false) => format!("{} were", count(n, "valid token")),
    };
    let fix = match may_list_tokens {
        true => {
            let revoke =
                |token: &Token| format!("stepward token revoke {}", selector(token, &tokens));
            let commands = tokens.iter().take(NAMES_MAX).map(revoke);
            let commands = commands.collect::<Vec<_>>().join(" && ");
            // A token that is made with one of these is marked as well. If the database cannot be read, this says nothing: the health
            // of the store reports that.
            let is_admin_trusted = app.engine.has_trusted_admin(wall_time()).unwrap_or(true);
            match is_admin_trusted {
                true => format!("make new tokens for whoever needs them, then: {commands}"),
                false => format!(
                    "stop the server, make a token of role admin that is not marked with `{}`, and start the server again. Then use \
                     that token to make new tokens for whoever needs them, and: {commands}",
                    app.config.first_token()
                ),
            }
        }
        false => "ask somebody with a token of role admin to look: stepward status".to_string(),
    };
    let them = if tokens.len() == 1 {
        "this token"
    } else {
        "these tokens"
    };
    Some(NoticeJson {
        code: "tokens_made_unasked".to_string(),
        severity: Severity::Problem,
        message: format!(
            "{which} made while this server asked nobody for a token: anybody on this machine could have made {them} and can still use \
             {them}"
        ),
        fix,
        page: "/settings#tokens".to_string(),
    })
}

fn described(token: &Token) -> String {
    format!("{} ({}, {})", token.token_id, token.name, token.role)
}

fn listed(tokens: &[Token], n: usize) -> String {
    let mut names: Vec<String> = tokens.iter().take(NAMES_MAX).map(described).collect();
    if n > NAMES_MAX {
        names.push(format!("{} more", n - NAMES_MAX));
    }
    format!("tokens {}", names.join(", "))
}

/// The name that `token revoke` takes, or the number if the name means several tokens.
fn selector(token: &Token, all: &[Token]) -> String {
    let namesakes = all.iter().filter(|other| other.name == token.name).count();
    match namesakes > 1 || token.name.starts_with('-') {
        true => token.token_id.to_string(),
        false => shell_word(&token.name),
    }
}

/// Steps of the worker in the server's own process run as the server's user. Without the token files they can still read the database
/// and the key, which is enough to make a token.
fn steps_read_tokens(app: &App) -> Option<NoticeJson> {
    let config = &app.config;
    let is_so =
        app.door.is_for_others && app.gate.asks_for_token() && config.embedded_worker.is_some();
    if !is_so {
        return None;
    }
    let folder = &config.data_dir;
    let mut files = vec![DATABASE_FILE, KEY_FILE];
    let tokens = [ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE];
    let has_file = |file: &&str| folder.join(file).symlink_metadata().is_ok();
    files.extend(tokens.iter().filter(|file| has_file(file)));
    let token_file = config.auth.token_file.as_ref();
    let token_file =
        token_file.map_or_else(String::new, |file| format!(", and {}", file.display()));
    Some(NoticeJson {
        code: "steps_read_tokens".to_string(),
        severity: Severity::Warning,
        message: format!(
            "steps of the embedded worker run as the server's user: they can read {} in {}{token_file}",
            all_of(&files),
            folder.display(),
        ),
        fix: "run a worker as another user instead: make an enrolment with `stepward token new NAME --role enrolment --to FILE`, start \
              `stepward worker --name NAME --server URL --token-file FILE` as that user, and set embedded_worker: false"
            .to_string(),
        page: "/settings".to_string(),
    })
}

/// The mode bit that lets every user write.
const WRITTEN_BY_ALL: u32 = 0o002;

/// Whoever can change the data folder can replace the database and the files in it. A folder that this server made has mode 0700. A group
/// that may write is no problem: it may have no other member, as in a container whose volume has a group of its own.
fn writable_folder(app: &App) -> Option<NoticeJson> {
    let folder = &app.config.data_dir;
    let found = folder.metadata().ok()?;
    let own = rustix::process::geteuid().as_raw();
    let is_own = [0, own].contains(&found.uid());
    let shown = folder.display();
    let quoted = shell_path(folder);
    let (severity, message, fix) = if found.mode() & WRITTEN_BY_ALL != 0 {
        let mode = found.mode() & 0o7777;
        (
            Severity::Problem,
            format!("every user can change the data folder {shown} (mode {mode:04o})"),
            format!("chmod 700 {quoted}"),
        )
    } else if !is_own {
        // A warning only: this is usual for a container whose volume belongs to a user of the machine.
        let owner = found.uid();
        (
            Severity::Warning,
            format!(
                "the data folder {shown} belongs to another user (uid {owner}), who can change it and read what is in it"
            ),
            format!("stop the server, and give it the folder: chown -R {own} {quoted}"),
        )
    } else {
        return None;
    };
    Some(NoticeJson {
        code: "data_folder_not_private".to_string(),
        severity,
        message,
        fix,
        page: "/settings".to_string(),
    })
}

fn all_of(names: &[&str]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        names => names.concat(),
    }
}
