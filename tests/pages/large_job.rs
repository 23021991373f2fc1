//! A job of five thousand steps.

use std::fmt::Write;

use crate::browser::Browser;
use crate::house::{House, PATIENT};

const STEPS: usize = 5_000;
const NODES_MAX: usize = 12_000;

/// Fifty chains of a hundred steps between one that begins and one that waits for all of them.
fn workflows() -> String {
    let mut text = "tasks:\n  large:\n    flow:\n      begin: { script: 'true', tags: [nobody-has-this], unmatched: wait }\n".to_string();
    for chain in 0..49 {
        for link in 0..102 {
            let before = match link {
                0 => "begin".to_string(),
                link => format!("c{chain}-{}", link - 1),
            };
            writeln!(
                text,
                "      c{chain}-{link}: {{ script: 'true', depends_on: [{before}] }}"
            )
            .unwrap();
        }
    }
    let ends: Vec<String> = (0..49).map(|chain| format!("c{chain}-101")).collect();
    writeln!(
        text,
        "      end: {{ script: 'true', depends_on: [{}] }}",
        ends.join(", ")
    )
    .unwrap();
    text
}

#[test]
fn five_thousand_steps_are_still_usable() {
    let house = House::with_settings(&workflows(), PATIENT);
    let job_id = house.submit("large");
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    let begun = std::time::Instant::now();
    tab.open(&format!("/jobs/{job_id}"));
    println!("a job of {STEPS} steps opened: {:?}", begun.elapsed());
    tab.await_text("#live", "live");
    let timing = "
        const [load] = performance.getEntriesByType('navigation');
        return [load.responseStart - load.startTime, load.domInteractive - load.startTime, load.transferSize].map(Math.round)";
    println!(
        "[first byte ms, interactive ms, bytes]: {}",
        tab.script(timing)
    );

    assert_eq!(tab.text("#steps-title"), format!("Steps {STEPS}"));
    assert_eq!(tab.count("#steps tbody tr"), 200);
    let drawn = tab.count("#graph svg .node");
    assert!((1..=150).contains(&drawn), "{drawn} nodes");
    let nodes = tab.nodes();
    println!("{nodes} nodes");
    assert!(nodes < NODES_MAX, "{nodes} nodes");

    tab.click_on("more");
    tab.await_text("#steps .paging", "201 to 400 of 5000");
    tab.click_on("not ended 5000");
    tab.await_that("those that have not ended", |tab| {
        (tab.path() == format!("/jobs/{job_id}?show=open#steps")).then_some(())
    });
    tab.click_on("c0-5");
    tab.await_text("#step-title", "Step c0-5");

    // Every one of them, for whoever wants that.
    let begun = std::time::Instant::now();
    tab.open(&format!("/jobs/{job_id}?graph=all"));
    println!("with all of the graph: {:?}", begun.elapsed());
    assert_eq!(tab.count("#graph svg .node"), STEPS);

    tab.open(&format!("/jobs/{job_id}"));
    tab.await_text("#live", "live");
    let begun = std::time::Instant::now();
    house.cancel(job_id);
    tab.await_text(".title .state", "cancelled");
    println!("cancelled and seen: {:?}", begun.elapsed());
    tab.await_text("#steps", "skipped or cancelled 5000");
    browser.ends();
    house.check();
}
