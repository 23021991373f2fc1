//! Many tabs of one browser: each is live, and the server has one stream for all of them.

use crate::browser::Browser;
use crate::house::{House, PATIENT};

const WORKFLOWS: &str = "
tasks:
  gated:
    flow:
      work: { script: 'while [ ! -e LEDGER.gate ]; do sleep 0.05; done' }
";

#[test]
fn ten_tabs_are_live_on_one_stream() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("gated");
    house.await_step(job_id, "work", "running");
    let browser = Browser::hearing_workers(&house.url());
    let mut tabs = vec![browser.tab()];
    tabs.extend((1..10).map(|_| browser.new_tab()));
    for tab in &tabs {
        tab.open(&format!("/jobs/{job_id}"));
        tab.await_text("#live", "live");
        assert_eq!(tab.text(".title .state"), "running");
    }

    house.open_gate();
    for tab in &tabs {
        tab.await_text(".title .state", "completed");
    }

    let requests = browser.ends();
    let streams = requests
        .iter()
        .filter(|request| request.url.contains("/api/events"));
    let streams: Vec<&str> = streams.map(|request| request.url.as_str()).collect();
    assert_eq!(streams.len(), 1, "{streams:?}");
    house.check();
}

/// A page that is not secure, as most are within a house: what browsers give only to HTTPS is not needed.
#[test]
fn a_server_that_is_not_localhost_is_live_too() {
    let settings = format!("public_url: http://stepward.test\n{PATIENT}");
    let house = House::with_settings(WORKFLOWS, &settings);
    let site = house.url().replace("127.0.0.1", "stepward.test");
    let browser = Browser::visiting(&site);
    let tabs = [browser.tab(), browser.new_window()];
    for tab in &tabs {
        tab.open("/jobs");
        assert_eq!(tab.script("return isSecureContext"), false);
        tab.await_text("#live", "live");
    }
    let job_id = house.submit("gated");
    for tab in &tabs {
        tab.await_text("tbody td", &job_id.to_string());
    }
    // Copying works without the clipboard that only secure pages have.
    tabs[0].open("/tasks/gated");
    tabs[0].click("[data-copy]");
    tabs[0].await_text("[data-copy]", "copied");
    assert_eq!(tabs[0].count("textarea:not([id])"), 0);
    browser.ends();
    house.check();
}

/// Some browsers on phones have no workers that tabs share: then each tab that is seen has a stream of its own.
#[test]
fn a_browser_without_shared_workers_is_live_too() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    let without = serde_json::json!({"source": "delete window.SharedWorker"});
    tab.devtools("Page.addScriptToEvaluateOnNewDocument", without);
    tab.open("/jobs");
    assert_eq!(tab.script("return 'SharedWorker' in window"), false);
    tab.await_text("#live", "live");
    let job_id = house.submit("gated");
    tab.await_text("tbody td", &job_id.to_string());
    browser.ends();
    house.check();
}
