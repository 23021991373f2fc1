//! Pages without scripts: everything can be read, and everything can be done.

use crate::browser::Browser;
use crate::house::{House, PATIENT};

const WORKFLOWS: &str = "
tasks:
  release:
    input:
      version: { type: string, required: true, pattern: '^[0-9.]+$' }
    schedules:
      two: { cron: '0 2 * * *', input: { version: 2.0.0 } }
    flow:
      build: { script: 'seq 1 1000; echo $INPUT_VERSION' }
      ask:   { type: approval, depends_on: [build], message: Publish it? }
  fails:
    flow:
      work: { script: '[ -e LEDGER.gate ]' }
  long:
    flow:
      work: { script: 'SLEEP' }
";

#[test]
fn everything_can_be_done_by_forms_alone() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(2);
    let browser = Browser::without_scripts(&house.url());
    browser.excuse("422 (Unprocessable");
    let tab = browser.tab();
    tab.open("/tasks/release");
    assert_eq!(
        tab.script("return document.querySelector('#help-open').hidden"),
        true,
        "no script ran"
    );
    tab.type_into("[id='input.version']", "one");
    tab.click_on("Run");
    tab.await_text("[id='input.version-fault']", "^[0-9.]+$");
    tab.type_into("[id='input.version']", "1.0");
    tab.click_on("Run");
    tab.await_text(".said", "submitted");
    house.await_step(1, "ask", "suspended");
    tab.reload();
    tab.await_text(".decision", "Publish it?");
    tab.click_on("Approve…");
    tab.await_text("h1", "Approve ask?");
    tab.click_on("Approve");
    tab.await_text(".said", "approved");
    house.await_job(1, "completed");

    // The log, a page of lines at a time.
    tab.open("/jobs/1?step=build");
    tab.await_text("#log .l", "1.0");
    assert_eq!(tab.count("#L1"), 0);
    tab.click_on("first");
    tab.await_text("#log #L1", "1");
    tab.click_on("later");
    tab.await_text("#log #L201", "201");

    let long = house.submit("long");
    house.await_asleep(1);
    tab.open(&format!("/jobs/{long}"));
    tab.click_on("Cancel…");
    tab.await_text("h1", "Cancel job");
    tab.type_into("#act-why", "no need");
    tab.click_on("Cancel the job");
    tab.await_text(".said", "being cancelled");
    house.await_job(long, "cancelled");

    let fails = house.submit("fails");
    house.await_job(fails, "failed");
    house.open_gate();
    tab.open(&format!("/jobs/{fails}"));
    tab.click_on("Retry…");
    tab.click_on("Retry");
    tab.await_text(".said", "This is the new job.");
    house.await_job(fails + 1, "completed");

    // Several at once.
    let more = [house.submit("long"), house.submit("long")];
    house.await_asleep(2);
    tab.open("/jobs");
    for job_id in more {
        tab.click(&format!("#tick-{job_id}"));
    }
    tab.click_on("Cancel");
    tab.await_text("h1", "Cancel 2 jobs?");
    tab.click_on("Cancel them");
    tab.await_text(".said", "2 jobs are being cancelled.");
    for job_id in more {
        house.await_job(job_id, "cancelled");
    }

    tab.open("/workers");
    tab.click_on("Pause");
    tab.click_on("Pause");
    tab.await_text("#worker-1 .state", "paused");
    tab.open("/schedules");
    tab.click_on("Fire now");
    tab.click_on("Fire now");
    tab.await_text("h1", "release");
    browser.ends();
    house.check();
}

#[test]
fn every_page_can_be_read() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("fails");
    house.await_job(job_id, "failed");
    let browser = Browser::without_scripts(&house.url());
    let tab = browser.tab();
    let pages = [
        ("/", "1 problem"),
        ("/tasks", "release"),
        ("/tasks/fails", "How it is written"),
        ("/jobs", "failed"),
        ("/jobs/1", "Server events"),
        ("/queue", "Demand against capacity"),
        ("/workers", "w1"),
        ("/schedules", "02:00"),
        ("/events", "job_failed"),
        ("/recovery", "By which rules"),
        ("/settings", "heartbeat_timeout_secs"),
    ];
    for (path, text) in pages {
        tab.open(path);
        assert!(
            tab.shows("main", text),
            "{path} without {text:?}: {}",
            tab.text("main")
        );
        // What only a script can do is not offered.
        let dead = "
            const all = [...document.querySelectorAll('[data-copy], #new-jobs, #theme, #help-open, [data-log-tools]')];
            return all.filter(e => e.checkVisibility()).length";
        assert_eq!(tab.script(dead), 0, "{path}");
    }
    browser.ends();
    house.check();
}
