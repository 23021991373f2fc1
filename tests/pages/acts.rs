//! What a person does to workers and schedules. Each is asked first, with what it means.

use stepward::wire::api::{List, ScheduleJson};

use crate::browser::Browser;
use crate::house::{House, PATIENT, SETTINGS, await_that};

const WORKFLOWS: &str = "
tasks:
  long:
    flow:
      work: { script: 'SLEEP' }
  nightly:
    schedules:
      two: { cron: '0 2 * * *', timezone: Europe/Oslo }
    flow:
      work: { script: 'true' }
";

#[test]
fn a_worker_is_paused_resumed_and_drained() {
    let mut house = House::with_settings(WORKFLOWS, SETTINGS);
    let mut worker = house.worker(1);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/workers");
    tab.click_on("Pause");
    tab.await_text("dialog[open] h1", "Pause worker w1?");
    tab.await_text("dialog[open]", "It takes nothing more until it is resumed.");
    tab.click("dialog button.primary");
    tab.await_text(
        ".said",
        "The worker takes nothing more until it is resumed.",
    );
    tab.await_text("#live", "live");
    tab.await_text("#worker-1 .state", "paused");
    let job_id = house.submit("nightly");
    tab.open("/queue");
    tab.await_text("main", "w1");
    tab.open("/workers");
    tab.click_on("Resume");
    tab.click("dialog button.primary");
    tab.await_text(".said", "The worker takes steps again.");
    tab.await_text("#worker-1 .state", "active");
    house.await_job(job_id, "completed");

    tab.click_on("Drain");
    tab.await_text("dialog[open]", "It finishes what runs on it");
    tab.click("dialog button.primary");
    tab.await_text(".said", "and leaves");
    assert!(worker.wait(), "it left in peace");
    tab.await_text("#worker-1 .state", "inactive");
    browser.ends();
    house.check();
}

#[test]
fn what_the_deletion_of_a_worker_costs_is_named_before() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let mut worker = house.worker(2);
    let job_id = house.submit("long");
    house.await_asleep(1);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/workers");
    tab.click_on("Delete");
    tab.await_text("dialog[open] h1", "Delete worker w1?");
    tab.await_text(
        "dialog[open] .fault",
        "1 running step of it will fail (worker_deleted)",
    );
    tab.await_text("dialog[open] li", "job 1, step work, running");
    assert_eq!(house.job(job_id).status, "running");
    // It would come back as a new worker.
    worker.kill();
    tab.click("dialog button.danger");
    tab.await_text(".said", "The worker was deleted.");
    tab.await_gone("#worker-1");
    house.await_job(job_id, "failed");
    tab.open("/events");
    tab.await_text("table", "worker_deleted");
    browser.ends();
    house.check();
}

#[test]
fn a_schedule_is_paused_resumed_and_fired_by_hand() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    let schedule = || {
        let all: List<ScheduleJson> = house.get("/api/schedules");
        all.items.into_iter().next()
    };
    let next = await_that("the schedule is known", schedule)
        .next_at
        .unwrap();
    tab.open("/schedules");
    tab.await_text("#schedule-1", "02:00");
    tab.await_text("#schedule-1", "Europe/Oslo");
    tab.click_on("Pause");
    tab.await_text("dialog[open] h1", "Pause schedule nightly.two?");
    tab.click("dialog button.primary");
    tab.await_text(".said", "The schedule is paused");
    tab.await_text("#schedule-1 .state", "paused");
    assert!(schedule().unwrap().paused);
    tab.click_on("Resume");
    tab.click("dialog button.primary");
    tab.await_text(".said", "The schedule makes jobs again.");
    assert!(!schedule().unwrap().paused);

    tab.click_on("Fire now");
    tab.await_text("dialog[open] h1", "Fire nightly.two now?");
    tab.click("dialog button.primary");
    tab.await_text(".said", "The job was submitted.");
    tab.await_text("h1", "nightly job 1");
    tab.await_text(".title .state", "completed");
    assert_eq!(
        schedule().unwrap().next_at.unwrap().0,
        next.0,
        "its next time stays"
    );
    tab.open("/schedules");
    tab.await_text("#schedule-1", "job 1");
    tab.await_text("#schedule-1", "by hand");
    browser.ends();
    house.check();
}
