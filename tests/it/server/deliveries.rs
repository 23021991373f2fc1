//! Messages to the outside, as people see them: lists, the log of each, once more, and a test.

use serde_json::{Value, json};
use stepward::config::NotifyTarget;
use stepward::server::Limits;

use super::{ServerHouse, until};
use crate::outbox::receiver::Receiver;

fn house(receiver: &Receiver) -> ServerHouse {
    let target = |on: &str| -> NotifyTarget {
        let url = receiver.url("/hook");
        serde_json::from_value(json!({ "type": "slack", "url": url, "on": [on] })).unwrap()
    };
    ServerHouse::with(Limits::default(), |config| {
        config.notify = [
            ("ops".to_string(), target("job_cancelled")),
            ("chat".to_string(), target("job_submitted")),
        ]
        .into();
    })
}

fn items(house: &ServerHouse, query: &str) -> Vec<Value> {
    let list = house.get(&format!("/api/deliveries{query}")).expect(200);
    list["items"].as_array().unwrap().clone()
}

fn await_state(house: &ServerHouse, id: i64, state: &str) -> Value {
    let path = format!("/api/deliveries/{id}");
    until(state, || house.get(&path).expect(200)["state"] == state);
    house.get(&path).expect(200)
}

#[test]
fn messages_are_listed_and_each_tells_how_its_deliveries_went() {
    let receiver = Receiver::start();
    let house = house(&receiver);
    let (first, second) = (house.submit("hello"), house.submit("hello"));
    house
        .post(&format!("/api/jobs/{first}/cancel"), &Value::Null)
        .expect(200);
    receiver.await_got(3);
    for id in 1..=3 {
        await_state(&house, id, "delivered");
    }
    let ids = |items: Vec<Value>| -> Vec<i64> {
        items
            .iter()
            .map(|item| item["id"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(ids(items(&house, "")), [3, 2, 1]);
    assert_eq!(ids(items(&house, "?target=chat")), [2, 1]);
    assert_eq!(ids(items(&house, &format!("?job={first}"))), [3, 1]);
    assert_eq!(
        ids(items(&house, &format!("?job={second}&state=delivered"))),
        [2]
    );
    assert_eq!(ids(items(&house, "?state=given_up")), Vec::<i64>::new());
    let page = house.get("/api/deliveries?limit=2").expect(200);
    assert_eq!(page["next"], "2");
    assert_eq!(ids(items(&house, "?limit=2&after=2")), [1]);
    assert!(house.get("/api/deliveries?state=lost").refused(422) == "invalid");

    let shown = house.get("/api/deliveries/3").expect(200);
    assert_eq!(shown["target"], "ops");
    assert_eq!(shown["event"]["kind"], "job_cancelled");
    assert_eq!(shown["job_id"], first);
    assert_eq!(shown["attempts"], 1);
    assert_eq!(shown["log"][0]["status"], 200);
    assert_eq!(shown["next_at"], Value::Null);
    let id = shown["message_id"].as_str().unwrap();
    assert!(id.starts_with("msg_") && id.ends_with("_3"), "{id}");
    assert_eq!(house.get("/api/deliveries/9").refused(404), "not_found");
    assert_eq!(house.get("/api/deliveries/x").refused(404), "not_found");
}

#[test]
fn a_message_is_sent_once_more_when_somebody_asks_for_it() {
    let receiver = Receiver::start();
    receiver.answer("503 Busy\r\nretry-after: 3600");
    let house = house(&receiver);
    house.submit("hello");
    receiver.await_got(1);
    until("it was written down", || {
        items(&house, "")[0]["attempts"] == 1
    });
    let waiting = house.get("/api/deliveries/1").expect(200);
    assert_eq!(waiting["state"], "pending");
    assert_eq!(
        waiting["last_error"],
        "it answered 503 Service Unavailable: told"
    );
    assert!(waiting["next_at"].is_string());
    house
        .post("/api/deliveries/1/redeliver", &Value::Null)
        .expect(200);
    let delivered = await_state(&house, 1, "delivered");
    assert_eq!(delivered["log"].as_array().unwrap().len(), 2);
    assert_eq!(delivered["message_id"], waiting["message_id"]);
    assert_eq!(delivered["last_error"], Value::Null);
    assert_eq!(
        house
            .post("/api/deliveries/7/redeliver", &Value::Null)
            .refused(404),
        "not_found"
    );
}

#[test]
fn a_test_says_how_it_went() {
    let receiver = Receiver::start();
    receiver.answer("200 OK");
    receiver.answer("403 Forbidden");
    let house = house(&receiver);
    let test = |name: &str| house.post(&format!("/api/notify/{name}/test"), &Value::Null);
    let good = test("ops").expect(200);
    assert_eq!((&good["ok"], &good["status"]), (&json!(true), &json!(200)));
    let bad = test("ops").expect(200);
    assert_eq!(bad["ok"], false);
    assert_eq!(bad["message"], "it answered 403 Forbidden: told");
    assert_eq!(test("nobody").refused(404), "not_found");
    assert_eq!(items(&house, ""), Vec::<Value>::new());
}
