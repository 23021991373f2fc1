//! Containers through real servers, workers and supervisors. Every story ends with no container, no process and a sound database.

use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use rustix::process::{Signal, kill_process};
use stepward::wire::api::StepJson;

use crate::daemon::{daemon, until};
use crate::house::{House, Worker, await_that, processes};

const OFFER: &str = "tags: [script, docker]\ndocker: { args: [--network=none] }";

/// A grace that no story waits for.
const LONG_GRACE: &str = "
recovery:
  heartbeat_interval_secs: 1
  heartbeat_timeout_secs: 4
  sweep_interval_secs: 1
  report_grace_secs: 1
  cancel_grace_secs: 30
";

/// A worker that offers docker, with our daemon.
fn docker_worker(house: &mut House, slots: u32) -> Worker {
    house.variables = daemon().settings().to_vec();
    house.worker_with(slots, &house.url(), OFFER)
}

/// One step `work`, in a container: this script, in which `SLEEP` is findable by its number.
fn boxed(number: u32, script: &str, more: &str) -> String {
    let script = script.replace("SLEEP", &format!("sleep {number}"));
    format!(
        "tasks:
  boxed:
    flow:
      work:
        runner: docker
        image: stepward-test:1
        script: |
          {script}
{more}"
    )
}

fn await_sleep(number: u32) {
    await_that("it sleeps", || {
        (!processes(&format!("sleep {number}")).is_empty()).then_some(())
    });
}

fn containers(worker: &Worker) -> Vec<String> {
    daemon().containers(&worker.instance_key())
}

fn await_no_container(worker: &Worker) {
    await_that("no container is left", || {
        containers(worker).is_empty().then_some(())
    });
}

/// Also nothing that docker was still about to make: such a thing comes within a moment.
fn assert_none_comes(worker: &Worker) {
    let comes = until(1, || !containers(worker).is_empty());
    assert!(!comes, "a container is left: {:?}", containers(worker));
}

/// Nothing with the mark of the worker, and nothing that names its folder.
fn assert_nothing_runs(worker: &Worker) {
    let folder = worker.folder.display().to_string();
    let left = processes(&folder);
    assert!(left.is_empty(), "{left:?} run on");
    let killed = stepward::worker::marked::kill_marked(&worker.instance_key());
    assert_eq!(killed, 0, "processes ran on");
}

/// The worker has nothing to do any more.
fn end(house: House, worker: Worker) {
    leave(worker);
    house.check();
}

/// The same, and this is all that happened before, in this order.
fn end_after(house: House, worker: Worker, story: &[&str]) {
    leave(worker);
    house.ends(&[story, &["worker_draining w1"]].concat());
}

fn leave(mut worker: Worker) {
    worker.signal(Signal::TERM);
    assert!(worker.wait(), "a drained worker ends well");
    assert_eq!(containers(&worker), [] as [String; 0]);
    assert_nothing_runs(&worker);
}

fn attempt_folder(worker: &Worker, step: &StepJson) -> PathBuf {
    let name = format!("attempts/{}.{}", step.id, step.attempt);
    worker.folder.join(name)
}

fn has_line(house: &House, job_id: i64, stream: &str, words: &str) -> bool {
    let lines = house.log(job_id, "work").lines;
    lines
        .iter()
        .any(|line| line.stream == stream && line.text.contains(words))
}

pub fn complete_and_fail() -> Result<(), Failed> {
    let workflows = "
tasks:
  all:
    flow:
      scripted:
        runner: docker
        image: stepward-test:1
        env: { GREETING: 'good  morning' }
        script: |
          echo \"$GREETING in $(pwd)\"
          echo \"$STEPWARD_STEP/$STEPWARD_ATTEMPT by $STEPWARD_WORKER\" >&2
          echo image=app:1 >> $STEPWARD_OUTPUT
      spoken: { type: docker, image: 'stepward-test:speaking' }
      printed:
        type: docker
        image: stepward-test:1
        entrypoint: [sh, -c]
        command: ['echo \"given=$WORD\" > $STEPWARD_OUTPUT']
        env: { WORD: \"two\\nlines\" }
      failed:
        runner: docker
        image: stepward-test:1
        script: |
          echo before
          exit 7
        continue_on_failure: true
";
    let mut house = House::with(&workflows.replace("given=$WORD", "given=${#WORD}"));
    let worker = docker_worker(&mut house, 4);
    let banner = worker.process().said();
    assert!(
        banner.contains("worker w1 offers docker, script with 4 slots"),
        "{banner}"
    );

    let job_id = house.submit("all");
    await_that("all have ended", || {
        house.job(job_id).ended_at.is_some().then_some(())
    });

    let lines = |step: &str| {
        let lines = house.log(job_id, step).lines.into_iter();
        let mut lines: Vec<String> = lines
            .map(|line| format!("{}: {}", line.stream, line.text))
            .collect();
        lines.sort();
        lines
    };
    let step = house.step(job_id, "scripted");
    assert_eq!(
        (step.status.as_str(), step.exit_code),
        ("completed", Some(0)),
        "{:?}",
        step.message
    );
    assert_eq!(
        serde_json::to_string(&step.output).unwrap(),
        r#"{"image":"app:1"}"#
    );
    assert_eq!(
        lines("scripted"),
        [
            "stderr: scripted/1 by w1",
            "stdout: good  morning in /stepward/workspace",
            "worker: exit code 0"
        ]
    );
    assert_eq!(
        lines("spoken"),
        ["stdout: I speak in /speech", "worker: exit code 0"]
    );
    let step = house.step(job_id, "printed");
    assert_eq!(
        serde_json::to_string(&step.output).unwrap(),
        r#"{"given":"9"}"#
    );
    let step = house.step(job_id, "failed");
    assert_eq!(
        (step.status.as_str(), step.reason.as_deref(), step.exit_code),
        ("failed", Some("exit_code"), Some(7))
    );
    assert_eq!(lines("failed"), ["stdout: before", "worker: exit code 7"]);
    end(house, worker);
    Ok(())
}

/// A registry that takes connections and says nothing, until it is dropped.
struct SilentRegistry {
    address: std::net::SocketAddr,
    connections: Arc<Mutex<Vec<std::net::TcpStream>>>,
    closed: Arc<AtomicBool>,
}

impl SilentRegistry {
    fn open() -> SilentRegistry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = SilentRegistry {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            closed: Arc::default(),
        };
        let (connections, closed) = (registry.connections.clone(), registry.closed.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                connections.lock().unwrap().push(stream);
            }
        });
        registry
    }

    fn image(&self) -> String {
        format!("{}/slow:1", self.address)
    }

    fn await_question(&self) {
        await_that("docker asks the registry", || {
            (!self.connections.lock().unwrap().is_empty()).then_some(())
        });
    }
}

impl Drop for SilentRegistry {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread, whose listener goes with it.
        let _ = std::net::TcpStream::connect(self.address).map(|mut stream| stream.read(&mut [0]));
        self.connections.lock().unwrap().clear();
    }
}

fn task_with_image(image: &str) -> String {
    format!("tasks:\n  boxed:\n    flow:\n      work: {{ type: docker, image: '{image}' }}\n")
}

const SHORT_ACK: &str = "
recovery:
  heartbeat_interval_secs: 1
  heartbeat_timeout_secs: 4
  sweep_interval_secs: 1
  ack_timeout_secs: 1
  prepare_timeout_secs: 60
";

pub fn pulled() -> Result<(), Failed> {
    let registry = SilentRegistry::open();
    let mut house = House::with_settings(&task_with_image(&registry.image()), SHORT_ACK);
    let worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    house.await_step(job_id, "work", "assigned");
    registry.await_question();
    // Much longer than an assignment may go without a sign of its preparation.
    let begun = Instant::now();
    await_that("three times the bound", || {
        let step = house.step(job_id, "work");
        assert_eq!((step.status.as_str(), step.attempt), ("assigned", 1));
        (begun.elapsed() > Duration::from_secs(3)).then_some(())
    });
    assert!(house.step(job_id, "work").started_at.is_none());
    let image = registry.image();
    drop(registry);
    let requeued = await_that("it goes back", || {
        let events = house.events(job_id).into_iter();
        events
            .filter(|event| event.kind == "step_requeued")
            .map(|event| event.message)
            .next()
    });
    let why = format!(
        "worker w1 declined: image {image} is not here and could not be pulled: docker pull -- {image}: exit code 1: "
    );
    assert!(requeued.contains(&why), "{requeued}");
    let step = house.step(job_id, "work");
    assert_eq!(step.attempts[0].outcome, "returned");
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    end(house, worker);
    Ok(())
}

pub fn cancelled_pull() -> Result<(), Failed> {
    let registry = SilentRegistry::open();
    let mut house = House::with_settings(&task_with_image(&registry.image()), LONG_GRACE);
    let worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    registry.await_question();
    let pull = format!("pull -- {}", registry.image());
    assert!(!processes(&pull).is_empty());
    house.cancel(job_id);
    let begun = Instant::now();
    await_that("nobody pulls any more", || {
        processes(&pull).is_empty().then_some(())
    });
    assert!(begun.elapsed() < Duration::from_secs(5));
    house.await_job(job_id, "cancelled");
    end(house, worker);
    Ok(())
}

pub fn exhausted() -> Result<(), Failed> {
    // Nobody listens there.
    let mut house = House::with_settings(&task_with_image("localhost:1/none:1"), SHORT_ACK);
    let mut workers: Vec<Worker> = (0..5).map(|_| docker_worker(&mut house, 1)).collect();
    let job_id = house.submit("boxed");
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("assignment_exhausted"));
    assert!(step.started_at.is_none());
    let message = step.message.as_deref().unwrap();
    assert!(
        message.starts_with("it was assigned 5 times and never started: attempt 1: worker w"),
        "{message}"
    );
    for worker in &workers {
        let why = format!(
            "worker {} declined: image localhost:1/none:1 is not here and could not be pulled",
            worker.name
        );
        assert!(message.contains(&why), "{message}");
    }
    let last = workers.pop().unwrap();
    for mut worker in workers {
        worker.signal(Signal::TERM);
        assert!(worker.wait());
        assert_nothing_runs(&worker);
    }
    end(house, last);
    Ok(())
}

pub fn cancelled() -> Result<(), Failed> {
    let mut house = House::with_settings(&boxed(870_101, "SLEEP & SLEEP", ""), LONG_GRACE);
    let worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    await_sleep(870_101);
    house.await_step(job_id, "work", "running");
    let begun = Instant::now();
    house.cancel(job_id);
    await_no_container(&worker);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(processes("sleep 870101"), [] as [i32; 0]);
    house.await_job(job_id, "cancelled");
    await_that("the log tells how", || {
        has_line(&house, job_id, "worker", "none left").then_some(())
    });
    let story = [
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
    ];
    end_after(house, worker, &story);
    Ok(())
}

pub fn deaf() -> Result<(), Failed> {
    let script = "trap '' TERM; echo deaf; SLEEP; SLEEP";
    let mut house = House::with(&boxed(870_102, script, ""));
    let worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    await_sleep(870_102);
    await_that("it hears nothing", || {
        has_line(&house, job_id, "stdout", "deaf").then_some(())
    });
    let begun = Instant::now();
    house.cancel(job_id);
    await_no_container(&worker);
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(processes("sleep 870102"), [] as [i32; 0]);
    house.await_job(job_id, "cancelled");
    end(house, worker);
    Ok(())
}

/// From the server's yes to the container that runs.
type Reached = fn(&Worker, &StepJson) -> bool;
const MOMENTS: &[(&str, Reached)] = &[
    ("the server's yes", |_, _| true),
    ("docker's start", |worker, step| {
        let folder = attempt_folder(worker, step).display().to_string();
        !processes(&format!("--cidfile={folder}")).is_empty()
    }),
    ("docker's note of the container", |worker, step| {
        let note = attempt_folder(worker, step).join("container");
        std::fs::read(note).is_ok_and(|id| !id.is_empty())
    }),
    ("the container", |worker, _| !containers(worker).is_empty()),
];

fn await_moment(house: &House, worker: &Worker, job_id: i64, (what, reached): (&str, Reached)) {
    let step = house.await_step(job_id, "work", "running");
    await_that(what, || reached(worker, &step).then_some(()));
}

pub fn cancelled_early() -> Result<(), Failed> {
    let mut house = House::with(&boxed(870_103, "SLEEP", ""));
    let worker = docker_worker(&mut house, 1);
    for moment in MOMENTS.iter().cycle().take(8) {
        let job_id = house.submit("boxed");
        await_moment(&house, &worker, job_id, *moment);
        house.cancel(job_id);
        house.await_job(job_id, "cancelled");
    }
    await_no_container(&worker);
    assert_none_comes(&worker);
    await_that("nobody sleeps", || {
        processes("sleep 870103").is_empty().then_some(())
    });
    end(house, worker);
    Ok(())
}

pub fn timed_out() -> Result<(), Failed> {
    let more = "        timeout: 1s\n";
    let mut house = House::with(&boxed(870_104, "echo begun; SLEEP", more));
    let worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("step_timeout"));
    await_no_container(&worker);
    assert_eq!(processes("sleep 870104"), [] as [i32; 0]);
    end(house, worker);
    Ok(())
}

pub fn killed_worker() -> Result<(), Failed> {
    let mut house = House::with(&boxed(870_105, "SLEEP", ""));
    let mut worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    await_sleep(870_105);
    let supervisors = worker.supervisors();
    assert_eq!(supervisors.len(), 1);
    worker.kill();
    await_that("its supervisor has ended", || {
        let folder = format!("/proc/{}", supervisors[0]);
        (!std::path::Path::new(&folder).exists()).then_some(())
    });
    assert_eq!(containers(&worker), [] as [String; 0]);
    assert_eq!(processes("sleep 870105"), [] as [i32; 0]);
    assert_nothing_runs(&worker);
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("worker_lost"));

    // Its next life finds nothing to remove, and tells what the supervisor had seen.
    worker.start();
    house.await_worker("w1", "active");
    await_that("the log tells of the end", || {
        has_line(&house, job_id, "worker", "the worker died: ").then_some(())
    });
    assert!(!worker.process().said().contains("former life"));
    let story = [
        "worker_registered w1",
        "job_submitted 1",
        "worker_inactive(1) w1",
        "step_failed(1) 1/work/1 worker_lost w1",
        "job_failed 1 worker_lost",
        "worker_restarted w1",
    ];
    end_after(house, worker, &story);
    Ok(())
}

pub fn killed_early() -> Result<(), Failed> {
    let mut house = House::with(&boxed(870_106, "SLEEP", ""));
    let mut worker = docker_worker(&mut house, 1);
    for moment in MOMENTS {
        let job_id = house.submit("boxed");
        await_moment(&house, &worker, job_id, *moment);
        let supervisors = worker.supervisors();
        worker.kill();
        await_that("its supervisors have ended", || {
            let lives = |pid| std::path::Path::new(&format!("/proc/{pid}")).exists();
            (!supervisors.iter().any(lives)).then_some(())
        });
        assert_none_comes(&worker);
        worker.start();
        house.await_job(job_id, "failed");
        house.await_worker("w1", "active");
    }
    await_that("nobody sleeps", || {
        processes("sleep 870106").is_empty().then_some(())
    });
    end(house, worker);
    Ok(())
}

pub fn killed_supervisor() -> Result<(), Failed> {
    let mut house = House::with(&boxed(870_107, "SLEEP", ""));
    let worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    await_sleep(870_107);
    kill_process(worker.supervisors()[0], Signal::KILL).unwrap();
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(
        step.message.as_deref(),
        Some("its supervisor was killed by signal 9 (SIGKILL), and the step with it")
    );
    assert_eq!(containers(&worker), [] as [String; 0]);
    assert_eq!(processes("sleep 870107"), [] as [i32; 0]);
    let story = [
        "worker_registered w1",
        "job_submitted 1",
        "step_failed 1/work/1 signal w1",
        "job_failed 1 signal",
    ];
    end_after(house, worker, &story);
    Ok(())
}

pub fn next_life() -> Result<(), Failed> {
    let mut house = House::with(&boxed(870_108, "SLEEP", ""));
    let mut worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    await_sleep(870_108);
    // Neither may see the other die.
    let supervisor = worker.supervisors()[0];
    worker.signal(Signal::STOP);
    kill_process(supervisor, Signal::KILL).unwrap();
    worker.kill();
    assert_eq!(containers(&worker), ["running"]);
    assert_eq!(processes("sleep 870108").len(), 1);

    worker.start();
    await_that("its next life introduces itself", || {
        worker.process().said().contains("offers").then_some(())
    });
    assert_eq!(containers(&worker), [] as [String; 0]);
    assert_eq!(processes("sleep 870108"), [] as [i32; 0]);
    let said = worker.process().said();
    assert!(
        said.contains("a former life of this worker had left 1 container or pod, removed now"),
        "{said}"
    );
    let job = house.await_job(job_id, "failed");
    let reason = job.steps.unwrap()[0].reason.clone();
    assert!(
        matches!(reason.as_deref(), Some("worker_restarted" | "worker_lost")),
        "{reason:?}"
    );
    end(house, worker);
    Ok(())
}

pub fn drained() -> Result<(), Failed> {
    let script = "while [ ! -e gate ]; do sleep 0.1; done; echo done=well >> $STEPWARD_OUTPUT";
    let mut house = House::with(&boxed(0, script, ""));
    let mut worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    let step = house.await_step(job_id, "work", "running");
    await_that("the container runs", || {
        (containers(&worker) == ["running"]).then_some(())
    });
    worker.signal(Signal::TERM);
    await_that("the server knows", || {
        house.workers()[0].draining.then_some(())
    });
    assert!(worker.process().is_alive(), "it waits for its container");
    assert_eq!(containers(&worker), ["running"]);
    std::fs::write(attempt_folder(&worker, &step).join("workspace/gate"), "").unwrap();
    assert!(worker.wait(), "a drained worker ends well");
    let job = house.await_job(job_id, "completed");
    let output = serde_json::to_string(&job.steps.unwrap()[0].output).unwrap();
    assert_eq!(output, r#"{"done":"well"}"#);
    assert_eq!(containers(&worker), [] as [String; 0]);
    assert_nothing_runs(&worker);
    house.check();
    Ok(())
}

pub fn shut_down() -> Result<(), Failed> {
    let mut house = House::with(&boxed(870_109, "SLEEP", ""));
    let mut worker = docker_worker(&mut house, 1);
    let job_id = house.submit("boxed");
    await_sleep(870_109);
    worker.signal(Signal::TERM);
    await_that("the server knows", || {
        house.workers()[0].draining.then_some(())
    });
    assert_eq!(containers(&worker), ["running"], "it is waited for");
    worker.process().signal_again(Signal::TERM);
    assert!(worker.wait());
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("worker_shutdown"));
    assert_eq!(containers(&worker), [] as [String; 0]);
    assert_eq!(processes("sleep 870109"), [] as [i32; 0]);
    assert_nothing_runs(&worker);
    house.check();
    Ok(())
}

/// The example of containers, with an image that is there.
pub fn example() -> Result<(), Failed> {
    let example = include_str!("../../examples/containers.yaml");
    let mut house = House::with(&example.replace("busybox:", "stepward-test:"));
    let worker = docker_worker(&mut house, 1);
    let input = serde_json::json!({"image": "stepward-test:1"});
    let job_id = house.submit_with("in-docker", input).unwrap().id;
    house.await_job(job_id, "completed");
    house.await_log_line(job_id, "alone", "told: Linux");
    await_no_container(&worker);
    end(house, worker);
    Ok(())
}

pub fn unmatched() -> Result<(), Failed> {
    let settings = "recovery: { sweep_interval_secs: 1, unmatched_step_timeout_secs: 1 }";
    let mut house = House::with_settings(&boxed(0, "true", ""), settings);
    house.variables = vec![("DOCKER_HOST", "unix:///nowhere.sock".to_string())];
    let worker = house.worker_with(1, &house.url(), OFFER);
    assert_eq!(house.workers()[0].tags, ["script"]);
    let said = worker.process().said();
    assert!(
        said.contains("worker w1 offers script with 1 slot"),
        "{said}"
    );
    assert!(
        said.contains("tag docker is not offered: docker said: ")
            && said.contains("start the docker service"),
        "{said}"
    );
    let job_id = house.submit("boxed");
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(
        (step.reason.as_deref(), step.message.as_deref()),
        (
            Some("unmatched"),
            Some("No active worker with required tags to run this step")
        )
    );
    let events = house.events(job_id);
    let failed = events.iter().find(|event| event.kind == "step_failed");
    let message = &failed.unwrap().message;
    assert!(
        message.contains("docker") && message.contains("w1"),
        "{message}"
    );
    end(house, worker);
    Ok(())
}
