//! Pages without a mouse.

use crate::browser::Browser;
use crate::house::{House, PATIENT};
use crate::tab::Tab;

const WORKFLOWS: &str = "
tasks:
  diamond:
    flow:
      last:  { depends_on: [left, right], script: 'true' }
      left:  { depends_on: [first], script: 'true' }
      right: { depends_on: [first], script: 'true' }
      first: { script: 'true' }
";

fn focused(tab: &Tab) -> String {
    let focused = "return document.activeElement.innerText || document.activeElement.id";
    tab.script(focused).as_str().unwrap().trim().to_string()
}

fn await_path(tab: &Tab, path: &str) {
    tab.await_that(path, |tab| (tab.path() == path).then_some(()));
}

#[test]
fn letters_lead_everywhere_and_can_be_turned_off() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    for _ in 0..3 {
        let job_id = house.submit("diamond");
        house.await_job(job_id, "completed");
    }
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/");
    let ways = [
        ("t", "/tasks"),
        ("j", "/jobs"),
        ("q", "/queue"),
        ("w", "/workers"),
        ("s", "/schedules"),
        ("e", "/events"),
        ("r", "/recovery"),
        ("x", "/settings"),
        ("o", "/"),
    ];
    for (letter, path) in ways {
        tab.press(&format!("g {letter}"));
        await_path(&tab, path);
    }
    // A letter alone, or too long after the first one, leads nowhere.
    tab.press("j");
    assert_eq!(tab.path(), "/");

    tab.press("/");
    await_path(&tab, "/jobs#filter");
    tab.await_that("the filter has the focus", |tab| {
        (focused(tab) == "q").then_some(())
    });
    // Letters that are typed are letters.
    tab.press("g w ?");
    assert_eq!(tab.value("#q"), "gw?");
    assert_eq!(tab.count("dialog[open]"), 0);
    tab.type_into("#q", "");
    tab.script("document.activeElement.blur()");
    tab.press("/");
    assert_eq!(focused(&tab), "q");
    tab.script("document.activeElement.blur()");

    tab.press("j");
    assert_eq!(focused(&tab), "3");
    tab.press("j j");
    assert_eq!(focused(&tab), "1");
    tab.press("k");
    assert_eq!(focused(&tab), "2");
    tab.press("Enter");
    await_path(&tab, "/jobs/2");
    // With a modifier they belong to the browser.
    tab.press("Control+g");
    tab.press("j");
    await_path(&tab, "/jobs/2");

    tab.press("?");
    tab.await_text("dialog[open] h2", "Keys");
    tab.press("g w");
    await_path(&tab, "/jobs/2");
    tab.press("Escape");
    tab.await_gone("dialog[open]");
    tab.press("?");
    tab.await_text("dialog[open] h2", "Keys");
    tab.click("#keys-off");
    tab.press("Escape");
    tab.await_gone("dialog[open]");
    tab.press("g w ? /");
    assert_eq!(tab.path(), "/jobs/2");
    assert_eq!(tab.count("dialog[open]"), 0);
    // It holds for the browser, and can be taken back.
    tab.open("/workers");
    tab.press("g j");
    assert_eq!(tab.path(), "/workers");
    tab.click("#help-open");
    tab.click("#keys-off");
    tab.press("Escape");
    tab.press("g j");
    await_path(&tab, "/jobs");
    browser.ends();
    house.check();
}

#[test]
fn the_first_tab_stop_skips_the_ways_and_focus_is_seen() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("diamond");
    house.await_job(job_id, "completed");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    for path in ["/", "/jobs", "/tasks/diamond", &format!("/jobs/{job_id}")] {
        tab.open(path);
        tab.press("Tab");
        assert_eq!(focused(&tab), "Skip to the content", "{path}");
        let seen = "
            const box = document.activeElement.getBoundingClientRect();
            return box.left >= 0 && box.top >= 0 && box.width > 20 && getComputedStyle(document.activeElement).outlineStyle !== 'none'";
        assert_eq!(tab.script(seen), true, "{path}");
        tab.press("Enter");
        tab.await_that("main has the focus", |tab| {
            (tab.script("return document.activeElement.id") == "main").then_some(())
        });
        assert_eq!(
            tab.script("return document.querySelectorAll('h1').length"),
            1,
            "{path}"
        );
        let marks = "return ['header', 'nav', 'main', 'footer'].map(name => document.querySelectorAll(`body > ${name}, header > ${name}`).length > 0)";
        assert_eq!(
            tab.script(marks),
            serde_json::json!([true, true, true, true]),
            "{path}"
        );
    }
    browser.ends();
    house.check();
}

#[test]
fn the_nodes_of_a_graph_are_reached_in_the_order_of_the_work() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("diamond");
    house.await_job(job_id, "completed");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    tab.script("document.querySelector('.graph-box').focus()");
    let mut order = Vec::new();
    for _ in 0..4 {
        tab.press("Tab");
        let at = "
            const link = document.activeElement;
            return link.closest('#graph') ? new URL(link.href?.baseVal ?? link.href, location).searchParams.get('step') : 'outside'";
        order.push(tab.script(at).as_str().unwrap_or("?").to_string());
    }
    assert!(
        order == ["first", "left", "right", "last"] || order == ["first", "right", "left", "last"],
        "{order:?}"
    );
    tab.press("Enter");
    tab.await_text("#step-title", "Step last");
    browser.ends();
    house.check();
}

#[test]
fn live_updates_can_be_paused_and_the_theme_chosen() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.theme(crate::tab::Theme::Light);
    tab.open("/jobs");
    tab.await_text("#live", "live");
    tab.press("p");
    tab.await_text("#live", "paused");
    let job_id = house.submit("diamond");
    let _worker = house.worker(1);
    house.await_job(job_id, "completed");
    assert_eq!(tab.count("tbody tr"), 0);
    tab.press("p");
    tab.await_text("tbody tr .state", "completed");

    let ground = "return getComputedStyle(document.body).backgroundColor";
    let light = tab.script(ground);
    tab.press("t");
    let dark = tab.script(ground);
    assert_ne!(light, dark);
    // The server knows: the next page begins so.
    tab.open("/workers");
    assert_eq!(tab.attribute("html", "data-theme").unwrap(), "dark");
    assert_eq!(tab.script(ground), dark);
    tab.press("t");
    tab.theme(crate::tab::Theme::Dark);
    assert_eq!(tab.script(ground), light);
    tab.press("t");
    assert_eq!(tab.attribute("html", "data-theme"), None);
    assert_eq!(tab.script(ground), dark);
    browser.ends();
    house.check();
}
