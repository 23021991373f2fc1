//! Schedules over the API: look at them, at what became of their times, pause, resume, fire now.

use serde_json::{Value, json};
use stepward::server::Limits;

use super::{ServerHouse, until, word};

const WORKFLOWS: &str = "
tasks:
  report:
    flow:
      write: { script: echo }
    schedules:
      yearly: { cron: '0 0 1 1 *', timezone: Europe/Oslo, catch_up: none, overlap: queue }
      off: { cron: '@daily', enabled: false }
  tick:
    flow:
      tock: { script: echo }
    schedules:
      often: { cron: '* * * * * *', overlap: allow }
";

fn house() -> ServerHouse {
    ServerHouse::with(Limits::default(), |config| {
        let folder = config.workflows_dir.as_ref().unwrap();
        std::fs::write(folder.join("schedules.yaml"), WORKFLOWS).unwrap();
    })
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| word(&item["name"])).collect()
}

#[test]
fn all_are_listed_with_their_next_times() {
    let house = house();
    let all = house.get("/api/schedules").expect(200);
    let mut found = names(&all);
    found.sort();
    assert_eq!(found, ["off", "often", "yearly"]);
    let first = house.get("/api/schedules?limit=1").expect(200);
    let rest = format!("/api/schedules?after={}", word(&first["next"]));
    assert_eq!(names(&house.get(&rest).expect(200)).len(), 2);

    let yearly = house.get("/api/schedules/report.yearly").expect(200);
    let by_number = house
        .get(&format!("/api/schedules/{}", yearly["id"]))
        .expect(200);
    assert_eq!(yearly, by_number);
    let why = house.get("/api/schedules/report.yearly/why").expect(200);
    assert_eq!(
        (&why["code"], &why["schedule"]),
        (&json!("scheduled"), &yearly)
    );
    assert!(why["next_in_secs"].is_f64() && why["facts"].is_array());
    let off = house.get("/api/schedules/report.off/why").expect(200);
    assert_eq!(
        (&off["code"], &off["next_in_secs"]),
        (&json!("disabled"), &Value::Null)
    );
    assert_eq!(yearly["cron"], "0 0 1 1 *");
    assert_eq!(yearly["timezone"], "Europe/Oslo");
    assert_eq!(yearly["overlap"], "queue");
    assert_eq!(
        yearly["catch_up"],
        json!({ "policy": "none", "within_secs": null, "max": null })
    );
    assert_eq!(yearly["paused"], false);
    assert_eq!(yearly["last"], Value::Null);
    let following = yearly["following"].as_array().unwrap();
    assert_eq!(following.len(), 5);
    assert_eq!(following[0], yearly["next_at"]);
    for at in following {
        assert!(word(at).ends_with("-12-31T23:00:00.000Z"), "{at}");
    }
    let off = house.get("/api/schedules/report.off").expect(200);
    assert_eq!(off["enabled"], false);

    for nobody in ["report", "report.daily", "99", "report.yearly.x"] {
        let answer = house.get(&format!("/api/schedules/{nobody}"));
        assert_eq!(answer.refused(404), "not_found", "{nobody}");
    }
}

#[test]
fn what_became_of_each_time_can_be_read_page_by_page() {
    let house = house();
    until("it has fired three times", || {
        let often = house.get("/api/schedules/tick.often/fires").expect(200);
        often["items"].as_array().unwrap().len() >= 3
    });
    house
        .post("/api/schedules/tick.often/pause", &Value::Null)
        .expect(200);
    house
        .post("/api/schedules/tick.often/fire", &Value::Null)
        .expect(201);
    let mut path = "/api/schedules/tick.often/fires?limit=2".to_string();
    let mut seen = Vec::new();
    loop {
        let page = house.get(&path).expect(200);
        seen.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/schedules/tick.often/fires?limit=2&before={next}");
    }
    let times: Vec<String> = seen.iter().map(|fire| word(&fire["due_at"])).collect();
    assert!(times.is_sorted_by(|a, b| a > b), "{times:?}");
    assert_eq!(seen.iter().filter(|fire| fire["manual"] == true).count(), 1);
    let fired = seen
        .iter()
        .find(|fire| fire["outcome"] == "fired" && fire["manual"] == false);
    let fired = fired.unwrap();
    let job = house.job(fired["job_id"].as_i64().unwrap());
    assert_eq!(job["source"], "schedule");
    assert_eq!(job["scheduled_for"], fired["due_at"]);
    let refused = house.get("/api/schedules/tick.often/fires?before=soon");
    assert_eq!(refused.refused(422), "invalid");
}

#[test]
fn a_schedule_is_paused_through_a_restart_and_resumed() {
    let mut house = house();
    let paused = house
        .post("/api/schedules/tick.often/pause", &Value::Null)
        .expect(200);
    assert_eq!(paused["paused"], true);
    house.restart();
    let often = || house.get("/api/schedules/tick.often").expect(200);
    until("a time passes in which it is paused", || {
        often()["last"]["outcome"] == "paused"
    });
    assert_eq!(often()["paused"], true);
    let resumed = house
        .post("/api/schedules/tick.often/resume", &Value::Null)
        .expect(200);
    assert_eq!(resumed["paused"], false);
    until("it fires again", || often()["last"]["outcome"] == "fired");
}

#[test]
fn fired_by_hand_once_per_key() {
    let house = house();
    let fire = |key: &str| {
        let headers = format!("idempotency-key: {key}\r\n");
        house.ask("POST", "/api/schedules/report.yearly/fire", &headers, b"")
    };
    let made = fire("now").expect(201);
    assert_eq!(made["task"], "report");
    assert_eq!(made["source"], "schedule");
    let again = fire("now").expect(200);
    assert_eq!(again["id"], made["id"]);
    assert_ne!(fire("and now").expect(201)["id"], made["id"]);
    let yearly = house.get("/api/schedules/report.yearly").expect(200);
    assert_eq!(yearly["last"]["manual"], true);
    assert_eq!(yearly["last"]["outcome"], "fired");
}

#[test]
fn a_restart_with_a_broken_file_forgets_no_schedule() {
    let mut house = house();
    let file = house.path().join("workflows/schedules.yaml");
    let fires = |house: &ServerHouse| {
        let fires = house.get("/api/schedules/tick.often/fires?limit=500");
        fires.expect(200)["items"].as_array().unwrap().clone()
    };
    until("it has fired", || !fires(&house).is_empty());
    std::fs::write(&file, "tasks: [broken").unwrap();
    // Nor does anybody remember how the file was when it was good, as after a restore of the database alone.
    let remembered = house.database().with_file_name("workflows.good.json");
    std::fs::remove_file(remembered).unwrap();
    house.restart();
    let often = |house: &ServerHouse| house.get("/api/schedules/tick.often").expect(200);
    let lost = often(&house);
    assert_eq!(lost["loaded"], false);
    assert_eq!(lost["removed_at"], Value::Null);
    assert_eq!(names(&house.get("/api/schedules").expect(200)).len(), 3);
    let before = fires(&house).len();
    until("two of its times have passed", || {
        let next_at: jiff::Timestamp = word(&lost["next_at"]).parse().unwrap();
        jiff::Timestamp::now().as_second() > next_at.as_second() + 1
    });
    assert_eq!(fires(&house).len(), before, "it does not fire");
    assert_eq!(
        often(&house)["next_at"],
        lost["next_at"],
        "it keeps its time"
    );

    std::fs::write(&file, WORKFLOWS).unwrap();
    until("it goes on", || fires(&house).len() > before + 2);
    assert_eq!(often(&house)["loaded"], true);
    let mut times: Vec<i64> = fires(&house)
        .iter()
        .map(|fire| word(&fire["due_at"]).parse::<jiff::Timestamp>().unwrap())
        .map(|at| at.as_second())
        .collect();
    times.reverse();
    let first = times[0];
    let each_second: Vec<i64> = (first..first + times.len() as i64).collect();
    assert_eq!(times, each_second, "no time is left out");
}
