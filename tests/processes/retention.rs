//! What is too old, at the prompt: kept, pruned, and said plainly where it is gone.

use std::process::Command;

use rusqlite::Connection;
use serde_json::Value;

use crate::house::{BINARY, House, await_that};
use crate::typed::typed;

const HELLO: &str = "
tasks:
  hello:
    flow:
      hello: { script: echo hello from the step }
";

#[test]
fn somebody_prunes_what_is_old_and_what_somebody_keeps_stays() {
    let mut house = House::with(HELLO);
    let _worker = house.worker(1);
    let (kept, gone) = (house.submit("hello"), house.submit("hello"));
    for job_id in [kept, gone] {
        house.await_job(job_id, "completed");
        house.await_log_line(job_id, "hello", "hello from the step");
    }
    let said = typed(&house, &["job", "keep", &kept.to_string()]);
    assert_eq!(
        said.stdout,
        format!("job {kept} hello is kept until it is released\n")
    );
    assert!(house.job(kept).kept);

    let prune = |rest: &[&str]| typed(&house, &[&["prune", "--jobs-older", "1s"], rest].concat());
    // A second must have passed since they ended.
    await_that("both are old enough", || {
        let would = prune(&["--dry-run", "--json"]).json();
        (would["jobs"] == 1 && would["needed"] == 1).then_some(())
    });
    let would = prune(&["--dry-run"]);
    assert!(
        would.stdout.starts_with("1 job would go, with "),
        "{would:?}"
    );
    assert_eq!(house.job(gone).id, gone, "nothing was removed");
    let pruned = prune(&[]);
    assert!(
        pruned.stdout.starts_with("1 job removed, with "),
        "{pruned:?}"
    );
    assert!(pruned.stdout.contains("1 job stays:"), "{pruned:?}");
    let shown = typed(&house, &["job", "show", &gone.to_string()]);
    assert_ne!(shown.code, Some(0), "{shown:?}");
    let logs = house.path("data/logs");
    assert!(logs.join(kept.to_string()).exists() && !logs.join(gone.to_string()).exists());

    typed(&house, &["job", "release", &kept.to_string()]);
    let of_gone = || {
        let events: Value = house.get("/api/events?after=0&limit=500");
        let events = events["items"].as_array().unwrap().clone();
        events
            .iter()
            .filter(|event| event["job_id"] == gone)
            .count()
    };
    assert!(of_gone() > 0, "events outlive their jobs");
    let pruned = prune(&["--events", "--json"]).json();
    assert_eq!(pruned["jobs"], 1);
    assert!(pruned["events"].as_u64() > Some(1), "{pruned}");
    assert_eq!(of_gone(), 0);
    let pruned = prune(&["--events"]);
    assert!(
        pruned
            .stdout
            .contains("0 events of jobs that are gone removed"),
        "{pruned:?}"
    );
    let stats: Value = house.get("/api/retention");
    assert!(stats["rounds"].as_u64() >= Some(1), "{stats}");
    assert_eq!(stats["database_shrinks"], true, "{stats}");

    for (age, why) in [("soon", "is not a duration"), ("0", "at least 1s")] {
        let refused = typed(&house, &["prune", "--jobs-older", age]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    house.check();
}

#[test]
fn what_was_retried_goes_together_with_its_retries() {
    let mut house = House::with("tasks: { fails: { flow: { no: { script: exit 1 } } } }");
    let _worker = house.worker(1);
    let first = house.submit("fails");
    house.await_job(first, "failed");
    for tried in first..first + 3 {
        let retried = typed(&house, &["retry", &tried.to_string()]);
        assert_eq!(retried.code, Some(10), "{retried:?}");
        house.await_job(tried + 1, "failed");
    }
    let prune = |rest: &[&str]| {
        let words = [&["prune", "--jobs-older", "1s", "--json"], rest].concat();
        typed(&house, &words).json()
    };
    await_that("the last is old enough", || {
        let would = prune(&["--dry-run"]);
        (would["jobs"] == 1 && would["needed"] == 3).then_some(())
    });
    let pruned = prune(&[]);
    assert_eq!((&pruned["jobs"], &pruned["needed"]), (&4.into(), &0.into()));
    house.check();
}

#[test]
fn a_job_whose_logs_are_gone_says_so_everywhere() {
    let mut house = House::with(HELLO);
    let worker = house.worker(1);
    let job_id = house.submit("hello");
    house.await_job(job_id, "completed");
    house.await_log_line(job_id, "hello", "hello from the step");
    drop(worker);
    // Killed after it was said and before it was so: the next start finishes it.
    house.kill_server();
    let sql = Connection::open(house.path("data/stepward.db")).unwrap();
    sql.execute("UPDATE job SET logs_removed_at = 1700000000000", [])
        .unwrap();
    drop(sql);
    house.start_server();
    let folder = house.path("data/logs").join(job_id.to_string());
    await_that("its files are gone", || (!folder.exists()).then_some(()));

    let logs = house.log(job_id, "hello");
    assert!(logs.removed_at.is_some() && logs.lines.is_empty());
    let raw = format!("{}/api/jobs/{job_id}/steps/hello/logs?raw=1", house.url());
    let raw = Command::new("curl")
        .args(["-s", "-i", &raw])
        .output()
        .unwrap();
    let raw = String::from_utf8_lossy(&raw.stdout).into_owned();
    assert!(
        raw.starts_with("HTTP/1.1 410") && raw.contains("retention.log_days"),
        "{raw}"
    );
    let typed_logs = typed(&house, &["logs", &job_id.to_string()]);
    assert!(typed_logs.stderr.contains("was removed"), "{typed_logs:?}");
    let shown = typed(&house, &["job", "show", &job_id.to_string()]);
    assert!(shown.stdout.contains("removed"), "{shown:?}");
    let page = format!("{}/jobs/{job_id}?step=hello", house.url());
    let page = Command::new("curl").args(["-s", &page]).output().unwrap();
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(page.contains("What it printed was removed"), "{page}");
    house.check();
}

#[test]
fn a_stopped_folder_is_pruned_and_compacted_and_one_in_use_is_not() {
    let mut house = House::with(HELLO);
    let worker = house.worker(1);
    let job_id = house.submit("hello");
    house.await_job(job_id, "completed");
    drop(worker);
    let data = house.path("data");
    let run = |words: &[&str]| {
        let output = Command::new(BINARY)
            .args(words)
            .arg(&data)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, _, said) = run(&["db", "compact"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is in use by another server"), "{said}");
    house.stop_server();
    let mut pruned = await_that("it is a second old", || {
        let (_, json, said) = run(&["prune", "--jobs-older", "1s", "--json", "--data-dir"]);
        let json: Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{said}"));
        (json["jobs"] == 1).then_some(json)
    });
    assert_eq!(pruned["dry_run"].take(), false);
    let (code, said, _) = run(&["db", "compact"]);
    assert_eq!(code, Some(0));
    assert!(said.contains(" before, "), "{said}");
    let (code, said, _) = run(&["db", "check"]);
    assert_eq!(code, Some(0), "{said}");
}
