//! The list of jobs: filters, rows that stay in their places, several done at once.

use crate::browser::Browser;
use crate::house::{House, PATIENT};

const WORKFLOWS: &str = "
tasks:
  gated:
    flow:
      work: { script: 'while [ ! -e LEDGER.gate ]; do sleep 0.05; done' }
  fails:
    flow:
      good: { script: 'true' }
      bad:  { depends_on: [good], script: 'echo no; exit 3' }
";

#[test]
fn rows_stay_in_their_places_new_ones_wait_and_those_that_left_the_filter_say_so() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(5);
    let first: Vec<i64> = (0..3).map(|_| house.submit("gated")).collect();
    for job_id in &first {
        house.await_step(*job_id, "work", "running");
    }
    let browser = Browser::visiting(&house.url());
    let (filtered, all) = (browser.tab(), browser.new_window());
    filtered.open("/jobs?q=status:running");
    all.open("/jobs");
    for tab in [&filtered, &all] {
        tab.await_text("#live", "live");
        assert_eq!(tab.texts("tbody td:nth-child(2)"), ["3", "2", "1"]);
        tab.click("#tick-2");
    }
    assert_eq!(all.text("[data-bulk=Cancel]"), "Cancel 1 job…");

    let fourth = house.submit("gated");
    for tab in [&filtered, &all] {
        tab.await_text("#new-jobs", "1 new");
        assert_eq!(tab.texts("tbody td:nth-child(2)"), ["3", "2", "1"]);
    }
    // A job that does not fit is not new to this list.
    let fails = house.submit("fails");
    house.await_job(fails, "failed");
    all.await_text("#new-jobs", "2 new");
    filtered.await_text("#new-jobs", "1 new");

    house.cancel(first[1]);
    house.await_job(first[1], "cancelled");
    all.await_text("#job-2 .state", "cancelled");
    filtered.await_that("the row says that it left", |tab| {
        tab.attribute("#job-2.left", "title")
    });
    for tab in [&filtered, &all] {
        assert_eq!(tab.texts("tbody td:nth-child(2)"), ["3", "2", "1"]);
        let ticked =
            "return [...document.querySelectorAll('[name=job]:checked')].map(box => box.value)";
        assert_eq!(tab.script(ticked), serde_json::json!(["2"]));
    }

    filtered.click("#new-jobs");
    filtered.await_that("the list as it is now", |tab| {
        (tab.texts("tbody td:nth-child(2)") == ["4", "3", "1"]).then_some(())
    });
    house.open_gate();
    for job_id in [first[0], first[2], fourth] {
        house.await_job(job_id, "completed");
    }
    browser.ends();
    house.check();
}

#[test]
fn a_filter_is_in_the_address_is_suggested_and_says_what_it_does_not_understand() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    for _ in 0..2 {
        let job_id = house.submit("fails");
        house.await_job(job_id, "failed");
    }
    let browser = Browser::visiting(&house.url());
    // What a browser says of an address that is refused.
    browser.excuse("422 (Unprocessable");
    browser.excuse("400 (Bad");
    let tab = browser.tab();
    tab.open("/jobs");
    tab.type_into("#q", "status:fa");
    let offered = tab.script(
        "return [...document.querySelectorAll('#words option')].map(option => option.value)",
    );
    assert_eq!(offered, serde_json::json!(["status:failed"]));
    tab.type_into("#q", "status:failed task:fa");
    let offered = tab.script(
        "return [...document.querySelectorAll('#words option')].map(option => option.value)",
    );
    assert_eq!(offered, serde_json::json!(["status:failed task:fails"]));
    tab.type_into("#q", "status:failed task:fails");
    tab.press("Enter");
    tab.await_that("the filter is in the address", |tab| {
        (tab.path() == "/jobs?q=status%3Afailed+task%3Afails").then_some(())
    });
    assert_eq!(tab.count("tbody tr"), 2);
    tab.click_on("running");
    tab.await_text(".empty", "No job fits this filter.");
    tab.back();
    assert_eq!(tab.count("tbody tr"), 2);

    tab.type_into("#q", "stats:failed");
    tab.press("Enter");
    tab.await_text("#q-fault", "stats");
    assert_eq!(tab.value("#q"), "stats:failed");
    assert_eq!(tab.attribute("#q", "aria-invalid").unwrap(), "true");
    browser.ends();
    house.check();
}

#[test]
fn several_jobs_are_cancelled_or_retried_at_once_and_their_number_is_named() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(3);
    let running: Vec<i64> = (0..3).map(|_| house.submit("gated")).collect();
    for job_id in &running {
        house.await_step(*job_id, "work", "running");
    }
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/jobs");
    let is_disabled = "return document.querySelector('[data-bulk=Cancel]').disabled";
    assert_eq!(tab.script(is_disabled), true, "nothing is ticked");
    tab.click("#tick-1");
    tab.click("#tick-3");
    tab.click("[data-bulk=Cancel]");
    tab.await_text("dialog[open] h1", "Cancel 2 jobs?");
    assert_eq!(house.job(1).status, "running");
    tab.click_on("No, go back");
    tab.await_gone("dialog[open]");
    tab.click("[data-bulk=Cancel]");
    tab.click_on("Cancel them");
    tab.await_text(".said", "2 jobs are being cancelled.");
    for job_id in [1, 3] {
        house.await_job(job_id, "cancelled");
        tab.await_text(&format!("#job-{job_id} .state"), "cancelled");
    }
    assert_eq!(house.job(2).status, "running");

    tab.click("#all-jobs");
    assert_eq!(tab.text("[data-bulk=Retry]"), "Retry 3 jobs…");
    tab.click("[data-bulk=Retry]");
    tab.await_text("dialog[open] h1", "Retry 2 of 3 jobs?");
    tab.click_on("Retry them");
    tab.await_text(
        ".said",
        "2 of 3 jobs were retried; 1 could not be, look at their pages.",
    );
    house.open_gate();
    for job_id in [2, 4, 5] {
        house.await_job(job_id, "completed");
    }
    assert_eq!(house.job(4).retry_of, Some(1));
    assert_eq!(house.job(5).retry_of, Some(3));
    browser.ends();
    house.check();
}

#[test]
fn older_jobs_are_on_further_pages() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    for _ in 0..120 {
        house.submit("gated");
    }
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/jobs");
    assert_eq!(tab.count("tbody tr"), 50);
    tab.click_on("older");
    tab.await_text("tbody td:nth-child(2)", "70");
    // Somebody adds one: the page of older ones neither moves nor offers it.
    house.submit("gated");
    tab.click_on("older");
    tab.await_text("tbody td:nth-child(2)", "20");
    assert_eq!(tab.count("tbody tr"), 20);
    assert_eq!(tab.texts("tbody td:nth-child(2)").last().unwrap(), "1");
    tab.back();
    tab.await_text("tbody td:nth-child(2)", "70");
    tab.click_on("newest");
    tab.await_text("tbody td:nth-child(2)", "121");
    browser.ends();
    house.check();
}
