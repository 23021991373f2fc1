//! The server goes away under pages that are open, and comes back.

use crate::browser::Browser;
use crate::house::{House, PATIENT, await_that};

const WORKFLOWS: &str = "
tasks:
  gated:
    flow:
      work:  { script: 'while [ ! -e LEDGER.gate ]; do sleep 0.05; done' }
      after: { depends_on: [work], script: 'echo after' }
  quick:
    flow:
      work: { script: 'true' }
";

#[test]
fn pages_keep_what_they_show_reconnect_and_miss_nothing() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let worker = house.worker(2);
    let job_id = house.submit("gated");
    house.await_step(job_id, "work", "running");
    let browser = Browser::visiting(&house.url());
    // What a browser says of a server that is not there.
    browser.excuse("net::ERR_");
    let (job, jobs) = (browser.tab(), browser.new_window());
    job.open(&format!("/jobs/{job_id}"));
    jobs.open("/jobs");
    let both = [&job, &jobs];
    for tab in both {
        tab.await_text("#live", "live");
        tab.script("window.story = 'the same page'");
    }

    house.kill_server();
    for tab in both {
        tab.await_text("#live", "reconnecting, data from");
    }
    assert_eq!(job.text(".title .state"), "running");
    assert_eq!(jobs.count("tbody tr"), 1);
    // Meanwhile the step ends. Its worker keeps what came of it.
    house.open_gate();
    await_that("the worker has a result to deliver", || {
        (worker.spooled() == 1).then_some(())
    });
    assert_eq!(job.text(".title .state"), "running");

    house.start_server();
    // Before any page can have come back, and right after it has.
    let early = house.submit("quick");
    for tab in both {
        tab.await_text("#live", "live");
    }
    let late = house.submit("quick");
    for job_id in [job_id, early, late] {
        house.await_job(job_id, "completed");
    }
    job.await_text(".title .state", "completed");
    job.await_that("both steps have ended", |tab| {
        let states = tab.texts("#steps tbody .state");
        (states == ["completed", "completed"]).then_some(())
    });
    jobs.await_text("#new-jobs", "2 new");
    jobs.await_text(&format!("#job-{job_id} .state"), "completed");
    for tab in both {
        assert_eq!(tab.script("return window.story"), "the same page");
    }
    jobs.click("#new-jobs");
    jobs.await_that("all are listed", |tab| {
        let states = tab.texts("tbody .state");
        (states == ["completed"; 3]).then_some(())
    });
    browser.ends();
    house.check();
}

#[test]
fn a_log_that_grows_is_whole_after_a_restart() {
    let workflows = "
tasks:
  counting:
    flow:
      work: { script: 'echo first; while [ ! -e LEDGER.gate ]; do sleep 0.05; done; seq 1 500; echo last; SLEEP' }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("counting");
    let browser = Browser::visiting(&house.url());
    browser.excuse("net::ERR_");
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    tab.await_text("#log .pane", "first");
    house.kill_server();
    tab.await_text("#live", "reconnecting");
    house.open_gate();
    house.await_asleep(1);
    assert!(tab.shows("#log .pane", "first"));
    house.start_server();
    tab.await_text("#live", "live");
    tab.await_text("#log .pane .l:last-child", "last");
    tab.await_text("[data-log-count]", "502 lines");
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    tab.await_text(".title .state", "cancelled");
    browser.ends();
    house.check();
}
