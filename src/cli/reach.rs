//! Which server a command speaks to, and the speaking. Nothing is connected to that nobody named: a flag, the environment,
//! or the `.stepward/` of this folder or one above.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::announce::{self, Announced, TokenUse};
use super::exit::{Exit, Fault};
use super::files::server_config;
use super::say::say;
use super::words::{printable, shell_path};
use crate::certificate::Trust;
use crate::client::{CallError, Client, Silence, UNKNOWN};
use crate::config::{is_word, leads_to_a_host, read_token};
use crate::problems::start_worker;
use crate::wire::api::List;
use crate::wire::{ErrorDetail, INVALID, NO_ROUTE};

/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);

const HEADING: &str = "Which server";

const SERVER_VARIABLE: &str = "STEPWARD_SERVER_URL";
pub const TOKEN_FILE_VARIABLE: &str = "STEPWARD_TOKEN_FILE";

/// Whether a value was given by a flag, not by its variable.
pub fn is_typed(given: Option<&OsStr>, variable: &str) -> bool {
    given.is_some() && given != std::env::var_os(variable).as_deref()
}

#[derive(Args, Clone, Default)]
pub struct Reach {
    /// The server, such as http://127.0.0.1:7717; else that of the `.stepward` folder here or above.
    #[arg(long, value_name = "URL", env = SERVER_VARIABLE, help_heading = HEADING)]
    pub server: Option<String>,
    /// A file with its token; else STEPWARD_TOKEN.
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE, help_heading = HEADING)]
    pub token_file: Option<PathBuf>,
    /// A file with its certificate, or with the one that signed it; else those of public authorities.
    #[arg(long, value_name = "FILE", env = "STEPWARD_CA_FILE", help_heading = HEADING)]
    pub ca_file: Option<PathBuf>,
}

/// A server, and who named it.
#[derive(Clone)]
pub struct Remote {
    pub client: Client,
    pub url: String,
    pub named_by: NamedBy,
    /// Where the token comes from that it is sent, if that is known.
    pub token_from: Option<String>,
    /// Why the token file of the server's data folder is ignored though it is there.
    pub token_ignored: Option<String>,
    /// Whether a worker that is started here finds its token without a flag.
    finds_worker_token: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedBy {
    Caller,
    /// The file that announced it, and the process that wrote that.
    Folder(PathBuf, u32),
    /// This very process.
    Here,
}

impl Reach {
    /// A folder that is named goes before the server that the environment names; two flags contradict each other.
    pub fn or_folder(&self, folder: &Path) -> anyhow::Result<()> {
        match self.server_is_typed() {
            true => Err(Fault::usage(format!(
                "--data-dir {} and --server name two places, leave one of them out",
                printable(&folder.display().to_string())
            ))),
            false => Ok(()),
        }
    }

    pub fn server_is_typed(&self) -> bool {
        is_typed(self.server.as_deref().map(OsStr::new), SERVER_VARIABLE)
    }

    pub fn token_file_is_typed(&self) -> bool {
        let file = self.token_file.as_deref().map(Path::as_os_str);
        is_typed(file, TOKEN_FILE_VARIABLE)
    }

    /// Whoever is named. Nobody has asked yet whether it is there.
    pub fn find(&self) -> anyhow::Result<Option<Remote>> {
        let mut token = match &self.token_file {
            Some(file) => {
                let token = read_token(file)?;
                Some((token, printable(&file.display().to_string())))
            }
            None => token_variable()?.map(|token| (token, "STEPWARD_TOKEN".to_string())),
        };
        let mut trust = self.ca_file.as_deref().map(Trust::of_file).transpose()?;
        let found = match std::env::current_dir() {
            Ok(here) => announced(&here),
            // Whoever names a server needs no folder.
            Err(_) if self.server.is_some() => None,
            Err(_) => announced(&here()?),
        };
        let mut token_ignored = None;
        let mut finds_worker_token = false;
        let (url, named_by) = match (&self.server, found) {
            (Some(url), found) => {
                let found = found.filter(|(announced, _)| is_same_url(&announced.url, url));
                if let Some((announced, file)) = found {
                    token = token.or_else(|| first_token(&announced, &file));
                    token_ignored = announced.why_first_token_ignored(&file, TokenUse::Command);
                    finds_worker_token = (announced.first_token(&file, TokenUse::Worker)).is_some();
                }
                (url.clone(), NamedBy::Caller)
            }
            (None, None) => return Ok(None),
            (None, Some((announced, file))) => {
                if token.is_none() {
                    let found = announced.token(&file, TokenUse::Command)?;
                    token =
                        found.map(|(token, file)| (token, printable(&file.display().to_string())));
                }
                token_ignored = announced.why_first_token_ignored(&file, TokenUse::Command);
                let of_worker = announced.token(&file, TokenUse::Worker);
                finds_worker_token = of_worker.is_ok_and(|token| token.is_some());
                if trust.is_none() {
                    trust = announced.trust()?;
                }
                (announced.url, NamedBy::Folder(file, announced.pid))
            }
        };
        if let Some(fault) = url_fault(&url) {
            return Err(Fault::usage(fault));
        }
        let (token, token_from) = token.unzip();
        Ok(Some(Remote {
            token_from,
            token_ignored,
            finds_worker_token,
            ..Remote::trusting(&url, token.as_deref(), trust.as_ref(), named_by)
        }))
    }

    /// For commands that make no sense without one.
    pub fn server(&self) -> anyhow::Result<Remote> {
        self.find()?.ok_or_else(|| {
            let message = match last_words() {
                Some(ended) => format!("no server is known here: {ended}"),
                None => "no server is known here: start one with `stepward dev`, name one with --server URL or \
                         STEPWARD_SERVER_URL, or go to a folder that has one"
                    .to_string(),
            };
            Fault::new(Exit::Unreachable, message).into()
        })
    }
}

/// The token of the data folder of a server, for commands, and where it is.
pub fn first_token(announced: &Announced, file: &Path) -> Option<(String, String)> {
    let (token, file) = announced.first_token(file, TokenUse::Command)?;
    Some((token, printable(&file.display().to_string())))
}

/// Whether somebody named the very address that a server announced. A name such as `localhost` may lead elsewhere.
pub fn is_same_url(announced: &str, named: &str) -> bool {
    announced.trim_end_matches('/') == named.trim_end_matches('/')
}

/// What the environment has. A file that was read into it may have left its newline.
pub fn token_variable() -> anyhow::Result<Option<String>> {
    let Some(token) = std::env::var_os("STEPWARD_TOKEN") else {
        return Ok(None);
    };
    match token_word(&token.to_string_lossy()) {
        Ok(token) => Ok(Some(token).filter(|token| !token.is_empty())),
        Err(fault) => Err(Fault::usage(format!("STEPWARD_TOKEN: {fault}"))),
    }
}

/// What can be sent.
pub fn token_word(text: &str) -> Result<String, String> {
    let token = text.trim();
    match is_word(token) {
        true => Ok(token.to_string()),
        false => Err("a token is one word of plain letters, figures and signs".to_string()),
    }
}

/// Of the server that this folder had, if it ended without a word.
pub fn last_words() -> Option<String> {
    let here = std::env::current_dir().ok()?;
    let (announced, file) = announce::ended(&here)?;
    let folder = file.parent()?;
    let folder = folder.strip_prefix(&here).unwrap_or(folder);
    Some(format!(
        "the server of {} (process {}) has ended; start it again with `stepward dev` or `stepward server`",
        printable(&folder.display().to_string()),
        announced.pid
    ))
}

/// Says that the server wants this command to wait.
fn say_limit(error: &CallError, wait: Duration) {
    let secs = wait.as_secs();
    if let CallError::Refused { error, .. } = error {
        say(format!("waiting {secs} s: {}", printable(&error.message)));
    }
}

impl Remote {
    /// What starts a worker for it, if it is typed here.
    pub fn start_worker(&self) -> String {
        match &self.named_by {
            NamedBy::Folder(..) if self.finds_worker_token => "stepward worker".to_string(),
            _ => {
                let needs_file = self.token_from.is_some() && !self.finds_worker_token;
                start_worker(&self.url, needs_file)
            }
        }
    }

    pub fn new(url: &str, token: Option<&str>, named_by: NamedBy) -> Remote {
        Remote::trusting(url, token, None, named_by)
    }

    pub fn trusting(
        url: &str,
        token: Option<&str>,
        trust: Option<&Trust>,
        named_by: NamedBy,
    ) -> Remote {
        Remote {
            client: Client::trusting(url, token, trust).waiting_at_limits(say_limit),
            url: url.trim_end_matches('/').to_string(),
            named_by,
            token_from: None,
            token_ignored: None,
            finds_worker_token: false,
        }
    }

    /// The same server, for whoever shows nothing.
    pub fn without_token(&self) -> Remote {
        Remote {
            client: self.client.without_token(),
            token_from: None,
            ..self.clone()
        }
    }

    pub fn get<A: DeserializeOwned>(&self, path: &str) -> anyhow::Result<A> {
        self.get_within(path, None)
    }

    /// For whoever waits no longer than this in any case.
    pub fn get_within<A: DeserializeOwned>(
        &self,
        path: &str,
        at_most: Option<Duration>,
    ) -> anyhow::Result<A> {
        let patience = at_most.map_or(PATIENCE, |at_most| PATIENCE.min(at_most));
        // Nobody answers in no time.
        let patience = patience.max(Duration::from_millis(100));
        self.heard(self.client.get(path, patience))
    }

    pub fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        self.heard(self.client.post(path, body, PATIENCE))
    }

    /// Sends a POST request to a route that servers of version 0.1 do not have.
    pub fn post_to_newer<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        let answer = self.client.post(path, body, PATIENCE);
        self.heard_from_newer(answer, NO_ROUTE)
    }

    /// Sends a POST request with a field that servers of version 0.1 refuse because they do not know it. Every other field must be
    /// valid, because any refusal as invalid is taken for that one.
    pub fn post_newer_field<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        let answer = self.client.post(path, body, PATIENCE);
        self.heard_from_newer(answer, INVALID)
    }

    /// Returns the answer of a server. A refusal with the code `refused_by_old` comes from a server of version 0.1.
    fn heard_from_newer<A>(
        &self,
        answer: Result<A, CallError>,
        refused_by_old: &str,
    ) -> anyhow::Result<A> {
        if let Err(call @ CallError::Refused { error, .. }) = &answer
            && error.code == refused_by_old
        {
            let url = &self.url;
            let message = format!(
                "the server at {url} does not know this command: it must be of version 0.2 or newer; install that version there"
            );
            return Err(Fault::new(Exit::of_call(call), message).into());
        }
        self.heard(answer)
    }

    pub fn delete<A: DeserializeOwned>(&self, path: &str) -> anyhow::Result<A> {
        self.heard(self.client.delete(path, PATIENCE))
    }

    /// Every page of a list, `limit` items at most. `path` may have a query; `cursor` is what the next page is asked for with.
    pub fn all<A: DeserializeOwned>(
        &self,
        path: &str,
        cursor: &str,
        limit: usize,
    ) -> anyhow::Result<Vec<A>> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut page = path.to_string();
            if let Some(after) = &after {
                let joint = if path.contains('?') { '&' } else { '?' };
                page.push_str(&format!("{joint}{cursor}={}", in_url(after)));
            }
            let list: List<A> = self.get(&page)?;
            items.extend(list.items);
            after = list.next;
            if after.is_none() || items.len() >= limit {
                items.truncate(limit);
                return Ok(items);
            }
        }
    }

    /// With what went wrong in words that say which server, and what to do.
    pub fn heard<A>(&self, answer: Result<A, CallError>) -> anyhow::Result<A> {
        let url = &self.url;
        answer.map_err(|call| {
            let message = match &call {
                CallError::Unreachable(Silence::TooLong(time)) => {
                    let secs = time.as_secs();
                    format!("the server at {url} does not answer within {secs} s{self}")
                }
                CallError::Unreachable(Silence::NoTls) => {
                    let plain = url.replacen("https://", "http://", 1);
                    format!("the server at {url} does not speak TLS, try {plain}")
                }
                CallError::Unreachable(Silence::NotBelieved(why)) => {
                    format!("the server at {url} is not believed: {why}")
                }
                CallError::Unreachable(Silence::Other(why)) => {
                    format!("the server at {url} does not answer: {why}{self}")
                }
                CallError::Refused { status: 401, .. } => self.not_let_in(),
                CallError::Refused { error, .. } if call.is_about_token() => {
                    format!("{}; {}", self.not_let_in(), error.message)
                }
                CallError::Refused { error, .. } if error.code == UNKNOWN => {
                    let said = printable(&error.message);
                    format!("{url} is no server of ours: {said}{self}")
                }
                CallError::Refused { error, .. } if error.code == NO_ROUTE => format!(
                    "the server at {url} has nothing there: it is of another version, or its address is not right; \
                     write http://HOST:PORT"
                ),
                CallError::Refused { error, .. } => in_lines(error),
            };
            Fault::new(Exit::of_call(&call), message).into()
        })
    }

    fn not_let_in(&self) -> String {
        let url = &self.url;
        let how = "name its file with --token-file, or set STEPWARD_TOKEN";
        let folder = match &self.named_by {
            NamedBy::Folder(file, _) => file.parent().map(shell_path),
            NamedBy::Caller | NamedBy::Here => None,
        };
        let folder = folder.unwrap_or_else(|| "FOLDER".to_string());
        let make = format!(
            "the user that runs the server makes another while the server is stopped: stepward token new NAME --role admin \
             --data-dir {folder}"
        );
        match (&self.token_from, self.client.has_token()) {
            (_, false) => match &self.token_ignored {
                Some(why) => format!("the server at {url} wants a token: {why}; or {how}"),
                None => format!(
                    "the server at {url} wants a token: {how}; the user that runs the server finds one in admin.token of the data \
                     folder. If that file is gone, {make}"
                ),
            },
            (None, true) => format!("the server at {url} does not take this token: {how}"),
            (Some(from), true) => format!(
                "the server at {url} does not take this token (from {from}), which was revoked, has expired or is of another \
                 server: {how}. If there is no other, {make}"
            ),
        }
    }
}

/// The server of this folder, by the usual place of its data or by that of its settings; else of one above. Settings that do not
/// load name none.
pub fn announced(folder: &Path) -> Option<(Announced, PathBuf)> {
    let of_settings = || {
        let config = server_config(None).ok()?;
        announce::of_folder(&folder.join(config.data_dir))
    };
    announce::of_project(folder)
        .or_else(of_settings)
        .or_else(|| announce::find(folder))
}

/// What is wrong with what somebody calls a server. A password in it is not told to whoever looks on.
fn url_fault(url: &str) -> Option<String> {
    let how = "write http://HOST:PORT or https://HOST:PORT";
    let authority = url.split('/').nth(2).unwrap_or_default();
    if authority.contains('@') {
        return Some(format!(
            "the server is named with a user or a password, which is never sent: {how}"
        ));
    }
    let shown = printable(url);
    (!leads_to_a_host(url)).then(|| format!("the server is {shown:?}, {how}"))
}

/// Several faults get a line each; the message has them all in one.
fn in_lines(error: &ErrorDetail) -> String {
    let message = error.message.as_str();
    let [first, _, ..] = error.details.as_slice() else {
        return message.to_string();
    };
    let heading = message
        .find(first.as_str())
        .map_or(message, |at| &message[..at]);
    let details = error.details.iter().map(|detail| format!("\n  {detail}"));
    format!("{}{}", heading.trim_end(), details.collect::<String>())
}

/// Who named it, after what is wrong with it.
impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named_by {
            NamedBy::Folder(file, pid) => write!(
                f,
                "; {} names it as process {pid}, which may be stopped or busy",
                file.display()
            ),
            NamedBy::Caller => {
                f.write_str("; look at --server or STEPWARD_SERVER_URL, and whether it runs")
            }
            NamedBy::Here => Ok(()),
        }
    }
}

/// A word in a path or a query.
pub fn in_url(word: &str) -> String {
    let mut url = String::new();
    for byte in word.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'@' => {
                url.push(char::from(byte))
            }
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// Where somebody stands.
pub fn here() -> anyhow::Result<PathBuf> {
    std::env::current_dir().context("this folder is not there any more, go to another")
}

/// What somebody names: a job, a task, a worker. A variable of a script that is not set names nothing.
pub fn name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("nothing is named by it".to_string()),
        // In an address they would mean another place.
        "." | ".." => Err("that is no name".to_string()),
        _ => Ok(text.to_string()),
    }
}

/// A job in a path, for commands that take no step.
pub fn job_in_url(word: &str) -> anyhow::Result<String> {
    match word.split_once('/') {
        Some((job, _)) => Err(Fault::usage(format!(
            "{} names a step, and this command takes a whole job: {}",
            printable(word),
            printable(job)
        ))),
        None => Ok(in_url(word)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::JoinHandle;

    use super::*;

    /// Answers one request with a refusal that has this code, as a server of version 0.1 would.
    fn refusing_server(code: &'static str) -> (Remote, JoinHandle<BufReader<TcpStream>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            // The body is a few bytes, which arrive with the head or stay unread.
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let body = format!(r#"{{"error":{{"code":"{code}","message":"there is nothing"}}}}"#);
            let length = body.len();
            let head = format!("HTTP/1.1 422 Refused\r\nContent-Length: {length}\r\n\r\n");
            reader.get_mut().write_all(head.as_bytes()).unwrap();
            reader.get_mut().write_all(body.as_bytes()).unwrap();
            reader
        });
        (Remote::new(&url, None, NamedBy::Caller), serving)
    }

    const TOO_OLD: &str = "it must be of version 0.2 or newer; install that version there";

    #[test]
    fn a_command_that_the_server_does_not_have_names_the_version_that_has_it() {
        let (remote, serving) = refusing_server(NO_ROUTE);
        let path = "/api/recovery/sweep";
        let answer = remote.post_to_newer::<serde_json::Value>(path, &serde_json::json!({}));
        let said = answer.unwrap_err().to_string();
        assert!(said.ends_with(TOO_OLD), "{said}");
        drop(serving.join().unwrap());
    }

    #[test]
    fn a_field_that_the_server_does_not_know_names_the_version_that_knows_it() {
        let (remote, serving) = refusing_server(INVALID);
        let body = serde_json::json!({"events": true});
        let answer = remote.post_newer_field::<serde_json::Value>("/api/prune", &body);
        let said = answer.unwrap_err().to_string();
        assert!(said.ends_with(TOO_OLD), "{said}");
        drop(serving.join().unwrap());
    }
}
