//! The binary as somebody at a prompt, or in a script, types it.

use std::path::Path;
use std::process::{Command, Output};

use crate::house::{BINARY, House};

/// What came of it.
#[derive(Debug)]
pub struct Typed {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Typed {
    fn from(output: Output) -> Typed {
        Typed {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Typed {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// In an environment that says nothing: no settings of ours, a plain locale.
pub fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STEPWARD_") {
            command.env_remove(name);
        }
    }
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "LC_ALL", "LC_CTYPE"] {
        command.env_remove(name);
    }
    command
        .env("LANG", "C.UTF-8")
        .current_dir(folder)
        .args(words)
        .stdin(std::process::Stdio::null());
    command
}

/// In this folder, with no server but the one that the folder has.
pub fn typed_in(folder: &Path, words: &[&str]) -> Typed {
    command(folder, words).output().unwrap().into()
}

/// At the server of this house.
pub fn typed(house: &House, words: &[&str]) -> Typed {
    command(house.folder.path(), words)
        .env("STEPWARD_SERVER_URL", house.url())
        .output()
        .unwrap()
        .into()
}

/// `server.json` as a server writes it that lives as long as this process does.
pub fn announce(folder: &Path, url: &str, token_file: Option<&Path>) {
    let data = folder.join(".stepward");
    std::fs::create_dir_all(&data).unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let started: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
    let announced = serde_json::json!({
        "url": url, "pid": std::process::id(), "started_ticks": started, "token_file": token_file,
    });
    std::fs::write(data.join("server.json"), announced.to_string()).unwrap();
}
