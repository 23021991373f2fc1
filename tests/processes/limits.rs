//! The CLI and workers at a server whose limits they go over: they wait as they are told to, and say so.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use stepward::client::Client;
use stepward::wire::api::{List, WorkerJson};

use crate::house::{BINARY, Process, await_that};
use crate::typed::typed_in;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

const SETTINGS: &str = "listen: 127.0.0.1:0
data_dir: data
workflows_dir: workflows
auth: { token_file: token }
limits: { submissions_per_sec: 1, submissions_burst: 1, session_opens_per_sec: 1 }
";

#[test]
fn the_cli_and_workers_wait_as_long_as_the_server_asks_them_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("workflows")).unwrap();
    let workflow = "tasks: { hello: { flow: { greet: { script: echo hello } } } }\n";
    fs::write(path.join("workflows/hello.yaml"), workflow).unwrap();
    fs::write(path.join("token"), TOKEN).unwrap();
    fs::set_permissions(path.join("token"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(path.join("server.yaml"), SETTINGS).unwrap();
    let start = |name: &str, words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.current_dir(path).args(words);
        Process::start(name, command)
    };
    let server = start("server", &["server", "--config", "server.yaml"]);
    let url = await_that("it listens", || {
        let said = server.said();
        let line = said.lines().find(|line| line.contains("listening on"))?;
        Some(line.rsplit(' ').next()?.to_string())
    });
    let reach = ["--server", &url, "--token-file", "token"];

    let names = ["ann", "bob", "cleo"];
    let workers = names.map(|name| {
        let words = ["worker", "--name", name, "--data-dir", name];
        start(name, &[&words[..], &reach[..]].concat())
    });
    let client = Client::new(&url, Some(TOKEN));
    await_that("all of them have a session", || {
        let list: List<WorkerJson> = client.get("/api/workers", Duration::from_secs(10)).ok()?;
        let active = list.items.iter().filter(|worker| worker.status == "active");
        (active.count() == names.len()).then_some(())
    });
    let said: String = workers.iter().map(Process::said).collect();
    assert!(
        said.contains("session: not opened yet, trying again in 1 s"),
        "{said}"
    );
    assert!(said.contains("limits.session_opens_per_sec"), "{said}");

    let mut waited = 0;
    let run = [&["run", "hello", "--detach"][..], &reach[..]].concat();
    for _ in 0..4 {
        let run = typed_in(path, &run);
        assert_eq!(run.code, Some(0), "{run:?}");
        waited += usize::from(
            run.stderr
                .contains("waiting 1 s: too many jobs are submitted"),
        );
    }
    assert!(waited > 0, "four jobs take at least three seconds");
    let retry = [&["retry", "1", "--all", "--detach"][..], &reach[..]].concat();
    await_that("its first job has ended", || {
        (typed_in(path, &retry).code == Some(0)).then_some(())
    });
}
