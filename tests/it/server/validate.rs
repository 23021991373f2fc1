//! Checking files for somebody: it costs others nothing, and it says what it costs.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::{Value, json};

use super::ServerHouse;
use super::line::PATIENCE;

/// Takes long enough that many of them are still waiting when the first is answered.
fn costly() -> Value {
    let mut text = "tasks:\n".to_string();
    for at in 0..600 {
        writeln!(text, "  t{at}: {{ flow: {{ a: {{ script: x }} }} }}").unwrap();
    }
    request(&text)
}

fn request(text: &str) -> Value {
    json!({ "files": [{ "path": "a.yaml", "text": text }] })
}

/// Sixteen handlers serve people. If checks took them, a request of somebody else would be answered only after all checks that came
/// before it have found a handler: after more than a hundred have been answered.
#[test]
fn checks_of_one_person_are_in_nobodys_way() {
    const CHECKS: usize = 150;
    let house = ServerHouse::new();
    let costly = costly().to_string();
    let (checked, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (sender, first) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..CHECKS {
            let (sender, house, costly) = (sender.clone(), &house, costly.as_bytes());
            let (checked, refused) = (&checked, &refused);
            scope.spawn(move || {
                let mut line = house.line();
                line.ask(
                    "POST",
                    "/api/validate",
                    "content-type: application/json\r\n",
                    costly,
                );
                let answer = line.answer();
                match answer.status {
                    200 => {
                        checked.fetch_add(1, Ordering::SeqCst);
                        // Only the first is waited for.
                        let _ = sender.send(());
                    }
                    503 => {
                        assert_eq!(answer.refused(503), "busy");
                        assert_eq!(answer.header("retry-after"), Some("1"));
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                    status => panic!("{status}: {}", answer.text()),
                }
            });
        }
        first.recv_timeout(PATIENCE).expect("one is checked");
        // The rest is queued or refused by now.
        house.get("/api/jobs").expect(200);
        let before = checked.load(Ordering::SeqCst);
        assert!(before < CHECKS / 3, "{before} were checked before");
    });
    let (checked, refused) = (checked.into_inner(), refused.into_inner());
    assert_eq!(checked + refused, CHECKS);
    assert!(refused > 0, "the queue of checks has an end");
}

#[test]
fn schedules_that_never_fire_cost_as_much_as_others() {
    let house = ServerHouse::new();
    let mut text =
        "tasks:\n  t:\n    timeout: 5m\n    flow: { a: { script: x } }\n    schedules:\n"
            .to_string();
    for at in 0..200 {
        writeln!(text, "      s{at}: {{ cron: \"0 0 30 2 *\" }}").unwrap();
    }
    let answer = house.post("/api/validate", &request(&text)).expect(200);
    assert_eq!(answer["errors"], 200);
    assert_eq!(answer["diagnostics"][0]["code"], "E022");
}

/// Each of these scripts takes as long as one script may: its loops would be read half a million times if nobody counted.
#[test]
fn a_check_that_takes_too_long_ends_and_says_so() {
    let mut text = "tasks:\n  t:\n    flow:\n".to_string();
    let begin = "{% for i in [1] %}".repeat(12);
    let end = "{% endfor %}".repeat(12);
    let body = "echo it is long enough; ".repeat(20);
    for at in 0..500 {
        writeln!(text, "      s{at}: {{ script: \"{begin}{body}{end}\" }}").unwrap();
    }
    let house = ServerHouse::new();
    let answer = house.post("/api/validate", &request(&text)).expect(200);
    assert_eq!(answer["valid"], false);
    assert_eq!(answer["diagnostics"][0]["code"], "E065");
}
