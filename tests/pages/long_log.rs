//! A log of a million lines: any part of it is at hand, and the page stays small.

use std::time::Instant;

use serde_json::json;

use crate::browser::Browser;
use crate::house::{House, PATIENT};
use crate::http;
use crate::tab::Tab;

/// What it prints; one more line says how it ended.
const LINES: u32 = 1_000_000;
const NODES_MAX: usize = 10_000;

/// Every thousandth line says so, every ten thousandth on the other stream; sections at the beginning; the cause near the end.
const WORKFLOWS: &str = r#"
tasks:
  loud:
    flow:
      print:
        script: |
          echo '::group::the beginning'
          seq 1 50
          echo '::endgroup::'
          awk 'BEGIN {
            for (n = 53; n <= 1000000; n++) {
              if (n % 1000 == 0) print "mark " n;
              else if (n == 900001) { print "error: the disk is full" > "/dev/stderr"; fflush(); }
              else print n;
            }
          }'
          exit 4
  streams:
    flow:
      print:
        script: |
          for n in 1 2 3; do echo "out $n"; sleep 0.1; echo "err $n" >&2; sleep 0.1; done
"#;

fn await_line(tab: &Tab, line: u32, text: &str) {
    tab.await_that(&format!("line {line}: {text}"), |tab| {
        tab.shows(&format!("#L{line} > span:last-child"), text)
            .then_some(())
    });
    // It is not only there, a person sees it.
    let is_seen = "
        const line = document.getElementById(arguments[0])?.getBoundingClientRect();
        const pane = document.querySelector('#log .pane').getBoundingClientRect();
        return line !== undefined && line.top >= pane.top - 1 && line.bottom <= pane.bottom + 1";
    tab.await_that(&format!("line {line} is seen"), |tab| {
        (tab.script_with(is_seen, json!([format!("L{line}")])) == true).then_some(())
    });
    let nodes = tab.nodes();
    assert!(nodes < NODES_MAX, "{nodes} nodes");
}

/// Lines stand under each other without a gap, in their order.
fn assert_in_order(tab: &Tab) {
    let faults = "
        const lines = [...document.querySelectorAll('#log .pane .l')];
        return lines.slice(1).filter((line, at) => Number(line.id.slice(1)) <= Number(lines[at].id.slice(1))).length";
    assert_eq!(tab.script(faults), 0);
}

#[test]
fn a_million_lines_are_at_hand() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("loud");
    house.await_job(job_id, "failed");
    crate::house::await_that("the log is there", || {
        let log: stepward::wire::api::LogsJson =
            house.get(&format!("/api/jobs/{job_id}/steps/print/logs?tail=1"));
        (log.total_lines > u64::from(LINES)).then_some(())
    });
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    let address = format!("/jobs/{job_id}?step=print");

    // A failed step opens at what went wrong.
    let begun = Instant::now();
    tab.open(&address);
    tab.await_text("#log .l.chosen", "error: the disk is full");
    // Between two streams the order is roughly that of printing.
    let error: u32 = tab.text("#log .l.chosen a.n").parse().unwrap();
    assert!((850_000..=950_000).contains(&error), "{error}");
    await_line(&tab, error, "error: the disk is full");
    println!("opened at the first error: {:?}", begun.elapsed());
    assert_eq!(tab.text("[data-log-count]"), "1,000,001 lines");
    assert_eq!(tab.count("#log .l.chosen"), 1);
    let shown = "
        const [load] = performance.getEntriesByType('navigation');
        const reads = performance.getEntriesByType('resource').filter(read => read.name.includes('/log'));
        return Math.max(...reads.map(read => read.responseEnd)) - load.startTime";
    println!("last read answered after {} ms", tab.script(shown));

    let timed = |what: &str, act: &dyn Fn()| {
        let begun = Instant::now();
        act();
        println!("{what}: {:?}", begun.elapsed());
    };
    timed("to the end", &|| {
        tab.click_on("end");
        await_line(&tab, LINES + 1, "exit code 4");
    });
    assert_in_order(&tab);
    timed("to the top", &|| {
        tab.click_on("top");
        await_line(&tab, 1, "the beginning");
    });
    assert_in_order(&tab);
    timed("scrolled to the middle", &|| {
        tab.script("const pane = document.querySelector('#log .pane'); pane.scrollTop = pane.scrollHeight / 2");
        tab.await_that("a line near the middle", |tab| {
            let first = tab.texts("#log .l a.n").first()?.parse::<u32>().ok()?;
            (400_000..600_000).contains(&first).then_some(())
        });
    });
    assert_in_order(&tab);

    // Sections.
    tab.click_on("top");
    await_line(&tab, 2, "1");
    assert_eq!(
        tab.attribute("[data-fold='1']", "aria-expanded").unwrap(),
        "true"
    );
    tab.click("[data-fold='1']");
    tab.await_gone("#L2");
    await_line(&tab, 54, "54");
    assert_eq!(
        tab.attribute("[data-fold='1']", "aria-expanded").unwrap(),
        "false"
    );
    tab.click("[data-fold='1']");
    await_line(&tab, 2, "1");

    // Search counts all of it, and goes on from match to match.
    tab.type_into("#log-find", "mark");
    tab.press("Enter");
    tab.await_text("[data-log-found]", "1 of 1,000");
    await_line(&tab, 1_000, "mark 1000");
    tab.click_on("next");
    tab.await_text("[data-log-found]", "2 of 1,000");
    await_line(&tab, 2_000, "mark 2000");
    tab.click_on("previous");
    tab.await_text("[data-log-found]", "1 of 1,000");
    tab.click_on("previous");
    tab.await_text("[data-log-found]", "1,000 of 1,000");
    await_line(&tab, LINES, "mark 1000000");
    assert_eq!(tab.texts(&format!("#L{LINES} mark")), ["mark"]);
    tab.click("[data-log-do=only]");
    tab.await_text("[data-log-count]", "1,000 of 1,000,001 lines");
    await_line(&tab, LINES, "mark 1000000");
    await_line(&tab, 999_000, "mark 999000");
    assert_in_order(&tab);
    tab.click("[data-log-do=only]");
    tab.await_text("[data-log-count]", "1,000,001 lines");
    tab.type_into("#log-find", "no such words");
    tab.press("Enter");
    tab.await_text("[data-log-found]", "no match");

    // One stream.
    tab.choose("#log-stream", "stderr");
    tab.await_text("[data-log-count]", "1 of 1,000,001 lines");
    await_line(&tab, error, "error: the disk is full");
    assert_eq!(tab.count("#log .pane .l"), 1);
    tab.choose("#log-stream", "all streams");
    tab.await_text("[data-log-count]", "1,000,001 lines");

    // A link to some of them.
    timed("opened at a link", &|| {
        tab.open("/jobs");
        tab.open(&format!("{address}#L500000-L500010"));
        await_line(&tab, 500_000, "mark 500000");
    });
    let chosen = tab.texts("#log .l.chosen a.n");
    assert_eq!(chosen.len(), 11);
    assert_eq!((&*chosen[0], &*chosen[10]), ("500000", "500010"));
    tab.click("#L500012 a.n");
    assert_eq!(tab.path(), format!("{address}&attempt=1#L500012"));
    assert_eq!(tab.texts("#log .l.chosen a.n"), ["500012"]);

    // All of it, as a file.
    let link = tab.attribute("#log a[download]", "href").unwrap();
    assert_eq!(
        tab.attribute("#log a[download]", "download").unwrap(),
        "print.log"
    );
    let file = http::get(&house.url(), &link);
    assert_eq!(file.status, 200);
    assert!(file.body.contains("mark 1000000"));
    browser.ends();
    house.check();
}

#[test]
fn lines_of_one_stream_are_told_apart() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("streams");
    house.await_job(job_id, "completed");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    let texts = |tab: &Tab| tab.texts("#log .l > span:last-child");
    tab.await_that("all lines", |tab| (texts(tab).len() == 7).then_some(()));
    tab.choose("#log-stream", "stdout");
    tab.await_that("stdout", |tab| {
        (texts(tab) == ["out 1", "out 2", "out 3"]).then_some(())
    });
    tab.choose("#log-stream", "stderr");
    tab.await_that("stderr", |tab| {
        (texts(tab) == ["err 1", "err 2", "err 3"]).then_some(())
    });
    assert_eq!(tab.count("#log .l.err"), 3);
    browser.ends();
    house.check();
}
