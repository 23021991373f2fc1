//! The server stops in seconds, whoever is connected, and its next life goes on where it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::line::Line;
use super::{Listener, ServerHouse, item, word};

#[test]
fn everybody_is_told_to_come_back_and_the_next_life_goes_on() {
    let mut house = ServerHouse::new();
    house.submit("pair");
    let build = house.worker("ann", &[], 1).begin();
    let names: Vec<String> = (0..200).map(|n| format!("worker {n}")).collect();
    let mut polls: Vec<Line> = Vec::new();
    for name in &names {
        let worker = house.worker(name, &["gpu"], 1);
        polls.push(worker.begin_poll(0, &[], super::PATIENCE));
    }
    house.await_polls(200);
    let mut streams: Vec<Listener> = (0..20).map(|_| house.stream("", "")).collect();
    let address = house.server.address();
    let mut half = house.line();
    half.send(
        "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{",
    );

    let stopped = AtomicBool::new(false);
    let begun = Instant::now();
    let made: Vec<i64> = std::thread::scope(|scope| {
        // Requests all the time: each is answered, or told to come back, or its connection ends. None is a fault.
        let asking: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut made = Vec::new();
                    while !stopped.load(Ordering::Relaxed) {
                        let Ok(stream) = std::net::TcpStream::connect(address) else {
                            break;
                        };
                        drop(stream);
                        let mut line = Line::open(address);
                        line.send("POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
                        match line.try_answer() {
                            Some(answer) if answer.status == 201 => {
                                made.push(answer.json()["id"].as_i64().unwrap());
                            }
                            Some(answer) => {
                                assert_eq!(answer.refused(503), "stopping");
                            }
                            None => {}
                        }
                    }
                    made
                })
            })
            .collect();
        half.send("}");
        house.server.stop();
        stopped.store(true, Ordering::Relaxed);
        asking
            .into_iter()
            .flat_map(|asks| asks.join().unwrap_or_default())
            .collect()
    });
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    for poll in &mut polls {
        let answer = poll.answer();
        assert_eq!(answer.refused(503), "stopping");
        assert!(answer.header("retry-after").is_some());
    }
    for stream in &mut streams {
        while stream.frame().is_some() {}
    }
    assert!(std::net::TcpStream::connect(address).is_err());
    if let Some(answer) = half.try_answer() {
        assert_eq!(answer.status, 201);
    }

    house.restart();
    // What was answered is there, and what ran goes on: the worker never noticed more than a pause.
    for job_id in made {
        assert_eq!(word(&house.job(job_id)["task"]), "hello");
    }
    let finished = json!({ "finished": { "outcome": "completed" } });
    let done = item(&build, "finished", finished);
    let request = json!({ "session": "ann 1", "items": [done] });
    let answer = house.post("/api/worker/reports", &request).expect(200);
    assert_eq!(answer["results"][0]["result"], "accepted");
    let steps = house.job(1)["steps"].clone();
    assert_eq!(
        (word(&steps[0]["status"]), word(&steps[1]["status"])),
        ("completed".into(), "ready".into())
    );
}

#[test]
fn a_listener_who_does_not_read_keeps_nobody() {
    let mut house = ServerHouse::new();
    for _ in 0..300 {
        house.submit("hello");
    }
    let lazy: Vec<Listener> = (0..5).map(|_| house.stream("?after=0.0", "")).collect();
    let begun = Instant::now();
    house.server.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    drop(lazy);
}

#[test]
fn stopping_gives_back_what_the_server_had() {
    let data = |house: &ServerHouse| {
        let folder = house.path().to_path_buf();
        move || {
            let links = std::fs::read_dir("/proc/self/fd").unwrap();
            let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            links.filter(|link| link.starts_with(&folder)).count()
        }
    };
    let mut house = ServerHouse::new();
    let open_files = data(&house);
    house.submit("hello");
    assert!(open_files() > 0);
    house.server.stop();
    assert_eq!(open_files(), 0);
    for _ in 0..3 {
        house.restart();
        assert_eq!(house.status(1), "pending");
    }
    // Twice is once.
    house.server.stop();
    house.server.stop();
    assert_eq!(open_files(), 0);
}
