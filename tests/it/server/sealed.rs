//! Secret inputs from outside: nobody sees one, neither open nor sealed, and nobody can hand a sealed one in.

use std::fs;

use serde_json::{Value, json};
use stepward::server::Limits;

use super::{ServerHouse, word};

const PIN: &str = "hunter2-hunter2";
const SECRET: &str = "the secret of push";
const JSON: &str = "content-type: application/json\r\n";

const WORKFLOWS: &str = r#"
tasks:
  vault:
    input:
      pin: { type: string, secret: true }
      config: { type: json }
      tag: { type: string }
    flow:
      ask: { type: approval, message: 'go?', input: { code: { type: json, secret: true } } }
      go: { script: 'true', depends_on: [ask] }
    webhooks:
      push:
        secret: { file: SECRET_FILE }
        input: { config: "{{ body }}" }
"#;

fn house() -> ServerHouse {
    ServerHouse::with(Limits::default(), |config| {
        let folder = config.workflows_dir.clone().unwrap();
        let secret = folder.with_file_name("push.secret");
        fs::write(&secret, SECRET).unwrap();
        config.secrets.allow_files.push(secret.clone());
        let text = WORKFLOWS.replace("SECRET_FILE", &secret.display().to_string());
        fs::write(folder.join("vault.yaml"), text).unwrap();
    })
}

fn post(house: &ServerHouse, path: &str, body: &Value) -> (u16, String) {
    let answer = house.ask("POST", path, JSON, body.to_string().as_bytes());
    (answer.status, answer.text())
}

fn sealed_in(house: &ServerHouse, column: &str) -> String {
    let connection = rusqlite::Connection::open(house.database()).unwrap();
    let query = match column {
        "input" => "SELECT input FROM job WHERE job_id = 1",
        _ => "SELECT output FROM step WHERE job_id = 1 AND kind = 'approval'",
    };
    connection.query_row(query, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_sealed_value_is_shown_to_nobody() {
    let house = house();
    let given = json!({"input": {"pin": PIN, "tag": "blue"}});
    let (status, made) = post(&house, "/api/tasks/vault/jobs", &given);
    assert_eq!(status, 201, "{made}");
    let approval = json!({"output": {"code": {"deep": PIN}}});
    let (status, approved) = post(&house, "/api/jobs/1/steps/ask/approve", &approval);
    assert_eq!(status, 200, "{approved}");
    for column in ["input", "output"] {
        assert!(sealed_in(&house, column).contains("{\"$sealed\":\"v2."));
    }
    let mut shown = vec![made, approved];
    for path in [
        "/api/jobs",
        "/api/jobs/1",
        "/api/jobs/1/why",
        "/api/jobs/1/events",
        "/api/jobs/1/steps/ask/output",
        "/api/jobs/1/steps/ask/why",
        "/api/events",
        "/jobs",
        "/jobs/1",
        "/tasks/vault?from=1",
    ] {
        let answer = house.get(path);
        assert_eq!(answer.status, 200, "{path}");
        shown.push(format!("{path}: {}", answer.text()));
    }
    for text in &shown {
        for hidden in ["$sealed", "v2.", PIN] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
    assert!(shown[0].contains("***") && shown[1].contains("***"));
}

#[test]
fn a_sealed_value_is_taken_from_nobody() {
    let house = house();
    let given = json!({"input": {"pin": PIN}});
    assert_eq!(post(&house, "/api/tasks/vault/jobs", &given).0, 201);
    let stolen: Value = serde_json::from_str(&sealed_in(&house, "input")).unwrap();
    let stolen = &stolen["pin"];
    for (input, path) in [
        (json!({"pin": stolen}), r#"at \"pin\","#),
        (json!({"config": stolen}), r#"at \"config\","#),
        (json!({"config": [{"x": stolen}]}), r#"at \"config[0].x\","#),
    ] {
        let (status, told) = post(&house, "/api/tasks/vault/jobs", &json!({"input": input}));
        assert!((400..500).contains(&status), "{status} {told}");
        assert!(told.contains(path), "{told}");
        assert!(!told.contains("v2."), "{told}");
    }
    let approval = json!({"output": {"code": {"deep": [stolen]}}});
    let (status, told) = post(&house, "/api/jobs/1/steps/ask/approve", &approval);
    assert!((400..500).contains(&status), "{status} {told}");
    assert!(told.contains(r#"at \"code.deep[0]\","#), "{told}");

    let headers = format!("{JSON}authorization: Bearer {SECRET}\r\n");
    let body = json!({"a": {"b": stolen}}).to_string();
    let answer = house.ask("POST", "/hooks/push", &headers, body.as_bytes());
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    assert!(
        answer.text().contains(r#"at \"config.a.b\","#),
        "{}",
        answer.text()
    );
    let jobs = house.get("/api/jobs").expect(200);
    assert_eq!(
        jobs["items"].as_array().unwrap().len(),
        1,
        "{}",
        word(&jobs["items"][0]["task"])
    );
}
