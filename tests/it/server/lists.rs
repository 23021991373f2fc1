//! Lists: pages that follow each other with `next`, bounded, and nothing twice or left out.

use rusqlite::Connection;
use serde_json::Value;

use super::{ServerHouse, word};
use crate::store::lists::fill;

/// All items of a list, page by page, and how many pages there were.
fn all(house: &ServerHouse, path: &str, cursor: &str) -> (Vec<Value>, usize) {
    let (mut items, mut pages) = (Vec::new(), 0);
    let mut next = String::new();
    loop {
        let page = house.get(&format!("{path}limit=3{next}")).expect(200);
        let found = page["items"].as_array().unwrap();
        assert!(found.len() <= 3);
        items.extend(found.iter().cloned());
        pages += 1;
        match &page["next"] {
            Value::Null => return (items, pages),
            after => next = format!("&{cursor}={}", word(after)),
        }
    }
}

fn numbers(items: &[Value], field: &str) -> Vec<i64> {
    items
        .iter()
        .map(|item| item[field].as_i64().unwrap())
        .collect()
}

#[test]
fn jobs_are_listed_newest_first_and_narrowed() {
    let house = ServerHouse::new();
    for task in ["hello", "gpu", "hello", "gpu", "hello", "gpu", "hello"] {
        house.submit(task);
    }
    house.post("/api/jobs/2/cancel", &Value::Null).expect(200);
    let (items, pages) = all(&house, "/api/jobs?", "after");
    assert_eq!(numbers(&items, "id"), [7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(pages, 3);
    let (items, _) = all(&house, "/api/jobs?q=task:gpu&", "after");
    assert_eq!(numbers(&items, "id"), [6, 4, 2]);
    let (items, _) = all(&house, "/api/jobs?q=task:gpu+status:cancelled&", "after");
    assert_eq!(numbers(&items, "id"), [2]);
    assert!(items[0].get("steps").is_none(), "a list leaves steps out");
    let odd = house.get("/api/jobs?q=status:broken");
    assert!(odd.message().contains("cancelled"), "{}", odd.message());
    assert_eq!(house.get("/api/jobs?q=%25%25").refused(422), "invalid");
}

#[test]
fn events_are_listed_both_ways() {
    let house = ServerHouse::new();
    for _ in 0..7 {
        house.submit("hello");
    }
    let (oldest, _) = all(&house, "/api/events?after=0&", "after");
    let mut seqs = numbers(&oldest, "seq");
    assert_eq!(seqs.len(), 7);
    assert!(seqs.is_sorted());
    let (newest, _) = all(&house, "/api/events?", "before");
    seqs.reverse();
    assert_eq!(numbers(&newest, "seq"), seqs);
    assert_eq!(
        house.get("/api/events?after=1&before=5").refused(422),
        "invalid"
    );

    house.post("/api/jobs/3/cancel", &Value::Null).expect(200);
    let (story, _) = all(&house, "/api/jobs/3/events?", "after");
    let kinds: Vec<String> = story.iter().map(|event| word(&event["kind"])).collect();
    assert_eq!(kinds[0], "job_submitted");
    assert!(kinds.contains(&"job_cancelled".to_string()), "{kinds:?}");
    assert!(story.iter().all(|event| event["job_id"] == 3));
}

#[test]
fn workers_are_listed_in_the_order_in_which_they_came() {
    let house = ServerHouse::new();
    for name in ["ann", "bob", "cid", "dora"] {
        house.worker(name, &[], 1);
    }
    let (items, pages) = all(&house, "/api/workers?", "after");
    assert_eq!(numbers(&items, "id"), [1, 2, 3, 4]);
    assert_eq!(pages, 2);
    assert_eq!(word(&items[3]["name"]), "dora");
}

#[test]
fn a_page_has_a_bound() {
    let house = ServerHouse::new();
    for path in [
        "/api/jobs",
        "/api/events",
        "/api/workers",
        "/api/queue",
        "/api/tasks",
    ] {
        for limit in ["0", "501", "-1", "1e3", "99999999999", "many", ""] {
            let answer = house.get(&format!("{path}?limit={limit}"));
            assert_eq!(answer.refused(422), "invalid", "{path} {limit}");
        }
        assert_eq!(house.get(&format!("{path}?limit=500")).status, 200);
        // Tasks have no numbers: any text has a place among their names.
        for after in ["x", "1.5", "%00"].iter().filter(|_| path != "/api/tasks") {
            let answer = house.get(&format!("{path}?after={after}"));
            assert_eq!(answer.refused(422), "invalid", "{path} {after}");
        }
    }
}

#[test]
fn tasks_are_listed_by_name() {
    let house = ServerHouse::new();
    let (items, pages) = all(&house, "/api/tasks?", "after");
    let names: Vec<String> = items.iter().map(|task| word(&task["name"])).collect();
    assert_eq!(names, ["ask", "gpu", "hello", "outer", "pair", "wide"]);
    assert_eq!(pages, 3, "the last one is empty");
}

#[test]
fn a_job_in_a_list_names_its_parent_as_it_does_alone() {
    let house = ServerHouse::new();
    house.submit("outer");
    house.submit("hello");
    let (items, _) = all(&house, "/api/jobs?", "after");
    for item in &items {
        let alone = house.job(item["id"].as_i64().unwrap());
        assert_eq!(item["parent"], alone["parent"]);
    }
    let parents: Vec<&Value> = items.iter().map(|item| &item["parent"]).collect();
    let call = serde_json::json!({ "job_id": 1, "step": "call" });
    assert_eq!(parents, [&Value::Null, &call, &Value::Null]);
}

#[test]
fn the_queue_is_gone_through_page_by_page() {
    let house = ServerHouse::new();
    let urgent = |task: &str, priority: i32| {
        let body = serde_json::json!({ "priority": priority });
        let job = house.post(&format!("/api/tasks/{task}/jobs"), &body);
        job.expect(201)["id"].as_i64().unwrap()
    };
    let mut expected = Vec::new();
    for priority in [0, 5, -5, 5, 0, -5, 0] {
        expected.push((-priority, urgent("hello", priority)));
    }
    expected.sort();
    let mut expected: Vec<i64> = expected.into_iter().map(|(_, job_id)| job_id).collect();
    expected.extend([urgent("gpu", 1), urgent("gpu", 1)]);
    expected.extend([house.submit("ask"), house.submit("ask")]);
    let later = serde_json::json!({ "not_before": "2999-01-01T00:00:00Z" });
    let held = house.post("/api/tasks/pair/jobs", &later).expect(201);
    expected.push(held["id"].as_i64().unwrap());

    let (items, pages) = all(&house, "/api/queue?", "after");
    assert_eq!(numbers(&items, "job_id"), expected);
    assert_eq!(pages, 5, "the last one is empty");
    let whole = house.get("/api/queue?limit=500").expect(200);
    assert_eq!(whole["next"], Value::Null);
    let codes: Vec<String> = items
        .iter()
        .map(|item| word(&item["why"]["code"]))
        .collect();
    assert_eq!(
        codes[8..],
        ["no_matching_worker", "approval", "approval", "not_before"]
    );
    // The second step of the held job waits for the first, not for its turn.
    assert_eq!(word(&items[11]["step"]), "build");
    for item in &items {
        assert!(item["age_secs"].as_f64().unwrap() < 600.0);
    }
    assert!(items[0]["why"]["outcome"]["in_secs"].is_f64());

    // A page that was begun goes on where it was, whatever is done meanwhile.
    let first = house.get("/api/queue?limit=2").expect(200);
    let last = first["items"][1]["job_id"].as_i64().unwrap();
    house
        .post(&format!("/api/jobs/{last}/cancel"), &Value::Null)
        .expect(200);
    let path = format!("/api/queue?limit=2&after={}", word(&first["next"]));
    let second = house.get(&path).expect(200);
    let second = numbers(second["items"].as_array().unwrap(), "job_id");
    assert_eq!(second, expected[2..4]);
    for odd in [
        "9.0.0.0.0",
        "-1.0.0.0.0",
        "0.1.2.3",
        "0.1.2.3.4.5",
        "0.a.b.c.d",
        "",
    ] {
        let answer = house.get(&format!("/api/queue?after={odd}"));
        assert_eq!(answer.refused(422), "invalid", "{odd}");
    }
}

#[test]
fn the_last_lines_of_a_jobs_steps_come_in_pages() {
    let house = ServerHouse::new();
    house.submit("wide");
    let ann = house.worker("ann", &[], 8);
    ann.poll(8, &[]).expect(200);
    let (items, pages) = all(&house, "/api/jobs/1/logs?", "after");
    let steps: Vec<String> = items.iter().map(|item| word(&item["step"])).collect();
    let expected = (0..8).map(|item| format!("each[{item}]"));
    assert!(
        steps
            .iter()
            .filter(|step| *step != "each")
            .eq(expected.collect::<Vec<_>>().iter())
    );
    assert_eq!(pages, 3);
    assert_eq!(
        house.get("/api/jobs/1/logs?after=nobody").refused(422),
        "invalid"
    );
}

#[test]
fn a_page_of_jobs_with_large_inputs_ends_sooner_and_the_next_goes_on() {
    let house = ServerHouse::new();
    let large = serde_json::json!({ "input": { "name": "x".repeat(900_000) } });
    for _ in 0..12 {
        house.post("/api/tasks/hello/jobs", &large).expect(201);
    }
    let (mut ids, mut next) = (Vec::new(), String::new());
    loop {
        let page = house.get(&format!("/api/jobs?limit=500{next}"));
        assert!(page.body.len() < 6_000_000, "{}", page.body.len());
        let page = page.expect(200);
        ids.extend(numbers(page["items"].as_array().unwrap(), "id"));
        match &page["next"] {
            Value::Null => break,
            after => next = format!("&after={}", word(after)),
        }
    }
    assert_eq!(ids, (1..=12).rev().collect::<Vec<i64>>());
}

#[test]
fn a_running_job_is_listed_behind_a_long_history() {
    let house = ServerHouse::new();
    let running = house.submit("hello");
    house.worker("ann", &[], 1).begin();
    let sql = Connection::open(house.database()).unwrap();
    fill(&sql, 10_500, "'main', 'completed', NULL, 'submit'");
    let page = house.get("/api/jobs?q=status:running&limit=5").expect(200);
    assert_eq!(numbers(page["items"].as_array().unwrap(), "id"), [running]);
    assert_eq!(page["next"], Value::Null);
    let shown = house.get("/jobs?q=status:running");
    let shown = String::from_utf8_lossy(&shown.body).into_owned();
    assert!(
        shown.contains(&format!("href=\"/jobs/{running}\"")),
        "{shown}"
    );
    assert!(!shown.contains(">older<"), "{shown}");
}

/// Each condition fits every second job, and both together fit only the oldest job: no index finds it at once. The page is the last one
/// all the same.
#[test]
fn a_search_through_a_long_history_ends_with_a_full_or_the_last_page() {
    let house = ServerHouse::new();
    let sql = Connection::open(house.database()).unwrap();
    let columns = "'main', iif(n % 2, 'failed', 'completed'), iif(n % 2, 'exit_code', NULL), iif(n % 2 AND n > 1, 'submit', 'webhook')";
    fill(&sql, 120_000, columns);
    let query = "status:failed+source:webhook";
    let first = house.get(&format!("/api/jobs?q={query}")).expect(200);
    assert_eq!(numbers(first["items"].as_array().unwrap(), "id"), [2]);
    assert_eq!(first["next"], Value::Null);
    let shown = house.get(&format!("/jobs?q={query}"));
    let shown = String::from_utf8_lossy(&shown.body).into_owned();
    assert!(shown.contains("href=\"/jobs/2\""), "{shown}");
    assert!(!shown.contains(">older<"), "{shown}");
}

#[test]
fn failures_of_the_last_day_are_listed_the_last_ended_first() {
    let house = ServerHouse::new();
    let (first, second) = (house.submit("hello"), house.submit("hello"));
    house.submit("outer");
    let sql = Connection::open(house.database()).unwrap();
    fill(&sql, 10, "'old', 'failed', 'exit_code', 'submit'");
    let ann = house.worker("ann", &[], 4);
    let answer = ann.poll(4, &[]).expect(200);
    let mut given = super::attempts(&answer);
    // The second job ends first. The child of the third job is no failure of its own.
    given.swap(0, 1);
    let failed = serde_json::json!({ "finished": {
        "outcome": "failed", "reason": "exit_code", "message": "exit code 1", "exit_code": 1 } });
    for attempt in &given {
        ann.report(attempt, "started", serde_json::json!({}));
        // Two that end in the same millisecond have no order.
        std::thread::sleep(std::time::Duration::from_millis(2));
        ann.report(attempt, "finished", failed.clone());
    }
    let list = house.get("/api/failures").expect(200);
    let ids = numbers(list["items"].as_array().unwrap(), "id");
    assert_eq!(ids, [first + 2, first, second]);
    let list = house.get("/api/failures?limit=1").expect(200);
    assert_eq!(
        numbers(list["items"].as_array().unwrap(), "id"),
        [first + 2]
    );
    assert_eq!(list["next"], Value::Null);
}
