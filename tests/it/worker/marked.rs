//! What a former life of a worker left is found by its mark and ended; whatever else runs is not.

use std::process::{Child, Command};

use stepward::worker::marked::{MARK, key, kill_marked};

use super::{Bench, until};

fn sleeper(mark: &str) -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").env(MARK, mark).spawn().unwrap()
}

fn is_running(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

#[test]
fn a_worker_ends_what_its_former_life_left_and_nothing_else() {
    let bench = Bench::new();
    let instance_key = &bench.tools.instance_key;
    let attempt = bench.assignment(None, "").attempt;
    assert_eq!(key(instance_key, attempt), format!("{instance_key}/7.2"));
    let mut own = [
        sleeper(&format!("{instance_key}/7.2")),
        sleeper(&format!("{instance_key}/8.1")),
    ];
    let mut others = [
        sleeper(&format!("{instance_key}x/7.2")),
        sleeper("somebody/7.2"),
    ];
    until("all have their environment", || bench.alive() == 2);

    assert_eq!(kill_marked(&format!("{instance_key}/7")), 0);
    assert_eq!(kill_marked(&format!("{instance_key}/7.2")), 1);
    own[0].wait().unwrap();
    assert!(is_running(&mut own[1]));
    assert_eq!(kill_marked(instance_key), 1);
    own[1].wait().unwrap();
    assert_eq!(kill_marked(instance_key), 0);

    for other in &mut others {
        assert!(is_running(other));
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

#[test]
fn a_worker_that_carries_the_mark_itself_lives_on() {
    let bench = Bench::new();
    let mark = format!("{}/7.2", bench.tools.instance_key);
    let inner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored"])
        .arg("worker::marked::inside_of_a_step")
        .env(MARK, &mark)
        .env("TEST_INSTANCE_KEY", &bench.tools.instance_key)
        .status()
        .unwrap();
    assert!(inner.success());
}

/// Not a test: a worker that was started by a step of itself.
#[test]
#[ignore = "run by a_worker_that_carries_the_mark_itself_lives_on"]
fn inside_of_a_step() {
    let Ok(instance_key) = std::env::var("TEST_INSTANCE_KEY") else {
        return;
    };
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    assert_eq!(kill_marked(&instance_key), 1);
    child.wait().unwrap();
}
