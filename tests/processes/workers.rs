//! Workers that die, hang, come back, or are sent away.

use rustix::process::Signal;

use crate::house::{House, await_that, processes};
use crate::ledger::{self, BEGIN, END};

/// A step that runs until somebody ends it, findable by its number, with two more that try to get away.
fn long_step(number: u32) -> String {
    format!(
        "tasks:
  long:
    flow:
      work: {{ script: 'setsid sleep {number} & (sleep {number} &) ; sleep {number}' }}
      after: {{ script: 'true', depends_on: [work] }}
"
    )
}

#[test]
fn a_worker_killed_in_the_middle_of_a_step_leaves_no_process_and_its_step_fails() {
    let mut house = House::with(&long_step(870_001));
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    await_that("three sleeps", || {
        (processes("sleep 870001").len() >= 3).then_some(())
    });
    worker.kill();
    await_that("no process is left", || {
        processes("sleep 870001").is_empty().then_some(())
    });
    let job = house.await_job(job_id, "failed");
    let steps = job.steps.unwrap();
    assert_eq!(steps[0].reason.as_deref(), Some("worker_lost"));
    let message = steps[0].message.as_deref().unwrap();
    assert!(message.contains("w1"), "{message}");
    assert_eq!(steps[1].status, "skipped");
    assert_eq!(
        house.kinds(job_id),
        ["job_submitted", "step_failed", "job_failed"]
    );
    let failed = &house.events(job_id)[1];
    assert_eq!(failed.phase, Some(1));
    assert!(
        failed.message.starts_with("[recovery]"),
        "{}",
        failed.message
    );
    let inactive = house.all_events();
    let inactive = inactive
        .iter()
        .find(|event| event.kind == "worker_inactive");
    assert!(inactive.is_some_and(|event| event.worker.as_deref() == Some("w1")));

    // Its next life tells what the supervisor had seen of the end.
    worker.start();
    house.await_worker("w1", "active");
    await_that("the log tells of the end", || {
        let lines = house.log_lines(job_id, "work");
        let told = lines
            .iter()
            .any(|line| line.contains("none") && line.contains("left"));
        told.then_some(())
    });
    house.check();
}

#[test]
fn a_worker_that_restarts_at_once_gives_up_what_it_ran_within_two_seconds() {
    let settings = "recovery: { heartbeat_interval_secs: 30, heartbeat_timeout_secs: 120 }";
    let mut house = House::with_settings(&long_step(870_002), settings);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_step(job_id, "work", "running");
    worker.kill();
    worker.start();
    // Not by the timeout, which is minutes away: by the new session.
    let step = house.await_step(job_id, "work", "failed");
    assert_eq!(step.reason.as_deref(), Some("worker_restarted"));
    house.await_job(job_id, "failed");
    let restarted = house.all_events();
    let restarted = restarted
        .iter()
        .find(|event| event.kind == "worker_restarted");
    assert!(restarted.is_some());
    await_that("no process is left", || {
        processes("sleep 870002").is_empty().then_some(())
    });
    house.check();
}

#[test]
fn what_was_assigned_to_a_worker_that_restarted_runs_again() {
    // Preparation takes for ever: docker answers everything but questions about images.
    let mut house = House::with(
        "tasks:
  boxed:
    flow:
      work: { type: docker, image: busybox }
",
    );
    let docker = house.path("docker");
    let script = "#!/bin/sh\ncase $1 in image) exec sleep 870003 ;; esac\n";
    std::fs::write(&docker, script).unwrap();
    make_executable(&docker);
    let settings = format!(
        "tags: [docker]\ndocker: {{ command: {} }}",
        docker.display()
    );
    let mut worker = house.worker_with(1, &house.url(), &settings);
    let job_id = house.submit("boxed");
    let step = house.await_step(job_id, "work", "assigned");
    assert_eq!(step.attempt, 1);
    await_that("docker is asked", || {
        (!processes("sleep 870003").is_empty()).then_some(())
    });
    worker.kill();
    // This life finds an image at once, and runs what it is told.
    std::fs::write(&docker, "#!/bin/sh\necho \"$@\"\n").unwrap();
    worker.start();
    let job = house.await_job(job_id, "completed");
    let steps = job.steps.unwrap();
    assert_eq!(steps[0].attempt, 2);
    assert_eq!(steps[0].attempts[0].outcome, "returned");
    assert!(house.kinds(job_id).contains(&"step_requeued".to_string()));
    await_that("no process is left", || {
        processes("sleep 870003").is_empty().then_some(())
    });
    house.check();
}

fn make_executable(file: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_worker_that_was_stopped_and_goes_on_cannot_overwrite_its_successor() {
    let mut house = House::with(
        &format!(
            "tasks:
  twice:
    flow:
      work:
        on_worker_loss: retry
        script: |
          {BEGIN}
          while [ $STEPWARD_ATTEMPT = 1 ] && [ ! -e GATE ]; do sleep 0.05; done
          echo by=$STEPWARD_ATTEMPT >> $STEPWARD_OUTPUT
          {END}
"
        )
        .replace("GATE", "LEDGER.gate"),
    );
    let first = house.worker(1);
    let job_id = house.submit("twice");
    await_that("it has begun", || {
        (!house.read("ledger").is_empty()).then_some(())
    });
    first.signal(Signal::STOP);
    house.await_worker("w1", "inactive");
    let second = house.worker(1);
    let job = house.await_job(job_id, "completed");
    assert_eq!(job.steps.unwrap()[0].attempt, 2);
    // What the first ran ends while its worker is stopped: its report will be late.
    std::fs::write(house.path("ledger.gate"), "").unwrap();
    await_that("the first attempt ends", || {
        let lives = ledger::lives(&house);
        let first = lives.get(&format!("{job_id}/work/1")).copied();
        (first == Some((1, 1))).then_some(())
    });
    first.signal(Signal::CONT);
    house.await_worker("w1", "active");
    await_that("it has told, and kept nothing", || {
        (first.spooled() == 0).then_some(())
    });
    let step = house.step(job_id, "work");
    assert_eq!((step.status.as_str(), step.attempt), ("completed", 2));
    let output = serde_json::to_string(&step.output).unwrap();
    assert!(output.contains('2'), "{output}");
    drop(second);
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
        script: 'test $STEPWARD_ATTEMPT = 2 || exec sleep 870004'
";
    let mut house = House::with(workflows);
    let first = house.worker(1);
    let job_id = house.submit("twice");
    await_that("it sleeps", || {
        (!processes("sleep 870004").is_empty()).then_some(())
    });
    first.signal(Signal::STOP);
    house.await_worker("w1", "inactive");
    let _second = house.worker(1);
    house.await_job(job_id, "completed");
    assert!(!processes("sleep 870004").is_empty(), "nobody could end it");
    first.signal(Signal::CONT);
    await_that("it is killed", || {
        processes("sleep 870004").is_empty().then_some(())
    });
    house.await_worker("w1", "active");
    house.check();
}

#[test]
fn a_result_that_a_killed_worker_had_not_reported_is_delivered_by_its_next_life() {
    let workflows = format!(
        "tasks:
  once:
    flow:
      work: {{ script: '{BEGIN}; while [ ! -e LEDGER.gate ]; do sleep 0.05; done; {END}; exit 7' }}
"
    );
    let mut house = House::with(&workflows);
    let mut worker = house.worker(1);
    let job_id = house.submit("once");
    house.await_step(job_id, "work", "running");
    // The server hears nothing while the step ends.
    house.server().signal(Signal::STOP);
    std::fs::write(house.path("ledger.gate"), "").unwrap();
    await_that("the result is on disk", || {
        (worker.spooled() > 0).then_some(())
    });
    worker.kill();
    house.server().signal(Signal::CONT);
    worker.start();
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(
        step.reason.as_deref(),
        Some("exit_code"),
        "{:?}",
        step.message
    );
    assert_eq!(step.exit_code, Some(7));
    await_that("it keeps nothing", || (worker.spooled() == 0).then_some(()));
    assert_eq!(ledger::lives(&house)[&format!("{job_id}/work/1")], (1, 1));
    house.check();
}

#[test]
fn a_worker_deleted_while_it_works_ends_what_it_ran_and_registers_anew() {
    let mut house = House::with(&long_step(870_005));
    let worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_step(job_id, "work", "running");
    let id = house.workers()[0].id;
    let refused = delete(&house, &format!("/api/workers/{id}"));
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    let deleted = delete(&house, &format!("/api/workers/{id}?force=true"));
    assert!(deleted.starts_with("HTTP/1.1 200"), "{deleted}");
    let job = house.await_job(job_id, "failed");
    assert_eq!(
        job.steps.unwrap()[0].reason.as_deref(),
        Some("worker_deleted")
    );
    await_that("no process is left", || {
        processes("sleep 870005").is_empty().then_some(())
    });
    // Nobody told it to go: it comes back as a new worker.
    let back = house.await_worker("w1", "active");
    assert!(back.id > id);
    assert!(worker.process().is_alive());
    house.check();
}

fn delete(house: &House, path: &str) -> String {
    use std::io::{Read, Write};
    let address = house.url();
    let address = address.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!("DELETE {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_second_worker_in_the_same_folder_is_refused() {
    let mut house = House::with("tasks: {}");
    let worker = house.worker(1);
    let second = std::process::Command::new(crate::house::BINARY)
        .args(["worker", "--server", &house.url(), "--data-dir"])
        .arg(&worker.folder)
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("is used by another worker"), "{said}");
    house.check();
}

#[test]
fn the_older_of_two_workers_from_copies_of_one_folder_is_sent_away() {
    let mut house = House::with("tasks: {}");
    let first = house.worker(1);
    let copy = house.path("copy");
    std::fs::create_dir_all(&copy).unwrap();
    for file in ["instance", "installation"] {
        await_that("it has written down who it is", || {
            std::fs::copy(first.folder.join(file), copy.join(file)).ok()
        });
    }
    let mut command = std::process::Command::new(crate::house::BINARY);
    command.args([
        "worker",
        "--server",
        &house.url(),
        "--name",
        "w2",
        "--data-dir",
    ]);
    command.arg(&copy);
    let second = crate::house::Process::start("w2", command);
    await_that("the older one leaves", || {
        (!first.process().is_alive()).then_some(())
    });
    let said = first.process().said();
    assert!(said.contains("a folder of its own"), "{said}");
    assert!(second.is_alive());
    let events = house.all_events();
    assert!(events.iter().any(|event| event.kind == "worker_duplicated"));
    house.await_worker("w2", "active");
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
    house.check();
}

#[test]
fn a_worker_goes_on_when_its_program_is_replaced() {
    let house = House::with("tasks:\n  quick:\n    flow:\n      work: { script: 'true' }\n");
    let program = house.path("stepward");
    std::fs::copy(crate::house::BINARY, &program).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args([
        "worker",
        "--server",
        &house.url(),
        "--name",
        "old",
        "--data-dir",
    ]);
    command.arg(house.path("old"));
    let _worker = crate::house::Process::start("old", command);
    house.await_worker("old", "active");
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, "#!/bin/false\n").unwrap();
    make_executable(&program);
    let job_id = house.submit("quick");
    house.await_job(job_id, "completed");
    house.check();
}
