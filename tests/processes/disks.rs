//! A server whose disk is full, and has room again later.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use stepward::client::CallError;
use stepward::wire::api::{JobJson, SubmitRequest};

use crate::house::{House, Process, await_that};
use crate::ledger::{self, AWAIT_GATE, BEGIN, END};
use crate::typed::{command, typed};

/// Runs the story below in a mount namespace of its own, with a small disk.
#[test]
fn a_full_disk_refuses_in_one_sentence_loses_nothing_and_recovers_by_itself() {
    on_a_disk_of("16m", "disks::on_a_small_disk");
}

fn on_a_disk_of(size: &str, story: &str) {
    let mount_point = tempfile::tempdir().unwrap();
    let inside = "mount -t tmpfs -o size=$size tmpfs \"$disk\" && \
                  \"$me\" --exact $story --ignored --nocapture";
    let told = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-euc", inside])
        .env("disk", mount_point.path())
        .env("size", size)
        .env("story", story)
        .env("me", std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&told.stdout);
    let complained = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{said}{complained}");
    assert!(said.contains("1 passed"), "{said}");
}

/// Takes all the room there is.
fn fill(disk: &Path) -> PathBuf {
    let ballast = disk.join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    for piece in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![1; piece]).is_ok() {}
    }
    ballast
}

#[test]
#[ignore = "the story of the test above, which starts it where there is a small disk"]
fn on_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os("disk").expect("started by the test above"));
    let workflows = format!(
        "tasks:
  gated:
    flow:
      work: {{ script: '{BEGIN}; {AWAIT_GATE}; {END}; exit 3' }}
"
    );
    let mut house = House::with_data(&workflows, &disk.join("data"));
    let worker = house.worker(1);
    let running = house.submit("gated");
    house.await_step(running, "work", "running");
    // Somebody saves what there is while a little room is left: not enough for a copy of the database beside it.
    let ballast = fill(&disk);
    let file = fs::File::options().write(true).open(&ballast).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - (1 << 20)).unwrap();
    drop(file);
    let saved = typed(&house, &["backup", "saved.tar"]);
    assert_eq!(saved.code, Some(0), "{saved:?}");
    let whole = typed(&house, &["backup", "verify", "saved.tar"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");

    let ballast = fill(&disk);
    let mut accepted = Vec::new();
    let refusal = await_that("the disk is full", || {
        let request = SubmitRequest::default();
        let timeout = Duration::from_secs(10);
        let path = "/api/tasks/gated/jobs";
        match house.client.post::<_, JobJson>(path, &request, timeout) {
            Ok(job) => {
                accepted.push(job.id);
                None
            }
            Err(CallError::Refused {
                status: 503, error, ..
            }) => Some(error),
            Err(other) => panic!("{other}"),
        }
    });
    assert_eq!(refusal.code, "disk_full");
    assert!(refusal.message.contains("make room"), "{}", refusal.message);
    // What is there can be read, and somebody who asks is told.
    assert_eq!(house.job(running).status, "running");
    await_that("it says that it is not ready", || {
        let ready = house
            .client
            .get::<serde_json::Value>("/readyz", Duration::from_secs(5));
        matches!(ready, Err(CallError::Refused { status: 503, .. })).then_some(())
    });
    // The step ends; nobody can write that down, and nobody forgets it.
    house.open_gate();
    await_that("the result is kept by the worker", || {
        (worker.spooled() > 0).then_some(())
    });
    // What it printed is not lost either, and nobody is told that this was all.
    await_that("the worker says that it keeps logs", || {
        let said = worker.process().said();
        said.contains("logs are refused and wait here")
            .then_some(())
    });
    let told = typed(&house, &["logs", &running.to_string()]);
    assert!(
        told.stderr.contains("may still wait at its worker"),
        "{told:?}"
    );
    // Longer than a worker may be silent: it is the server that cannot hear.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(house.job(running).status, "running");
    fs::remove_file(ballast).unwrap();
    let job = house.await_job(running, "failed");
    assert_eq!(job.steps.unwrap()[0].exit_code, Some(3));
    // How many had room is open. They run one after the other, each to its own end: no recovery acted, nobody was given up.
    let mut expected = vec!["worker_registered w1".to_string()];
    expected.extend([
        format!("job_submitted {running}"),
        "backup_made".to_string(),
    ]);
    let submitted = accepted.iter().copied();
    expected.extend(submitted.map(|job_id| format!("job_submitted {job_id}")));
    for job_id in std::iter::once(running).chain(accepted) {
        house.await_job(job_id, "failed");
        expected.push(format!("step_failed {job_id}/work/1 exit_code w1"));
        expected.push(format!("job_failed {job_id} exit_code"));
    }
    for (attempt, life) in ledger::lives(&house) {
        assert_eq!(life, (1, 1), "{attempt}");
    }
    // The worker sends its result and its log side by side. Whether all of the log is there when the result comes is open.
    let mut story = house.story();
    story.retain(|event| !event.starts_with("log_incomplete"));
    assert_eq!(story, expected);
    house.check();
}

/// A worker leaves the last room of its disk to results. A step goes on there, and its log says what is missing and why.
#[test]
fn a_log_that_the_workers_disk_has_no_room_for_says_so() {
    on_a_disk_of("8m", "disks::a_worker_on_a_small_disk");
}

#[test]
#[ignore = "the story of the test above, which starts it where there is a small disk"]
fn a_worker_on_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os("disk").expect("started by the test above"));
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    let on_disk = disk.join("worker");
    fs::create_dir(&on_disk).unwrap();
    std::os::unix::fs::symlink(&on_disk, house.path("w1")).unwrap();
    let _worker = house.worker(1);
    let ballast = fill(&disk);
    let file = fs::File::options().write(true).open(&ballast).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - (1 << 20)).unwrap();
    drop(file);
    let job_id = house.submit("hello");
    house.await_job(job_id, "completed");
    let loss = "the worker's disk is nearly full: 6 bytes that the step printed were not kept";
    let lines = house.log_lines(job_id, "a");
    assert!(lines.iter().any(|line| line == loss), "{lines:?}");
    house.check();
}

/// Whoever stops a run whose disk is full is not kept waiting for what can never be written.
#[test]
fn a_run_in_one_process_on_a_full_disk_says_so_and_can_be_stopped() {
    on_a_disk_of("12m", "disks::a_run_on_a_small_disk");
}

#[test]
#[ignore = "the story of the test above, which starts it where there is a small disk"]
fn a_run_on_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os("disk").expect("started by the test above"));
    let folder = tempfile::tempdir().unwrap();
    let fill = disk.join("fill");
    let script = format!("cat /dev/zero > {}; sleep 600", fill.display());
    let workflow = format!("tasks: {{ loud: {{ flow: {{ a: {{ script: '{script}' }} }} }} }}");
    fs::write(folder.path().join("loud.yaml"), workflow).unwrap();
    let run = on_full_disk(&folder, &disk);
    run.signal(Signal::INT);
    await_that("it ends", || (!run.is_alive()).then_some(()));
    let said = run.said();
    assert!(
        said.contains("stopped at once") || said.contains("cancelled"),
        "{said}"
    );
}

/// Where nobody looks, nobody makes room: a job whose end cannot be recorded is not waited for without end.
#[test]
fn a_run_in_one_process_whose_disk_stays_full_gives_up() {
    on_a_disk_of("3m", "disks::a_run_that_nobody_looks_at");
}

#[test]
#[ignore = "the story of the test above, which starts it where there is a small disk"]
fn a_run_that_nobody_looks_at() {
    let disk = PathBuf::from(std::env::var_os("disk").expect("started by the test above"));
    let folder = tempfile::tempdir().unwrap();
    // Not a page is left in which its end could be recorded.
    let fill = disk.join("fill");
    let script = format!("cat /dev/zero > {}; exit 0", fill.display());
    let workflow = format!("tasks: {{ loud: {{ flow: {{ a: {{ script: '{script}' }} }} }} }}");
    fs::write(folder.path().join("loud.yaml"), workflow).unwrap();
    let run = on_full_disk(&folder, &disk);
    await_that("it ends", || (!run.is_alive()).then_some(()));
    let said = run.said();
    assert!(said.contains("it was waited for long enough"), "{said}");
}

fn on_full_disk(folder: &tempfile::TempDir, disk: &std::path::Path) -> Process {
    let mut run = command(folder.path(), &["run", "loud.yaml"]);
    run.env("TMPDIR", disk);
    let run = Process::start("run", run);
    await_that("it says what is wrong", || {
        let is_said = run
            .said()
            .contains("the server in this process cannot go on");
        is_said.then_some(())
    });
    run
}
