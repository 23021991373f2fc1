//! Workers, however they stand.

use stepward::cli::why_text;
use stepward::domain::worker::WorkerStanding;
use stepward::engine::HeldPhase;
use stepward::server::api::show;

use super::{golden, look};
use crate::house::{TestHouse, TestWorker, script};

fn check(standing: WorkerStanding, name: &str, worker: &TestWorker) {
    let house = worker.house;
    let explained = house
        .engine
        .why_worker(worker.worker_id, house.now())
        .unwrap();
    let shown = show::worker_why(&explained);
    assert_eq!(shown.why.code, standing.as_str());
    let shown = format!(
        "$ stepward why edge-1\n{}\n$ stepward why edge-1  # 40 columns\n{}",
        why_text::worker(&shown, &look(80)),
        why_text::worker(&shown, &look(40)),
    );
    golden(name, &shown);
}

fn house() -> TestHouse {
    let house = TestHouse::new();
    house.submit(vec![script("build"), script("lint"), script("docs")]);
    house
}

#[test]
fn active() {
    let house = house();
    let ann = house.worker("edge-1", &["docker"], 2);
    let held = [(ann.begin().attempt, HeldPhase::Running)];
    house.clock.advance_ms(30_000);
    ann.heartbeat(1, &held);
    house.clock.advance_ms(2_000);
    check(WorkerStanding::Active, "worker_is_active", &ann);
}

#[test]
fn active_and_idle() {
    let house = TestHouse::new();
    let ann = house.worker("edge-1", &[], 2);
    check(WorkerStanding::Active, "worker_is_active-idle", &ann);
}

#[test]
fn paused() {
    let house = house();
    let ann = house.worker("edge-1", &["docker"], 2);
    house.engine.pause(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(2_000);
    check(WorkerStanding::Paused, "worker_is_paused", &ann);
}

#[test]
fn draining() {
    let house = house();
    let ann = house.worker("edge-1", &["docker"], 2);
    ann.begin();
    house.engine.drain(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(2_000);
    check(WorkerStanding::Draining, "worker_is_draining", &ann);
}

#[test]
fn silent() {
    let house = house();
    let ann = house.worker("edge-1", &["docker"], 3);
    ann.begin();
    ann.claim();
    house.clock.advance_ms(75_000);
    check(WorkerStanding::Silent, "worker_is_silent", &ann);
}

#[test]
fn inactive() {
    let house = house();
    let ann = house.worker("edge-1", &["docker"], 3);
    ann.begin();
    ann.claim();
    house.clock.advance_ms(134_000);
    house.sweep();
    house.clock.advance_ms(66_000);
    check(WorkerStanding::Inactive, "worker_is_inactive", &ann);
}

#[test]
fn drained_and_gone() {
    let house = TestHouse::new();
    let ann = house.worker("edge-1", &["docker"], 2);
    house.engine.drain(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(75_000);
    check(WorkerStanding::Silent, "worker_is_silent-drained", &ann);
    house.clock.advance_ms(60_000);
    house.sweep();
    check(WorkerStanding::Inactive, "worker_is_inactive-drained", &ann);
}
