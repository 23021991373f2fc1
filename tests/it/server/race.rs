//! A step that is submitted while a poll is on its way into waiting: never is the wake-up lost.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ServerHouse, attempts, item};

/// In all, over houses that do not wake each other up by accident.
const ITERATIONS: usize = 10_000;
const HOUSES: usize = 4;

#[test]
fn no_wake_up_is_lost_between_the_question_and_the_waiting() {
    std::thread::scope(|scope| {
        for house in 0..HOUSES {
            scope.spawn(move || submit_into_polls(house));
        }
    });
}

fn submit_into_polls(seed: usize) {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 17);
    let (mut polls, mut others) = (house.line(), house.line());
    let mut held = Vec::new();
    for round in 0..ITERATIONS / HOUSES {
        let request = ann.poll_request(1, &held, super::PATIENCE).to_string();
        let spin = (round * 7 + seed * 3) % 40;
        let submit = "/api/tasks/hello/jobs";
        if round % 5 == 0 {
            others.ask("POST", submit, "", b"");
            polls.ask("POST", "/api/worker/poll", "", request.as_bytes());
        } else {
            polls.ask("POST", "/api/worker/poll", "", request.as_bytes());
            // At every moment between the arrival of the poll and its waiting.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(spin as u64 * 25) {
                std::hint::spin_loop();
            }
            others.ask("POST", submit, "", b"");
        }
        let begun = Instant::now();
        let answer = polls.answer().expect(200);
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(others.answer().status, 201);
        let given = attempts(&answer);
        assert_eq!(given.len(), 1, "round {round}");
        held.extend(given);
        if held.len() == 16 {
            let started = held
                .iter()
                .map(|attempt| item(attempt, "started", json!({})));
            let done = json!({ "finished": { "outcome": "completed" } });
            let finished = held
                .iter()
                .map(|attempt| item(attempt, "finished", done.clone()));
            let results = ann.report_all(started.chain(finished).collect());
            assert!(
                results.iter().all(|result| result == "accepted"),
                "{results:?}"
            );
            held.clear();
        }
    }
}
