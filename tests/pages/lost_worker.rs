//! A worker dies while people look at pages.

use crate::browser::Browser;
use crate::house::{House, SETTINGS};

const WORKFLOWS: &str = "
tasks:
  long:
    flow:
      work:  { script: 'echo begun; SLEEP' }
      after: { depends_on: [work], script: 'true' }
";

const NOTE_WIDEST_BAR: &str = "
window.widest = 0
new MutationObserver(() => {
  const bar = document.querySelector('#worker-1 .beat.late .age')
  window.widest = Math.max(window.widest, Number(bar?.getAttribute('width') ?? 0))
}).observe(document, { subtree: true, childList: true, attributes: true })
";

#[test]
fn a_killed_worker_is_seen_to_fall_silent_and_what_recovery_did_is_told() {
    // The page has three seconds to draw the bar between its half and its end, on a machine that is busy with other tests, too.
    let timeout = "heartbeat_timeout_secs: ";
    let settings = SETTINGS.replace(&format!("{timeout}3"), &format!("{timeout}6"));
    assert_ne!(settings, SETTINGS);
    let mut house = House::with_settings(WORKFLOWS, &settings);
    let mut worker = house.worker(2);
    let job_id = house.submit("long");
    house.await_asleep(1);
    let browser = Browser::visiting(&house.url());
    let (job, workers, recovery) = (browser.tab(), browser.new_window(), browser.new_window());
    job.open(&format!("/jobs/{job_id}?step=work"));
    workers.open("/workers");
    recovery.open("/recovery");
    for tab in [&job, &workers, &recovery] {
        tab.await_text("#live", "live");
        // Gone as soon as somebody loads the page again.
        tab.script("window.story = 'the same page'");
    }
    assert_eq!(workers.text("#worker-1 .state"), "active");
    assert!(workers.text("#worker-1 .slots").contains("1/work"));
    assert_eq!(job.text(".title .state"), "running");
    assert!(!job.shows("#server-events", "worker_inactive"));

    // The page notes the widest bar itself: a question from here may come when the bar is gone.
    workers.script(NOTE_WIDEST_BAR);
    worker.kill();
    workers.await_that("the bar grows beyond its half", |tab| {
        let widest = tab.script("return window.widest");
        (widest.as_u64() > Some(50)).then_some(())
    });
    recovery.await_text("table", "w1");

    workers.await_text("#worker-1 .state", "inactive");
    workers.await_gone("#worker-1 .beat");
    job.await_text(".title .state", "failed");
    job.await_text("#why", "w1");
    job.await_text("#server-events tr.recovery", "step_failed");
    job.await_text("#server-events tr.recovery td:nth-child(3)", "1");
    job.await_text("#steps", "worker_lost");
    job.await_text("#step", "worker_lost");
    recovery.await_text("tr.recovery", "worker_inactive");
    for tab in [&job, &workers, &recovery] {
        assert_eq!(tab.script("return window.story"), "the same page");
    }

    let overview = browser.new_tab();
    overview.open("/");
    overview.await_text("#problems", "w1");

    // It comes back: nobody has to look twice to see that.
    worker.start();
    workers.await_text("#worker-1 .state", "active");
    workers.await_that("the bar is there again", |tab| {
        (tab.count("#worker-1 .beat") == 1).then_some(())
    });
    browser.ends();
    house.check();
}
