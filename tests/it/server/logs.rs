//! Logs over HTTP: sent by offset, read by line, and never in another's name.

use std::time::Duration;

use serde_json::{Value, json};
use stepward::server::Limits;

use super::{Answer, HttpWorker, ServerHouse, until, word};

/// Sends bytes of an attempt's log.
fn send(worker: &HttpWorker, attempt: &Value, offset: u64, bytes: &[u8]) -> Answer {
    let (step_id, number) = (&attempt["step_id"], &attempt["attempt"]);
    let session = worker.session.replace(' ', "%20");
    let path = format!(
        "/api/worker/steps/{step_id}/attempts/{number}/log?session={session}&offset={offset}"
    );
    let headers = "content-type: application/octet-stream\r\n";
    worker.house.ask("PUT", &path, headers, bytes)
}

/// Lines as a worker writes them: `1763312345678 o line 7`.
fn lines(numbers: std::ops::RangeInclusive<u64>) -> Vec<u8> {
    let line = |n: u64| format!("{} o line {n}\n", 1_763_312_345_678 + n).into_bytes();
    numbers.flat_map(line).collect()
}

fn texts(logs: &Value) -> Vec<String> {
    let lines = logs["lines"].as_array().unwrap().iter();
    lines.map(|line| word(&line["text"])).collect()
}

const GREET: &str = "/api/jobs/1/steps/greet/logs";

#[test]
fn a_log_is_sent_by_offset_and_sending_it_again_is_harmless() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    let all = lines(1..=10);
    let length = all.len() as u64;
    let (head, tail) = all.split_at(100);
    let told = |length: u64| json!({ "length": length, "abort": false, "full": false });

    assert_eq!(
        send(&ann, &greet, 7, tail).expect(200),
        told(0),
        "a gap: begin at 0"
    );
    assert_eq!(send(&ann, &greet, 0, head).expect(200), told(100));
    assert_eq!(send(&ann, &greet, 0, head).expect(200), told(100), "again");
    assert_eq!(
        send(&ann, &greet, 500, tail).expect(200),
        told(100),
        "a gap"
    );
    assert_eq!(
        send(&ann, &greet, 60, &all[60..]).expect(200),
        told(length),
        "an overlap"
    );
    assert_eq!(
        send(&ann, &greet, 0, b"1 o another text\n").refused(409),
        "log_differs"
    );
    assert_eq!(house.get(GREET).expect(200)["total_lines"], 10);

    assert_eq!(ann.complete(&greet), "accepted");
    let late = send(&ann, &greet, length, &lines(11..=11)).expect(200);
    assert_eq!(
        late["abort"], true,
        "it is over, and what was printed is kept"
    );
    assert_eq!(house.get(GREET).expect(200)["total_lines"], 11);
}

#[test]
fn nobody_writes_into_the_log_of_another() {
    let house = ServerHouse::new();
    house.submit("hello");
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    let greet = ann.begin();
    assert_eq!(send(&bob, &greet, 0, b"1 o forged\n").refused(410), "abort");
    let next = json!({ "step_id": greet["step_id"], "attempt": 2 });
    assert_eq!(send(&ann, &next, 0, b"x").refused(410), "abort");
    let nobody = json!({ "step_id": 77, "attempt": 1 });
    assert_eq!(send(&ann, &nobody, 0, b"x").refused(410), "abort");
    let path = |step: &str, attempt: &str, rest: &str| {
        let path = format!("/api/worker/steps/{step}/attempts/{attempt}/log{rest}");
        house.ask("PUT", &path, "", b"x")
    };
    assert_eq!(
        path("1", "1", "?session=nobody&offset=0").refused(410),
        "session_unknown"
    );
    for (step, attempt) in [
        ("..", "1"),
        ("1", ".."),
        ("1", "4294967296"),
        ("-1", "1"),
        ("x", "1"),
    ] {
        let answer = path(step, attempt, "?session=ann%201&offset=0");
        assert_eq!(answer.refused(404), "not_found", "{step} {attempt}");
    }
    for rest in [
        "",
        "?session=ann%201",
        "?offset=0",
        "?session=ann%201&offset=-1",
        "?session=ann%201&offset=99999999999999999999",
    ] {
        assert_eq!(path("1", "1", rest).refused(422), "invalid", "{rest}");
    }
    let far = path("1", "1", "?session=ann%201&offset=9223372036854775808").expect(200);
    assert_eq!(far["length"], 0, "a gap");
    assert_eq!(house.get(GREET).expect(200)["lines"], json!([]));
}

#[test]
fn a_session_that_was_replaced_still_delivers_the_end_of_its_log() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    send(&ann, &greet, 0, &lines(1..=1)).expect(200);
    house.life("ann", 2, &[], 1);
    let offset = lines(1..=1).len() as u64;
    let late = send(&ann, &greet, offset, &lines(2..=2)).expect(200);
    assert_eq!(late["abort"], true);
    assert_eq!(texts(&house.get(GREET).expect(200)), ["line 1", "line 2"]);
}

#[test]
fn a_log_is_read_by_its_end_by_range_and_by_what_is_in_it() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    send(&ann, &greet, 0, &lines(1..=2_000)).expect(200);
    let get = |query: &str| house.get(&format!("{GREET}?{query}"));

    let tail = get("tail=2").expect(200);
    assert_eq!(texts(&tail), ["line 1999", "line 2000"]);
    assert_eq!(
        (&tail["total_lines"], &tail["attempt"]),
        (&json!(2_000), &json!(1))
    );
    assert_eq!(
        tail["lines"][1],
        json!({ "n": 2_000, "at": "2025-11-16T16:59:07.678Z", "stream": "stdout", "text": "line 2000" })
    );
    assert_eq!(texts(&get("").expect(200)).len(), 400);
    assert_eq!(
        texts(&get("from=1000&n=2").expect(200)),
        ["line 1000", "line 1001"]
    );
    assert_eq!(texts(&get("from=5000").expect(200)), [] as [&str; 0]);
    assert_eq!(texts(&get("tail=999999999").expect(200)).len(), 1_000);

    let found = get("grep=line%201&n=3").expect(200);
    assert_eq!(texts(&found), ["line 1", "line 10", "line 11"]);
    assert_eq!(found["total_matches"], 1_111);
    assert_eq!(found["truncated"], true);
    assert_eq!(get("grep=LINE").expect(200)["total_matches"], 0);
    assert_eq!(
        get("grep=LINE&ignore_case=true").expect(200)["total_matches"],
        2_000
    );
    assert_eq!(
        texts(&get("grep=line%201&from=12&n=1").expect(200)),
        ["line 12"]
    );

    let raw = get("raw=1");
    assert_eq!(raw.status, 200);
    assert_eq!(
        raw.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let text = raw.text();
    assert_eq!(text.lines().count(), 2_000);
    assert!(text.starts_with("line 1\nline 2\n") && text.ends_with("line 2000\n"));

    for query in [
        "tail=1&from=1",
        "tail=-1",
        "n=x",
        "raw=maybe",
        "attempt=x",
        "from=-1",
    ] {
        assert_eq!(get(query).refused(422), "invalid", "{query}");
    }
    assert_eq!(get("attempt=2").refused(404), "not_found");
    assert_eq!(get("attempt=0").refused(404), "not_found");
    let all = house.get("/api/jobs/1/logs?tail=1").expect(200);
    assert_eq!(all["items"][0]["step"], "greet");
    assert_eq!(texts(&all["items"][0]), ["line 2000"]);
}

#[test]
fn two_attempts_have_two_logs() {
    let house = ServerHouse::new();
    house.submit("hello");
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    let first = ann.claim();
    send(&ann, &first, 0, b"1 w no disk\n").expect(200);
    ann.report(&first, "declined", json!({ "why": "no disk" }));
    let second = bob.begin();
    send(&bob, &second, 0, b"1 o fine\n").expect(200);
    assert_eq!(texts(&house.get(GREET).expect(200)), ["fine"]);
    assert_eq!(
        texts(&house.get(&format!("{GREET}?attempt=1")).expect(200)),
        ["no disk"]
    );
}

#[test]
fn what_the_server_did_is_the_log_of_a_step_of_its_own() {
    let house = ServerHouse::new();
    house.submit("hello");
    house.post("/api/jobs/1/cancel", &Value::Null).expect(200);
    let path = "/api/jobs/1/steps/_server/logs";
    let logs = house.get(path).expect(200);
    let told = texts(&logs);
    assert!(told.len() >= 2, "{told:?}");
    assert_eq!(logs["lines"][0]["stream"], "server");
    assert_eq!(logs["total_lines"], told.len());
    let found = house
        .get(&format!("{path}?grep=CANCEL&ignore_case=1"))
        .expect(200);
    assert_eq!(
        found["total_matches"].as_u64().unwrap() as usize,
        texts(&found).len()
    );
    assert!(!texts(&found).is_empty());
    assert_eq!(
        texts(&house.get(&format!("{path}?tail=1")).expect(200)),
        told[told.len() - 1..]
    );
    assert_eq!(
        house.get(&format!("{path}?raw=1")).text().lines().count(),
        told.len()
    );
    assert_eq!(
        house.get("/api/jobs/9/steps/_server/logs").refused(404),
        "not_found"
    );
}

#[test]
fn lines_that_are_no_text_and_lines_that_are_dangerous_are_shown_as_text() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    send(
        &ann,
        &greet,
        0,
        b"1 o \xff\xfe\0\n2 e <script>alert(1)</script>\x1b[2J\nnot a record\n",
    )
    .expect(200);
    let answer = house.get(GREET);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let logs = answer.expect(200);
    assert_eq!(logs["lines"][1]["stream"], "stderr");
    assert_eq!(texts(&logs)[1], "<script>alert(1)</script>\u{1b}[2J");
    assert_eq!(logs["total_lines"], 3);
}

#[test]
fn a_piece_of_a_log_may_be_large_but_not_endless() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    let record = format!("1 o {}\n", "x".repeat(1_000));
    let piece = record.repeat(3_000);
    let answer = send(&ann, &greet, 0, piece.as_bytes()).expect(200);
    assert_eq!(answer["length"], piece.len());
    let raw = house.get(&format!("{GREET}?raw=1"));
    assert_eq!(raw.body.len(), 3_000 * 1_001);
    let too_much = vec![b'x'; (16 << 20) + 1];
    assert_eq!(send(&ann, &greet, 0, &too_much).refused(413), "too_large");
}

#[test]
fn who_asks_for_logs_and_does_not_read_them_is_cut_off() {
    let limits = Limits {
        unread_max: Duration::from_millis(500),
        ..Limits::default()
    };
    let house = ServerHouse::with(limits, |_| ());
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    // Much more than fits between a server and a client.
    let piece = format!("1763312345678 o {}\n", "x".repeat(1_000)).repeat(10_000);
    let piece = piece.as_bytes();
    for number in 0..6 {
        let offset = number * piece.len() as u64;
        send(&ann, &greet, offset, piece).expect(200);
    }
    // Each reads the beginning, and then no more.
    let ask = || {
        let mut line = house.line();
        line.ask("GET", &format!("{GREET}?raw=1"), "", b"");
        let status = line.bare_head().status;
        (status, line)
    };
    let idlers: Vec<_> = (0..16).map(|_| ask()).collect();
    assert!(idlers.iter().all(|(status, _)| *status == 200));
    assert_eq!(ask().0, 503, "all places are taken");
    until("one is free again", || ask().0 == 200);
    drop(idlers);
}
