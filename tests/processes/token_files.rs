//! Who can read the token files of a data folder, and where they must not end up.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use stepward::client::Client;

use crate::door::{serve, stop};
use crate::house::{Process, await_that};
use crate::typed::{Typed, command, typed_in};

fn await_said(process: &Process, text: &str) {
    await_that(text, || {
        assert!(process.is_alive(), "{}", process.said());
        process.said().contains(text).then_some(())
    });
}

fn typed(folder: &Path, words: &[&str]) -> Typed {
    let typed = typed_in(folder, words);
    assert_eq!(typed.code, Some(0), "{words:?}: {typed:?}");
    typed
}

#[test]
fn links_in_the_workflows_folder_show_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("wf")).unwrap();
    let (server, _) = serve(folder, &[]);
    let words = [
        "token",
        "new",
        "vera",
        "--role",
        "viewer",
        "--to",
        "vera.token",
    ];
    typed(folder, &words);
    stop(server);
    let admin = folder.join(".stepward/admin.token");
    let token = fs::read_to_string(&admin).unwrap();
    let settings = "log: { level_of_nothing: hunter2hunter2 }\n";
    fs::write(folder.join("other-config.yaml"), settings).unwrap();
    for (name, target) in [
        ("link", "../.stepward/admin.token"),
        ("settings", "../other-config.yaml"),
        ("environ", "/proc/self/environ"),
    ] {
        symlink(target, folder.join("wf").join(format!("{name}.yaml"))).unwrap();
    }
    fs::hard_link(&admin, folder.join("wf/hard.yaml")).unwrap();
    fs::hard_link(&admin, folder.join("wf/hard.sh")).unwrap();
    let script = "tasks: { t: { flow: { s: { file: hard.sh } } } }\n";
    fs::write(folder.join("wf/script.yaml"), script).unwrap();
    let (server, url) = serve(folder, &["--workflows-dir", "wf"]);
    await_said(&server, "[E028]");
    let client = fs::read_to_string(folder.join("vera.token")).unwrap();
    let client = Client::new(&url, Some(client.trim()));
    let patience = std::time::Duration::from_secs(5);
    let shown: serde_json::Value = client.get("/api/workflows", patience).unwrap();
    let problems = shown["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 5, "{shown}");
    for said in [server.said(), shown.to_string()] {
        for secret in [token.trim(), "hunter2hunter2", "PATH="] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    stop(server);
}

/// The way out of the embedded worker, and back, with the same name for all workers of the machine.
#[test]
fn a_worker_that_has_left_leaves_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // It says what it offers before the server knows it.
    let await_active = || {
        await_that("the worker is active", || {
            let listed = typed_in(folder, &["worker", "ls", "--json"]);
            let workers = listed.json();
            let mut workers = workers["items"].as_array()?.iter();
            let is_there =
                workers.any(|worker| worker["status"] == "active" && worker["draining"] == false);
            is_there.then_some(())
        });
    };
    let embedded = "embedded_worker: { name: vm }\n";
    let settings = folder.join("server-config.yaml");
    // An embedded worker also ends with a server that is killed.
    for end in [stop, stop, Process::kill] {
        fs::write(&settings, embedded).unwrap();
        let (server, _) = serve(folder, &[]);
        await_active();
        end(server);

        fs::remove_file(&settings).unwrap();
        let (server, _) = serve(folder, &[]);
        let words = ["worker", "--name", "vm", "--data-dir", "w"];
        let worker = Process::start("worker", command(folder, &words));
        await_said(&worker, "session opened");
        await_active();
        stop(worker);
        stop(server);
    }

    // A worker that is there keeps its name, and the embedded one says how to have another.
    fs::write(&settings, embedded).unwrap();
    let (server, _) = serve(folder, &["--embedded-worker=false"]);
    let words = ["worker", "--name", "vm", "--data-dir", "w"];
    let worker = Process::start("worker", command(folder, &words));
    await_said(&worker, "session opened");
    server.kill();
    worker.kill();
    let (server, _) = serve(folder, &[]);
    await_said(&server, "with `embedded_worker: { name: ... }`");
    stop(server);
}

#[test]
fn a_worker_whose_steps_can_read_the_servers_files_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let told = "steps of this worker run as the user of the server";
    let (server, url) = serve(folder, &[]);
    let file = folder.join(".stepward/worker.token");
    let file = file.to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    for (here, flags) in [
        (folder, &[][..]),
        (elsewhere.path(), &["--server", &url, "--token-file", file]),
    ] {
        let words = [&["worker", "--name", "w", "--data-dir", "w"], flags].concat();
        let worker = Process::start("worker", command(here, &words));
        await_said(&worker, told);
        worker.kill();
    }
    stop(server);

    // An embedded worker's steps need no token file: the database and its key are enough.
    for token in ["admin.token", "worker.token"] {
        fs::remove_file(folder.join(".stepward").join(token)).unwrap();
    }
    let (server, _) = serve(folder, &["--embedded-worker"]);
    await_said(
        &server,
        "they can read stepward.db and secret.key in .stepward;",
    );
    stop(server);
    fs::write(folder.join("tok"), "0123456789abcdef0123456789abcdef").unwrap();
    let settings = "auth: { required: false, token_file: tok }\n";
    fs::write(folder.join("server-config.yaml"), settings).unwrap();
    let (server, _) = serve(folder, &["--embedded-worker"]);
    await_said(&server, "in .stepward, and tok;");
    // It asks, whatever `required` says.
    assert!(!server.said().contains("everybody who can reach"));
    stop(server);
}

#[test]
fn no_data_folder_puts_tokens_into_a_repository() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let is_ignored = |name: &str| {
        let ignored = fs::read_to_string(folder.join(name).join(".gitignore"));
        assert_eq!(ignored.ok().as_deref(), Some("*\n"), "{name}");
    };
    typed(
        folder,
        &[
            "token",
            "new",
            "ada",
            "--role",
            "admin",
            "--data-dir",
            "made",
        ],
    );
    is_ignored("made");
    fs::create_dir(folder.join(".stepward")).unwrap();
    let (server, _) = serve(folder, &[]);
    is_ignored(".stepward");
    typed(folder, &["backup", "b.tar.gz"]);
    stop(server);
    typed(folder, &["restore", "b.tar.gz", "--data-dir", "restored"]);
    is_ignored("restored");
    // A database that was made before, whose server has not had its first start.
    fs::create_dir(folder.join("open")).unwrap();
    let (server, _) = serve(folder, &["--data-dir", "open", "--no-auth"]);
    is_ignored("open");
    stop(server);
    fs::remove_file(folder.join("open/.gitignore")).unwrap();
    let (server, _) = serve(folder, &["--data-dir", "open"]);
    assert!(folder.join("open/admin.token").exists());
    is_ignored("open");
    stop(server);
}

#[test]
fn commands_say_why_a_token_file_is_of_no_use() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (server, _) = serve(folder, &[]);
    // With nothing there yet, every place names the same command.
    let status = typed(folder, &["status"]).stdout;
    assert!(!status.contains("--token-file FILE"), "{status}");
    assert!(status.contains("start one: stepward worker\n"), "{status}");
    let listed = typed(folder, &["worker", "ls"]);
    assert!(listed.stderr.contains("`stepward worker`"), "{listed:?}");

    for name in ["admin.token", "worker.token"] {
        let file = folder.join(".stepward").join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let refused = typed_in(folder, &["job", "ls"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused.stderr.contains("admin.token is ignored"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("chmod 600"), "{refused:?}");
    let refused = typed_in(folder, &["worker", "--data-dir", "w"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused.stderr.contains("worker.token is ignored"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("--role enrolment"), "{refused:?}");

    for name in ["admin.token", "worker.token"] {
        let file = folder.join(".stepward").join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    typed(folder, &["token", "revoke", "local-worker"]);
    let refused = typed_in(folder, &["worker", "--data-dir", "w"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    for told in ["worker.token", "--role enrolment"] {
        assert!(refused.stderr.contains(told), "{refused:?}");
    }
    // The last admin of a running server cannot be revoked, so there is another.
    let words = [
        "token",
        "new",
        "ada",
        "--role",
        "admin",
        "--to",
        "ada.token",
    ];
    typed(folder, &words);
    typed(folder, &["token", "revoke", "first-admin"]);
    let refused = typed_in(folder, &["job", "ls"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let make = "stepward token new NAME --role admin --data-dir ";
    assert!(refused.stderr.contains(make), "{refused:?}");
    assert!(refused.stderr.contains("/.stepward"), "{refused:?}");
    stop(server);
}
