//! Threads and descriptors: whoever came and went, in whatever way, leaves none behind.

use std::process::Command;

use serde_json::json;

use super::line::Line;
use super::{Listener, ServerHouse, until};

/// Counting them takes a process without other tests.
#[test]
fn whoever_comes_and_goes_leaves_nothing_behind() {
    let test = "server::leaks::in_a_process_of_its_own";
    let run = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn threads_and_descriptors() -> (usize, usize) {
    (count("/proc/self/task"), count("/proc/self/fd"))
}

#[test]
#[ignore = "run by the test above"]
fn in_a_process_of_its_own() {
    let empty = threads_and_descriptors();
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    // What is kept open once it was needed: readers of the database, an open log.
    visit(&house, 70);
    let before = threads_and_descriptors();
    visit(&house, 100);
    // A reader of the database that was not needed before has a few files of its own; whoever left had hundreds.
    const READERS: usize = 12;
    until("all is as before", || {
        let (threads, descriptors) = threads_and_descriptors();
        threads <= before.0 && descriptors <= before.1 + READERS
    });
    assert_eq!(house.server.long_polls(), 0);
    drop(ann);
    drop(house);
    until("nothing is left of it", || {
        threads_and_descriptors() <= empty
    });
}

/// Comes in all ways that there are, many at once, and goes.
fn visit(house: &ServerHouse, count: usize) {
    let threads = self::count("/proc/self/task");
    let names: Vec<String> = (0..count).map(|n| format!("worker {n}")).collect();
    let workers: Vec<_> = names
        .iter()
        .map(|name| house.worker(name, &["gpu"], 1))
        .collect();
    let polls: Vec<Line> = (workers.iter())
        .map(|worker| worker.begin_poll(0, &[], super::PATIENCE))
        .collect();
    house.await_polls(count);
    let streams: Vec<Listener> = (0..count).map(|_| house.stream("", "")).collect();
    let mut half: Vec<Line> = (0..count).map(|_| house.line()).collect();
    for (n, line) in half.iter_mut().enumerate() {
        line.send(match n % 3 {
            0 => "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
            1 => "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000000\r\n\r\n{",
            _ => "GET /api/",
        });
    }
    assert!(
        self::count("/proc/self/task") <= threads + 2,
        "a connection costs no thread"
    );
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| house.get("/api/jobs").expect(200));
        }
    });
    drop((polls, streams, half));
    until("they are gone", || {
        // A stream is missed when there is something to tell.
        house.post("/api/tasks/hello/jobs", &json!({})).expect(201);
        house.server.long_polls() == 0 && house.server.event_streams() == 0
    });
}
