//! Tokens with the real binary: the first one of a new server, a worker that enrols, and what becomes of who has none.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use stepward::client::Client;

use crate::house::{Process, await_that};
use crate::typed::{Typed, command, typed_in};

/// A folder with the settings of a server that asks everybody, also on loopback.
fn settings(folder: &Path) {
    let settings = "listen: 127.0.0.1:0\ndata_dir: .stepward\nauth: { required: true }\n";
    fs::write(folder.join("server-config.yaml"), settings).unwrap();
}

fn serve(folder: &Path) -> (Process, String) {
    let server = Process::start("server", command(folder, &["server"]));
    let url = await_that("the server listens", || {
        let said = server.said();
        let line = said.lines().find(|line| line.contains("listening on"))?;
        line.split_whitespace().last().map(str::to_string)
    });
    let announced = folder.join(".stepward/server.json");
    await_that("it is announced", || announced.exists().then_some(()));
    (server, url)
}

#[test]
fn whoever_makes_a_token_before_the_first_start_gets_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    settings(folder);
    let new = ["token", "new", "ada", "--role", "admin"];
    let made = typed_in(
        folder,
        &[&new[..], &["--data-dir", ".stepward", "--to", "ada.token"]].concat(),
    );
    assert_eq!(made.code, Some(0), "{made:?}");
    let mode =
        std::os::unix::fs::MetadataExt::mode(&fs::metadata(folder.join("ada.token")).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let (_server, _) = serve(folder);
    assert!(!folder.join(".stepward/admin.token").exists());
    let none = typed_in(folder, &["job", "ls"]);
    assert_eq!(none.code, Some(4), "{none:?}");
    let with = |words: &[&str]| typed_in(folder, &[words, &["--token-file", "ada.token"]].concat());
    assert_eq!(with(&["job", "ls"]).code, Some(0));
    let me = with(&["token", "check", "--json"]).json();
    assert_eq!(
        (me["name"].as_str(), me["role"].as_str()),
        (Some("ada"), Some("admin"))
    );
    // The folder is the server's while it runs.
    let taken = typed_in(folder, &[&new[..], &["--data-dir", ".stepward"]].concat());
    assert_eq!(taken.code, Some(7), "{taken:?}");

    let made = with(&["token", "new", "bob", "--role", "viewer", "--json"]).json();
    fs::write(folder.join("bob.token"), made["text"].as_str().unwrap()).unwrap();
    let bob = |words: &[&str]| typed_in(folder, &[words, &["--token-file", "bob.token"]].concat());
    assert_eq!(bob(&["job", "ls"]).code, Some(0));
    let refused = bob(&["token", "ls"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused.stderr.contains("takes a token of role admin"),
        "{refused:?}"
    );
    let listed = with(&["token", "ls"]);
    assert!(listed.stdout.contains("bob\tviewer\tgood"), "{listed:?}");
    // Who did what, from now on and before there was a server.
    for (actor, did) in [
        ("ada", "bob, viewer\tada\n"),
        ("console", "ada, admin\tconsole\n"),
    ] {
        let told = with(&["events", "--actor", actor]).stdout;
        assert!(told.ends_with(did) && told.lines().count() == 1, "{told}");
    }
    assert_eq!(with(&["token", "revoke", "bob"]).code, Some(0));
    assert_eq!(bob(&["job", "ls"]).code, Some(4));
    for wrong in [
        &["token", "new", "x"][..],
        &["token", "new", "x", "--role", "king"],
        &["token", "new", "x", "--role", "viewer", "--expires", "soon"],
    ] {
        assert_eq!(typed_in(folder, wrong).code, Some(2), "{wrong:?}");
    }
}

/// The enrolment of one installation is shown by a worker that belongs to another.
#[test]
fn a_worker_of_another_installation_uses_no_enrolment_up_and_keeps_its_token() {
    let new = ["token", "new", "ada", "--role", "admin"];
    let admin = [&new[..], &["--data-dir", ".stepward", "--to", "ada.token"]].concat();
    let enrolment = [
        "token",
        "new",
        "edge",
        "--role",
        "enrolment",
        "--to",
        "enrolment",
    ];
    let as_admin = |folder: &Path, words: &[&str]| {
        typed_in(folder, &[words, &["--token-file", "ada.token"]].concat())
    };
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = places.each_ref().map(|place| {
        settings(place.path());
        typed_in(place.path(), &admin);
        let serving = serve(place.path());
        as_admin(place.path(), &enrolment);
        serving
    });
    let machine = tempfile::tempdir().unwrap();
    let start = |at: usize| {
        let file = places[at].path().join("enrolment");
        let file = file.to_str().unwrap();
        let words = ["worker", "--server", &servers[at].1, "--token-file", file];
        Process::start("edge", command(machine.path(), &words))
    };
    let is_in = |worker: Process| {
        await_that("it is let in", || {
            worker.said().contains("session opened").then_some(())
        });
        worker.signal(Signal::TERM);
        worker.wait();
    };
    is_in(start(0));
    let strayed = start(1);
    let code = await_that("it ends by itself", || strayed.code());
    assert_eq!(code, 1, "{}", strayed.said());
    assert!(
        strayed.said().contains("belongs to another installation"),
        "{}",
        strayed.said()
    );
    let tokens = as_admin(places[1].path(), &["token", "ls", "--json"]).json();
    let mut tokens = tokens["items"].as_array().unwrap().iter();
    assert!(tokens.all(|token| token["role"] != "worker"));
    is_in(start(0));
}

/// Only `token new` may begin a data folder: a mistyped name must not leave an empty one behind.
#[test]
fn tokens_of_a_folder_that_does_not_exist_are_not_listed_or_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for words in [&["token", "ls"][..], &["token", "revoke", "ada"]] {
        let refused = typed_in(folder, &[words, &["--data-dir", "typo"]].concat());
        assert_eq!(refused.code, Some(5), "{refused:?}");
        let says = "typo holds no database (stepward.db is missing), name the data folder";
        assert!(refused.stderr.contains(says), "{refused:?}");
        assert!(!folder.join("typo").exists(), "{words:?}");
    }
}

#[test]
fn a_worker_enrols_once_and_keeps_its_own_token() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    settings(folder);
    let new = [
        "token",
        "new",
        "ada",
        "--role",
        "admin",
        "--data-dir",
        ".stepward",
    ];
    typed_in(folder, &[&new[..], &["--to", "ada.token"]].concat());
    let (_server, url) = serve(folder);
    let with = |words: &[&str]| typed_in(folder, &[words, &["--token-file", "ada.token"]].concat());
    let new = [
        "token",
        "new",
        "edge-1",
        "--role",
        "enrolment",
        "--to",
        "enrolment",
    ];
    let made = with(&new);
    assert_eq!(made.code, Some(0), "{made:?}");

    let machine = tempfile::tempdir().unwrap();
    fs::copy(folder.join("enrolment"), machine.path().join("enrolment")).unwrap();
    let words = ["worker", "--server", &url, "--token-file", "enrolment"];
    let start = |folder: &Path| Process::start("edge", command(folder, &words));
    let is_in = |worker: &Process| {
        await_that("it is let in", || {
            worker.said().contains("session opened").then_some(())
        });
    };
    let first = start(machine.path());
    is_in(&first);
    first.signal(Signal::KILL);
    first.wait();
    // Its next life shows the same enrolment, or nothing at all, and is the same worker.
    let second = start(machine.path());
    is_in(&second);
    second.signal(Signal::TERM);
    second.wait();
    fs::remove_file(machine.path().join("enrolment")).unwrap();
    let third = Process::start(
        "edge",
        command(machine.path(), &["worker", "--server", &url]),
    );
    is_in(&third);
    let workers = with(&["worker", "ls", "--json"]).json();
    assert_eq!(workers["items"].as_array().unwrap().len(), 1, "{workers}");

    // Whoever takes the enrolment back is told what became of it.
    let tokens = with(&["token", "ls", "--json"]).json();
    let id_of = |role: &str| {
        let mut items = tokens["items"].as_array().unwrap().iter();
        let found = items.find(|token| token["role"] == role).unwrap();
        found["id"].to_string()
    };
    let revoked = with(&["token", "revoke", &id_of("enrolment")]);
    let further = format!("stepward token revoke {}", id_of("worker"));
    assert!(revoked.stderr.contains(&further), "{revoked:?}");

    // Another enrolment that is shown by mistake is not used up, and takes nothing away.
    third.signal(Signal::TERM);
    third.wait();
    let other = [
        "token",
        "new",
        "edge-2",
        "--role",
        "enrolment",
        "--to",
        "other",
    ];
    with(&other);
    fs::copy(folder.join("other"), machine.path().join("enrolment")).unwrap();
    let third = start(machine.path());
    is_in(&third);
    let tokens = with(&["token", "ls", "--json"]).json();
    let tokens = tokens["items"].as_array().unwrap();
    let of = |name: &str| {
        let mut named = tokens.iter().filter(|token| token["name"] == name);
        named.next().unwrap()["status"].clone()
    };
    assert_eq!((of("edge-1"), of("edge-2")), ("used".into(), "good".into()));

    // With its own token revoked it is used, also where many wrong ones came from.
    third.signal(Signal::TERM);
    third.wait();
    let id_of_worker = id_of("worker");
    assert_eq!(with(&["token", "revoke", &id_of_worker]).code, Some(0));
    let wrong = stepward::client::Client::new(&url, Some("a-wrong-word-of-many-letters"));
    for _ in 0..12 {
        let refused = wrong.get::<serde_json::Value>("/api/jobs", Duration::from_secs(5));
        assert!(refused.is_err());
    }
    let third = start(machine.path());
    is_in(&third);

    // Whoever copied it comes too late, and that is told.
    let thief = tempfile::tempdir().unwrap();
    fs::copy(folder.join("enrolment"), thief.path().join("enrolment")).unwrap();
    let refused = typed_in(thief.path(), &words);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused.stderr.contains("refuses the enrolment"),
        "{refused:?}"
    );
    let events = with(&["events"]);
    assert!(events.stdout.contains("was shown again"), "{events:?}");

    // One that was cut off is told apart before it is sent.
    let whole = fs::read_to_string(folder.join("enrolment")).unwrap();
    fs::write(thief.path().join("enrolment"), &whole[..whole.len() - 3]).unwrap();
    let refused = typed_in(thief.path(), &words);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("cut off or mistyped"),
        "{refused:?}"
    );
    third.signal(Signal::TERM);
    third.wait();
}

#[test]
fn a_folder_that_is_named_goes_before_the_server_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for words in [
        &["token", "new", "ada", "--role", "admin"][..],
        &["token", "ls"],
        &["prune", "--jobs-older", "1d"],
        &["backup", "data.tar"],
    ] {
        let words = [words, &["--data-dir", "data"]].concat();
        let mut asked = command(folder, &words);
        // Where nobody is.
        asked.env("STEPWARD_SERVER_URL", "http://127.0.0.1:1");
        let told: Typed = asked.output().unwrap().into();
        assert_eq!(told.code, Some(0), "{words:?}: {told:?}");
        let both = [&words[..], &["--server", "http://127.0.0.1:2"]].concat();
        let _ = fs::remove_file(folder.join("data.tar"));
        let told = typed_in(folder, &both);
        assert_eq!(told.code, Some(2), "{both:?}: {told:?}");
        assert!(told.stderr.contains("leave one of them out"), "{told:?}");
    }
}

#[test]
fn a_worker_whose_token_is_revoked_says_so_and_is_not_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    settings(folder);
    let task = "tasks: { one: { flow: { a: { script: 'while [ ! -e gate ]; do sleep 0.1; done', workdir: HERE } } } }";
    let task = task.replace("HERE", folder.to_str().unwrap());
    fs::create_dir(folder.join("workflows")).unwrap();
    fs::write(folder.join("workflows/w.yaml"), task).unwrap();
    let more = "workflows_dir: workflows\nrecovery: { heartbeat_interval_secs: 1, heartbeat_timeout_secs: 60 }\n";
    let had = fs::read_to_string(folder.join("server-config.yaml")).unwrap();
    fs::write(folder.join("server-config.yaml"), had + more).unwrap();
    let offline = ["--role", "admin", "--data-dir", ".stepward", "--to", "ada"];
    typed_in(folder, &[&["token", "new", "ada"], &offline[..]].concat());
    let (_server, url) = serve(folder);
    let with = |words: &[&str]| typed_in(folder, &[words, &["--token-file", "ada"]].concat());
    let start = |name: &str| {
        with(&["token", "new", name, "--role", "worker", "--to", name]);
        let words = [
            "worker",
            "--server",
            &url,
            "--token-file",
            name,
            "--name",
            name,
        ];
        let data_dir = format!("{name}.d");
        let words = [&words[..], &["--data-dir", &data_dir]].concat();
        let worker = Process::start(name, command(folder, &words));
        await_that("it is let in", || {
            worker.said().contains("session opened").then_some(())
        });
        worker
    };
    let shut_out =
        format!("stepward: the server at {url} does not take this worker's token any more");

    let idle = start("idle");
    with(&["token", "revoke", "idle"]);
    assert_eq!(idle.code(), Some(4), "{}", idle.said());
    // The last lines of a process may be read a moment after its end.
    await_that("the idle worker says why", || {
        let said = idle.said();
        said.contains(&format!("{shut_out}: ask")).then_some(())
    });
    assert!(!idle.said().contains("drained"), "{}", idle.said());

    let busy = start("busy");
    let job = with(&["run", "one", "--detach"]);
    assert_eq!(job.code, Some(0), "{job:?}");
    let shown = with(&["job", "show", "1"]).stdout;
    assert!(shown.contains("\nby\tada\n"), "{shown}");
    await_that("it runs", || {
        let job = with(&["job", "show", "1", "--json"]).json();
        (job["steps"][0]["status"] == "running").then_some(())
    });
    with(&["token", "revoke", "busy"]);
    await_that("it knows", || {
        busy.said()
            .contains("its result cannot be told")
            .then_some(())
    });
    fs::write(folder.join("gate"), "").unwrap();
    assert_eq!(busy.code(), Some(4), "{}", busy.said());
    let untold = format!("{shut_out}, and 1 result could not be told to it: ask");
    await_that("the busy worker says what is lost", || {
        busy.said().contains(&untold).then_some(())
    });
    assert!(!busy.said().contains("again and again"), "{}", busy.said());
}

#[test]
fn who_has_no_admin_is_told_so_and_what_to_paste() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let settings = "listen: 127.0.0.1:0\ndata_dir: my data\nauth: { required: true }\n";
    fs::write(folder.join("server-config.yaml"), settings).unwrap();
    let stopped = |words: &[&str]| typed_in(folder, &[words, &["--data-dir", "my data"]].concat());
    let made = stopped(&["token", "new", "eve", "--role", "viewer"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    // The first start writes a token, and nobody has it any more.
    let server = Process::start("server", command(folder, &["server"]));
    await_that("the tokens are written", || {
        server.said().contains("listening on").then_some(())
    });
    server.signal(Signal::TERM);
    assert!(server.wait());
    assert_eq!(stopped(&["token", "revoke", "first-admin"]).code, Some(0));
    let refused = typed_in(folder, &["server"]);
    let says = "there is no valid token of role admin: make one with \
                `stepward token new NAME --role admin --data-dir 'my data'`";
    assert!(refused.stderr.contains(says), "{refused:?}");
}

#[test]
fn a_name_is_one_good_token_and_is_found_when_it_has_ended_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    settings(folder);
    let stopped =
        |words: &[&str]| typed_in(folder, &[words, &["--data-dir", ".stepward"]].concat());
    let new = ["token", "new", "ada", "--role", "admin"];
    stopped(&[&new[..], &["--to", "ada.token"]].concat());
    let check = |with: &dyn Fn(&[&str]) -> Typed| {
        let short = ["token", "new", "q", "--role", "viewer", "--expires", "1s"];
        assert_eq!(with(&short).code, Some(0));
        await_that("it has expired", || {
            let listed = with(&["token", "ls"]).stdout;
            listed.contains("q\tviewer\texpired").then_some(())
        });
        let revoked = with(&["token", "revoke", "q"]);
        assert_eq!(revoked.code, Some(0), "{revoked:?}");
        let unknown = with(&["token", "revoke", "nobody"]);
        assert_eq!(unknown.code, Some(5), "{unknown:?}");
        let taken = with(&new);
        assert_eq!(taken.code, Some(7), "{taken:?}");
        let why = "token 1 is called \"ada\" and lets somebody in";
        assert!(taken.stderr.contains(why), "{taken:?}");
    };
    check(&stopped);
    let (_server, _) = serve(folder);
    check(&|words| typed_in(folder, &[words, &["--token-file", "ada.token"]].concat()));
}

#[test]
fn who_follows_with_a_revoked_token_is_told_so_however_many_wrong_ones_came_before() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    settings(folder);
    let new = ["token", "new", "ada", "--role", "admin", "--to", "ada"];
    typed_in(folder, &[&new[..], &["--data-dir", ".stepward"]].concat());
    let (_server, url) = serve(folder);
    let with = |words: &[&str]| typed_in(folder, &[words, &["--token-file", "ada"]].concat());
    with(&["token", "new", "bob", "--role", "viewer", "--to", "bob"]);
    let words = ["events", "-f", "--token-file", "bob"];
    let follower = Process::start("bob", command(folder, &words));
    let token = fs::read_to_string(folder.join("ada")).unwrap();
    let client = Client::new(&url, Some(token.trim()));
    await_that("it follows", || {
        let mut metrics = String::new();
        let mut answer = client.text("/metrics", Duration::from_secs(10)).unwrap();
        answer.read_to_string(&mut metrics).unwrap();
        metrics
            .contains("\nstepward_event_streams 1\n")
            .then_some(())
    });
    fs::write(folder.join("wrong"), "wrongwrongwrongwrong").unwrap();
    let wrong = || typed_in(folder, &["job", "ls", "--token-file", "wrong"]);
    await_that("the address is slowed down", || {
        wrong()
            .stderr
            .contains("too many wrong tokens")
            .then_some(())
    });
    with(&["token", "revoke", "bob"]);
    assert_eq!(follower.code(), Some(4), "{}", follower.said());
    let said = follower.said();
    assert!(said.contains("does not take this token"), "{said}");
    assert!(said.contains("too many wrong tokens"), "{said}");
    assert!(!said.contains("429"), "{said}");
    let slowed = wrong();
    assert_eq!(slowed.code, Some(4), "{slowed:?}");
}
