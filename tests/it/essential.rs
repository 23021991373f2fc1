//! A panic costs one item, or the process; never a thread that nobody misses.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use stepward::essential::{catch_and_count, spawn_essential};
use stepward::metrics::{Metrics, PanicPlace};

/// Tells the test that it is the child of itself.
const CHILD: &str = "STEPWARD_TEST_ESSENTIAL_CHILD";

#[test]
fn a_panic_that_would_end_an_essential_thread_aborts_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let thread = spawn_essential("sweeper", || panic!("a bug in the test"));
        // Without the abort this process would end well.
        let _: Result<(), _> = thread.unwrap().join();
        return;
    }
    let name = "essential::a_panic_that_would_end_an_essential_thread_aborts_the_process";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    const ABORT: i32 = 6;
    assert_eq!(child.status.signal(), Some(ABORT), "{said}");
    let line = "stepward: thread sweeper panicked: a bug in the test; stopping at once, the next start recovers what is on disk";
    assert!(said.lines().any(|said| said == line), "{said}");
}

#[test]
fn a_panic_over_one_item_is_counted_and_the_next_item_is_served() {
    let metrics = Metrics::default();
    let work = |item: u32| {
        catch_and_count(&metrics, PanicPlace::Outbox, item, || {
            assert!(item != 2, "a bug over item 2");
            item
        })
    };
    assert_eq!([1, 2, 3].map(work), [Some(1), None, Some(3)]);
    assert_eq!(metrics.panics.count(PanicPlace::Outbox), 1);
    assert_eq!(metrics.panics.count(PanicPlace::Request), 0);
}

#[test]
fn no_profile_turns_off_what_catches_a_panic() {
    let manifest = std::fs::read_to_string("Cargo.toml").unwrap();
    let sets_panic = |line: &str| line.split('=').next().unwrap().trim() == "panic";
    assert!(!manifest.lines().any(sets_panic), "panics must unwind");
}
