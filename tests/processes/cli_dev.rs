//! `stepward dev` as somebody works with it: started, stopped, started again, with files that break and ports that are taken.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use stepward::client::Client;
use stepward::wire::api::{Health, JobJson};

use crate::house::{Process, await_that, check_database, processes};
use crate::typed::{Typed, announce, command, typed_in};

/// One that runs, and who asks it things.
pub struct Dev {
    pub process: Process,
    pub client: Client,
    pub url: String,
}

impl Dev {
    /// In this folder, at a port that is free.
    pub fn start(folder: &Path, words: &[&str]) -> Dev {
        let words = [&["dev", "--port", "0"], words].concat();
        Dev::begin(folder, &words)
    }

    fn begin(folder: &Path, words: &[&str]) -> Dev {
        let process = Process::start("dev", command(folder, words));
        let said = await_that("dev is ready", || {
            assert!(process.is_alive(), "it ended: {}", process.said());
            Some(process.said()).filter(|said| said.contains("\nready in "))
        });
        let api = said.lines().find(|line| line.contains("  API ")).unwrap();
        let url = api.split_whitespace().nth(1).unwrap();
        let url = url.strip_suffix("/api").unwrap().to_string();
        Dev {
            client: Client::new(&url, None),
            process,
            url,
        }
    }

    pub fn await_said(&self, words: &str) {
        await_that(words, || self.process.said().contains(words).then_some(()));
    }

    pub fn submit(&self, task: &str) -> i64 {
        let path = format!("/api/tasks/{task}/jobs");
        let body = serde_json::json!({});
        let job: JobJson = self.client.post(&path, &body, PATIENCE).unwrap();
        job.id
    }

    pub fn job(&self, job_id: i64) -> JobJson {
        self.client
            .get(&format!("/api/jobs/{job_id}"), PATIENCE)
            .unwrap()
    }

    pub fn await_end(&self, job_id: i64) -> JobJson {
        await_that(&format!("job {job_id} ends"), || {
            Some(self.job(job_id)).filter(|job| job.ended_at.is_some())
        })
    }

    /// By Ctrl-C, once.
    pub fn stop(self) -> String {
        self.process.signal(Signal::INT);
        await_that("dev ends", || (!self.process.is_alive()).then_some(()));
        let said = await_that("its last word", || {
            Some(self.process.said()).filter(|said| said.contains("stopped; "))
        });
        assert!(self.process.wait(), "{said}");
        said
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// A project as `init` writes it.
pub fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = typed_in(folder.path(), &["init"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    folder
}

#[test]
fn dev_says_where_everything_is_and_is_ready_when_it_says_so() {
    let folder = project();
    let dev = Dev::start(folder.path(), &["--slots", "3", "--tags", "script,gpu"]);
    let health: Health = dev.client.get("/readyz", PATIENCE).unwrap();
    assert_eq!(health.status, "ready");
    dev.await_said(" · 3 slots · tags gpu, script\n");
    let said = dev.process.said();
    assert!(dev.url.starts_with("http://127.0.0.1:"), "{said}");
    for fact in [
        "  Settings   server-config.yaml\n",
        "  Data       .stepward · kept between runs · ",
        "  Workflows  workflows · 2 tasks, 0 problems · reloads on save\n",
        "  Recovery   always on · sweep 60s · worker timeout 120s · unmatched 30s\n",
        " ms · Ctrl-C stops, twice at once\n",
    ] {
        assert!(said.contains(fact), "{fact} in {said}");
    }
    let hello = dev.submit("hello");
    assert_eq!(dev.await_end(hello).status, "completed");
    let said = dev.stop();
    assert!(
        said.contains("stopped; jobs and logs are kept in .stepward\n"),
        "{said}"
    );
    check_database(&folder.path().join(".stepward"));
    assert!(!folder.path().join(".stepward/server.json").exists());
}

/// Somebody else has its port by then.
#[test]
fn a_server_that_was_killed_is_believed_no_longer() {
    let folder = project();
    let dev = Dev::start(folder.path(), &["--no-worker"]);
    let pid = dev.process.id();
    assert_eq!(typed_in(folder.path(), &["status"]).code, Some(0));
    dev.process.kill();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
    let file = folder.path().join(".stepward/server.json");
    let mut announced: serde_json::Value =
        serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(announced["pid"], pid);
    announced["url"] = format!("http://{}", other.local_addr().unwrap()).into();
    announced["token_file"] = token.to_str().into();
    fs::write(&file, announced.to_string()).unwrap();

    let ended = format!("the server of .stepward (process {pid}) has ended; start it again with");
    let status = typed_in(folder.path(), &["status"]);
    assert_eq!(status.code, Some(6), "{status:?}");
    assert!(status.stderr.contains(&ended), "{status:?}");
    let bare = typed_in(folder.path(), &[]);
    assert!(bare.stdout.contains("Start here"), "{bare:?}");
    assert!(bare.stderr.contains(&ended), "{bare:?}");
    let run = typed_in(folder.path(), &["run", "hello"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // Its number may be that of another process.
    announced["pid"] = std::process::id().into();
    fs::write(&file, announced.to_string()).unwrap();
    assert_eq!(typed_in(folder.path(), &["status"]).code, Some(6));
    let asked = other.accept();
    assert!(asked.is_err(), "somebody was connected to: {asked:?}");

    // Below a folder with one that lives, that one is meant.
    let outer = project();
    let inner = outer.path().join("inner");
    fs::create_dir_all(inner.join(".stepward")).unwrap();
    fs::copy(&file, inner.join(".stepward/server.json")).unwrap();
    let dev = Dev::start(outer.path(), &["--no-worker"]);
    let status = typed_in(&inner, &["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    dev.stop();
}

#[test]
fn what_another_server_announced_stays_when_this_one_ends() {
    let folder = project();
    let dev = Dev::start(folder.path(), &["--no-worker"]);
    announce(folder.path(), "http://127.0.0.1:9", None);
    dev.stop();
    assert!(folder.path().join(".stepward/server.json").exists());
}

#[test]
fn what_cannot_be_offered_is_said_with_the_reason_and_holds_nobody_up() {
    let folder = project();
    let settings = "workflows_dir: workflows\nembedded_worker:\n  tags: [script, docker, kubernetes]\n  \
                    docker: { command: /no/docker }\n  kubernetes: { command: /no/kubectl }\n";
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    let dev = Dev::start(folder.path(), &[]);
    dev.await_said(" tags script\n");
    dev.await_said("docker is not offered: /no/docker cannot be started: ");
    dev.await_said("kubernetes is not offered: /no/kubectl cannot be started: ");
    dev.stop();
}

#[test]
fn jobs_are_there_after_a_restart() {
    let folder = project();
    let dev = Dev::start(folder.path(), &[]);
    let hello = dev.submit("hello");
    dev.await_end(hello);
    dev.stop();
    let dev = Dev::start(folder.path(), &[]);
    assert_eq!(dev.job(hello).status, "completed");
    assert_eq!(dev.submit("hello"), hello + 1);
    dev.await_end(hello + 1);
    dev.stop();
}

#[test]
fn a_file_that_breaks_is_served_as_it_was_and_said_in_a_line_until_it_is_mended() {
    let folder = project();
    let file = folder.path().join("workflows/hello.yaml");
    let good = fs::read_to_string(&file).unwrap();
    let dev = Dev::start(folder.path(), &["--no-worker"]);
    dev.await_said("  Worker     none");
    fs::write(&file, good.replacen("depends_on", "depnds_on", 1)).unwrap();
    dev.await_said(": unknown key `depnds_on` in step `wait`; the last good version is served; stepward validate workflows/hello.yaml shows it\n");
    // Whoever has just saved it is told that something else runs.
    let run = typed_in(folder.path(), &["run", "hello", "--detach"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let told = "workflows/hello.yaml does not load (line ";
    assert!(run.stderr.contains(told), "{run:?}");
    fs::write(&file, &good).unwrap();
    dev.await_said(" workflows/hello.yaml mended, 2 tasks\n");
    let more = "tasks:\n  third: { flow: { only: { script: echo } } }\n";
    fs::write(folder.path().join("workflows/more.yaml"), more).unwrap();
    dev.await_said(" workflows/more.yaml reloaded, 3 tasks\n");
    fs::remove_file(folder.path().join("workflows/more.yaml")).unwrap();
    dev.await_said(" workflows/more.yaml removed, 2 tasks\n");
    dev.stop();
}

#[test]
fn an_empty_folder_is_served_as_well_and_told_how_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    dev.await_said("  Workflows  none · `stepward init` writes some");
    dev.stop();
    let ignored = folder.path().join(".stepward/.gitignore");
    assert_eq!(fs::read_to_string(ignored).unwrap(), "*\n");
    let wrong = typed_in(
        folder.path(),
        &["dev", "--port", "0", "--workflows-dir", "no"],
    );
    assert_eq!(wrong.code, Some(5));
    assert!(
        wrong
            .stderr
            .contains("workflows_dir is no, which cannot be read"),
        "{wrong:?}"
    );
    let wrong = typed_in(folder.path(), &["dev", "--port", "70000"]);
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn whoever_has_a_port_that_was_asked_for_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let owner = format!("port {port} is in use by process {} (", std::process::id());
    let here = std::env::current_dir().unwrap();
    let here = here.file_name().unwrap().to_str().unwrap();
    let refused = |typed: Typed, how: &str| {
        assert_eq!(typed.code, Some(1), "{typed:?}");
        assert!(typed.stderr.contains(&owner), "{typed:?}");
        assert!(
            typed
                .stderr
                .contains(&format!("{here}); stop it, or choose another with {how}"))
        );
        assert_eq!(typed.stderr.lines().count(), 1, "{typed:?}");
    };
    let port = port.to_string();
    refused(typed_in(folder.path(), &["dev", "--port", &port]), "--port");
    let listen = format!("127.0.0.1:{port}");
    let server = ["server", "--listen", &listen, "--data-dir", "data"];
    refused(typed_in(folder.path(), &server), "listen or --listen");
}

#[test]
fn the_usual_port_may_be_taken() {
    let folder = tempfile::tempdir().unwrap();
    // Somebody else may have it: then it is taken as well.
    let _taken = TcpListener::bind("127.0.0.1:7717");
    let dev = Dev::begin(folder.path(), &["dev", "--no-worker"]);
    let port: u16 = dev.url.rsplit(':').next().unwrap().parse().unwrap();
    assert!((7718..=7727).contains(&port), "{port}");
    let said = dev.process.said();
    assert!(said.contains("port 7717 is in use by "), "{said}");
    assert!(said.contains(&format!("; using {port}\n")), "{said}");
    dev.stop();
}

#[test]
fn a_folder_has_one_server_and_the_second_is_told_where_it_is() {
    let folder = project();
    let dev = Dev::start(folder.path(), &[]);
    let second = typed_in(folder.path(), &["dev", "--port", "0"]);
    assert_eq!(second.code, Some(1));
    let (pid, url) = (dev.process.id(), &dev.url);
    let told =
        format!("data folder .stepward is in use by another server (process {pid} at {url}): ");
    assert!(second.stderr.contains(&told), "{second:?}");
    dev.stop();
}

/// A project with a step that does not listen, and what its sleep looks like.
fn stubborn() -> (tempfile::TempDir, String) {
    let folder = project();
    let sleep = format!("sleep 7{:07}", std::process::id());
    let task = format!(
        "tasks:\n  stubborn: {{ flow: {{ work: {{ script: \"trap '' TERM; {sleep}\" }} }} }}\n"
    );
    fs::write(folder.path().join("workflows/stubborn.yaml"), task).unwrap();
    let settings = "workflows_dir: workflows\nrecovery: { cancel_grace_secs: 2 }\n";
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    (folder, sleep)
}

#[test]
fn ctrl_c_ends_what_runs_and_says_so_and_twice_ends_it_at_once() {
    let (folder, sleep) = stubborn();
    for times in [1, 2] {
        let dev = Dev::start(folder.path(), &["--tags", "script"]);
        let job_id = dev.submit("stubborn");
        await_that("it sleeps", || {
            (!processes(&sleep).is_empty()).then_some(())
        });
        let words = format!("stopping: step work of job {job_id} is ended, it gets 2 s for that; ");
        match times {
            1 => {
                let said = dev.stop();
                assert!(said.contains(&words), "{said}");
            }
            _ => {
                dev.process.signal(Signal::INT);
                dev.await_said(&words);
                dev.process.signal_again(Signal::INT);
                assert!(!dev.process.wait(), "it was interrupted");
            }
        }
        await_that("nobody sleeps", || {
            processes(&sleep).is_empty().then_some(())
        });
        assert!(!folder.path().join(".stepward/server.json").exists());
        check_database(&folder.path().join(".stepward"));
    }
}

/// A program that is found before the real one of its name, and leaves a mark when somebody starts it.
fn marking(folder: &Path, name: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (bin, mark) = (
        folder.join("bin"),
        folder.join(format!("{name}-was-started")),
    );
    fs::create_dir_all(&bin).unwrap();
    let script = format!("#!/bin/sh\n: > {}\nexit 1\n", mark.display());
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    mark
}

#[test]
fn no_cluster_is_asked_unless_a_task_needs_one() {
    let folder = project();
    let (docker, kubectl) = (
        marking(folder.path(), "docker"),
        marking(folder.path(), "kubectl"),
    );
    let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
    let dev = |words: &[&str]| {
        let mut dev = command(folder.path(), &[&["dev", "--port", "0"], words].concat());
        dev.env("PATH", &path);
        let process = Process::start("dev", dev);
        await_that("the worker is introduced", || {
            process
                .said()
                .contains("kubernetes is not offered")
                .then_some(())
        });
        process.signal(Signal::INT);
        await_that("dev ends", || (!process.is_alive()).then_some(()));
        process.said()
    };
    let said = dev(&[]);
    assert!(docker.exists(), "{said}");
    assert!(!kubectl.exists(), "{said}");
    assert!(said.contains("no task needs it"), "{said}");
    let pod = "tasks: { inside: { flow: { a: { script: echo inside, runner: pod, image: busybox } } } }\n";
    fs::write(folder.path().join("workflows/pod.yaml"), pod).unwrap();
    let said = dev(&[]);
    assert!(kubectl.exists(), "{said}");
}
