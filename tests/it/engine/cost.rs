//! The cost of an event is that of its consequences, not that of the job or of history.

use stepward::domain::task::{StepDraft, TaskDraft};

use crate::house::{TestHouse, script};

/// Chains of two side by side: every first step has one dependent, whatever the size of the job.
fn pairs(count: usize) -> Vec<StepDraft> {
    let pair = |n: usize| {
        let (first, second) = (format!("a{n}"), format!("b{n}"));
        [script(&first), script(&second).after(&[&first])]
    };
    (0..count / 2).flat_map(pair).collect()
}

/// The statements of one poll, one start and one completion in the middle of a job of this size.
fn statements_of_one_life(house: &TestHouse, size: usize) -> [u64; 3] {
    let job = house.submit(pairs(size));
    let worker = house.worker("ann", &[], 2);
    worker.complete(worker.begin().attempt);
    let mut last = house.engine.store.statements();
    let mut since = || {
        let now = house.engine.store.statements();
        now - std::mem::replace(&mut last, now)
    };
    let claimed = worker.claim();
    let poll = since();
    worker.start(claimed.attempt);
    let start = since();
    worker.complete(claimed.attempt);
    let finish = since();
    house.engine.cancel(job, "eve", house.now()).unwrap();
    [poll, start, finish]
}

#[test]
fn a_completion_costs_the_same_in_a_job_of_ten_and_of_ten_thousand_steps() {
    let small = statements_of_one_life(&TestHouse::new(), 10);
    let large = statements_of_one_life(&TestHouse::new(), 10_000);
    assert_eq!(small, large);
    assert!(small.iter().all(|&count| count > 0));
}

#[test]
fn history_costs_nothing() {
    let house = TestHouse::new();
    let before = statements_of_one_life(&house, 10);
    for _ in 0..20 {
        house.submit(pairs(100));
        house.run_all(&[]);
    }
    assert_eq!(statements_of_one_life(&house, 10), before);
}

#[test]
fn a_failed_completion_costs_what_its_dependents_do() {
    let fail_first = |others: usize| {
        let house = TestHouse::new();
        let mut steps = vec![
            script("a"),
            script("b").after(&["a"]),
            script("c").after(&["a"]),
        ];
        steps.extend((0..others).map(|n| script(&format!("x{n}"))));
        house.submit(steps);
        let worker = house.worker("ann", &[], 1);
        let claimed = worker.begin();
        let before = house.engine.store.statements();
        worker.fail(claimed.attempt);
        house.engine.store.statements() - before
    };
    assert_eq!(fail_first(1), fail_first(5_000));
}

/// A child may have as many steps as a job can, all of them well.
#[test]
fn to_explain_a_parent_not_all_of_its_child_is_looked_at() {
    let statements = |size: usize| {
        let house = TestHouse::new();
        let parent = vec![StepDraft::task("call", "child")];
        let steps = (0..size).map(|n| script(&format!("s{n}"))).collect();
        let job = house.submit_tasks(vec![
            TaskDraft::new("parent", parent),
            TaskDraft::new("child", steps),
        ]);
        let _idle = house.worker("ann", &[], 2);
        let before = house.engine.store.statements();
        house.engine.why_job(job, house.now()).unwrap();
        house.engine.store.statements() - before
    };
    assert!(statements(10) < statements(200));
    assert_eq!(statements(200), statements(2_000));
}
