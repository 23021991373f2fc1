//! Everything that a worker can say, said wrongly, late, twice, in another's name and out of order, to a real server: it always
//! has an answer, never one that says that it met a bug, and every rule of the database holds afterwards.

use serde_json::{Value, json};

use super::dice::Dice;
use super::line::{Answer, Line};
use super::mutate;
use super::site::Site;
use super::watch::Tried;

const CALLS: u64 = 120;

struct Crew<'a> {
    line: Line,
    site: &'a Site,
    tried: &'a Tried,
    /// Sessions that were opened, those of former lives too: (name, session).
    sessions: Vec<(String, String)>,
    /// Attempts that somebody was given.
    attempts: Vec<Value>,
    jobs: i64,
    lives: u32,
}

pub fn play(dice: &mut Dice, tried: &Tried) {
    let site = Site::new();
    let mut crew = Crew {
        line: Line::open(site.server.address()),
        site: &site,
        tried,
        sessions: Vec::new(),
        attempts: Vec::new(),
        jobs: 0,
        lives: 0,
    };
    for _ in 0..CALLS {
        crew.call(dice);
    }
    let breaches = site.breaches();
    assert!(breaches.is_empty(), "{breaches:?}");
}

impl Crew<'_> {
    fn call(&mut self, dice: &mut Dice) {
        let session = dice.pick(&self.sessions).cloned();
        let session = session.unwrap_or(("nobody".to_string(), "none".to_string()));
        let attempt = dice.pick(&self.attempts).cloned();
        let attempt = attempt
            .unwrap_or(json!({ "step_id": dice.between(0, 9), "attempt": dice.between(0, 3) }));
        let held: Vec<Value> = (0..dice.roll(3))
            .filter_map(|_| dice.pick(&self.attempts).cloned())
            .collect();
        match dice.roll(24) {
            0..4 => self.people(dice),
            4 | 5 => self.open(dice),
            6..12 => {
                let poll = json!({ "session": session.1, "free_slots": dice.roll(4), "held": held, "wait_ms": 0 });
                let answer = self.say(dice, "POST", "/api/worker/poll", poll);
                self.note(&answer);
            }
            12..17 => self.report(dice, &session.1, attempt, held),
            17..19 => {
                let phase = ["preparing", "running"][dice.roll(2) as usize];
                let held: Vec<Value> = held
                    .into_iter()
                    .map(|held| with(held, "phase", json!(phase)))
                    .collect();
                let beat =
                    json!({ "session": session.1, "seq": dice.between(-1, 40), "held": held });
                self.say(dice, "POST", "/api/worker/heartbeat", beat);
            }
            19 if dice.chance(30) => {
                self.say(
                    dice,
                    "POST",
                    "/api/worker/drain",
                    json!({ "session": session.1 }),
                );
            }
            _ => self.log(dice, &session.1, &attempt),
        }
    }

    fn open(&mut self, dice: &mut Dice) {
        let name = ["ann", "bob", "cat"][dice.roll(3) as usize];
        self.lives += 1;
        let session = format!("{name} {}", self.lives);
        let spooled: Vec<Value> = (0..dice.roll(3))
            .filter_map(|_| {
                let attempt = dice.pick(&self.attempts)?.clone();
                let (_, session) = dice.pick(&self.sessions)?.clone();
                let attempt = with(attempt, "session", json!(session));
                Some(with(attempt, "finished", finished(dice)))
            })
            .collect();
        let request = json!({
            "name": name, "instance": format!("instance of {name}"), "session": session, "tags": ["script"],
            "slots": dice.between(1, 4), "version": "0.1.0", "platform": "linux", "spooled": spooled,
        });
        if self
            .say(dice, "POST", "/api/worker/sessions", request)
            .status
            == 200
        {
            self.sessions.push((name.to_string(), session));
        }
    }

    fn report(&mut self, dice: &mut Dice, session: &str, attempt: Value, held: Vec<Value>) {
        let news = [
            "started",
            "started",
            "finished",
            "finished",
            "declined",
            "keepalive",
        ][dice.roll(6) as usize];
        let mut items = vec![with(attempt, "news", json!(news))];
        match news {
            "finished" => items[0]["finished"] = finished(dice),
            "declined" => items[0]["why"] = json!(mutate::noise(dice, 20)),
            _ => {}
        }
        if let Some(other) = dice
            .pick(&self.attempts)
            .cloned()
            .filter(|_| dice.chance(30))
        {
            items.push(with(other, "news", json!("started")));
        }
        let mut request = json!({ "session": session, "items": items });
        if dice.chance(30) {
            request["poll"] = json!({ "free_slots": dice.roll(3), "held": held });
        }
        let answer = self.say(dice, "POST", "/api/worker/reports", request);
        self.note(&answer);
    }

    fn log(&mut self, dice: &mut Dice, session: &str, attempt: &Value) {
        let number = |value: &Value| value.as_i64().unwrap_or(1);
        let (step, attempt) = (number(&attempt["step_id"]), number(&attempt["attempt"]));
        let offset = match dice.roll(4) {
            0 => mutate::noise(dice, 5).replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
            1 => u64::MAX.to_string(),
            _ => dice.roll(3).to_string(),
        };
        let path = format!(
            "/api/worker/steps/{step}/attempts/{attempt}/log?offset={offset}&session={}",
            session.replace(' ', "+")
        );
        let body = mutate::bytes(dice, 200);
        self.send("PUT", &path, &body);
    }

    fn people(&mut self, dice: &mut Dice) {
        let job = dice.between(1, self.jobs.max(1));
        let (path, body) = match dice.roll(8) {
            0 => (format!("/api/jobs/{job}/cancel"), json!({})),
            1 => (format!("/api/jobs/{job}/retry"), json!({})),
            2 => (
                format!("/api/jobs/{job}/steps/sure/approve"),
                json!({ "input": { "why": "x" } }),
            ),
            _ => {
                let task = ["hello", "pair", "wide", "ask", "outer"][dice.roll(5) as usize];
                self.jobs += 1;
                (format!("/api/tasks/{task}/jobs"), json!({ "input": {} }))
            }
        };
        self.say(dice, "POST", &path, body);
    }

    /// As it should be more often than not.
    fn say(&mut self, dice: &mut Dice, method: &str, path: &str, mut body: Value) -> Answer {
        if dice.chance(25) {
            for _ in 0..dice.roll(3) + 1 {
                mutate::json(dice, &mut body);
            }
            // A poll may wait; nobody here does.
            if body["wait_ms"].as_u64().is_some_and(|ms| ms > 0) {
                body["wait_ms"] = json!(0);
            }
        }
        let bytes = match dice.chance(90) {
            true => body.to_string().into_bytes(),
            false => mutate::written(dice, &body),
        };
        self.send(method, path, &bytes)
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.tried.also(&format!(
            "{method} {path} {}",
            String::from_utf8_lossy(body)
        ));
        self.line
            .ask(method, path, "content-type: application/json\r\n", body);
        let answer = self.line.try_answer().unwrap_or_else(|| {
            panic!("no answer");
        });
        assert!(answer.status < 500, "{} {}", answer.status, answer.text());
        if answer.status >= 400 {
            answer.refused(answer.status);
        }
        if answer.header("connection") == Some("close") {
            self.line = Line::open(self.site.server.address());
        }
        answer
    }

    fn note(&mut self, answer: &Answer) {
        if answer.status != 200 {
            return;
        }
        let answer = answer.json();
        let answer = if answer["poll"].is_object() {
            &answer["poll"]
        } else {
            &answer
        };
        for given in answer["assignments"].as_array().into_iter().flatten() {
            self.attempts
                .push(json!({ "step_id": given["step_id"], "attempt": given["attempt"] }));
        }
    }
}

fn finished(dice: &mut Dice) -> Value {
    match dice.roll(4) {
        0 => json!({ "outcome": "completed", "exit_code": 0 }),
        1 => {
            json!({ "outcome": "completed", "output": { "go": dice.chance(50), "more": mutate::value(dice, 2) } })
        }
        2 => {
            json!({ "outcome": "failed", "reason": "exit_code", "exit_code": dice.between(-1, 300) })
        }
        _ => json!({ "outcome": "failed", "reason": "signal", "message": mutate::noise(dice, 30) }),
    }
}

fn with(mut value: Value, key: &str, more: Value) -> Value {
    value[key] = more;
    value
}
