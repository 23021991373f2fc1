//! Bad input gets a typed error that names the place, and nothing is written.

use std::sync::Arc;

use stepward::domain::check::{Fault, TaskSet};
use stepward::domain::depends::{Accept, DependsOn};
use stepward::domain::limits;
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::task::{
    Concurrency, ForEach, Hook, HookDoes, HookOn, Items, StepDraft, TaskDraft, WhenFull,
};
use stepward::domain::{JobId, Json};
use stepward::engine::{EngineError, Finished, Submission, Verdict};

use crate::house::{TestHouse, checked, frozen, registration, script};

fn problem(steps: Vec<StepDraft>) -> String {
    problem_of(vec![TaskDraft::new("main", steps)])
}

fn problem_of(tasks: Vec<TaskDraft>) -> String {
    checked(tasks).unwrap_err().to_string()
}

#[test]
fn a_definition_that_cannot_work_is_refused_with_its_place() {
    let cases: Vec<(&str, Vec<StepDraft>, &str)> = vec![
        ("no steps", vec![], r#"task "main", flow: is empty"#),
        (
            "unknown dependency",
            vec![script("a").after(&["b"])],
            r#"task "main", step "a", depends_on: depends on step "b", which does not exist"#,
        ),
        (
            "self-reference",
            vec![script("a").after(&["a"])],
            r#"task "main", step "a", depends_on: depends on itself"#,
        ),
        (
            "cycle",
            vec![
                script("x"),
                script("a").after(&["c", "x"]),
                script("b").after(&["a"]),
                script("c").after(&["b"]),
            ],
            r#"task "main": steps wait for each other: a → c → b → a"#,
        ),
        (
            "duplicate name",
            vec![script("a"), script("a")],
            r#"task "main", step "a": the name is taken, give each its own"#,
        ),
        (
            "empty name",
            vec![script("")],
            r#"task "main", step "": is empty"#,
        ),
        (
            "blank name",
            vec![script("  ")],
            r#"task "main", step "  ": is empty"#,
        ),
        (
            "NUL in a name",
            vec![script("a\0b")],
            r#"task "main", step "a\0b": holds a NUL byte"#,
        ),
        (
            "NUL in a script",
            vec![StepDraft::script("a", "echo \0")],
            r#"task "main", step "a", script: holds a NUL byte"#,
        ),
        (
            "reserved character",
            vec![script("a[0]")],
            r#"task "main", step "a[0]": holds '[', which is not allowed"#,
        ),
        (
            "reserved name",
            vec![script("_server")],
            r#"task "main", step "_server": "_server" is reserved"#,
        ),
        (
            "empty script",
            vec![StepDraft::script("a", "")],
            r#"task "main", step "a", script: is empty"#,
        ),
        (
            "empty group",
            vec![script("a"), script("b").depending(DependsOn::Any(vec![]))],
            r#"task "main", step "b", depends_on: has an empty group, name at least one step in it"#,
        ),
        (
            "empty accept",
            vec![
                script("a"),
                script("b").depending(DependsOn::accepting("a", Accept::of(&[]))),
            ],
            r#"task "main", step "b", depends_on: has an edge that accepts no outcome"#,
        ),
        (
            "unknown task",
            vec![StepDraft::task("a", "nowhere")],
            r#"task "main", step "a": task "nowhere" does not exist"#,
        ),
        (
            "task calls itself",
            vec![StepDraft::task("a", "main")],
            r#"task "main": tasks call each other: main → main"#,
        ),
        (
            "approval in a loop",
            vec![StepDraft {
                for_each: Some(ForEach {
                    items: Items::List(vec![Json("1".into())]),
                    max_parallel: None,
                }),
                ..StepDraft::approval("a", "go?")
            }],
            r#"task "main", step "a", for_each: an approval cannot be a loop, ask once before it"#,
        ),
        (
            "no parallel instance",
            vec![StepDraft {
                for_each: Some(ForEach {
                    items: Items::List(vec![Json("1".into())]),
                    max_parallel: Some(0),
                }),
                ..script("a")
            }],
            r#"task "main", step "a", max_parallel: is 0, expected 1 to 10000"#,
        ),
        (
            "no try",
            vec![StepDraft {
                retry: RetryPolicy::times(0),
                ..script("a")
            }],
            r#"task "main", step "a", retry: is 0, expected 1 to 100"#,
        ),
        (
            "timeout of zero",
            vec![StepDraft {
                timeout_ms: Some(0),
                ..script("a")
            }],
            r#"task "main", step "a", timeout: is 0, expected 1 to 316224000000"#,
        ),
        (
            "bad tag",
            vec![StepDraft {
                tags: vec!["gpu nvidia".to_string()],
                ..script("a")
            }],
            r#"task "main", step "a", tags: holds ' ', which is not allowed"#,
        ),
        (
            "too many tags",
            vec![StepDraft {
                tags: (0..101).map(|n| format!("t{n}")).collect(),
                ..script("a")
            }],
            r#"task "main", step "a": has 101 tags, at most 100 are allowed"#,
        ),
    ];
    for (about, steps, expected) in cases {
        assert_eq!(problem(steps), expected, "{about}");
    }
}

#[test]
fn all_problems_come_at_once() {
    let steps = vec![
        script("a").after(&["nope"]),
        script("a"),
        script("").after(&["neither"]),
    ];
    let problems = checked(vec![TaskDraft::new("main", steps)]).unwrap_err();
    assert_eq!(problems.0.len(), 4);
    assert_eq!(problems.0[0].fault, Fault::Duplicate);
}

#[test]
fn ten_thousand_steps_are_allowed_and_one_more_is_not() {
    let steps = |count: usize| (0..count).map(|n| script(&format!("s{n}"))).collect();
    checked(vec![TaskDraft::new("main", steps(10_000))]).unwrap();
    assert_eq!(
        problem(steps(10_001)),
        r#"task "main": has 10001 steps, at most 10000 are allowed"#
    );
}

#[test]
fn ten_levels_of_child_jobs_are_allowed_and_one_more_is_not() {
    let tasks = |levels: usize| {
        let call = |n: usize| {
            TaskDraft::new(
                &format!("t{n}"),
                vec![StepDraft::task("go", &format!("t{}", n + 1))],
            )
        };
        let mut tasks: Vec<TaskDraft> = (0..levels).map(call).collect();
        tasks.push(TaskDraft::new(&format!("t{levels}"), vec![script("a")]));
        tasks
    };
    checked(tasks(10)).unwrap();
    let refused = problem_of(tasks(11));
    assert!(
        refused.starts_with(
            r#"task "t0": child jobs would nest 11 deep, at most 10 are allowed: t0 → t1"#
        ),
        "{refused}"
    );
}

#[test]
fn tasks_that_call_each_other_in_a_circle_are_refused() {
    let tasks = vec![
        TaskDraft::new("a", vec![StepDraft::task("go", "b")]),
        TaskDraft::new("b", vec![StepDraft::task("go", "c")]),
        TaskDraft::new("c", vec![StepDraft::task("go", "b")]),
    ];
    assert_eq!(
        problem_of(tasks),
        r#"task "b": tasks call each other: b → c → b"#
    );
}

#[test]
fn a_hook_that_leads_into_a_circle_of_tasks_is_refused() {
    let hook = Hook {
        on: HookOn::Error,
        does: HookDoes::Job {
            task: "a".to_string(),
            input: Json::empty_object(),
        },
    };
    let main = TaskDraft {
        hooks: vec![hook],
        ..TaskDraft::new("main", vec![script("x")])
    };
    let tasks = vec![
        main,
        TaskDraft::new("a", vec![StepDraft::task("go", "b")]),
        TaskDraft::new("b", vec![StepDraft::task("go", "a")]),
    ];
    assert_eq!(
        problem_of(tasks),
        r#"task "a": tasks call each other: a → b → a"#
    );
}

/// A file can have thousands of tasks that call each other in one chain: each of them is checked once, not once for each caller.
#[test]
fn all_definitions_share_the_tasks_of_a_chain() {
    let tasks = 5_000;
    let task = |at: usize| {
        let steps = match at + 1 < tasks {
            true => vec![StepDraft::task("go", &format!("t{}", at + 1))],
            false => vec![script("end")],
        };
        TaskDraft::new(&format!("t{at}"), steps)
    };
    let set = TaskSet::new((0..tasks).map(task));
    let allowed = tasks - 1 - limits::NESTING_MAX;
    for at in 0..allowed {
        let refused = set.definition(&format!("t{at}")).unwrap_err();
        assert_eq!(refused.0.len(), 1);
        assert!(
            matches!(&refused.0[0].fault, Fault::NestingTooDeep { tasks } if tasks[0] == format!("t{at}"))
        );
    }
    let definition = |at: usize| set.definition(&format!("t{at}")).unwrap();
    let (all, end) = (definition(allowed), definition(tasks - 1));
    assert_eq!(all.tasks().len(), limits::NESTING_MAX + 1);
    let last = &all.tasks()[limits::NESTING_MAX];
    assert!(Arc::ptr_eq(&last.draft, &end.root().draft));
}

#[test]
fn megabytes_of_name_or_script_are_refused_without_being_echoed() {
    let huge = "x".repeat(10 << 20);
    let refused = problem(vec![script(&huge)]);
    assert!(
        refused.contains("is 10485760 bytes long, at most 128 are allowed"),
        "{refused}"
    );
    assert!(refused.len() < 300);
    let refused = problem(vec![StepDraft::script("a", &huge)]);
    assert_eq!(
        refused,
        r#"task "main", step "a", script: is 10485760 bytes long, at most 1048576 are allowed"#
    );
    let group = Concurrency {
        group: huge,
        limit: 1,
        when_full: WhenFull::Queue,
    };
    let task = TaskDraft {
        concurrency: Some(group),
        ..TaskDraft::new("main", vec![script("a")])
    };
    assert!(problem_of(vec![task]).contains("concurrency: is 10485760 bytes long"));
}

#[test]
fn a_bad_submission_is_refused_and_nothing_is_written() {
    let house = TestHouse::new();
    let good = Submission::of(&frozen(vec![TaskDraft::new("main", vec![script("a")])]));
    let with = |change: fn(&mut Submission)| {
        let mut submission = good.clone();
        change(&mut submission);
        house.submission(submission).unwrap_err().to_string()
    };
    assert_eq!(
        with(|s| s.input = Json("[1]".into())),
        "input is not a JSON object"
    );
    assert!(with(|s| s.input = Json("{nope".into())).starts_with("input is not JSON: "));
    assert_eq!(
        with(|s| s.input = Json(format!("{{\"a\":\"{}\"}}", "x".repeat(10 << 20)))),
        "input is 10485768 bytes long, at most 1048576 are allowed"
    );
    assert_eq!(
        with(|s| s.idempotency_key = Some(String::new())),
        "idempotency key is empty"
    );
    assert_eq!(
        with(|s| s.labels = [("a\0".to_string(), "b".to_string())].into()),
        "label holds a NUL byte"
    );
    assert_eq!(
        with(|s| s.labels = (0..65).map(|n| (n.to_string(), String::new())).collect()),
        "labels are 65, at most 64 are allowed"
    );
    assert_eq!(house.events(), []);
    let definitions = house.engine.job(stepward::domain::JobId(1)).unwrap_err();
    assert_eq!(definitions.to_string(), "job 1 does not exist");
}

#[test]
fn a_definition_of_too_many_bytes_is_refused() {
    let house = TestHouse::new();
    let script = "x".repeat(limits::SCRIPT_BYTES_MAX);
    let steps = (0..17)
        .map(|n| StepDraft::script(&format!("s{n}"), &script))
        .collect();
    let refused = house
        .submission(Submission::of(&frozen(vec![TaskDraft::new("main", steps)])))
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("definition is 178"), "{refused}");
    assert_eq!(house.events(), []);
}

#[test]
fn a_worker_that_makes_no_sense_is_refused() {
    let house = TestHouse::new();
    let open = |tags: &[&str], slots: u32, name: &str| {
        let registration = registration(name, "key", tags, slots);
        house
            .engine
            .open_session(registration, vec![], house.now())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(open(&[], 0, "ann"), "slots are 0, expected 1 to 10000");
    assert_eq!(
        open(&["a b"], 1, "ann"),
        r#"tag "a b" is not allowed, a tag is 1 to 64 letters, figures or signs of . _ : / - ="#
    );
    assert_eq!(open(&[], 1, ""), "worker name is empty");
    assert_eq!(house.events(), []);
}

#[test]
fn a_report_that_makes_no_sense_fails_its_step_and_says_so() {
    let output = |text: String| Finished::Completed {
        output: Some(Json(text)),
        exit_code: Some(0),
    };
    let failed = |reason, message: &str| Finished::Failed {
        reason,
        message: message.to_string(),
        exit_code: None,
    };
    for (finished, reason, message) in [
        (
            output(format!("\"{}\"", "x".repeat(64 << 10))),
            Reason::OutputInvalid,
            "output is 65538 bytes long, at most 65536 are allowed",
        ),
        (
            output("{nope".to_string()),
            Reason::OutputInvalid,
            "output is not JSON: key must be a string at line 1 column 2",
        ),
        (
            failed(Reason::JobTimeout, "ha"),
            Reason::OutputInvalid,
            "the worker gave the reason job_timeout, which is the server's: ha",
        ),
        (
            failed(Reason::Signal, ""),
            Reason::Signal,
            "the worker did not say why",
        ),
        (failed(Reason::Signal, "a\0b"), Reason::Signal, "a\u{FFFD}b"),
    ] {
        let house = TestHouse::new();
        let job = house.submit(vec![script("a")]);
        let worker = house.worker("ann", &[], 1);
        let claimed = worker.begin();
        assert_eq!(worker.finish(claimed.attempt, finished), Verdict::Accepted);
        let step = house.step(job, "a");
        assert_eq!(
            (step.reason, step.message.as_deref()),
            (Some(reason), Some(message))
        );
        assert_eq!(house.summary(job), "a failed → failed");
    }
}

#[test]
fn a_long_message_is_clipped() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.begin();
    let message = "ü".repeat(1 << 20);
    worker.finish(
        claimed.attempt,
        Finished::Failed {
            reason: Reason::Signal,
            message,
            exit_code: None,
        },
    );
    let kept = house.step(job, "a").message.unwrap();
    assert!(
        kept.len() <= limits::MESSAGE_BYTES_MAX && kept.ends_with("ü…"),
        "{}",
        kept.len()
    );
}

#[test]
fn what_does_not_exist_is_not_found() {
    let house = TestHouse::new();
    let unknown = house.engine.cancel(JobId(99), "eve", house.now());
    assert!(matches!(unknown, Err(EngineError::JobNotFound { .. })));
}
