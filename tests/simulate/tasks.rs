//! Random workflows of all step types: graphs, loops, children, approvals, retries, timeouts, groups.

use stepward::domain::Json;
use stepward::domain::depends::{Accept, DependsOn, Outcome};
use stepward::domain::reason::Reason;
use stepward::domain::retry::{Backoff, OnWorkerLoss, RetryPolicy};
use stepward::domain::task::{
    Action, Concurrency, ForEach, Hook, HookDoes, HookOn, StepDraft, TaskDraft, Unmatched, WhenFull,
};

use crate::dice::Dice;

pub fn some_tasks(dice: &mut Dice) -> Vec<TaskDraft> {
    let levels = dice.roll(3);
    let mut tasks: Vec<TaskDraft> = (0..=levels)
        .map(|level| {
            let calls = (level < levels).then(|| format!("t{}", level + 1));
            let steps = 1 + dice.roll(5);
            let steps = (0..steps).map(|at| some_step(dice, at, calls.as_deref()));
            let mut task = TaskDraft::new(&format!("t{level}"), steps.collect());
            if dice.chance(20) {
                task.concurrency = Some(Concurrency {
                    group: format!("g{}", dice.roll(2)),
                    limit: 1 + dice.roll(2) as u32,
                    when_full: *dice.pick(WhenFull::ALL).unwrap(),
                });
            }
            if dice.chance(20) {
                task.timeout_ms = Some(dice.between(15_000, 120_000));
            }
            if dice.chance(15) {
                task.queue_timeout_ms = Some(dice.between(8_000, 60_000));
            }
            task.priority = dice.roll(3) as i32;
            task.hooks = HookOn::ALL.iter().map(|&on| hook(dice, on)).collect();
            task
        })
        .collect();
    tasks.push(what_hooks_run(dice));
    tasks
}

/// Somebody is told, or a job is made.
fn hook(dice: &mut Dice, on: HookOn) -> Hook {
    let does = match dice.chance(60) {
        true => HookDoes::Notify {
            target: "tell".to_string(),
        },
        false => HookDoes::Job {
            task: "hook.tell".to_string(),
            input: Json::empty_object(),
        },
    };
    Hook { on, does }
}

/// It may stand in the way of the jobs whose hook it is.
fn what_hooks_run(dice: &mut Dice) -> TaskDraft {
    let mut task = TaskDraft::new("hook.tell", vec![StepDraft::script("tell", "true")]);
    if dice.chance(40) {
        task.concurrency = Some(Concurrency {
            group: format!("g{}", dice.roll(2)),
            limit: 1 + dice.roll(2) as u32,
            when_full: *dice.pick(WhenFull::ALL).unwrap(),
        });
    }
    task
}

fn some_step(dice: &mut Dice, at: u64, calls: Option<&str>) -> StepDraft {
    let name = format!("s{at}");
    let mut step = match (dice.roll(10), calls) {
        (0..3, Some(task)) => StepDraft::task(&name, task),
        (3, _) => StepDraft::approval(&name, "go?"),
        _ => StepDraft::script(&name, "true"),
    };
    if at > 0 && dice.chance(80) {
        step.depends_on = some_dependencies(dice, at, 2);
    }
    let approval = matches!(step.action, Action::Approval { .. });
    if dice.chance(15) && !approval {
        let items = (0..dice.roll(4)).map(|n| Json(n.to_string()));
        step.for_each = Some(ForEach {
            items: items.collect(),
            max_parallel: dice.chance(50).then(|| 1 + dice.roll(2) as u32),
        });
    }
    if dice.chance(30) {
        let worker_loss = [
            Reason::WorkerLost,
            Reason::WorkerRestarted,
            Reason::WorkerForgot,
        ];
        let mut on = vec![Reason::ExitCode, Reason::ChildFailed, Reason::StepTimeout];
        on.extend(worker_loss.into_iter().filter(|_| dice.chance(50)));
        step.retry = RetryPolicy {
            delay_ms: dice.roll(3) as i64 * 3_000,
            backoff: *dice.pick(Backoff::ALL).unwrap(),
            jitter: dice.chance(50),
            on,
            ..RetryPolicy::times(1 + dice.roll(3) as u32)
        };
    }
    if dice.chance(25) {
        step.tags = vec![format!("tag{}", dice.roll(3))];
    }
    if dice.chance(30) || approval {
        step.timeout_ms = Some(dice.between(4_000, 50_000));
    }
    if dice.chance(10) {
        step.unmatched = Unmatched::Wait;
    }
    step.when = dice.chance(10).then(|| Json("false".to_string()));
    step.continue_on_failure = dice.chance(20);
    step.on_worker_loss = *dice.pick(OnWorkerLoss::ALL).unwrap();
    step
}

fn some_dependencies(dice: &mut Dice, at: u64, depth: u64) -> DependsOn<String> {
    let group: Vec<_> = (0..1 + dice.roll(2))
        .map(|_| {
            if depth > 0 && dice.chance(25) {
                return some_dependencies(dice, at, depth - 1);
            }
            let accept = match dice.roll(4) {
                0 => Accept::TERMINAL,
                1 => Accept::of(&[Outcome::Completed, Outcome::Skipped]),
                _ => Accept::COMPLETED,
            };
            DependsOn::accepting(format!("s{}", dice.roll(at)), accept)
        })
        .collect();
    match dice.chance(70) {
        true => DependsOn::All(group),
        false => DependsOn::Any(group),
    }
}
