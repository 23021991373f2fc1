//! A log that grows while somebody reads it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::RangeInclusive;

use crate::browser::Browser;
use crate::house::{House, PATIENT, await_that};
use crate::tab::Tab;

/// Prints whatever it is told, until that is `over`.
const WORKFLOWS: &str = "
tasks:
  echo:
    flow:
      work: { script: 'mkfifo LEDGER.said; while read -r line; do echo \"$line\"; [ \"$line\" = over ] && exit; done < LEDGER.said' }
";

/// Whoever tells it.
fn teller(house: &House) -> File {
    let path = house.path("ledger.said");
    await_that("it listens", || path.exists().then_some(()));
    OpenOptions::new().write(true).open(path).unwrap()
}

fn say(teller: &mut File, lines: RangeInclusive<u32>) {
    let lines: String = lines.map(|line| format!("line {line}\n")).collect();
    teller.write_all(lines.as_bytes()).unwrap();
}

fn last_seen(tab: &Tab) -> String {
    let last = "
        const pane = document.querySelector('#log .pane');
        const {bottom} = pane.getBoundingClientRect();
        const lines = [...pane.querySelectorAll('.l')].filter(line => line.getBoundingClientRect().bottom <= bottom + 1);
        return lines.at(-1)?.lastElementChild.innerText ?? ''";
    tab.script(last).as_str().unwrap().to_string()
}

fn await_last(tab: &Tab, text: &str) {
    tab.await_that(&format!("the last line seen is {text}"), |tab| {
        (last_seen(tab) == text).then_some(())
    });
}

#[test]
fn it_is_followed_until_somebody_scrolls_up_and_again_from_the_end() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("echo");
    let mut teller = teller(&house);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open(&format!("/jobs/{job_id}"));
    say(&mut teller, 1..=300);
    await_last(&tab, "line 300");
    say(&mut teller, 301..=310);
    await_last(&tab, "line 310");

    // Whoever scrolls up reads, and is not torn away.
    tab.script("document.querySelector('#log .pane').scrollTop -= 2000");
    tab.await_that("it does not follow", |tab| {
        let follows = tab.script("return document.querySelector('[data-log-do=follow]').checked");
        (follows == false).then_some(())
    });
    let read = last_seen(&tab);
    assert_ne!(read, "line 310");
    say(&mut teller, 311..=320);
    tab.await_text("#log .pill", "10 new lines, to the end");
    assert_eq!(last_seen(&tab), read);
    say(&mut teller, 321..=325);
    tab.await_text("#log .pill", "15 new lines, to the end");
    tab.click("#log .pill");
    await_last(&tab, "line 325");
    say(&mut teller, 326..=330);
    await_last(&tab, "line 330");
    assert_eq!(tab.count("#log .pill:not([hidden])"), 0);

    // And by hand, with a key.
    tab.script("document.activeElement.blur()");
    tab.press("f");
    say(&mut teller, 331..=340);
    tab.await_text("#log .pill", "10 new lines, to the end");
    assert_eq!(last_seen(&tab), "line 330");
    tab.press("f");
    await_last(&tab, "line 340");

    teller.write_all(b"over\n").unwrap();
    house.await_job(job_id, "completed");
    await_last(&tab, "exit code 0");
    tab.await_text(".title .state", "completed");
    await_last(&tab, "exit code 0");
    assert_eq!(tab.attribute("#log .pane", "role").unwrap(), "log");
    assert_eq!(tab.attribute("#log .pane", "aria-live").unwrap(), "off");
    browser.ends();
    house.check();
}
