//! Pages in a hand.

use crate::axe::assert_accessible;
use crate::browser::Browser;
use crate::house::{House, PATIENT};

const WORKFLOWS: &str = "
tasks:
  release:
    input:
      version: { type: string, default: 1.0.0 }
    flow:
      build:   { script: 'seq 1 100' }
      ask:     { type: approval, depends_on: [build], message: Publish it? }
      publish: { depends_on: [ask], script: 'echo published' }
";

#[test]
fn a_job_is_run_read_and_approved_on_a_phone() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.phone();
    tab.open("/tasks");
    tab.click_on("Run…");
    tab.await_text("h1", "release");
    tab.click_on("Run");
    tab.await_text(".said", "submitted");
    tab.await_text(".decision", "Publish it?");
    tab.screenshot("phone-job");
    assert_accessible(&tab);
    let is_within = "return document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(tab.script(is_within), true);
    // What a finger has to meet is large enough for one.
    let small = "
        const targets = [...document.querySelectorAll('main a.button, main button, main input, main select, header nav a')];
        const sizes = targets.filter(target => target.offsetParent).map(target => [target, (target.closest('label') ?? target).getBoundingClientRect()]);
        return sizes.filter(([, box]) => box.width < 24 || box.height < 24).map(([target, box]) => `${target.outerHTML} ${box.width}x${box.height}`)";
    let small = tab.script(small);
    let small: Vec<&str> = small
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|line| line.as_str())
        .collect();
    assert_eq!(small, [""; 0]);
    tab.click_on("Approve…");
    tab.await_text("dialog[open] h1", "Approve ask?");
    tab.screenshot("phone-dialog");
    tab.click("dialog button.primary");
    tab.await_text(".said", "approved");
    tab.await_text(".title .state", "completed");
    tab.await_text("#log .pane", "published");
    assert_eq!(tab.script(is_within), true);
    browser.ends();
    house.check();
}
