//! Health: the process lives as long as it answers; it is ready while it can write and recovery is awake.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ServerHouse, until};

#[test]
fn a_server_is_ready_once_it_has_swept() {
    let house = ServerHouse::new();
    assert_eq!(house.get("/healthz").expect(200), json!({ "status": "ok" }));
    until("it is ready", || house.get("/readyz").status == 200);
    let ready = house.get("/readyz").expect(200);
    assert_eq!(ready["status"], json!("ready"));
    assert_eq!(ready["version"], json!(env!("CARGO_PKG_VERSION")));
    assert!(ready["now"].is_string(), "{ready}");
}

#[test]
fn a_store_that_cannot_write_is_not_ready_and_lives() {
    let house = ServerHouse::new();
    house.submit("hello");
    until("it is ready", || house.get("/readyz").status == 200);
    // Another process holds the database.
    let other = rusqlite::Connection::open(house.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    assert_eq!(house.get("/healthz").expect(200), json!({ "status": "ok" }));
    // What only reads is served.
    house.job(1);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    std::thread::scope(|scope| {
        // What it wrote within the last second counts.
        let asking = scope.spawn(|| {
            let mut ready = house.get("/readyz");
            until("it is not ready", || {
                ready = house.get("/readyz");
                ready.status != 200
            });
            ready
        });
        // What writes is told to come back, in words.
        let refused = house.post("/api/jobs/1/cancel", &Value::Null);
        assert_eq!(refused.refused(503), "busy");
        assert!(refused.header("retry-after").is_some());
        let ready = asking.join().unwrap();
        assert_eq!(ready.status, 503);
        assert_eq!(ready.json()["problems"], json!(["the store cannot write"]));
    });
    assert_eq!(house.get("/healthz").status, 200);
    other.execute_batch("ROLLBACK").unwrap();
    until("it is ready again", || house.get("/readyz").status == 200);
    house.post("/api/jobs/1/cancel", &Value::Null).expect(200);
}
