//! Who is let in: a new server asks everybody, and whoever owns its data folder can begin without a flag.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use stepward::client::{CallError, Client};

use crate::house::{BINARY, Process, await_that};
use crate::typed::{command, typed_in};
use crate::v0_1::data_folder_of_0_1;

const WORKFLOWS: &str = "
tasks:
  hello:
    flow:
      greet: { script: echo hello }
";

/// The user `nobody`, on every Linux.
const NOBODY: u32 = 65_534;

fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("workflows")).unwrap();
    fs::write(folder.path().join("workflows/all.yaml"), WORKFLOWS).unwrap();
    folder
}

/// A server of this folder, when it has announced itself, and its address.
pub fn serve(folder: &Path, words: &[&str]) -> (Process, String) {
    let all = [&["server", "--listen", "127.0.0.1:0"], words].concat();
    await_announced(Process::start("server", command(folder, &all)))
}

fn await_announced(server: Process) -> (Process, String) {
    let url = await_that("the server has said everything", || {
        assert!(server.is_alive(), "{}", server.said());
        let said = server.said();
        // The line after the announcement.
        said.contains("a worker is marked inactive").then_some(())?;
        let line = said.lines().find(|line| line.contains("listening on"))?;
        line.split_whitespace().last().map(str::to_string)
    });
    let client = Client::new(&url, None);
    await_that("the server is ready", || {
        client.ready(Duration::from_secs(5)).ok()
    });
    (server, url)
}

pub fn stop(server: Process) {
    server.signal(Signal::TERM);
    assert!(server.wait());
}

/// The status of the answer to somebody without a token.
fn status_for_strangers(url: &str) -> u16 {
    let client = Client::new(url, None);
    match client.get::<Value>("/api/jobs", Duration::from_secs(5)) {
        Ok(_) => 200,
        Err(CallError::Refused { status, .. }) => status,
        Err(error) => panic!("{error}"),
    }
}

fn problem_codes(folder: &Path) -> Vec<String> {
    let status = typed_in(folder, &["status", "--json"]).json();
    let problems = status["problems"].as_array().unwrap().iter();
    let codes = problems.map(|problem| problem["code"].as_str().unwrap().to_string());
    codes.filter(|code| code != "no_worker").collect()
}

#[test]
fn a_new_server_asks_everybody_and_its_user_needs_no_flag() {
    let folder = project();
    let folder = folder.path();
    let (server, url) = serve(folder, &["--workflows-dir", "workflows"]);
    assert_eq!(status_for_strangers(&url), 401);
    await_that("the server says where the tokens are", || {
        server
            .said()
            .contains("to log in to the pages")
            .then_some(())
    });
    let said = server.said();
    for (file, role) in [("admin.token", "admin"), ("worker.token", "worker")] {
        let path = folder.join(".stepward").join(file);
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600, "{file}");
        let text = fs::read_to_string(&path).unwrap();
        assert!(!said.contains(text.trim()), "the text of a token is logged");
        let told = format!("{file} (role {role}, named ");
        assert!(said.contains(&told), "{told}: {said}");
    }
    assert_eq!(
        fs::read_to_string(folder.join(".stepward/.gitignore")).unwrap(),
        "*\n"
    );

    // A worker, a job, and everything that somebody types in the first minutes.
    let worker = Process::start(
        "worker",
        command(folder, &["worker", "--name", "w", "--data-dir", "w"]),
    );
    await_that("the worker is active", || {
        let listed = typed_in(folder, &["worker", "ls"]);
        listed.stdout.contains("active").then_some(())
    });
    for words in [
        &["run", "hello"][..],
        &[],
        &["status"],
        &["task", "ls"],
        &["job", "ls"],
        &["logs", "latest"],
        &["why", "latest"],
        &["events"],
        &["queue"],
        &["schedule", "ls"],
        &["recovery", "forecast"],
        &["worker", "ls"],
        &["token", "ls"],
        &["token", "check"],
        &[
            "token",
            "new",
            "ada",
            "--role",
            "viewer",
            "--to",
            "ada.token",
        ],
        &["retry", "latest", "--all"],
        &["worker", "pause", "w"],
        &["worker", "resume", "w"],
        &["doctor", "server", "workers"],
        &["backup", "backup.tar.gz"],
        &["backup", "second.tar.gz", "--data-dir", ".stepward"],
        &["doctor", "server", "--data-dir", ".stepward"],
        &["prune", "--jobs-older", "30d", "--dry-run"],
    ] {
        let typed = typed_in(folder, words);
        assert_eq!(typed.code, Some(0), "{words:?}: {typed:?}");
    }
    // Tokens are told apart: what somebody names comes before what is found.
    let as_ada = command(folder, &["token", "ls"])
        .env("STEPWARD_TOKEN_FILE", "ada.token")
        .output()
        .unwrap();
    assert_eq!(as_ada.status.code(), Some(4));
    // The same address is the same server; a name may lead elsewhere.
    assert_eq!(
        typed_in(folder, &["job", "ls", "--server", &url]).code,
        Some(0)
    );
    let by_name = url.replace("127.0.0.1", "localhost");
    let refused = typed_in(folder, &["job", "ls", "--server", &by_name]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("admin.token"), "{refused:?}");
    // From another folder nothing is found.
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = typed_in(elsewhere.path(), &["job", "ls", "--server", &url]);
    assert_eq!(refused.code, Some(4), "{refused:?}");

    worker.signal(Signal::TERM);
    assert!(worker.wait());
    stop(server);
    let listed = Command::new("tar")
        .arg("-tzf")
        .arg(folder.join("backup.tar.gz"))
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("stepward.db") && !listed.contains(".token"),
        "{listed}"
    );
}

/// What the server says about its token files is true, wherever they are.
#[test]
fn the_start_says_how_the_token_files_are_found() {
    let folder = project();
    let folder = folder.path().canonicalize().unwrap();
    let line_of = |server: &Process| {
        await_that("the server says how its tokens are found", || {
            let said = server.said();
            let line = said
                .lines()
                .find(|line| line.contains("to log in to the pages"))?;
            Some(line.to_string())
        })
    };
    let begins_worker = |flags: &[&str], folder: &Path| {
        let words = [&["worker", "--name", "w", "--data-dir", "w"], flags].concat();
        let worker = Process::start("worker", command(folder, &words));
        await_that("the worker has joined", || {
            assert!(worker.is_alive(), "{}", worker.said());
            worker.said().contains("worker w offers").then_some(())
        });
        worker.kill();
    };

    // The usual folder.
    let (server, _) = serve(&folder, &[]);
    let line = line_of(&server);
    let told = format!(
        "that this user starts in {} or below find",
        folder.display()
    );
    assert!(line.contains(&told), "{line}");
    assert_eq!(
        typed_in(&folder.join("workflows"), &["job", "ls"]).code,
        Some(0)
    );
    stop(server);

    // A folder that only a flag names: the flags that are told are enough, from everywhere.
    let (server, url) = serve(&folder, &["--data-dir", "elsewhere"]);
    let line = line_of(&server);
    let flags = |file: &str| {
        let file = folder.join("elsewhere").join(file);
        [
            "--server".into(),
            url.clone(),
            "--token-file".into(),
            file.display().to_string(),
        ]
    };
    for (who, file) in [("commands", "admin.token"), ("workers", "worker.token")] {
        let told = format!("{who} of this user need: {}", flags(file).join(" "));
        assert!(line.contains(&told), "{told}: {line}");
    }
    let apart = tempfile::tempdir().unwrap();
    let flags_of = |file: &str| flags(file).to_vec();
    let admin = flags_of("admin.token");
    let admin: Vec<&str> = admin.iter().map(String::as_str).collect();
    let listed = typed_in(apart.path(), &[&["job", "ls"], admin.as_slice()].concat());
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let worker = flags_of("worker.token");
    let worker: Vec<&str> = worker.iter().map(String::as_str).collect();
    begins_worker(&worker, apart.path());
    stop(server);

    // A folder that the settings here name: commands and workers here find it.
    fs::write(folder.join("server-config.yaml"), "data_dir: third\n").unwrap();
    let (server, _) = serve(&folder, &[]);
    let line = line_of(&server);
    let told = format!("that this user starts in {} find", folder.display());
    assert!(line.contains(&told), "{line}");
    assert_eq!(typed_in(&folder, &["job", "ls"]).code, Some(0));
    begins_worker(&[], &folder);
    stop(server);
}

#[test]
fn what_was_deleted_or_revoked_does_not_come_back() {
    let folder = project();
    let folder = folder.path();
    let (server, _) = serve(folder, &[]);
    let admin = folder.join(".stepward/admin.token");
    stop(server);
    fs::remove_file(&admin).unwrap();
    let (server, url) = serve(folder, &[]);
    let how = "stepward token new NAME --role admin --data-dir .stepward";
    await_that("the server says how to make another", || {
        server.said().contains(how).then_some(())
    });
    assert!(!admin.exists());
    assert_eq!(status_for_strangers(&url), 401);
    stop(server);

    // Without any admin nobody could come in: that is told, and nothing is opened or written.
    let stopped =
        |words: &[&str]| typed_in(folder, &[words, &["--data-dir", ".stepward"]].concat());
    assert_eq!(stopped(&["token", "revoke", "first-admin"]).code, Some(0));
    let refused = typed_in(folder, &["server", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains(how), "{refused:?}");
    assert!(!admin.exists());
    assert_eq!(
        stopped(&[
            "token",
            "new",
            "ada",
            "--role",
            "admin",
            "--to",
            "ada.token"
        ])
        .code,
        Some(0)
    );
    let (server, _) = serve(folder, &[]);
    let listed = typed_in(folder, &["token", "ls", "--token-file", "ada.token"]).stdout;
    assert!(listed.contains("first-admin\tadmin\trevoked"), "{listed}");
    assert_eq!(listed.lines().count(), 3, "{listed}");
    stop(server);
}

#[test]
fn whoever_takes_the_port_of_a_dead_server_gets_no_token() {
    let folder = project();
    let folder = folder.path();
    let (server, url) = serve(folder, &[]);
    let announced = folder.join(".stepward/server.json");
    let said: Value = serde_json::from_slice(&fs::read(&announced).unwrap()).unwrap();
    server.kill();
    assert!(announced.exists());
    let squatter = TcpListener::bind(url.strip_prefix("http://").unwrap()).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    // Ends with the process of the tests.
    std::thread::spawn(move || {
        let answer =
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        for stream in squatter.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
            hears.lock().unwrap().push(request);
            // Whoever asked may have gone.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let has_heard = |path: &str| {
        let heard = heard.lock().unwrap();
        heard.iter().any(|request| request.contains(path))
    };
    let asked = typed_in(folder, &["job", "ls", "--server", &url]);
    assert_ne!(asked.code, Some(0), "{asked:?}");
    // The number of the process is that of a living one, as after a restart of the machine: but nobody holds the folder.
    let alive = std::process::id();
    let stat = fs::read_to_string(format!("/proc/{alive}/stat")).unwrap();
    let started = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(19)
        .unwrap();
    let mut forged = said.clone();
    forged["pid"] = json!(alive);
    forged["started_ticks"] = json!(started.parse::<u64>().unwrap());
    assert_eq!(forged["takes_first_tokens"], json!(true));
    fs::write(&announced, forged.to_string()).unwrap();
    for words in [
        &["job", "ls"][..],
        &["job", "ls", "--server", &url],
        &["doctor", "server"],
    ] {
        let asked = typed_in(folder, words);
        assert_ne!(asked.code, Some(0), "{asked:?}");
    }
    let worker = Process::start("worker", command(folder, &["worker", "--data-dir", "w"]));
    await_that("the worker has asked", || {
        has_heard("/api/worker").then_some(())
    });
    worker.kill();
    assert!(has_heard("/api/jobs"));
    for request in heard.lock().unwrap().iter() {
        assert!(!request.contains("authorization"), "{request}");
    }
}

#[test]
fn an_open_server_is_asked_for_by_flag_or_setting_and_only_on_loopback() {
    let folder = project();
    let folder = folder.path();
    for refused in [
        &["server", "--no-auth", "--listen", "0.0.0.0:0"][..],
        &["server", "--no-auth", "--listen", "[::]:0"],
    ] {
        let mut command = command(folder, refused);
        let output = command.env("STEPWARD_PLAIN_HTTP", "true").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--no-auth"), "{said}");
        assert!(!folder.join(".stepward").exists());
    }
    let (server, url) = serve(folder, &["--no-auth"]);
    assert_eq!(status_for_strangers(&url), 200);
    let everybody = format!("everybody who can reach {url} has the role admin");
    let is_told = |server: &Process, why: &str| {
        let said = server.said();
        let told = said.lines().find(|line| line.contains(&everybody));
        told.is_some_and(|line| line.ends_with(why))
    };
    await_that("the server says that it is open", || {
        is_told(&server, "because of --no-auth").then_some(())
    });
    assert!(!folder.join(".stepward/admin.token").exists());
    assert_eq!(problem_codes(folder), Vec::<String>::new());
    // Anybody could have made this one.
    assert_eq!(
        typed_in(
            folder,
            &[
                "token",
                "new",
                "eve",
                "--role",
                "admin",
                "--to",
                "eve.token"
            ]
        )
        .code,
        Some(0)
    );
    let made = typed_in(folder, &["token", "ls", "--json"]).json();
    assert_eq!(made["items"][0]["unasked"], json!(true), "{made}");
    stop(server);

    fs::write(
        folder.join("server-config.yaml"),
        "auth: { required: false }\n",
    )
    .unwrap();
    let (server, url) = serve(folder, &[]);
    assert_eq!(status_for_strangers(&url), 200);
    await_that("the server says that it is open", || {
        let said = server.said();
        said.contains("because of auth.required: false in the settings")
            .then_some(())
    });
    stop(server);
    fs::remove_file(folder.join("server-config.yaml")).unwrap();

    // The door is closed: the token that anybody could have made is told, with what it made since. It does not keep the owner of
    // the folder from getting one.
    let (server, url) = serve(folder, &[]);
    assert_eq!(status_for_strangers(&url), 401);
    assert!(folder.join(".stepward/admin.token").exists());
    assert_eq!(problem_codes(folder), ["tokens_made_unasked"]);
    let with_eve =
        |words: &[&str]| typed_in(folder, &[words, &["--token-file", "eve.token"]].concat());
    assert_eq!(
        with_eve(&[
            "token",
            "new",
            "mallory",
            "--role",
            "admin",
            "--to",
            "mallory.token"
        ])
        .code,
        Some(0)
    );
    let status = with_eve(&["status", "--json"]).json();
    let problem = &status["problems"][0];
    assert_eq!(problem["code"], "tokens_made_unasked", "{status}");
    let fix = problem["fix"].as_str().unwrap();
    assert!(
        fix.ends_with("stepward token revoke eve && stepward token revoke mallory"),
        "{fix}"
    );
    let message = problem["message"].as_str().unwrap();
    assert!(
        message.contains("could have made these tokens and can still use these tokens"),
        "{message}"
    );
    assert!(
        server.said().contains("stepward token revoke eve"),
        "{}",
        server.said()
    );
    let listed = with_eve(&["token", "ls"]).stdout;
    assert!(
        listed.contains("mallory\tadmin\tgood, made while nobody was asked"),
        "{listed}"
    );
    // A viewer learns that there are some, and not which.
    assert_eq!(
        with_eve(&[
            "token",
            "new",
            "vera",
            "--role",
            "viewer",
            "--to",
            "vera.token"
        ])
        .code,
        Some(0)
    );
    let status = typed_in(folder, &["status", "--json", "--token-file", "vera.token"]).json();
    let problem = &status["problems"][0];
    assert_eq!(problem["code"], "tokens_made_unasked", "{status}");
    assert!(
        !status["problems"].to_string().contains("mallory"),
        "{status}"
    );
    stop(server);
    // Without a token of role admin that is not marked, the advice does not lead in a circle: what eve makes is marked as well.
    let stopped =
        |words: &[&str]| typed_in(folder, &[words, &["--data-dir", ".stepward"]].concat());
    assert_eq!(stopped(&["token", "revoke", "first-admin"]).code, Some(0));
    let (server, _) = serve(folder, &[]);
    let status = with_eve(&["status", "--json"]).json();
    let fix = status["problems"][0]["fix"].as_str().unwrap();
    let how = "with `stepward token new NAME --role admin --data-dir .stepward`";
    assert!(
        fix.starts_with("stop the server") && fix.contains(how),
        "{fix}"
    );
    stop(server);
    assert_eq!(
        stopped(&[
            "token",
            "new",
            "ada",
            "--role",
            "admin",
            "--to",
            "ada.token"
        ])
        .code,
        Some(0)
    );
    let (server, _) = serve(folder, &[]);
    let with_ada =
        |words: &[&str]| typed_in(folder, &[words, &["--token-file", "ada.token"]].concat());
    let status = with_ada(&["status", "--json"]).json();
    let fix = status["problems"][0]["fix"].as_str().unwrap();
    assert!(fix.starts_with("make new tokens"), "{fix}");
    for name in ["eve", "mallory", "vera"] {
        assert_eq!(with_ada(&["token", "revoke", name]).code, Some(0));
    }
    let status = with_ada(&["status", "--json"]).json();
    assert!(
        !status["problems"].to_string().contains("unasked"),
        "{status}"
    );
    assert_eq!(with_eve(&["job", "ls"]).code, Some(4));
    stop(server);
}

#[test]
fn a_folder_of_0_1_stays_open_and_says_how_to_close_it() {
    let data = data_folder_of_0_1();
    let folder = project();
    let folder = folder.path();
    let data = data.path().to_str().unwrap();
    fs::write(
        folder.join("server-config.yaml"),
        format!("data_dir: {data}\n"),
    )
    .unwrap();
    let (server, url) = serve(folder, &[]);
    assert_eq!(status_for_strangers(&url), 200);
    let codes = problem_codes(folder);
    assert!(
        codes.contains(&"auth_not_required".to_string()),
        "{codes:?}"
    );
    let said = server.said();
    assert!(
        said.contains("auth: { required: true }") && said.contains("admin.token"),
        "{said}"
    );
    let address = url.strip_prefix("http://").unwrap();
    assert!(
        said.contains(&format!("the server at {address} asks")),
        "{said}"
    );
    assert_eq!(
        typed_in(
            folder,
            &[
                "token",
                "new",
                "eve",
                "--role",
                "worker",
                "--to",
                "eve.token"
            ]
        )
        .code,
        Some(0)
    );
    stop(server);
    assert!(!Path::new(data).join("admin.token").exists());

    let closed = format!("data_dir: {data}\nauth: {{ required: true }}\n");
    fs::write(folder.join("server-config.yaml"), closed).unwrap();
    let (server, url) = serve(folder, &[]);
    assert_eq!(status_for_strangers(&url), 401);
    // Commands find the folder by the settings here, and the token in it.
    let codes = problem_codes(folder);
    assert!(
        codes.contains(&"tokens_made_unasked".to_string()),
        "{codes:?}"
    );
    assert!(
        !codes.contains(&"auth_not_required".to_string()),
        "{codes:?}"
    );
    assert_eq!(typed_in(folder, &["token", "revoke", "eve"]).code, Some(0));
    let codes = problem_codes(folder);
    assert!(
        !codes.contains(&"tokens_made_unasked".to_string()),
        "{codes:?}"
    );
    stop(server);

    // Whoever says that it stays open is not told again.
    let open = format!("data_dir: {data}\nauth: {{ required: false }}\n");
    fs::write(folder.join("server-config.yaml"), open).unwrap();
    let (server, url) = serve(folder, &[]);
    assert_eq!(status_for_strangers(&url), 200);
    assert!(!problem_codes(folder).contains(&"auth_not_required".to_string()));
    stop(server);
}

#[test]
fn dev_stays_open_and_its_folder_is_closed_for_a_server() {
    let folder = project();
    let folder = folder.path();
    let dev = Process::start(
        "dev",
        command(folder, &["dev", "--port", "0", "--no-worker"]),
    );
    let announced = folder.join(".stepward/server.json");
    let url = await_that("dev is announced", || {
        let said: Value = serde_json::from_slice(&fs::read(&announced).ok()?).ok()?;
        said["url"].as_str().map(str::to_string)
    });
    assert_eq!(status_for_strangers(&url), 200);
    assert!(!folder.join(".stepward/admin.token").exists());
    assert_eq!(problem_codes(folder), Vec::<String>::new());
    stop(dev);
    let (server, url) = serve(folder, &[]);
    assert_eq!(status_for_strangers(&url), 401);
    assert_eq!(typed_in(folder, &["job", "ls"]).code, Some(0));
    stop(server);
    // And again open for whoever works at it.
    let dev = Process::start(
        "dev",
        command(folder, &["dev", "--port", "0", "--no-worker"]),
    );
    let url = await_that("dev is announced", || {
        let said: Value = serde_json::from_slice(&fs::read(&announced).ok()?).ok()?;
        said["url"].as_str().map(str::to_string)
    });
    assert_eq!(status_for_strangers(&url), 200);
    stop(dev);
}

#[test]
fn a_restored_server_is_as_closed_as_its_database_says() {
    let folder = project();
    let folder = folder.path();
    let (server, _) = serve(folder, &[]);
    assert_eq!(typed_in(folder, &["backup", "backup.tar.gz"]).code, Some(0));
    stop(server);
    let restored = typed_in(
        folder,
        &["restore", "backup.tar.gz", "--data-dir", "restored"],
    );
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(!folder.join("restored/admin.token").exists());
    let (server, url) = serve(folder, &["--data-dir", "restored"]);
    assert_eq!(status_for_strangers(&url), 401);
    let how = "stepward token new NAME --role admin --data-dir restored";
    await_that("the server says how to make a token", || {
        server.said().contains(how).then_some(())
    });
    assert!(!folder.join("restored/admin.token").exists());
    // The texts are not in the backup, and count as before.
    let former = [".stepward/admin.token"];
    let listed = typed_in(
        folder,
        &["job", "ls", "--server", &url, "--token-file", former[0]],
    );
    assert_eq!(listed.code, Some(0), "{listed:?}");
    stop(server);
}

/// A copy of the binary that another user can run, in a folder of that user. Tests of whoever is not root run as themselves.
struct Unprivileged {
    folder: tempfile::TempDir,
    binary: PathBuf,
    is_root: bool,
}

impl Unprivileged {
    fn new() -> Unprivileged {
        let folder = project();
        let is_root = rustix::process::geteuid().is_root();
        let binary = folder.path().join("stepward");
        // Another thread may start a process while this one copies, and that process would keep the copy open for writing for a
        // moment, in which nobody can run it. `cp` opens it in a process of its own.
        let copied = Command::new("cp")
            .args([BINARY.as_ref(), binary.as_os_str()])
            .status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        if is_root {
            let all = ["", "workflows", "workflows/all.yaml"];
            for path in all {
                chown(folder.path().join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Unprivileged {
            folder,
            binary,
            is_root,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut run = match self.is_root {
            true => {
                let mut run = Command::new("setpriv");
                let user = NOBODY.to_string();
                run.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
                run.arg(&self.binary);
                run
            }
            false => Command::new(&self.binary),
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STEPWARD_") {
                run.env_remove(name);
            }
        }
        run.args(words).current_dir(self.folder.path());
        run.env("HOME", self.folder.path());
        run
    }
}

/// The step and the server have the same user, who is not root.
#[test]
fn a_step_cannot_look_into_the_server_that_runs_it() {
    let user = Unprivileged::new();
    let folder = user.folder.path();
    let looks = "
tasks:
  look:
    flow:
      peek:
        script: |
          test \"$(id -u)\" != 0
          pid=$(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' FOLDER/.stepward/server.json)
          test -n \"$pid\"
          # What this user may read of a process that does not hide.
          MARK=here sleep 60 & other=$!
          tries=0
          until tr '\\0' '\\n' </proc/$other/environ | grep -q MARK=here; do
            tries=$((tries + 1)); test $tries -lt 100; sleep 0.1
          done
          kill $other
          for what in environ mem maps auxv; do
            if head -c 1 /proc/$pid/$what 2>/dev/null | grep -q .; then echo \"it reads $what\"; exit 1; fi
          done
          if ls /proc/$pid/fd >/dev/null 2>&1; then echo 'it lists descriptors'; exit 1; fi
          if ls /proc/$pid/cwd/ >/dev/null 2>&1; then echo 'it follows the folder'; exit 1; fi
          echo nothing to see
";
    let looks = looks.replace("FOLDER", folder.to_str().unwrap());
    fs::write(folder.join("workflows/all.yaml"), looks).unwrap();
    let words = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--workflows-dir",
        "workflows",
        "--embedded-worker",
    ];
    let mut server = user.command(&words);
    server.env("A_SECRET_OF_THE_SERVER", "hunter2hunter2");
    let (server, _) = await_announced(Process::start("server", server));
    let run = user.command(&["run", "look", "--logs"]).output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(run.status.code(), Some(0), "{said}");
    assert!(said.contains("nothing to see"), "{said}");

    // A port that is taken by a process that hides its files is still told apart from another user's.
    let listen: Value =
        serde_json::from_slice(&fs::read(folder.join(".stepward/server.json")).unwrap()).unwrap();
    let listen = listen["url"]
        .as_str()
        .unwrap()
        .strip_prefix("http://")
        .unwrap()
        .to_string();
    let second = user
        .command(&["server", "--listen", &listen, "--data-dir", "other"])
        .output()
        .unwrap();
    let second = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        second.contains("is in use by") && !second.contains("another user"),
        "{second}"
    );
    // What steps can read is told: files are not hidden from them.
    let warning = "can read stepward.db, secret.key, admin.token and worker.token";
    assert!(server.said().contains(warning), "{}", server.said());
    let doctor = user
        .command(&["doctor", "server", "--json"])
        .output()
        .unwrap();
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check = &doctor["checks"][0];
    assert_eq!(check["status"], "warning", "{doctor}");
    assert!(
        check["message"].as_str().unwrap().contains(warning),
        "{doctor}"
    );
    assert!(
        check["fix"][0]
            .as_str()
            .unwrap()
            .contains("--role enrolment"),
        "{doctor}"
    );
    // It is no problem that would never go away.
    let status = user.command(&["status", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["problems"], json!([]), "{status}");
    stop(server);
}

/// A command holds the token of the server and inputs that may be secret, also while it only waits for a job.
#[test]
fn no_command_can_be_looked_into() {
    let user = Unprivileged::new();
    let folder = user.folder.path();
    let started = folder.join("started");
    let waits = "
tasks:
  wait:
    flow:
      wait: { script: touch STARTED; exec sleep 60 }
";
    let waits = waits.replace("STARTED", started.to_str().unwrap());
    fs::write(folder.join("workflows/all.yaml"), waits).unwrap();
    let words = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--workflows-dir",
        "workflows",
        "--embedded-worker",
    ];
    let (server, _) = await_announced(Process::start("server", user.command(&words)));
    for words in [&["run", "wait"][..], &["run", "wait", "--local"]] {
        let run = Process::start("run", user.command(words));
        await_that("the step runs", || {
            assert!(run.is_alive(), "{words:?}: {}", run.said());
            started.exists().then_some(())
        });
        // The kernel gives the files of a process that is not dumpable to root.
        let environ = format!("/proc/{}/environ", run.id());
        assert_eq!(fs::metadata(environ).unwrap().uid(), 0, "{words:?}");
        fs::remove_file(&started).unwrap();
        run.signal(Signal::TERM);
        assert!(!run.wait());
    }
    // A run that ends leaves its job to the server, whose worker has no other slot.
    let cancel = || {
        let cancelled = user.command(&["cancel", "latest"]).output().unwrap();
        assert!(cancelled.status.success(), "{cancelled:?}");
    };
    cancel();
    let submitted = user.command(&["run", "wait", "--detach"]).output().unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    await_that("the step runs", || started.exists().then_some(()));
    for words in [
        &["wait", "latest"][..],
        &["watch", "latest"],
        &["logs", "latest", "-f"],
        &["events", "--follow"],
    ] {
        let waits = Process::start("waits", user.command(words));
        // Its file belongs to this user until it has hidden itself.
        let environ = format!("/proc/{}/environ", waits.id());
        await_that("the command hides", || {
            assert!(waits.is_alive(), "{words:?}: {}", waits.said());
            (fs::metadata(&environ).unwrap().uid() == 0).then_some(())
        });
        waits.kill();
    }
    cancel();
    stop(server);
}

/// Whoever can change the folder can put another database there.
#[test]
fn a_data_folder_that_others_can_change_is_a_problem() {
    let folder = project();
    let data = folder.path().join(".stepward");
    fs::create_dir(&data).unwrap();
    for (mode, is_told) in [
        (0o777, true),
        (0o770, false),
        (0o755, false),
        (0o700, false),
    ] {
        fs::set_permissions(&data, fs::Permissions::from_mode(mode)).unwrap();
        let (server, _) = serve(folder.path(), &[]);
        let codes = problem_codes(folder.path());
        let is_there = codes.contains(&"data_folder_not_private".to_string());
        assert_eq!(is_there, is_told, "{mode:o}: {codes:?}");
        stop(server);
    }
    if rustix::process::geteuid().is_root() {
        chown(&data, Some(NOBODY), None).unwrap();
        let (server, _) = serve(folder.path(), &[]);
        let told = typed_in(folder.path(), &["doctor"]).stdout;
        assert!(told.contains("belongs to another user"), "{told}");
        assert!(told.contains("chown -R 0 "), "{told}");
        stop(server);
    }
}

/// Another user of the machine finds nothing, wherever they stand.
#[test]
fn another_user_is_a_stranger() {
    if !rustix::process::geteuid().is_root() {
        // Nobody but root can be two users.
        return;
    }
    let folder = project();
    let (server, url) = serve(folder.path(), &[]);
    let user = Unprivileged::new();
    for open in ["", ".stepward"] {
        // Even in a folder that is open to everybody.
        let path = folder.path().join(open);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut run = user.command(&["job", "ls", "--server", &url]);
    let output = run.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let mut read = Command::new("setpriv");
    let nobody = NOBODY.to_string();
    read.args([
        "--reuid",
        &nobody,
        "--regid",
        &nobody,
        "--clear-groups",
        "cat",
    ]);
    let output = read
        .arg(folder.path().join(".stepward/admin.token"))
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    stop(server);
}
