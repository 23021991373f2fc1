//! Many workers, much output.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::house::{House, await_that, words};
use crate::ledger::AWAIT_GATE;

fn post(stream: &mut TcpStream, path: &str, body: &str) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
}

/// Whatever has come by now; empty if nothing has.
fn heard(stream: &mut TcpStream) -> String {
    let mut text = vec![0; 64 << 10];
    let read = stream.read(&mut text).unwrap_or(0);
    String::from_utf8_lossy(&text[..read]).into_owned()
}

#[test]
fn a_thousand_polling_workers_cost_little_and_one_step_goes_to_one_of_them() {
    const WORKERS: usize = 1_000;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let settings = "recovery: { heartbeat_interval_secs: 30, heartbeat_timeout_secs: 120 }";
    let workflows = "tasks:\n  quick:\n    flow:\n      work: { script: 'true' }\n";
    let house = House::with_settings(workflows, settings);
    let address = house.url();
    let address = address.strip_prefix("http://").unwrap();
    let idle_kb = house.server().status("VmRSS");
    let mut polls = Vec::new();
    for number in 0..WORKERS {
        let mut stream = TcpStream::connect(address).unwrap();
        let session = format!(
            r#"{{"name":"n{number}","instance":"i{number}","session":"s{number}","tags":["script"],"slots":1,
                "version":"1","platform":"test","spooled":[]}}"#
        );
        post(&mut stream, "/api/worker/sessions", &session);
        assert!(heard(&mut stream).starts_with("HTTP/1.1 200"));
        let poll = format!(r#"{{"session":"s{number}","free_slots":1,"held":[],"wait_ms":50000}}"#);
        post(&mut stream, "/api/worker/poll", &poll);
        stream.set_nonblocking(true).unwrap();
        polls.push(stream);
    }
    let threads = house.server().status("Threads");
    assert!(threads < 110, "{threads} threads");
    let first = house.submit("quick");
    let (winner, answer) = await_that("one of them is answered", || {
        let answers = polls.iter_mut().enumerate();
        let mut answers = answers.map(|(number, poll)| (number, heard(poll)));
        answers.find(|(_, answer)| !answer.is_empty())
    });
    assert!(answer.contains(r#""step":"work""#), "{answer}");
    let step = house.step(first, "work");
    assert_eq!(step.status, "assigned");
    assert_eq!(step.worker, Some(format!("n{winner}")));
    let second = house.submit("quick");
    let (other, _) = await_that("another one is answered", || {
        let answers = polls.iter_mut().enumerate();
        let mut answers = answers.map(|(number, poll)| (number, heard(poll)));
        answers.find(|(_, answer)| !answer.is_empty())
    });
    assert_ne!(winner, other);
    assert_eq!(house.step(second, "work").worker, Some(format!("n{other}")));
    let mut others = polls.iter_mut().map(heard);
    assert!(
        others.all(|answer| answer.is_empty()),
        "nobody else was woken"
    );
    let held_kb = house.server().status("VmRSS");
    assert!(
        held_kb < 100_000,
        "{held_kb} kB, of which {idle_kb} kB idle"
    );
    // All of them leave: their places are free, and the server has no more descriptors than before.
    drop(polls);
    let pid = house.server().id();
    await_that("the connections are closed", || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .count();
        (open < 60).then_some(())
    });
    let registered = (0..WORKERS).map(|number| format!("worker_registered n{number}"));
    let submitted = [first, second].map(|job_id| format!("job_submitted {job_id}"));
    let expected: Vec<String> = registered.chain(submitted).collect();
    house.ends(&words(&expected));
}

#[test]
fn a_step_that_prints_without_end_costs_neither_memory_nor_its_success() {
    let workflows = "
tasks:
  loud:
    flow:
      lines: { script: 'yes 0123456789012345678901234567890123456789 | head -c 300000000; echo over' }
      line: { script: 'head -c 100000000 /dev/zero | tr \"\\0\" x; echo; echo over' }
";
    let mut house = House::with(workflows);
    let worker = house.worker(2);
    let job_id = house.submit("loud");
    house.await_job(job_id, "completed");
    for process in [house.server(), worker.process()] {
        let peak_kb = process.status("VmHWM");
        assert!(peak_kb < 120_000, "{peak_kb} kB");
    }
    let lines = await_that("the end of the log is there", || {
        let log = house.log(job_id, "lines");
        let marker = |line: &stepward::wire::api::LogLineJson| line.stream == "worker";
        log.lines.iter().any(marker).then_some(log)
    });
    assert!(lines.total_lines > 100_000);
    let line = await_that("the end of the other log is there", || {
        let log = house.log(job_id, "line");
        let over = log.lines.iter().any(|line| line.text == "over");
        over.then_some(log)
    });
    assert!(line.lines[0].text.len() < 2 << 20);
    assert!(line.lines[0].text.contains("bytes"), "the cut is visible");
    house.ends(&["worker_registered w1", "job_submitted 1", "job_completed 1"]);
}

#[test]
fn what_a_step_prints_is_there_while_it_runs() {
    let workflows = "
tasks:
  slow:
    flow:
      work: { script: 'echo first; printf half; AWAIT_GATE; echo line' }
";
    let mut house = House::with(&workflows.replace("AWAIT_GATE", AWAIT_GATE));
    let _worker = house.worker(1);
    let job_id = house.submit("slow");
    house.await_step(job_id, "work", "running");
    await_that("both are visible while it runs", || {
        let lines = house.log_lines(job_id, "work");
        (lines == ["first", "half"]).then_some(())
    });
    house.open_gate();
    house.await_job(job_id, "completed");
    let lines = house.log_lines(job_id, "work");
    assert_eq!(lines[..2], ["first", "halfline"]);
    house.ends(&["worker_registered w1", "job_submitted 1", "job_completed 1"]);
}
