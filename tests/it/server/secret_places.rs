//! Secrets of workflow files come from the places that the server allows, when a file is loaded and whenever a secret is used.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepward::config::ServerConfig;
use stepward::server::Limits;

use super::{Answer, ServerHouse, until, word};

const VALUE: &str = "s3cret-value-4711";

/// A task `use` with one secret, and a webhook of it with the same secret.
fn workflow(reference: &str) -> String {
    format!(
        "secrets: {{ key: {reference} }}
tasks:
  use:
    webhooks: {{ push: {{ secret: {reference}, scheme: bearer }} }}
    flow:
      go: {{ script: ./go, env: {{ KEY: \"{{{{ secret.key }}}}\" }} }}
"
    )
}

/// `allowed` is the allowed folder beside the data folder and the workflows.
fn house(set: impl FnOnce(&mut ServerConfig, PathBuf)) -> ServerHouse {
    ServerHouse::with(Limits::default(), |config| {
        let root = config.data_dir.parent().unwrap().to_path_buf();
        fs::create_dir(root.join("allowed")).unwrap();
        fs::write(root.join("allowed/key"), VALUE).unwrap();
        fs::write(root.join("elsewhere"), VALUE).unwrap();
        config.secrets.allow_files = vec![root.join("allowed")];
        set(config, root);
    })
}

fn write(config: &ServerConfig, text: &str) {
    let folder = config.workflows_dir.as_ref().unwrap();
    fs::write(folder.join("use.yaml"), text).unwrap();
}

fn problems(house: &ServerHouse) -> Vec<(String, String, String)> {
    let loaded = house.get("/api/workflows").expect(200);
    let problems = loaded["problems"].as_array().unwrap().iter();
    let told = problems.map(|problem| {
        (
            word(&problem["code"]),
            word(&problem["severity"]),
            word(&problem["message"]),
        )
    });
    told.collect()
}

/// Runs the task `use` on a worker of this name: the secret that the worker is given, or why the step failed.
fn run(house: &ServerHouse, name: &str) -> Result<String, String> {
    let worker = house.worker(name, &[], 1);
    let job = house.submit("use");
    let answer = worker.poll(1, &[]).expect(200);
    let assignments = answer["assignments"].as_array().cloned();
    match assignments.unwrap_or_default().first() {
        Some(assignment) => {
            worker.complete(&super::attempt(assignment));
            Ok(word(&assignment["env"]["KEY"]))
        }
        None => {
            let step = house.job(job)["steps"][0].clone();
            assert_eq!(step["reason"], "payload_error");
            Err(word(&step["message"]))
        }
    }
}

fn hook(house: &ServerHouse) -> Answer {
    let headers = format!("authorization: Bearer {VALUE}\r\n");
    house.ask("POST", "/hooks/push", &headers, b"")
}

#[test]
fn a_file_with_a_secret_from_elsewhere_does_not_load_and_the_setting_is_named() {
    let house = house(|config, root| {
        let elsewhere = root.join("elsewhere");
        write(
            config,
            &workflow(&format!("{{ file: {} }}", elsewhere.display())),
        );
    });
    let told = problems(&house);
    assert_eq!(told.len(), 2, "{told:?}");
    for (code, severity, message) in told {
        assert_eq!((code.as_str(), severity.as_str()), ("E072", "error"));
        assert!(message.contains("secrets.allow_files"), "{message}");
    }
    let refused = house.post("/api/tasks/use/jobs", &Value::Null);
    assert_eq!(refused.status, 404);
    assert_eq!(hook(&house).status, 401);
}

#[test]
fn a_secret_that_leads_elsewhere_since_it_was_loaded_fails_the_step() {
    let house = house(|config, root| {
        let key = root.join("allowed/key");
        write(config, &workflow(&format!("{{ file: {} }}", key.display())));
    });
    assert!(problems(&house).is_empty());
    assert_eq!(run(&house, "ann").as_deref(), Ok(VALUE));
    assert_eq!(hook(&house).status, 201);
    let (key, elsewhere) = (
        house.path().join("allowed/key"),
        house.path().join("elsewhere"),
    );
    fs::remove_file(&key).unwrap();
    symlink(&elsewhere, &key).unwrap();
    assert_eq!(hook(&house).status, 401, "the webhook is refused at once");
    // The job of the webhook came first.
    let answer = house.worker("bob", &[], 1).poll(1, &[]).expect(200);
    assert_eq!(super::attempts_or_none(&answer), Vec::<Value>::new());
    let message = run(&house, "cid").unwrap_err();
    assert!(message.contains("secrets.allow_files"), "{message}");
    assert!(!message.contains(VALUE), "{message}");
    // The server notices the change of the secret's file as well.
    until("the change is told", || !problems(&house).is_empty());
    let loaded = house.get("/api/workflows").expect(200);
    let stale = word(&loaded["stale"][0]);
    assert!(stale.ends_with("use.yaml"), "{stale}");
    fs::remove_file(&key).unwrap();
    fs::write(&key, VALUE).unwrap();
    until("it is good again", || problems(&house).is_empty());
    assert_eq!(run(&house, "dan").as_deref(), Ok(VALUE));
}

#[test]
fn a_secret_that_is_too_short_is_an_error_until_it_is_longer() {
    let house = house(|config, root| {
        let key = root.join("allowed/key");
        fs::write(&key, "12345\n").unwrap();
        write(config, &workflow(&format!("{{ file: {} }}", key.display())));
    });
    let told = problems(&house);
    assert!(told.iter().all(|(code, ..)| code == "E073"), "{told:?}");
    assert_eq!(told.len(), 2);
    fs::write(house.path().join("allowed/key"), VALUE).unwrap();
    until("the file is loaded", || problems(&house).is_empty());
    assert_eq!(run(&house, "eve").as_deref(), Ok(VALUE));
}

/// A text that 0.1 had accepted loads with a warning, and its secrets are found as they were. Files of the server are refused all the same.
#[test]
fn a_workflow_of_0_1_keeps_its_secrets() {
    let text_of =
        |root: &Path, name: &str| workflow(&format!("{{ file: {} }}", root.join(name).display()));
    for (name, is_found) in [("elsewhere", true), ("data/copy", false)] {
        let mut house = house(|_, _| ());
        house.server.stop();
        let root = house.path().to_path_buf();
        let text = text_of(&root, name);
        write(&house.config, &text);
        fs::write(root.join("data/copy"), VALUE).unwrap();
        let folder = root.join("workflows");
        let all = fs::read_to_string(folder.join("all.yaml")).unwrap();
        // As version 0.1 wrote it.
        let file = |name: &str| folder.join(name).display().to_string();
        let files = json!({ file("use.yaml"): text, file("all.yaml"): all });
        let good = json!({ "folder": folder, "files": files, "scripts": {} });
        fs::write(root.join("data/workflows.good.json"), good.to_string()).unwrap();
        house.restart();
        let told = problems(&house);
        assert_eq!(told.len(), 2, "{told:?}");
        for (code, severity, _) in told {
            assert_eq!((code.as_str(), severity.as_str()), ("E072", "warning"));
        }
        match is_found {
            true => {
                assert_eq!(run(&house, "fay").as_deref(), Ok(VALUE));
                assert_eq!(hook(&house).status, 201);
            }
            false => {
                let message = run(&house, "gus").unwrap_err();
                assert!(message.contains("belongs to the server"), "{message}");
                assert_eq!(hook(&house).status, 401);
            }
        }
        // A new file does not get the secret because the old one still names it.
        let other = "tasks: { other: { flow: { go: { script: ./go, env: { K: '{{ secret.key }}' } } } } }\n";
        fs::write(folder.join("other.yaml"), other).unwrap();
        until("the new file is refused", || {
            problems(&house)
                .iter()
                .any(|(_, severity, _)| severity == "error")
        });
        fs::remove_file(folder.join("other.yaml")).unwrap();
        // Once the text changes, the rule holds.
        let changed = format!("# changed\n{}", text_of(&root, name));
        fs::write(folder.join("use.yaml"), changed).unwrap();
        until("the changed file is refused", || {
            problems(&house)
                .iter()
                .all(|(_, severity, _)| severity == "error")
        });
    }
}
