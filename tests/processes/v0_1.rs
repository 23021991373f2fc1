//! What version 0.1 left behind keeps working: its data folder, its workflow files. `tests/fixtures/v0.1` holds both.

use std::path::Path;
use std::process::Command;

use stepward::wire::api::{JobJson, LogsJson};

use super::house::{BINARY, House, SETTINGS};

/// A folder as the 0.1 server left it when it was killed, unpacked.
fn data_folder_of_0_1() -> tempfile::TempDir {
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
    let new = house.submit("greet");
    house.await_job(new, "completed");
    assert!(log_of(&house, new, "hello").contains("hello, world"));
}

#[test]
fn the_examples_of_0_1_are_still_valid() {
    for path in [
        "tests/fixtures/v0.1/examples",
        "tests/fixtures/v0.1/workflows",
    ] {
        assert!(Path::new(path).is_dir());
        let validated = Command::new(BINARY)
            .args(["validate", path])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&validated.stderr).into_owned();
        assert!(validated.status.success(), "{path}: {told}");
    }
}
