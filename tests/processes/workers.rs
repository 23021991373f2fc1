//! Workers that die, hang, come back, or are sent away.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::desk::Desk;
use crate::house::{BINARY, House, PATIENT, Process, Worker, await_that};
use crate::ledger::{self, AWAIT_GATE, BEGIN, END};
use crate::proxy::{Fate, Proxy};

/// A step that runs until somebody ends it, with two processes that try to get away.
const LONG: &str = "
tasks:
  long:
    flow:
      work: { script: 'setsid SLEEP & (SLEEP &) ; SLEEP' }
      after: { script: 'true', depends_on: [work] }
";

#[test]
fn a_worker_killed_in_the_middle_of_a_step_leaves_no_process_and_its_step_fails() {
    let mut house = House::with(LONG);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(3);
    worker.kill();
    house.await_nobody_asleep();
    let job = house.await_job(job_id, "failed");
    let steps = job.steps.unwrap();
    assert_eq!(steps[0].reason.as_deref(), Some("worker_lost"));
    let message = steps[0].message.as_deref().unwrap();
    assert!(message.contains("w1"), "{message}");
    assert_eq!(steps[1].status, "skipped");
    let events = house.events(job_id);
    let failed = &events[1].message;
    assert!(failed.starts_with("[recovery]"), "{failed}");

    // Its next life tells what the supervisor had seen of the end.
    worker.start();
    let end = "the worker died: 4 processes were killed, none is left";
    house.await_log_line(job_id, "work", end);
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_inactive(1) w1",
        "step_failed(1) 1/work/1 worker_lost w1",
        "job_failed 1 worker_lost",
        "worker_restarted w1",
    ]);
}

#[test]
fn a_worker_that_restarts_at_once_gives_up_what_it_ran_at_once() {
    let mut house = House::with_settings(LONG, PATIENT);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(3);
    worker.kill();
    let begun = Instant::now();
    worker.start();
    // Not by the timeout, which is minutes away: by the new session.
    let step = house.await_step(job_id, "work", "failed");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(step.reason.as_deref(), Some("worker_restarted"));
    house.await_job(job_id, "failed");
    house.await_nobody_asleep();
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "step_failed 1/work/1 worker_restarted w1",
        "worker_restarted w1",
        "job_failed 1 worker_restarted",
    ]);
}

const BOXED: &str = "
tasks:
  boxed:
    flow:
      work: { type: docker, image: busybox }
";

/// A docker whose preparations take for ever: it answers everything but questions about images.
fn slow_docker(desk: &Desk) {
    desk.tool("docker", "case $1 in image) exec sleep 600 ;; esac");
}

/// One that has every image, and runs nothing.
fn quick_docker(desk: &Desk) {
    desk.tool("docker", "true");
}

fn docker_worker(house: &mut House, desk: &Desk) -> Worker {
    let docker = desk.folder.path().join("docker");
    let docker = docker.display();
    let settings = format!("tags: [docker]\ndocker: {{ command: {docker} }}");
    house.worker_with(1, &house.url(), &settings)
}

/// Assigned to the first worker, which prepares it.
fn submit_boxed(house: &House, desk: &Desk) -> i64 {
    let job_id = house.submit("boxed");
    await_that("docker is asked", || {
        let calls = desk.ledger();
        calls
            .iter()
            .any(|call| call.starts_with("image "))
            .then_some(())
    });
    let step = house.step(job_id, "work");
    assert_eq!((step.status.as_str(), step.attempt), ("assigned", 1));
    job_id
}

/// It ran in its second attempt and was not even started in its first.
fn assert_ran_on(house: &House, job_id: i64, worker: &str) {
    let job = house.await_job(job_id, "completed");
    let step = &job.steps.unwrap()[0];
    assert_eq!((step.attempt, step.worker.as_deref()), (2, Some(worker)));
    let first = &step.attempts[0];
    assert_eq!(
        (first.outcome.as_str(), first.worker.as_deref()),
        ("returned", Some("w1"))
    );
    assert!(first.started_at.is_none());
}

#[test]
fn what_was_assigned_to_a_worker_that_restarted_runs_again() {
    let mut house = House::with_settings(BOXED, PATIENT);
    let desk = Desk::new();
    slow_docker(&desk);
    let mut worker = docker_worker(&mut house, &desk);
    let job_id = submit_boxed(&house, &desk);
    worker.kill();
    quick_docker(&desk);
    worker.start();
    assert_ran_on(&house, job_id, "w1");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "step_requeued 1/work/1 w1",
        "worker_restarted w1",
        "job_completed 1",
    ]);
}

#[test]
fn what_was_assigned_to_a_worker_that_restarted_runs_elsewhere_if_another_is_free() {
    let mut house = House::with_settings(BOXED, PATIENT);
    let (slow, quick) = (Desk::new(), Desk::new());
    slow_docker(&slow);
    quick_docker(&quick);
    let mut first = docker_worker(&mut house, &slow);
    let job_id = submit_boxed(&house, &slow);
    let _second = docker_worker(&mut house, &quick);
    // So that it is not a matter of who asks first.
    let id = house.await_worker("w1", "active").id;
    let _: serde_json::Value = house.post(&format!("/api/workers/{id}/pause")).unwrap();
    first.kill_and_restart();
    assert_ran_on(&house, job_id, "w2");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_registered w2",
        "worker_paused w1",
        "step_requeued 1/work/1 w1",
        "worker_restarted w1",
        "job_completed 1",
    ]);
}

#[test]
fn what_was_assigned_to_a_killed_worker_runs_elsewhere() {
    let mut house = House::with(BOXED);
    let (slow, quick) = (Desk::new(), Desk::new());
    slow_docker(&slow);
    quick_docker(&quick);
    let mut first = docker_worker(&mut house, &slow);
    let job_id = submit_boxed(&house, &slow);
    let _second = docker_worker(&mut house, &quick);
    first.kill();
    assert_ran_on(&house, job_id, "w2");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_registered w2",
        "worker_inactive(1) w1",
        "step_requeued(1) 1/work/1 w1",
        "job_completed 1",
    ]);
}

/// A step that tells which of its attempts was the one that counts, and waits in the first.
fn twice() -> String {
    format!(
        "tasks:
  twice:
    flow:
      work:
        on_worker_loss: retry
        script: |
          {BEGIN}
          [ $STEPWARD_ATTEMPT = 2 ] || {AWAIT_GATE}
          echo by=$STEPWARD_ATTEMPT >> $STEPWARD_OUTPUT
          {END}
"
    )
}

/// The step has ended, and nobody but its worker knows.
fn await_lost_report(proxy: &Proxy, worker: &Worker) {
    // What was lost first may have been a word about a step that still ran.
    await_that("a report is lost, and the result kept", || {
        let is_lost = proxy.count("/reports", Fate::LoseRequest) > 0;
        (is_lost && worker.spooled() == 1).then_some(())
    });
}

fn assert_second_stands(house: &House, job_id: i64) {
    let step = house.step(job_id, "work");
    assert_eq!((step.status.as_str(), step.attempt), ("completed", 2));
    let output = serde_json::to_string(&step.output).unwrap();
    assert_eq!(output, r#"{"by":"2"}"#);
}

#[test]
fn the_late_report_of_a_stopped_worker_is_fenced_and_its_successors_result_stands() {
    let mut house = House::with(&twice());
    let proxy = Proxy::start(&house.url(), |_, _| Fate::Pass);
    let first = house.worker_with(1, &proxy.url, "");
    let job_id = house.submit("twice");
    // The server calls the step running as soon as it sends the assignment, which the proxy would cut off on its way.
    await_that("it has begun", || {
        (!house.read("ledger").is_empty()).then_some(())
    });
    // Its result does not arrive before it is stopped.
    proxy.lose(|path| !path.ends_with("/heartbeat"));
    house.open_gate();
    await_lost_report(&proxy, &first);
    first.signal(Signal::STOP);
    first.process().await_standstill();
    // Nor is it told that nobody waits for it any more before it has reported.
    proxy.lose(|path| !path.ends_with("/reports"));
    house.await_worker("w1", "inactive");
    let _second = house.worker(1);
    house.await_job(job_id, "completed");
    first.signal(Signal::CONT);
    await_that("it has told, and kept nothing", || {
        (first.spooled() == 0).then_some(())
    });
    proxy.lose(|_| false);
    assert_second_stands(&house, job_id);
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_inactive(1) w1",
        "step_retried(1) 1/work/1 worker_lost w1",
        "worker_registered w2",
        "job_completed 1",
        "worker_active w1",
        "report_fenced 1/work/1 w1",
    ]);
}

#[test]
fn what_ended_while_its_worker_was_stopped_changes_nothing() {
    let mut house = House::with(&twice());
    let first = house.worker(1);
    let job_id = house.submit("twice");
    await_that("it has begun", || {
        (!house.read("ledger").is_empty()).then_some(())
    });
    first.signal(Signal::STOP);
    house.await_worker("w1", "inactive");
    let _second = house.worker(1);
    house.await_job(job_id, "completed");
    house.open_gate();
    await_that("the first attempt ends", || {
        let lives = ledger::lives(&house);
        let first = lives.get(&format!("{job_id}/work/1")).copied();
        (first == Some((1, 1))).then_some(())
    });
    first.signal(Signal::CONT);
    house.await_worker("w1", "active");
    await_that("it has told, and kept nothing", || {
        (first.spooled() == 0 && house.workers()[0].slots_used == 0).then_some(())
    });
    assert_second_stands(&house, job_id);
    // What it notices first is open: that the step ended, which it reports, or that its own time is over.
    let mut story = house.story();
    story.retain(|event| event != "report_fenced 1/work/1 w1");
    assert_eq!(
        story,
        [
            "worker_registered w1",
            "job_submitted 1",
            "worker_inactive(1) w1",
            "step_retried(1) 1/work/1 worker_lost w1",
            "worker_registered w2",
            "job_completed 1",
            "worker_active w1",
        ]
    );
    house.check();
}

#[test]
fn what_a_stopped_worker_was_running_is_killed_when_it_goes_on() {
    let workflows = "
tasks:
  twice:
    flow:
      work:
        on_worker_loss: retry
        script: 'test $STEPWARD_ATTEMPT = 2 || exec SLEEP'
";
    let mut house = House::with(workflows);
    let first = house.worker(1);
    let job_id = house.submit("twice");
    house.await_asleep(1);
    first.signal(Signal::STOP);
    house.await_worker("w1", "inactive");
    let _second = house.worker(1);
    house.await_job(job_id, "completed");
    assert_eq!(house.asleep().len(), 1, "nobody could end it");
    first.signal(Signal::CONT);
    house.await_nobody_asleep();
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_inactive(1) w1",
        "step_retried(1) 1/work/1 worker_lost w1",
        "worker_registered w2",
        "job_completed 1",
        "worker_active w1",
    ]);
}

#[test]
fn a_result_that_a_killed_worker_had_not_reported_is_delivered_by_its_next_life() {
    let workflows = format!(
        "tasks:
  once:
    flow:
      work: {{ script: '{BEGIN}; {AWAIT_GATE}; {END}; exit 7' }}
"
    );
    let mut house = House::with_settings(&workflows, PATIENT);
    let proxy = Proxy::start(&house.url(), |_, _| Fate::Pass);
    let mut worker = house.worker_with(1, &proxy.url, "");
    let job_id = house.submit("once");
    house.await_step(job_id, "work", "running");
    proxy.lose(|path| path.ends_with("/reports"));
    house.open_gate();
    await_lost_report(&proxy, &worker);
    worker.kill();
    assert_eq!(house.step(job_id, "work").status, "running");
    worker.start();
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.exit_code, Some(7), "{:?}", step.message);
    await_that("it keeps nothing", || (worker.spooled() == 0).then_some(()));
    assert_eq!(ledger::lives(&house)[&format!("{job_id}/work/1")], (1, 1));
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "step_failed 1/work/1 exit_code w1",
        "worker_restarted w1",
        "job_failed 1 exit_code",
    ]);
}

#[test]
fn a_worker_deleted_while_it_works_ends_what_it_ran_and_registers_anew() {
    let mut house = House::with_settings(LONG, PATIENT);
    let worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(3);
    let id = house.workers()[0].id;
    assert_eq!(house.delete_worker(id, false), 409, "it holds a step");
    assert_eq!(house.delete_worker(id, true), 200);
    let job = house.await_job(job_id, "failed");
    assert_eq!(
        job.steps.unwrap()[0].reason.as_deref(),
        Some("worker_deleted")
    );
    house.await_nobody_asleep();
    // Nobody told it to go: it comes back as a new worker.
    let back = house.await_worker("w1", "active");
    assert!(back.id > id);
    assert!(worker.process().is_alive());
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_deleted w1",
        "step_failed 1/work/1 worker_deleted w1",
        "job_failed 1 worker_deleted",
        "worker_registered w1",
    ]);
}

#[test]
fn a_second_worker_in_the_same_folder_is_refused() {
    let mut house = House::with("tasks: {}");
    let worker = house.worker(1);
    let second = Command::new(BINARY)
        .args(["worker", "--server", &house.url(), "--data-dir"])
        .arg(&worker.folder)
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("is used by another worker"), "{said}");
    house.ends(&["worker_registered w1"]);
}

#[test]
fn the_older_of_two_workers_from_copies_of_one_folder_is_sent_away() {
    let mut house = House::with_settings("tasks: {}", PATIENT);
    let first = house.worker(1);
    let copy = house.path("copy");
    std::fs::create_dir_all(&copy).unwrap();
    for file in ["instance", "installation"] {
        await_that("it has written down who it is", || {
            std::fs::copy(first.folder.join(file), copy.join(file)).ok()
        });
    }
    let mut command = Command::new(BINARY);
    command.args([
        "worker",
        "--server",
        &house.url(),
        "--name",
        "w2",
        "--data-dir",
    ]);
    command.arg(&copy);
    let second = Process::start("w2", command);
    await_that("the older one leaves", || {
        (!first.process().is_alive()).then_some(())
    });
    let said = first.process().said();
    assert!(said.contains("a folder of its own"), "{said}");
    assert!(second.is_alive());
    house.await_worker("w2", "active");
    // Until the newer one was heard, each may have come back in between.
    let mut story = house.story();
    story.dedup();
    let expected = [
        "worker_registered w2",
        "worker_restarted w2",
        "worker_duplicated w2",
    ];
    assert_eq!(story, expected);
    house.check();
}

#[test]
fn a_step_that_puts_a_pipe_in_the_place_of_its_log_silences_nobody_else() {
    let workflows = "
tasks:
  hostile:
    flow:
      work: { script: 'cd $STEPWARD_TMP/..; rm log; mkfifo log; echo gone' }
  honest:
    flow:
      work: { script: echo here }
";
    let mut house = House::with(workflows);
    let _worker = house.worker(1);
    let hostile = house.submit("hostile");
    house.await_job(hostile, "completed");
    let honest = house.submit("honest");
    house.await_job(honest, "completed");
    await_that("its log is there", || {
        (house.log_lines(honest, "work").first()? == "here").then_some(())
    });
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_completed 1",
        "job_submitted 2",
        "job_completed 2",
    ]);
}

#[test]
fn a_worker_goes_on_when_its_program_is_replaced() {
    let house = House::with("tasks:\n  quick:\n    flow:\n      work: { script: 'true' }\n");
    let program = house.path("stepward");
    // By another process: one that another test starts meanwhile must not hold it open for writing.
    let copied = Command::new("cp").arg(BINARY).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args([
        "worker",
        "--server",
        &house.url(),
        "--name",
        "old",
        "--data-dir",
    ]);
    command.arg(house.path("old"));
    let _worker = Process::start("old", command);
    house.await_worker("old", "active");
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, "what nobody can run\n").unwrap();
    let job_id = house.submit("quick");
    house.await_job(job_id, "completed");
    house.ends(&[
        "worker_registered old",
        "job_submitted 1",
        "job_completed 1",
    ]);
}
