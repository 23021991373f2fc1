//! Logs over HTTP: sent by offset, read by line, and never in another's name.

use std::time::Duration;

use serde_json::{Value, json};
use stepward::server::Limits;

use super::{Answer, HttpWorker, ServerHouse, attempt, until, word};

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
        let code = answer.refused(404);
        let is_so = ["not_found", "no_route"].contains(&code.as_str());
        assert!(is_so, "{step} {attempt}: {code}");
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
fn whoever_asks_for_more_than_one_answer_holds_is_told() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    send(&ann, &greet, 0, &lines(1..=1_001)).expect(200);
    let told = |query: &str| {
        let logs = house.get(&format!("{GREET}?{query}")).expect(200);
        (texts(&logs).len(), logs["truncated"] == true)
    };
    for query in [
        "tail=99999",
        "n=99999",
        "from=1&n=99999",
        "tail=1001",
        "grep=line&n=99999",
    ] {
        assert_eq!(told(query), (1_000, true), "{query}");
    }
    for query in ["tail=1000", "from=2&n=99999", "from=1&n=1000"] {
        assert_eq!(told(query), (1_000, false), "{query}");
    }
    assert_eq!(told("tail=0"), (0, false));
    let all = house.get("/api/jobs/1/logs?tail=99999").expect(200);
    assert_eq!(all["items"][0]["truncated"], true);
}

#[test]
fn the_last_matches_and_the_bare_text_of_some_lines_can_be_asked_for() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    send(&ann, &greet, 0, &lines(1..=2_000)).expect(200);
    let get = |query: &str| house.get(&format!("{GREET}?{query}"));

    let found = get("grep=line%201&tail=2").expect(200);
    assert_eq!(texts(&found), ["line 1998", "line 1999"]);
    assert_eq!(found["total_matches"], 1_111);

    assert_eq!(get("raw=1&tail=2").text(), "line 1999\nline 2000\n");
    assert_eq!(get("raw=1&n=1").text(), "line 2000\n");
    assert_eq!(get("raw=1&from=7&n=2").text(), "line 7\nline 8\n");
    assert_eq!(get("raw=1&from=1999").text(), "line 1999\nline 2000\n");
    assert_eq!(get("raw=1&from=2001&n=5").text(), "");
    assert_eq!(get("raw=1&tail=0").text(), "");
    let text = get("raw=1&tail=1500").text();
    assert_eq!(text.lines().count(), 1_500, "nothing is left out silently");
    assert_eq!(get("raw=1&tail=5000").text().lines().count(), 2_000);
    let refused = get("raw=1&grep=x");
    assert_eq!(refused.refused(422), "invalid");
    assert_eq!(
        refused.message(),
        "ask for grep, or for raw, not both: what was found has line numbers"
    );
}

#[test]
fn the_log_of_the_server_keeps_the_rules_of_a_step_and_is_whole() {
    let house = ServerHouse::new();
    house.submit("hello");
    let path = "/api/jobs/1/steps/_server/logs";
    let get = |query: &str| house.get(&format!("{path}?{query}"));
    let told = get("").expect(200)["total_lines"].as_u64().unwrap();
    let more = 20_500 - told;
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    let insert = "
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :more)
        INSERT INTO event (at, kind, job_id, message)
        SELECT 1, 'job_submitted', 1, 'told ' || n FROM number
    ";
    sql.execute(insert, [more as i64]).unwrap();

    let last = get("tail=1").expect(200);
    assert_eq!(last["total_lines"], 20_500);
    assert_eq!(last["lines"][0]["n"], 20_500);
    assert_eq!(texts(&last), [format!("told {more}")]);
    assert_eq!(get("from=15000&n=1").expect(200)["lines"][0]["n"], 15_000);
    let shown = |query: &str| {
        let logs = get(query).expect(200);
        (texts(&logs).len(), logs["truncated"] == true)
    };
    assert_eq!(shown("n=0"), (0, false));
    assert_eq!(shown("n=5"), (5, false));
    assert_eq!(shown("tail=99999"), (1_000, true));
    assert_eq!(shown("from=1&n=99999"), (1_000, true));
    assert_eq!(shown("from=20000&n=99999"), (501, false));
    let found = get("grep=told%201&tail=2").expect(200);
    assert_eq!(texts(&found), ["told 19998", "told 19999"]);
    assert_eq!(
        (&found["total_matches"], &found["truncated"]),
        (&json!(11_111), &json!(true))
    );
    assert_eq!(get("raw=1").text().lines().count(), 20_500);
    assert_eq!(get("raw=1&tail=1").text(), format!("told {more}\n"));
    assert_eq!(get("raw=1&from=20499").text().lines().count(), 2);
    assert_eq!(get("attempt=99").refused(404), "not_found");
    assert_eq!(get("attempt=x").refused(422), "invalid");
}

#[test]
fn the_logs_of_a_large_job_fit_into_one_answer_and_it_says_what_is_left_out() {
    let house = ServerHouse::with(Limits::default(), |config| {
        let items = (1..=101).map(|n| n.to_string()).collect::<Vec<_>>();
        let items = items.join(", ");
        let many = format!(
            "tasks:\n  many:\n    flow:\n      each: {{ script: x, for_each: [{items}] }}\n"
        );
        let folder = config.workflows_dir.as_ref().unwrap();
        std::fs::write(folder.join("many.yaml"), many).unwrap();
    });
    house.submit("many");
    let ann = house.worker("ann", &[], 101);
    let mut held = Vec::new();
    while held.len() < 101 {
        let answer = ann.poll(101 - held.len() as u32, &held).expect(200);
        let given = answer["assignments"].as_array().unwrap();
        assert!(!given.is_empty());
        held.extend(given.iter().map(attempt));
    }
    // The worst that there is: of each byte, six are written.
    let log = format!("1 o {}\n2 o the end\n", "\u{1}".repeat(150_000));
    for attempt in &held {
        send(&ann, attempt, 0, log.as_bytes()).expect(200);
    }
    let answer = house.get("/api/jobs/1/logs?tail=1000");
    assert!(answer.body.len() < 5 << 20, "{}", answer.body.len());
    assert!(answer.body.len() > 2 << 20, "{}", answer.body.len());
    let first = answer.expect(200);
    let items = first["items"].as_array().unwrap();
    assert_eq!(items.len(), 100);
    for item in items {
        assert_eq!(
            (&item["truncated"], &item["total_lines"]),
            (&json!(true), &json!(2))
        );
        assert_eq!(texts(item).last().unwrap(), "the end");
    }
    let next = word(&first["next"]);
    let rest = house.get(&format!("/api/jobs/1/logs?tail=1&after={next}"));
    let rest = rest.expect(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&rest["next"], &rest["items"][0]["truncated"]),
        (&Value::Null, &json!(false))
    );
    assert_eq!(
        house.get("/api/jobs/1/logs?after=nobody").refused(422),
        "invalid"
    );

    let step = word(&items[0]["step"])
        .replace('[', "%5B")
        .replace(']', "%5D");
    let page = house.get(&format!("/api/jobs/1/steps/{step}/logs?tail=1000"));
    assert!(page.body.len() < 2 << 20, "{}", page.body.len());
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
        // Longer than it takes to ask for all of them on a busy machine.
        unread_max: Duration::from_secs(4),
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
