//! Lists: pages that follow each other with `next`, bounded, and nothing twice or left out.

use serde_json::Value;

use super::{ServerHouse, word};

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
    for path in ["/api/jobs", "/api/events", "/api/workers", "/api/queue"] {
        for limit in ["0", "501", "-1", "1e3", "99999999999", "many", ""] {
            let answer = house.get(&format!("{path}?limit={limit}"));
            assert_eq!(answer.refused(422), "invalid", "{path} {limit}");
        }
        assert_eq!(house.get(&format!("{path}?limit=500")).status, 200);
        for after in ["x", "1.5", "%00"].iter().filter(|_| path != "/api/queue") {
            let answer = house.get(&format!("{path}?after={after}"));
            assert_eq!(answer.refused(422), "invalid", "{path} {after}");
        }
    }
}
