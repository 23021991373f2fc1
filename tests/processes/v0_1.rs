//! What version 0.1 left behind keeps working: its data folder, its workflow files. `tests/fixtures/v0.1` holds both.

use std::path::Path;
use std::process::Command;

use stepward::wire::api::{JobJson, LogsJson};

use super::house::{BINARY, House, SETTINGS, await_that};
use super::typed::typed;

/// A folder as the 0.1 server left it when it was killed, unpacked.
pub fn data_folder_of_0_1() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .args(["-xzf", "tests/fixtures/v0.1/data-folder.tar.gz", "-C"])
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(unpacked.success());
    folder
}

fn log_of(house: &House, job_id: i64, step: &str) -> String {
    let logs: LogsJson = house.get(&format!("/api/jobs/{job_id}/steps/{step}/logs"));
    serde_json::to_string(&logs).unwrap()
}

#[test]
fn a_killed_0_1_server_is_continued_by_this_version() {
    let folder = data_folder_of_0_1();
    let workflows = std::fs::read_to_string("tests/fixtures/v0.1/workflows/tasks.yaml").unwrap();
    let mut house = House::over_data(&workflows, SETTINGS, folder.path());

    // Finished jobs are there with their logs.
    assert_eq!(house.job(1).status, "completed");
    assert!(log_of(&house, 1, "hello").contains("hello, world"));
    assert_eq!(house.job(2).status, "failed");

    // The step that ran is given up when its worker stays away; the held step waits for a person, as it did.
    house.await_job(15, "failed");
    assert_eq!(
        house.step(15, "sleep").reason.as_deref(),
        Some("worker_lost")
    );
    assert_eq!(house.step(11, "pay").status, "suspended");
    let _: JobJson = house.post("/api/jobs/11/steps/pay/reject").unwrap();
    house.await_job(11, "failed");

    // Definitions that 0.1 froze run again, also the one with a sealed input, and today's workers run them.
    let _worker = house.worker(2);
    let retried: JobJson = house.post("/api/jobs/2/retry").unwrap();
    house.await_job(retried.id, "failed");
    let sealed = r#"{"key":"***"}"#;
    assert_eq!(serde_json::to_string(&house.job(9).input).unwrap(), sealed);
    let retried: JobJson = house
        .post_with("/api/jobs/9/retry", serde_json::json!({"all": true}))
        .unwrap();
    house.await_job(retried.id, "completed");
    assert!(log_of(&house, retried.id, "use").contains("used"));
    assert_eq!(serde_json::to_string(&retried.input).unwrap(), sealed);
    let new = house.submit("greet");
    house.await_job(new, "completed");
    assert!(log_of(&house, new, "hello").contains("hello, world"));
}

#[test]
fn the_examples_of_0_1_are_valid_but_for_the_rules_that_are_new() {
    let validate = |path: &str| {
        assert!(Path::new(path).is_dir());
        let validated = Command::new(BINARY).args(["validate", path]).output();
        let validated = validated.unwrap();
        let told = String::from_utf8_lossy(&validated.stdout).into_owned();
        let told = told + &String::from_utf8_lossy(&validated.stderr);
        (validated.status.code(), told)
    };
    let (code, told) = validate("tests/fixtures/v0.1/workflows");
    assert_eq!(code, Some(0), "{told}");
    // `validate` knows no former rules: an image that an operator chooses freely is an error.
    let (code, told) = validate("tests/fixtures/v0.1/examples");
    assert_eq!(code, Some(3), "{told}");
    assert_eq!(told.matches("error[").count(), 2, "{told}");
    assert_eq!(told.matches("error[E070]").count(), 2, "{told}");
}

/// Breaks rules that are newer than 0.1, and runs without a container.
const FORMER: &str = r#"tasks:
  former:
    input:
      folder: { type: string, default: /tmp }
    flow:
      where: { workdir: "{{ input.folder }}", script: "pwd; exit 1" }
"#;

#[test]
fn a_file_that_0_1_had_accepted_runs_after_the_upgrade_until_it_is_edited() {
    let folder = data_folder_of_0_1();
    let memory = folder.path().join("workflows.good.json");
    let kept = std::fs::read_to_string(&memory).unwrap();
    let mut kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    // As 0.1 wrote it, with one more file that it had accepted.
    kept["files"]["wf/all.yaml"] = FORMER.into();
    std::fs::write(&memory, kept.to_string()).unwrap();

    let mut house = House::over_data(FORMER, SETTINGS, folder.path());
    let _worker = house.worker(1);
    let job = house.submit_with("former", serde_json::json!({ "folder": "/" }));
    let job = job.unwrap().id;
    house.await_job(job, "failed");
    house.await_log_line(job, "where", "/");
    let former_problems = |house: &House| {
        let status = typed(house, &["status", "--json"]).json();
        let problems = status["problems"].as_array().unwrap().clone();
        let former = problems.into_iter();
        let former = former.filter(|problem| problem["code"] == "workflows_former_rules");
        former.collect::<Vec<_>>()
    };
    let problems = former_problems(&house);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let message = problems[0]["message"].as_str().unwrap();
    assert!(
        message.contains("`input.folder` decides in which folder it runs [E070]"),
        "{message}"
    );

    // The definition that was frozen runs again as it is, also when the file has changed and is an error now.
    house.write_workflow("all.yaml", &format!("{FORMER}# edited\n"));
    await_that("the edited file is an error", || {
        let problems = typed(&house, &["status", "--json"]).json()["problems"].to_string();
        problems
            .contains("E070")
            .then_some(())
            .filter(|()| former_problems(&house).is_empty())
    });
    let retried: JobJson = house.post(&format!("/api/jobs/{job}/retry")).unwrap();
    house.await_job(retried.id, "failed");
    house.await_log_line(retried.id, "where", "/");
}
