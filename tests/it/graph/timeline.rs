//! A job's steps over time: every millisecond has its reason, whatever the clocks said.

use super::HOSTILE;
use super::grammar::{Element, elements};
use serde_json::{Value, json};
use stepward::domain::Timestamp;
use stepward::domain::reason::Waiting;
use stepward::timeline::{Axis, By, Part, Row, Segment, Timeline, bars, hatches, of_job};
use stepward::wire::Time;
use stepward::wire::api::{AttemptHistory, JobJson, StepJson};

const CREATED: Timestamp = Timestamp(1_800_000_000_000);

/// So many milliseconds after the job was made.
fn at(ms: i64) -> Option<Time> {
    Some(Time(now(ms)))
}

fn now(ms: i64) -> Timestamp {
    Timestamp(CREATED.0 + ms)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_str(&value.to_string()).unwrap()
}

/// With its times in milliseconds: ready, assigned, started, ended.
fn step(name: &str, status: &str, times: [Option<i64>; 4]) -> StepJson {
    let mut step: StepJson = read(json!({
        "id": 1, "name": name, "status": status, "type": "script", "depends_on": [],
        "required_tags": [], "attempt": 0, "max_attempts": 3, "attempts": [],
    }));
    let time = |ms: Option<i64>| ms.and_then(at);
    step.ready_at = time(times[0]);
    step.assigned_at = time(times[1]);
    step.started_at = time(times[2]);
    step.ended_at = time(times[3]);
    if times[1].is_some() {
        step.attempt = 1;
        let attempt = attempt(1, status, times[2], times[3]);
        step.attempts.push(attempt);
    }
    step
}

fn after(dependency: &str, step: StepJson) -> StepJson {
    StepJson {
        depends_on: vec![dependency.to_string()],
        ..step
    }
}

fn attempt(number: u32, outcome: &str, started: Option<i64>, ended: Option<i64>) -> AttemptHistory {
    let mut attempt: AttemptHistory = read(json!({ "attempt": number, "outcome": outcome }));
    attempt.started_at = started.and_then(at);
    attempt.ended_at = ended.and_then(at);
    attempt
}

fn job(ended_ms: Option<i64>, steps: Vec<StepJson>) -> JobJson {
    let status = if ended_ms.is_some() {
        "completed"
    } else {
        "running"
    };
    let mut job: JobJson = read(json!({
        "id": 42, "task": "ship", "status": status, "source": "api", "input": {}, "labels": {},
        "priority": 0, "created_at": "2026-01-01T00:00:00Z",
    }));
    job.created_at = Time(CREATED);
    job.ended_at = ended_ms.and_then(at);
    job.steps = Some(steps);
    job
}

fn timeline(job: &JobJson, now_ms: i64) -> Timeline {
    let href = |name: &str| format!("/jobs/42?step={name}");
    of_job(job, now(now_ms), &href, &|_| None)
}

/// `dependencies 0-200, ran 200-2500 failed`
fn told(row: &Row) -> String {
    let told = |segment: &Segment| {
        let what = match &segment.part {
            Part::Wait { code } => code.clone(),
            Part::Run {
                outcome,
                by: By::Worker,
            } => outcome.clone(),
            Part::Run {
                outcome,
                by: By::ChildJob,
            } => format!("{outcome} child job"),
            Part::Run {
                outcome,
                by: By::Instances,
            } => format!("{outcome} instances"),
            Part::Earlier { attempts } => format!("{attempts} earlier"),
        };
        let goes_on = if segment.is_open { "…" } else { "" };
        format!("{what} {}-{}{goes_on}", segment.from_ms, segment.to_ms)
    };
    let told: Vec<String> = row.segments.iter().map(told).collect();
    told.join(", ")
}

/// The row of a step in a job in which another one runs first.
fn only(shown: StepJson, ended_ms: Option<i64>, now_ms: i64) -> Row {
    let ended = step(
        "before",
        "completed",
        [Some(0), Some(0), Some(0), Some(200)],
    );
    let mut timeline = timeline(&job(ended_ms, vec![ended, shown]), now_ms);
    timeline.rows.remove(1)
}

/// What is true of every timeline.
fn check(timeline: &Timeline) {
    let axis = timeline.axis();
    assert!(axis.length_ms >= timeline.length_ms && axis.length_ms > 0);
    assert!((1..=8).contains(&axis.ticks.len()), "{axis:?}");
    assert!(axis.ticks.iter().all(|tick| tick.at_permille <= 1_000));
    assert_eq!(axis.now_permille.is_none(), timeline.is_over);
    for row in &timeline.rows {
        let mut at_ms = 0;
        for segment in &row.segments {
            assert!(segment.from_ms >= at_ms && segment.to_ms >= segment.from_ms);
            assert!(segment.to_ms <= timeline.length_ms);
            at_ms = segment.to_ms;
        }
        check_bars(row, &axis);
    }
}

fn check_bars(row: &Row, axis: &Axis) -> Vec<Element> {
    let drawn = bars(row, axis);
    let found = elements(&drawn);
    assert_eq!(found[0].attributes["aria-label"], row.said());
    let rects: Vec<&Element> = found.iter().filter(|one| one.name == "rect").collect();
    assert_eq!(rects.len(), row.segments.len());
    let mut free = 0.0;
    for rect in rects {
        let number = |key: &str| -> f64 { rect.attributes[key].parse().unwrap() };
        let (left, width) = (number("x"), number("width"));
        assert!(left > free - 0.01 && width >= 2.99, "{drawn}");
        free = left + width;
        assert!(free < 1_000.01, "{drawn}");
    }
    found
}

#[test]
fn a_step_waits_for_others_and_for_a_worker_is_prepared_and_runs() {
    let unit = step(
        "unit",
        "failed",
        [Some(200), Some(1_300), Some(1_400), Some(3_700)],
    );
    let row = only(after("before", unit), Some(3_700), 0);
    assert_eq!(
        told(&row),
        "dependencies 0-200, queued 200-1300, preparing 1300-1400, failed 1400-3700"
    );
    assert_eq!((row.wait_ms(), row.run_ms()), (1_400, 2_300));
    assert_eq!(row.href, "/jobs/42?step=unit");
    assert_eq!(
        row.said(),
        "unit: waited 0.2s for dependencies, 1.1s for a worker, 0.1s while it was prepared, ran 2.3s, failed"
    );
    let titles: Vec<&str> = row.segments.iter().map(|one| one.title.as_str()).collect();
    assert_eq!(titles[0], "waited 0.2s for dependencies");
    assert_eq!(titles[3], "ran 2.3s, failed");
}

#[test]
fn what_waits_now_says_the_exact_reason() {
    let train = step("train", "ready", [Some(0), None, None, None]);
    let job = job(None, vec![train]);
    let why = |name: &str| {
        assert_eq!(name, "train");
        let sentence = "no active worker has gpu";
        Some(("no_matching_worker".to_string(), sentence.to_string()))
    };
    let timeline = of_job(&job, now(12_000), &|_| String::new(), &why);
    check(&timeline);
    let row = &timeline.rows[0];
    assert_eq!(told(row), "no_matching_worker 0-12000…");
    assert_eq!(
        row.said(),
        "train: waited 12s for a worker, ready: no active worker has gpu"
    );
    let drawn = bars(row, &timeline.axis());
    assert!(
        drawn.contains(r#"class="seg wait wait-no_matching_worker open""#),
        "{drawn}"
    );
    let title = "<title>has waited 12s for a worker: no active worker has gpu</title>";
    assert!(drawn.contains(title), "{drawn}");
    assert!(drawn.contains(r#"<line class="now" x1="857""#), "{drawn}");
}

/// A reason that is not one of ours becomes no class of its own.
#[test]
fn reasons_that_nobody_knows_are_something_else() {
    let waits = step("a", "ready", [Some(0), None, None, None]);
    let why = |_: &str| Some(("x\" onload=\"y".to_string(), "<b>".to_string()));
    let timeline = of_job(&job(None, vec![waits]), now(10), &|_| String::new(), &why);
    assert_eq!(told(&timeline.rows[0]), "other 0-10…");
    check(&timeline);
}

/// Nobody is asked about what is over, or is not shown.
#[test]
fn only_what_waits_and_is_shown_is_asked_about() {
    let mut steps: Vec<StepJson> = (0..1_000)
        .map(|at| step(&format!("p{at}"), "pending", [None; 4]))
        .collect();
    steps.push(step(
        "ended",
        "completed",
        [Some(0), Some(0), Some(0), Some(1)],
    ));
    steps.push(step("runs", "running", [Some(0), Some(0), Some(0), None]));
    let asked = std::cell::Cell::new(0);
    let why = |name: &str| {
        assert!(name.starts_with('p'));
        asked.set(asked.get() + 1);
        None
    };
    let timeline = of_job(&job(None, steps), now(5), &|_| String::new(), &why);
    assert_eq!((asked.get(), timeline.rows.len()), (199, 200));
}

#[test]
fn retries_are_told_with_what_was_between_them() {
    let mut unit = step(
        "unit",
        "completed",
        [Some(5_000), Some(9_000), Some(9_100), Some(9_900)],
    );
    unit.attempt = 3;
    unit.attempts[0].attempt = 3;
    let mut declined = attempt(1, "returned", None, Some(700));
    declined.message = Some("worker edge-1 is full".to_string());
    let mut failed = attempt(2, "failed", Some(900), Some(5_000));
    failed.reason = Some("exit_code".to_string());
    failed.worker = Some("edge-2".to_string());
    unit.attempts.splice(0..0, [declined, failed]);
    let row = only(after("before", unit), Some(9_900), 0);
    assert_eq!(
        told(&row),
        "dependencies 0-200, queued 200-700, requeued 700-900, failed 900-5000, \
         retry_backoff 5000-9000, preparing 9000-9100, completed 9100-9900"
    );
    let titles: Vec<&str> = row.segments.iter().map(|one| one.title.as_str()).collect();
    assert_eq!(
        titles[2],
        "waited 0.2s for another worker: worker edge-1 is full"
    );
    assert_eq!(titles[3], "attempt 2 ran 4.1s on edge-2, failed: exit_code");
    assert_eq!(titles[4], "waited 4.0s to be tried again: exit_code");
    assert_eq!(titles[6], "attempt 3 ran 0.8s, completed");
    assert!(
        row.said().contains("ran 4.9s in 2 attempts, completed"),
        "{}",
        row.said()
    );
}

#[test]
fn a_step_that_is_ready_again_waits_since_its_last_attempt() {
    let mut unit = step("unit", "ready", [Some(3_000), None, None, None]);
    unit.attempt = 1;
    unit.attempts = vec![attempt(1, "failed", Some(300), Some(3_000))];
    unit.not_before = at(8_000);
    let row = only(after("before", unit), None, 4_000);
    assert_eq!(
        told(&row),
        "dependencies 0-200, queued 200-300, failed 300-3000, retry_backoff 3000-4000…"
    );
}

/// A hundred tries, each given back a few times.
#[test]
fn very_many_attempts_are_told_together() {
    let mut unit = step("unit", "ready", [Some(499), None, None, None]);
    unit.attempt = 499;
    unit.attempts = (1..500)
        .map(|number| {
            attempt(
                number,
                "failed",
                Some(i64::from(number)),
                Some(i64::from(number)),
            )
        })
        .collect();
    let timeline = timeline(&job(None, vec![unit]), 600);
    check(&timeline);
    let row = &timeline.rows[0];
    assert!(row.segments.len() < 50);
    assert_eq!(row.segments[0].title, "479 earlier attempts in 0.4s");
    assert!(
        row.said().contains("479 earlier attempts"),
        "{}",
        row.said()
    );
}

#[test]
fn people_child_jobs_and_instances_have_their_own_words() {
    let mut approve = step("approve", "suspended", [Some(200), None, None, None]);
    approve.kind = "approval".to_string();
    let row = only(after("before", approve), None, 5_000);
    assert_eq!(told(&row), "dependencies 0-200, approval 200-5000…");

    let mut call = step("call", "completed", [None, None, Some(200), Some(4_000)]);
    call.kind = "task".to_string();
    call.child_job_id = Some(43);
    let row = only(after("before", call), Some(4_000), 0);
    assert_eq!(
        told(&row),
        "dependencies 0-200, completed child job 200-4000"
    );
    assert_eq!(row.segments[1].title, "job 43 ran 3.8s, completed");

    let mut held = step(
        "held",
        "suspended",
        [Some(2_000), Some(300), Some(400), None],
    );
    held.attempts = vec![attempt(1, "failed", Some(400), Some(2_000))];
    held.reason = Some("worker_lost".to_string());
    let row = only(after("before", held), None, 5_000);
    assert_eq!(
        told(&row),
        "dependencies 0-200, queued 200-300, preparing 300-400, failed 400-2000, held 2000-5000…"
    );
}

#[test]
fn steps_without_times_are_told_without_bars() {
    let skipped = only(
        step("docs", "skipped", [None, None, None, Some(300)]),
        None,
        400,
    );
    assert_eq!(
        (told(&skipped).as_str(), skipped.said().as_str()),
        ("", "docs: skipped")
    );
    let cancelled = step("late", "cancelled", [None, None, None, Some(300)]);
    assert_eq!(told(&only(cancelled, Some(300), 0)), "dependencies 0-300");
    let mut unmatched = step("train", "failed", [Some(0), None, None, Some(30_000)]);
    unmatched.reason = Some("unmatched".to_string());
    unmatched.message = Some("no worker offers gpu".to_string());
    let row = only(unmatched, Some(30_000), 0);
    assert_eq!(told(&row), "no_matching_worker 0-30000");
    assert_eq!(
        row.segments[0].title,
        "waited 30s for a worker: no worker offers gpu"
    );
    // A retried job takes over what was done.
    let row = only(
        step("kept", "completed", [None, None, None, Some(-60_000)]),
        None,
        400,
    );
    assert_eq!(row.said(), "kept: completed, by an earlier job");
    assert_eq!((row.wait_ms(), row.run_ms()), (0, 0));
    let without = JobJson {
        steps: None,
        ..job(None, Vec::new())
    };
    check(&timeline(&without, 0));
}

/// The days that a job waited for its time are not drawn.
#[test]
fn a_job_that_was_held_begins_when_it_was_let_go() {
    const DAY: i64 = 86_400_000;
    let first = step(
        "first",
        "completed",
        [Some(DAY), Some(DAY + 10), Some(DAY + 20), Some(DAY + 500)],
    );
    let second = after(
        "first",
        step(
            "second",
            "completed",
            [
                Some(DAY + 500),
                Some(DAY + 500),
                Some(DAY + 500),
                Some(DAY + 900),
            ],
        ),
    );
    let timeline = timeline(&job(Some(DAY + 900), vec![first, second]), 0);
    check(&timeline);
    assert_eq!((timeline.held_ms, timeline.length_ms), (DAY, 900));
    assert_eq!(
        told(&timeline.rows[1]),
        "dependencies 0-500, completed 500-900"
    );
}

/// A millisecond within an hour can be seen, and pushes nothing out.
#[test]
fn the_shortest_step_is_visible_at_both_ends() {
    let hour = 3_600_000;
    let first = step("first", "completed", [Some(0), Some(0), Some(0), Some(1)]);
    let last = step(
        "last",
        "completed",
        [Some(0), Some(hour - 2), Some(hour - 1), Some(hour)],
    );
    let timeline = timeline(&job(Some(hour), vec![first, last]), 0);
    check(&timeline);
    let drawn = bars(&timeline.rows[0], &timeline.axis());
    assert!(drawn.contains(r#"x="0" y="2" width="3""#), "{drawn}");
    let drawn = bars(&timeline.rows[1], &timeline.axis());
    assert!(drawn.contains(r#"x="997" y="2" width="3""#), "{drawn}");
    // A job of no time at all.
    let at_once = step("at-once", "completed", [Some(0), Some(0), Some(0), Some(0)]);
    let timeline = self::timeline(&job(Some(0), vec![at_once]), 0);
    check(&timeline);
    assert_eq!(told(&timeline.rows[0]), "completed 0-0");
}

#[test]
fn clocks_may_say_anything() {
    let mut dice = super::Dice(17);
    let states = [
        "pending",
        "ready",
        "assigned",
        "running",
        "suspended",
        "completed",
        "failed",
        "skipped",
        "cancelled",
        "of tomorrow",
    ];
    for round in 0..2_000 {
        let mut steps = Vec::new();
        for number in 0..6 {
            let mut any = |limit: usize| dice.below(limit);
            let mut time = || match any(6) {
                0 | 1 => None,
                2 => Some(-(any(5_000) as i64)),
                3 => Some(any(100_000) as i64),
                _ => Some(any(5_000) as i64),
            };
            let times = [time(), time(), time(), time()];
            let attempts: Vec<AttemptHistory> = (0..number)
                .map(|at| attempt(at, "failed", time(), time()))
                .collect();
            let mut made = step(&format!("s{number}"), states[any(states.len())], times);
            made.attempts.splice(0..0, attempts);
            made.attempt += any(6) as u32;
            made.kind = ["script", "task", "approval"][any(3)].to_string();
            made.for_each = any(5) == 0;
            made.depends_on = vec![format!("s{}", any(6))];
            steps.push(made);
        }
        let ended = (round % 2 == 0).then(|| dice.below(6_000) as i64 - 500);
        let job = job(ended, steps);
        check(&timeline(&job, dice.below(6_000) as i64 - 500));
    }
    // The ends of what a number can hold.
    for (created, other) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, i64::MAX)] {
        let mut far = step("far", "completed", [None; 4]);
        let other = Some(Time(Timestamp(other)));
        (far.ready_at, far.started_at, far.ended_at) = (other, other, other);
        let mut job = job(None, vec![far]);
        job.created_at = Time(Timestamp(created));
        check(&timeline(&job, 0));
        check(&of_job(
            &job,
            Timestamp(i64::MAX),
            &|_| String::new(),
            &|_| None,
        ));
        job.ended_at = other;
        check(&timeline(&job, 0));
    }
}

fn labels(axis: &Axis) -> Vec<&str> {
    axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
}

#[test]
fn ticks_are_what_people_count_in() {
    let of = |ms: i64| Axis::of_ended(ms);
    assert_eq!(
        labels(&of(35_000)),
        ["0s", "5s", "10s", "15s", "20s", "25s", "30s", "35s"]
    );
    assert_eq!(
        labels(&of(65_000)),
        ["0s", "10s", "20s", "30s", "40s", "50s", "1m"]
    );
    assert_eq!(
        labels(&of(200_000)),
        ["0s", "30s", "1m", "1m 30s", "2m", "2m 30s", "3m"]
    );
    assert_eq!(
        labels(&of(1_200)),
        ["0s", "0.2s", "0.4s", "0.6s", "0.8s", "1s", "1.2s"]
    );
    assert_eq!(
        labels(&of(70)),
        ["0s", "10ms", "20ms", "30ms", "40ms", "50ms", "60ms", "70ms"]
    );
    assert_eq!(labels(&of(1)), ["0s", "1ms"]);
    assert_eq!(labels(&of(-5)), ["0s", "1ms"]);
    assert_eq!(labels(&of(400_000_000)), ["0s", "1d", "2d", "3d", "4d"]);
    assert_eq!(of(100_000).ticks[1].at_permille, 200);
    let mut ms = 1;
    while ms < i64::MAX / 3 {
        for axis in [Axis::of_ended(ms), Axis::of_running(ms)] {
            assert!((2..=8).contains(&axis.ticks.len()), "{ms}: {axis:?}");
            let mut different = labels(&axis);
            different.dedup();
            assert_eq!(different.len(), axis.ticks.len(), "{axis:?}");
        }
        ms += ms / 3 + 1;
    }
    // While the job runs there is room behind now, and the scale stays for a while.
    let running = Axis::of_running(12_000);
    assert_eq!(
        (running.length_ms, running.now_permille),
        (14_000, Some(857))
    );
    assert_eq!(Axis::of_running(13_999).length_ms, 14_000);
    assert_eq!(elements(&running.svg()).len(), 1 + 2 * running.ticks.len());
}

fn looped(instances: usize, status: impl Fn(usize) -> &'static str) -> Vec<StepJson> {
    let mut own = step("test", "running", [None, None, Some(100), None]);
    own.for_each = true;
    let times = |status: &str| match status {
        "pending" => [None; 4],
        "completed" | "failed" => [Some(150), Some(200), Some(200), Some(300)],
        _ => [Some(150), Some(200), Some(200), None],
    };
    let instances = (0..instances).map(|at| {
        let status = status(at);
        step(&format!("test[{at}]"), status, times(status))
    });
    std::iter::once(own).chain(instances).collect()
}

#[test]
fn instances_begin_with_their_loop_and_many_are_told_by_it() {
    let few = timeline(&job(None, looped(3, |_| "completed")), 1_000);
    check(&few);
    assert_eq!(few.rows.len(), 4);
    assert_eq!(told(&few.rows[0]), "running instances 0-900…");
    assert_eq!(
        told(&few.rows[1]),
        "concurrency 0-50, queued 50-100, completed 100-200"
    );
    assert!(few.rows[1].is_instance && !few.rows[0].is_instance);

    let status = |at: usize| match at {
        60 | 70 => "failed",
        80 => "running",
        100.. => "pending",
        _ => "completed",
    };
    let many = timeline(&job(None, looped(120, status)), 1_000);
    check(&many);
    let names: Vec<&str> = many.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["test", "test[60]", "test[70]", "test[80]"]);
    assert_eq!(
        many.rows[0].note.as_deref(),
        Some("120 instances: 2 failed, 1 running, 20 pending, 97 completed")
    );
    assert_eq!(many.more, 0);
}

#[test]
fn of_ten_thousand_steps_those_that_matter_are_shown_in_their_order() {
    let steps = (0..10_000).map(|at| {
        let name = format!("s{at}");
        match at {
            9_000 => step(&name, "failed", [Some(0), Some(1), Some(2), Some(3)]),
            5_000 => step(&name, "running", [Some(0), Some(1), Some(2), None]),
            7_000 => step(&name, "ready", [Some(0), None, None, None]),
            _ => step(&name, "completed", [Some(0), Some(1), Some(2), Some(3)]),
        }
    });
    let timeline = timeline(&job(None, steps.collect()), 60_000);
    check(&timeline);
    assert_eq!((timeline.rows.len(), timeline.more), (200, 9_800));
    let names: Vec<&str> = timeline.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names[..2], ["s0", "s1"]);
    assert_eq!(names[197..], ["s5000", "s7000", "s9000"]);
    assert!(timeline.note().unwrap().starts_with("9800 more steps"));
}

#[test]
fn hostile_names_and_sentences_stay_words() {
    let steps = HOSTILE.iter().map(|name| {
        let mut made = step(name, "ready", [Some(3_000), None, None, None]);
        made.attempt = 1;
        let mut former = attempt(1, "failed", Some(10), Some(20));
        former.outcome = name.to_string();
        former.reason = Some(name.to_string());
        former.worker = Some(name.repeat(1_000));
        made.attempts = vec![former];
        made
    });
    let job = job(None, steps.collect());
    let why = |name: &str| Some((name.to_string(), name.repeat(1_000)));
    let timeline = of_job(&job, now(100), &|name| name.to_string(), &why);
    check(&timeline);
    for (row, name) in timeline.rows.iter().zip(HOSTILE) {
        assert_eq!(row.href, *name, "an address is the caller's");
        let drawn = bars(row, &timeline.axis());
        assert!(
            !drawn.contains(|c: char| c.is_control() && c != '\n'),
            "{drawn:?}"
        );
        assert!(!drawn.contains(['\u{202e}', '\u{2066}']), "{drawn:?}");
        assert!(drawn.len() < 20_000, "{}", drawn.len());
        for element in elements(&drawn) {
            let known = ["svg", "rect", "title", "line"];
            assert!(known.contains(&element.name.as_str()), "{}", element.name);
            for (key, value) in &element.attributes {
                assert!(key != "style" && !key.starts_with("on"), "{key}");
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_ ".contains(c);
                assert!(key != "class" || value.chars().all(is_plain), "{value}");
            }
        }
    }
}

#[test]
fn every_reason_has_a_hatch() {
    let found = elements(&hatches());
    let ids: Vec<&String> = found
        .iter()
        .filter_map(|one| one.attributes.get("id"))
        .collect();
    for waiting in Waiting::ALL {
        assert!(ids.contains(&&format!("hatch-{waiting}")), "{waiting}");
    }
    for code in ["queued", "requeued", "other"] {
        assert!(ids.contains(&&format!("hatch-{code}")), "{code}");
    }
}
