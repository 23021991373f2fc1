//! Jobs go when their time is over, with everything that is theirs, unless somebody needs them.

use stepward::domain::job::JobState;
use stepward::domain::retention::Retention;
use stepward::domain::task::{ForEach, Hook, HookDoes, HookOn, StepDraft, TaskDraft};
use stepward::domain::{EventSeq, JobId, Json};
use stepward::engine::{EngineError, Retry, RetryScope, Submission};
use stepward::reaper::{Kind, prune_events, prune_jobs};

use super::{Attic, DAY, HOUR};
use crate::house::{frozen, script};

#[test]
fn a_job_goes_after_its_days_and_not_a_moment_before() {
    let attic = Attic::new();
    attic.house.clock.advance_ms(HOUR / 2);
    let job = attic.done_job();
    attic.pass(90 * DAY);
    assert!(attic.exists(job), "it ended half an hour later than that");
    attic.pass(6 * HOUR);
    assert!(!attic.exists(job));
    for table in ["job", "step", "definition", "former_attempt"] {
        assert_eq!(attic.count(table), 0, "{table}");
    }
    attic.pass(DAY);
    let events = attic.house.events();
    assert!(events.iter().all(|event| event.fact.job_id.is_none()));
}

#[test]
fn its_logs_go_first_and_it_says_so() {
    let attic = Attic::new();
    let job = attic.done_job();
    attic.pass(30 * DAY - 6 * HOUR);
    assert!(attic.has_log(job));
    assert_eq!(attic.house.job(job).job.logs_removed_at, None);
    attic.pass(DAY);
    assert!(!attic.has_log(job));
    assert!(attic.house.job(job).job.logs_removed_at.is_some());
}

#[test]
fn a_job_that_has_not_ended_stays_and_its_children_with_it() {
    let attic = Attic::new();
    let tasks = vec![
        TaskDraft::new(
            "main",
            vec![
                StepDraft::task("go", "inner"),
                StepDraft::approval("ok", "ok?").after(&["go"]),
            ],
        ),
        TaskDraft::new("inner", vec![script("a")]),
    ];
    let job = attic.house.submit_tasks(tasks);
    let child = attic.house.child_of(job, "go");
    attic.house.run_all(&[]);
    attic.print(child);
    assert_eq!(attic.house.job_state(child), JobState::Completed);
    attic.pass(200 * DAY);
    assert!(attic.exists(job) && attic.exists(child) && attic.has_log(child));

    (attic.house.engine)
        .cancel(job, "done with it", attic.house.now())
        .unwrap();
    attic.pass(91 * DAY);
    assert!(!attic.exists(job) && !attic.exists(child) && !attic.has_log(child));
}

#[test]
fn what_a_kept_retry_came_of_stays_as_long_as_the_retry() {
    let attic = Attic::new();
    let tasks = vec![
        TaskDraft::new("main", vec![StepDraft::task("go", "inner"), script("b")]),
        TaskDraft::new("inner", vec![script("a")]),
    ];
    let job = attic.house.submit_tasks(tasks);
    attic.house.run_all(&["b"]);
    let child = attic.house.child_of(job, "go");
    attic.pass(60 * DAY);
    let retry = Retry::of(job, RetryScope::Failed);
    let again = attic
        .house
        .engine
        .retry(retry, attic.house.now())
        .unwrap()
        .job_id;
    attic.house.run_all(&[]);
    assert_eq!(
        attic.house.child_of(again, "go"),
        child,
        "it is carried over"
    );
    attic.pass(60 * DAY);
    assert!(attic.exists(job) && attic.exists(child) && attic.exists(again));
    attic.pass(32 * DAY);
    assert_eq!(attic.count("job"), 0);
}

#[test]
fn what_a_kept_hook_came_of_stays_as_long_as_the_hook() {
    let attic = Attic::new();
    let hook = Hook {
        on: HookOn::Success,
        does: HookDoes::Job {
            task: "tell".to_string(),
            input: Json::empty_object(),
        },
    };
    let main = TaskDraft {
        hooks: vec![hook],
        ..TaskDraft::new("main", vec![script("a")])
    };
    let tell = TaskDraft::new("tell", vec![StepDraft::approval("ok", "ok?")]);
    let job = attic.house.submit_tasks(vec![main, tell]);
    attic.house.run_all(&[]);
    let hook = JobId(job.0 + 1);
    assert_eq!(attic.house.job(hook).job.hook_of, Some(job));
    attic.pass(120 * DAY);
    assert!(attic.exists(job) && attic.exists(hook));
    (attic.house.engine)
        .cancel(hook, "done with it", attic.house.now())
        .unwrap();
    attic.pass(92 * DAY);
    assert_eq!(attic.count("job"), 0);
}

#[test]
fn a_job_that_somebody_keeps_stays_with_its_logs_until_it_is_released() {
    let attic = Attic::new();
    let job = attic.done_job();
    attic
        .house
        .engine
        .keep(job, true, attic.house.now())
        .unwrap();
    attic.pass(400 * DAY);
    assert!(attic.exists(job) && attic.has_log(job));
    assert!(attic.house.engine.events_of_job(job).unwrap().len() > 1);
    attic
        .house
        .engine
        .keep(job, false, attic.house.now())
        .unwrap();
    attic.pass(DAY);
    assert!(!attic.exists(job) && !attic.has_log(job));
}

#[test]
fn a_key_answers_with_its_job_for_as_long_as_is_promised() {
    let attic = Attic::keeping(Retention {
        job_ms: DAY,
        log_ms: DAY,
        key_ms: 7 * DAY,
        ..Retention::default()
    });
    let task = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
    let submit = || {
        let submission = Submission {
            idempotency_key: Some("order-1".to_string()),
            ..Submission::of(&task)
        };
        attic.house.submission(submission).unwrap()
    };
    let job = submit();
    let other = attic.house.submit(vec![script("b")]);
    attic.house.run_all(&[]);
    attic.pass(7 * DAY - HOUR);
    assert_eq!(submit(), job);
    assert!(!attic.exists(other), "nobody was promised this one");
    attic.pass(DAY);
    assert!(!attic.exists(job));
    assert_ne!(submit(), job);
    attic.house.run_all(&[]);
}

/// Thousands of steps, some below others: more than one transaction may take.
#[test]
fn a_large_job_goes_in_pieces_and_from_the_first_on_nobody_sees_it() {
    let attic = Attic::new();
    let inner = (0..37).map(|n| script(&format!("s{n}"))).collect();
    let inner = TaskDraft::new("inner", inner);
    let each = |step: StepDraft, items: usize| StepDraft {
        for_each: Some(ForEach {
            items: (0..items).map(|n| Json(n.to_string())).collect(),
            max_parallel: None,
        }),
        ..step
    };
    let steps = vec![
        each(script("many"), 2_000),
        each(StepDraft::task("calls", "inner"), 20),
        script("last"),
    ];
    let job = attic
        .house
        .submit_tasks(vec![TaskDraft::new("main", steps), inner]);
    attic.house.run_all(&[]);
    assert_eq!(attic.house.job_state(job), JobState::Completed);
    attic.pass(90 * DAY - 6 * HOUR);
    attic.house.clock.advance_ms(12 * HOUR);

    let mut rounds = 0;
    let mut steps_before = attic.count("step");
    while attic.count("job") > 0 {
        attic.reap_once();
        rounds += 1;
        let steps = attic.count("step");
        assert!(steps_before - steps <= 1_000, "{steps_before} to {steps}");
        if steps < steps_before && steps > 0 {
            assert!(!attic.exists(job));
            let retry = Retry::of(job, RetryScope::All);
            let refused = attic.house.engine.retry(retry, attic.house.now());
            assert!(matches!(refused, Err(EngineError::JobNotFound { .. })));
            assert_eq!(attic.house.breaches(), Vec::<String>::new());
        }
        // Whatever it knew is not needed to go on.
        attic.restart();
        steps_before = steps;
        assert!(rounds < 1_000, "it does not end");
    }
    assert!(rounds > 5, "{rounds}");
    assert_eq!(attic.count("step"), 0);
}

/// Streams resume from numbers, so these must not begin anew when the jobs that had them are gone.
#[test]
fn the_number_of_changes_goes_on_after_the_last_job_is_gone() {
    let attic = Attic::new();
    attic.done_job();
    let read = || {
        let store = &attic.house.engine.store;
        store
            .read(|tx| Ok::<_, EngineError>(tx.last_change()?))
            .unwrap()
    };
    let before = read();
    assert!(before > 0);
    attic.pass(100 * DAY);
    assert_eq!(attic.count("job"), 0);
    assert_eq!(read(), before);
}

/// Of what must stay there may be much, and of that every round looks at a bounded part.
#[test]
fn what_a_round_costs_does_not_depend_on_the_history() {
    let cost = |jobs: usize| {
        let attic = Attic::new();
        for _ in 0..jobs {
            attic.house.submit(vec![script("a")]);
        }
        attic.house.run_all(&[]);
        attic.pass(6 * HOUR);
        attic.house.clock.advance_ms(60_000);
        let before = attic.house.engine.store.statements();
        attic.reap_once();
        attic.house.engine.store.statements() - before
    };
    assert_eq!(cost(3), cost(300));
}

#[test]
fn a_killed_removal_of_logs_is_finished_by_the_next_life() {
    let attic = Attic::new();
    let job = attic.done_job();
    let lost = attic.done_job();
    // Killed after it was said and before it was so; and files of a job that is nowhere.
    attic
        .sql()
        .execute(
            "UPDATE job SET logs_removed_at = 1 WHERE job_id = ?1",
            [job.0],
        )
        .unwrap();
    let stray = JobId(999_999);
    let attempt = attic.house.step(job, "a").attempt_ref();
    attic
        .logs
        .append(stray, attempt, 0, b"1 o hello\n")
        .unwrap();
    attic.restart();
    let removed = attic.reap();
    assert_eq!(removed.get(&Kind::StrayLogs), Some(&2));
    assert!(!attic.has_log(job) && !attic.has_log(stray));
    assert!(attic.has_log(lost));
}

/// However the two meet: a job that was kept has everything that is its own, one that was not is gone with it.
#[test]
fn a_job_that_is_kept_while_it_goes_is_whole_or_gone() {
    const JOBS: usize = 60;
    let attic = Attic::new();
    let jobs: Vec<JobId> = (0..JOBS).map(|_| attic.done_job()).collect();
    attic.house.clock.advance_ms(DAY);
    let (engine, logs, now) = (&attic.house.engine, &attic.logs, attic.house.now());
    let kept = std::thread::scope(|threads| {
        // From both ends, so that they meet.
        let keeping = threads.spawn(|| {
            let keep = |job_id: &&JobId| engine.keep(**job_id, true, now).is_ok();
            jobs.iter().rev().filter(keep).collect::<Vec<_>>()
        });
        let mut after = JobId(0);
        let bounds = Retention::default();
        while let Some(next) = prune_jobs(engine, logs, bounds, now.wall, after, false, now)
            .unwrap()
            .next
        {
            after = JobId(next);
        }
        keeping.join().unwrap()
    });
    for job_id in &jobs {
        let is_kept = kept.contains(&job_id);
        let there = (attic.exists(*job_id), attic.has_log(*job_id));
        assert_eq!(there, (is_kept, is_kept), "job {job_id}");
    }
    assert_eq!(attic.house.breaches(), Vec::<String>::new());
}

/// Whoever else comes by, with whatever bound: nobody sees a part of a job.
#[test]
fn what_is_begun_is_finished_and_nobody_sees_half_of_it() {
    let attic = Attic::new();
    let steps: Vec<_> = (0..350).map(|n| script(&format!("s{n}"))).collect();
    let job = attic.house.submit(steps);
    attic.house.run_all(&[]);
    let fresh = attic.done_job();
    attic.pass(90 * DAY - 6 * HOUR);
    let left = || attic.count(&format!("step WHERE job_id = {job}"));
    for _ in 0..20 {
        if left() < 350 {
            break;
        }
        attic.house.clock.advance_ms(HOUR);
        attic.reap_once();
    }
    assert!((1..350).contains(&left()), "{}", left());
    let (engine, now) = (&attic.house.engine, attic.house.now());
    let is_hidden = || {
        assert!(engine.job(job).is_err());
        assert!(engine.keep(job, true, now).is_err());
    };
    is_hidden();
    // Nothing ended so early that this would begin with it.
    let bounds = Retention::default();
    let long_ago = stepward::domain::Timestamp(0);
    let pruned = prune_jobs(engine, &attic.logs, bounds, long_ago, JobId(0), true, now).unwrap();
    assert_eq!(pruned.jobs, 0);
    is_hidden();
    attic.restart();
    attic.reap();
    assert_eq!(left(), 0);
    // Somebody began with a young one, and was killed.
    let young = attic.done_job();
    let hide = format!("UPDATE job SET leaving = 1 WHERE job_id = {young}");
    attic.sql().execute(&hide, []).unwrap();
    attic.reap();
    assert_eq!(attic.count(&format!("job WHERE job_id = {young}")), 0);
    assert!(!attic.has_log(young));
    assert!(!attic.exists(fresh), "it was as old");
    assert_eq!(attic.house.breaches(), Vec::<String>::new());
}

/// Events outlive their jobs by default. Whoever wants them gone gets rid of them, but not of events of jobs that are there,
/// of workers, and those that a message tells.
#[test]
fn events_of_jobs_that_are_gone_go_when_somebody_wants_it() {
    let attic = Attic::new();
    let gone: Vec<JobId> = (0..50).map(|_| attic.done_job()).collect();
    let told = attic.done_job();
    let there = attic.done_job();
    let (engine, logs) = (&attic.house.engine, &attic.logs);
    engine.keep(there, true, attic.house.now()).unwrap();
    let message = format!(
        "INSERT INTO outbox (event_seq, target, job_id, state, next_up, created_at)
         SELECT max(seq), 'ops', job_id, 'pending', 0, 0 FROM event WHERE job_id = {told}"
    );
    attic.sql().execute(&message, []).unwrap();
    attic.house.clock.advance_ms(DAY);
    let (bounds, now) = (Retention::default(), attic.house.now());
    let events =
        |dry_run: bool| prune_events(engine, logs, bounds, EventSeq(0), dry_run, now).unwrap();
    assert_eq!(events(false).events, 0, "every job is there");
    let pruned = prune_jobs(engine, logs, bounds, now.wall, JobId(0), false, now).unwrap();
    assert_eq!(pruned.jobs, 51);
    let of = |jobs: &str| attic.count(&format!("event WHERE {jobs}"));
    let of_gone = format!("job_id <= {}", told.0);
    let (before, kept) = (of(&of_gone), of(&format!("job_id = {there}")));
    let others = of("job_id IS NULL");
    assert!(
        before > 51 && kept > 0 && others > 0,
        "{before} {kept} {others}"
    );
    let would_go = events(true);
    assert_eq!(would_go.events as i64, before - 1);
    assert_eq!(of(&of_gone), before, "it only says so");
    assert_eq!(events(false), would_go);
    assert_eq!(of(&of_gone), 1, "a message tells it");
    assert_eq!(of(&format!("job_id = {there}")), kept);
    assert_eq!(of("job_id IS NULL"), others);
    assert!(gone.iter().all(|job_id| !attic.exists(*job_id)));
    assert_eq!(attic.house.breaches(), Vec::<String>::new());
}
