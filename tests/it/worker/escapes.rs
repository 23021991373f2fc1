//! Steps that do everything to outlive their end, below real workers: one by itself, and one inside a server.

use super::house::{House, await_that, processes};

/// Sheds the mark in three ways of getting away, and kills the one that would find it all the same.
fn escape(number: u32) -> String {
    let sleep = format!("env -i /bin/sleep {number}");
    format!("{sleep} & setsid {sleep} & (setsid {sleep} &); sleep 0.2; kill -9 $PPID; exec {sleep}")
}

fn workflows(number: u32) -> String {
    format!(
        "tasks:
  escape:
    flow:
      work:
        script: |
          {}
  harmless:
    flow:
      work:
        script: |
          setsid sleep {} &
          echo up; while [ ! -e LEDGER ]; do sleep 0.05; done
",
        escape(number),
        number + 1
    )
}

fn nothing_escapes(house: &House, number: u32) {
    let harmless = house.submit("harmless");
    await_that("the other step runs", || {
        (!processes(&format!("sleep {}", number + 1)).is_empty()).then_some(())
    });
    for _ in 0..2 {
        let escape = house.submit("escape");
        let job = house.await_job(escape, "failed");
        let step = &job.steps.unwrap()[0];
        let sentence = "its supervisor was killed by signal 9 (SIGKILL), and the step with it";
        assert_eq!(step.reason.as_deref(), Some("signal"));
        assert_eq!(step.message.as_deref(), Some(sentence));
        assert_eq!(processes(&format!("sleep {number}")), Vec::<i32>::new());
        await_that("the log tells of all four", || {
            let lines = house.log_lines(escape, "work");
            let note =
                "its supervisor was killed by signal 9 (SIGKILL): 4 processes killed, none left";
            lines.iter().any(|line| line == note).then_some(())
        });
    }
    // Whatever else this worker runs is not touched.
    assert_eq!(processes(&format!("sleep {}", number + 1)).len(), 1);
    std::fs::write(house.path("ledger"), "").unwrap();
    house.await_job(harmless, "completed");
}

#[test]
fn a_step_that_sheds_its_mark_and_kills_its_supervisor_does_not_outlive_it() {
    let mut house = House::with(&workflows(871_000));
    let worker = house.worker(2);
    nothing_escapes(&house, 871_000);
    assert_eq!(zombies_of(worker.process().id()), 0);
    drop(worker);
    house.check();
}

#[test]
fn nor_does_it_below_the_worker_inside_a_server() {
    let settings = "embedded_worker: { slots: 2 }";
    let house = House::with_settings(&workflows(871_010), settings);
    nothing_escapes(&house, 871_010);
    assert_eq!(zombies_of(house.server().id()), 0);
    house.check();
}

#[test]
fn a_step_that_deletes_its_workers_folder_is_told_and_the_worker_goes_on() {
    let workflows = "tasks:
  delete: { flow: { work: { script: 'echo before; rm -rf \"$(cd ../../.. && pwd)\"; echo after' } } }
  harmless: { flow: { work: { script: 'echo ran' } } }
";
    let mut house = House::with(workflows);
    let worker = house.worker(1);
    let deleting = house.submit("delete");
    let job = house.await_job(deleting, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("output_invalid"));
    let message = step.message.as_deref().unwrap();
    let start = "the attempt's folder on the worker was deleted while the step ran";
    assert!(message.starts_with(start), "{message}");
    await_that("the log is whole", || {
        let lines = house.log_lines(deleting, "work");
        let printed: Vec<&str> = lines.iter().map(String::as_str).take(2).collect();
        (printed == ["before", "after"]).then_some(())
    });
    let harmless = house.submit("harmless");
    house.await_job(harmless, "completed");
    let said = worker.process().said();
    assert!(said.contains("was deleted while the worker ran"), "{said}");
    assert!(worker.folder.join("instance").is_file());
    drop(worker);
    house.check();
}

fn zombies_of(parent: u32) -> usize {
    let all = stepward::worker::processes::all().into_iter();
    let children = all.filter(|process| process.parent == parent as i32);
    children.filter(|process| process.ended).count()
}
