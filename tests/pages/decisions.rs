//! What waits for a person: approve with values, reject with a reason, retry from a step.

use crate::browser::Browser;
use crate::house::{House, PATIENT};

const WORKFLOWS: &str = "
tasks:
  release:
    flow:
      build: { script: 'echo built >> LEDGER' }
      ask:
        type: approval
        depends_on: [build]
        message: Publish <b>it</b>?
        input:
          copies: { type: integer, min: 1, max: 9, required: true, description: How many }
          note:   { type: string }
      publish:
        depends_on: [ask]
        env: { COPIES: '{{ steps.ask.output.copies }}' }
        script: 'echo published $COPIES >> LEDGER'
  fails:
    flow:
      first:  { script: 'echo first >> LEDGER' }
      second: { depends_on: [first], script: 'echo second >> LEDGER' }
      third:  { depends_on: [second], script: 'echo third >> LEDGER; [ -e LEDGER.gate ]' }
";

#[test]
fn an_approval_takes_what_it_asks_for_and_nothing_else() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("release");
    house.await_step(job_id, "ask", "suspended");
    let browser = Browser::visiting(&house.url());
    browser.excuse("422 (Unprocessable");
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    assert!(tab.shows(".decision", "ask waits for a person: Publish <b>it</b>?"));
    tab.click_on("Approve…");
    tab.await_text("dialog[open] h1", "Approve ask?");
    assert!(tab.shows("dialog", "How many"));
    tab.type_into("dialog [id='input.copies']", "12");
    tab.type_into("dialog [id='input.note']", "kept");
    tab.click("dialog button.primary");
    // Refused: the question once more, with what is wrong.
    tab.await_text("[id='input.copies-fault']", "9");
    assert_eq!(tab.value("[id='input.copies']"), "12");
    assert_eq!(tab.value("[id='input.note']"), "kept");
    assert_eq!(house.step(job_id, "ask").status, "suspended");
    tab.type_into("[id='input.copies']", "4");
    tab.click_on("Approve");
    tab.await_text(".said", "The step was approved.");
    tab.await_text(".title .state", "completed");
    assert_eq!(tab.count(".decision"), 0);
    assert_eq!(house.read("ledger"), "built\npublished 4\n");

    // Who comes too late is told.
    browser.excuse("409 (Conflict");
    tab.open(&format!("/jobs/{job_id}/steps/ask/approve"));
    tab.await_text("h1", "Not possible now");
    tab.await_text(".refused", "step ask is completed");
    browser.ends();
    house.check();
}

#[test]
fn a_rejection_is_written_down_and_fails_what_depends_on_it() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("release");
    house.await_step(job_id, "ask", "suspended");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    tab.click_on("Reject…");
    tab.await_text("dialog[open]", "what depends on it is skipped");
    tab.type_into("dialog #act-why", "not on a <i>Friday</i>");
    tab.click_on("Reject");
    tab.await_text(".said", "The step was rejected.");
    tab.await_text(".title .state", "failed");
    tab.await_text("#why", "not on a <i>Friday</i>");
    assert_eq!(
        tab.texts("#steps tbody .state"),
        ["completed", "failed", "skipped"]
    );
    assert_eq!(house.read("ledger"), "built\n");
    browser.ends();
    house.check();
}

#[test]
fn a_job_is_retried_from_a_step_or_from_where_it_failed() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("fails");
    house.await_job(job_id, "failed");
    assert_eq!(house.read("ledger"), "first\nsecond\nthird\n");
    house.open_gate();
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}?step=second"));
    tab.click_on("Retry from here…");
    tab.await_text("dialog[open] h1", "Retry job 1 fails?");
    assert_eq!(tab.value("dialog [name=from]"), "second");
    let scope = "return document.querySelector('dialog [name=scope]:checked').value";
    assert_eq!(tab.script(scope), "from");
    tab.click("dialog button.primary");
    tab.await_text(".said", "This is the new job.");
    assert_eq!(tab.path(), "/jobs/2");
    tab.await_text(".title .state", "completed");
    assert_eq!(
        house.read("ledger"),
        "first\nsecond\nthird\nsecond\nthird\n"
    );

    // Each leads to the other.
    tab.click_on("job 1");
    tab.await_text("h1", "job 1");
    tab.click_on("job 2 fails");
    tab.await_text("h1", "job 2");

    tab.open("/jobs/1");
    tab.click_on("Retry…");
    tab.await_text("dialog[open]", "not again what did (2 steps)");
    tab.click("dialog button.primary");
    tab.await_text("h1", "job 3");
    tab.await_text(".title .state", "completed");
    assert_eq!(
        house.read("ledger"),
        "first\nsecond\nthird\nsecond\nthird\nthird\n"
    );
    browser.ends();
    house.check();
}
