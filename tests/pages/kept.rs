//! Pages change by themselves, and what a person has in hand stays.

use crate::browser::Browser;
use crate::house::{House, PATIENT};
use crate::tab::Tab;

/// Each step waits until the ledger has a file with its name.
const WORKFLOWS: &str = "
tasks:
  gated:
    description: One after the other
    input:
      name: { type: string, default: nobody }
    flow:
      first:  { script: 'while [ ! -e LEDGER.first ]; do sleep 0.02; done' }
      second: { depends_on: [first], script: 'while [ ! -e LEDGER.second ]; do sleep 0.02; done' }
      third:  { depends_on: [second], script: 'while [ ! -e LEDGER.third ]; do sleep 0.02; done' }
";

fn open(house: &House, gate: &str) {
    std::fs::write(house.path(&format!("ledger.{gate}")), "").unwrap();
}

fn await_states(tab: &Tab, states: &[&str]) {
    tab.await_that(&format!("{states:?}"), |tab| {
        (tab.texts("#steps tbody .state") == states).then_some(())
    });
}

#[test]
fn focus_selection_scroll_and_what_was_opened_survive_a_change() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("gated");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.size(1000, 400);
    tab.open(&format!("/jobs/{job_id}?step=first"));
    await_states(&tab, &["running", "pending", "pending"]);

    // The graph is closed, a sentence of the steps is selected, a link has the focus, and the page is scrolled.
    tab.script("document.querySelector('#graph').open = false");
    let hold = "
        const link = document.querySelector('#steps tr:nth-child(3) a[data-open]');
        link.focus({preventScroll: true});
        const heading = document.querySelector('#steps-title').firstChild;
        getSelection().setBaseAndExtent(heading, 0, heading, 5);
        document.documentElement.scrollTop = 100;
        window.held = link";
    tab.script(hold);
    let held = "
        return [document.activeElement === window.held, getSelection().toString(), document.documentElement.scrollTop,
            document.querySelector('#graph').open, document.querySelector('#timeline').open]";
    let before = tab.script(held);
    assert_eq!(before, serde_json::json!([true, "Steps", 100, false, true]));

    open(&house, "first");
    await_states(&tab, &["completed", "running", "pending"]);
    open(&house, "second");
    await_states(&tab, &["completed", "completed", "running"]);
    assert_eq!(tab.script(held), before);
    open(&house, "third");
    await_states(&tab, &["completed"; 3]);
    tab.await_text(".title .state", "completed");
    assert_eq!(tab.script(held), before);
    browser.ends();
    house.check();
}

#[test]
fn what_is_being_typed_survives_a_change() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/tasks/gated");
    tab.await_text("#live", "live");
    tab.type_into("[id='input.name']", "Ada");
    tab.click_on("Priority, earliest start, labels");
    tab.type_into("#labels", "half a lab");
    let held = "
        const field = document.activeElement;
        return [field.id, field.value, field.selectionStart, document.getElementById('input.name').value,
            document.querySelector('#run details').open, document.querySelector('#run .command code').textContent]";
    let before = tab.script(held);
    let command = "stepward run gated -i name=Ada --label 'half a lab'";
    assert_eq!(
        before,
        serde_json::json!(["labels", "half a lab", 10, "Ada", true, command])
    );
    let job_id = house.submit("gated");
    tab.await_text("#past-1 .state", "running");
    for gate in ["first", "second", "third"] {
        open(&house, gate);
    }
    house.await_job(job_id, "completed");
    tab.await_text("#past-1 .state", "completed");
    assert_eq!(tab.script(held), before);

    // A page of the form that is older than what changed still sends what was typed.
    tab.type_into("#labels", "team=ours");
    tab.click_on("Run");
    tab.await_text(".said", "submitted");
    tab.await_text("dl.pairs", r#""team":"ours""#);
    browser.ends();
    house.check();
}

#[test]
fn a_question_stays_open_while_the_page_behind_it_changes() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("gated");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    await_states(&tab, &["running", "pending", "pending"]);
    tab.click_on("Cancel…");
    tab.await_text("dialog[open] h1", "Cancel job 1 gated?");
    tab.type_into("dialog #act-why", "because of");
    open(&house, "first");
    await_states(&tab, &["completed", "running", "pending"]);
    assert_eq!(tab.value("dialog #act-why"), "because of");
    assert_eq!(tab.script("return document.activeElement.id"), "act-why");
    tab.press("Escape");
    tab.await_gone("dialog[open]");
    // Nothing was done by closing it.
    assert_eq!(house.job(job_id).status, "running");
    tab.click_on("Cancel…");
    tab.type_into("dialog #act-why", "<b>wrong</b> branch");
    tab.click_on("Cancel the job");
    tab.await_text(".said", "The job is being cancelled.");
    tab.await_text(".title .state", "cancelled");
    tab.await_text("#server-events", "<b>wrong</b> branch");
    assert_eq!(tab.count("dialog[open]"), 0);
    browser.ends();
    house.check();
}

/// What is seen is measured where it is seen; how long that may take is for the benchmark to say.
#[test]
fn a_change_is_on_the_screen_soon() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let browser = Browser::visiting(&house.url());
    let (job, overview) = (browser.tab(), browser.new_window());
    overview.open("/");
    overview.await_text("#live", "live");
    let mut took = Vec::new();
    let mut measured = |what: &str, at_ms: i64, tab: &Tab| {
        let ms = tab.await_sight() - at_ms as f64;
        println!("{what}: {ms:.0} ms from the change to the screen");
        took.push(ms);
    };
    overview.look_out("#running-1", "gated");
    let job_id = house.submit("gated");
    house.await_step(job_id, "first", "running");
    let started = house.job(job_id).started_at.unwrap();
    measured("a job started, overview", started.0.0, &overview);
    job.open(&format!("/jobs/{job_id}"));
    job.await_text("#live", "live");
    for (n, step) in ["first", "second", "third"].into_iter().enumerate() {
        await_states_begin(&job, n);
        job.look_out(
            &format!("#steps tbody tr:nth-child({}) .state", n + 1),
            "completed",
        );
        open(&house, step);
        let ended = house.await_step(job_id, step, "completed").ended_at;
        measured(&format!("step {step} ended, job"), ended.unwrap().0.0, &job);
    }
    assert!(took.iter().all(|ms| *ms < 3_000.0), "{took:?}");
    browser.ends();
    house.check();
}

/// The step of this number runs, as far as the page knows.
fn await_states_begin(tab: &Tab, n: usize) {
    let css = format!("#steps tbody tr:nth-child({}) .state", n + 1);
    tab.await_text(&css, "running");
}
