//! What a job is given must fit its task, whoever gives it; what is secret in it is sealed where it is kept.

use stepward::domain::Json;
use stepward::domain::reason::Reason;
use stepward::domain::task::{Action, StepDraft, TaskDraft};
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::engine::{Decision, EngineError, Finished, Retry, RetryScope, Submission};

use crate::house::{TestHouse, frozen, script};

fn json(text: &str) -> Json {
    Json(text.to_string())
}

fn release() -> TaskDraft {
    TaskDraft {
        inputs: vec![
            ValueSpec {
                required: true,
                pattern: Some(r"^\d+\.\d+$".to_string()),
                ..ValueSpec::new("version", ValueType::String)
            },
            ValueSpec {
                options: vec![json("\"stable\""), json("\"beta\"")],
                default: Some(json("\"beta\"")),
                ..ValueSpec::new("channel", ValueType::String)
            },
            ValueSpec {
                min: Some(json("1")),
                max: Some(json("9")),
                ..ValueSpec::new("copies", ValueType::Integer)
            },
            ValueSpec {
                secret: true,
                ..ValueSpec::new("token", ValueType::String)
            },
        ],
        ..TaskDraft::new("release", vec![script("build")])
    }
}

fn given(input: &str) -> Submission {
    Submission {
        input: json(input),
        ..Submission::of(&frozen(vec![release()]))
    }
}

#[test]
fn everything_that_does_not_fit_is_told_at_once_and_nothing_is_made() {
    let house = TestHouse::new();
    let refused = house.submission(given(r#"{"chanel": "beta", "copies": 12, "version": "x"}"#));
    let Err(EngineError::InputInvalid { violations, .. }) = refused else {
        panic!("{refused:?}");
    };
    let mut names: Vec<&str> = violations
        .iter()
        .map(|violation| violation.name.as_str())
        .collect();
    names.sort();
    assert_eq!(names, ["chanel", "copies", "version"]);
    assert!(
        house.submission(given("{}")).is_err(),
        "version is required"
    );
    assert!(house.events().is_empty());
}

#[test]
fn a_task_that_asks_for_nothing_takes_nothing() {
    let house = TestHouse::new();
    let refused = house.submission(Submission {
        input: json(r#"{"name": "Ada"}"#),
        ..Submission::of(&frozen(vec![TaskDraft::new("main", vec![script("a")])]))
    });
    assert!(
        matches!(refused, Err(EngineError::InputInvalid { .. })),
        "{refused:?}"
    );
}

#[test]
fn defaults_are_filled_in_and_a_worker_is_given_the_values() {
    let house = TestHouse::new();
    house
        .submission(given(r#"{"version": "1.2", "copies": 3}"#))
        .unwrap();
    let input: serde_json::Value =
        serde_json::from_str(&house.worker("ann", &[], 1).claim().input.0).unwrap();
    assert_eq!(
        input,
        serde_json::json!({"version": "1.2", "channel": "beta", "copies": 3})
    );
}

#[test]
fn a_secret_input_is_kept_sealed_and_given_open_with_a_mask() {
    let house = TestHouse::new();
    let input = r#"{"version": "1.2", "token": "hunter2-hunter2"}"#;
    let job = house.submission(given(input)).unwrap();
    let kept = house.job(job).job.input.0;
    assert!(!kept.contains("hunter2"), "{kept}");
    let worker = house.worker("ann", &[], 1);
    let assignment = worker.begin();
    assert!(assignment.input.0.contains("hunter2-hunter2"));
    assert_eq!(assignment.masks, ["hunter2-hunter2"]);
    worker.fail(assignment.attempt);

    // A retry has the same values, and they stay sealed.
    let again = house
        .engine
        .retry(Retry::of(job, RetryScope::All), house.now());
    let again = again.unwrap().job_id;
    assert!(!house.job(again).job.input.0.contains("hunter2"));
    assert!(worker.claim().input.0.contains("hunter2-hunter2"));
    drop(std::fs::read(house.database()).unwrap());
    for file in ["stepward.db", "stepward.db-wal"] {
        let bytes = std::fs::read(house.database().with_file_name(file)).unwrap();
        let found = bytes.windows(7).any(|window| window == b"hunter2");
        assert!(!found, "{file}");
    }
}

#[test]
fn a_child_is_held_to_its_inputs_and_may_be_handed_a_secret_on() {
    let house = TestHouse::new();
    let call = |input: &str| {
        let mut step = StepDraft::task("call", "child");
        step.action = Action::Task {
            task: "child".to_string(),
            input: json(input),
        };
        step
    };
    let child = TaskDraft {
        inputs: vec![
            ValueSpec::new("count", ValueType::Integer),
            ValueSpec {
                secret: true,
                ..ValueSpec::new("key", ValueType::String)
            },
        ],
        ..TaskDraft::new("child", vec![script("inner")])
    };
    let parent = |input: &str| TaskDraft {
        steps: vec![call(input)],
        ..release()
    };
    let submit = |input: &str| {
        let submission = Submission {
            input: json(r#"{"version": "1.2", "copies": 4, "token": "hunter2-hunter2"}"#),
            ..Submission::of(&frozen(vec![parent(input), child.clone()]))
        };
        house.submission(submission).unwrap()
    };

    let job = submit(r#"{"count": "{{ input.copies }}", "key": "{{ input.token }}"}"#);
    let inner = house.job(house.child_of(job, "call"));
    assert!(
        inner.job.input.0.contains(r#""count":4"#),
        "{}",
        inner.job.input.0
    );
    assert!(!inner.job.input.0.contains("hunter2"));
    let worker = house.worker("ann", &[], 1);
    let assignment = worker.begin();
    assert!(assignment.input.0.contains("hunter2-hunter2"));
    assert_eq!(assignment.masks, ["hunter2-hunter2"]);
    worker.complete(assignment.attempt);

    let job = submit(r#"{"count": "many", "kee": 1}"#);
    assert_eq!(house.summary(job), "call failed → failed");
    let step = house.step(job, "call");
    assert_eq!(step.reason, Some(Reason::PayloadError));
    let message = step.message.unwrap();
    assert!(
        message.contains("count") && message.contains("kee"),
        "{message}"
    );
}

#[test]
fn an_approval_asks_for_what_it_needs() {
    let house = TestHouse::new();
    let ask = StepDraft::new(
        "ask",
        Action::Approval {
            message: "Publish {{ input.version }}?".to_string(),
            inputs: vec![ValueSpec {
                required: true,
                ..ValueSpec::new("ticket", ValueType::String)
            }],
        },
    );
    let mut after = StepDraft::script("after", "echo {{ steps.ask.output.ticket | sh }}");
    after = after.after(&["ask"]);
    let task = TaskDraft {
        steps: vec![ask, after],
        ..release()
    };
    let submission = Submission {
        input: json(r#"{"version": "1.2"}"#),
        ..Submission::of(&frozen(vec![task]))
    };
    let job = house.submission(submission).unwrap();
    assert_eq!(
        house.step(job, "ask").message.as_deref(),
        Some("Publish 1.2?")
    );
    assert!(house.why(job, "ask").sentence.contains("Publish 1.2?"));
    let detail = house.engine.job_detail(job).unwrap();
    assert_eq!(
        detail.steps[0].asks[0].name, "ticket",
        "people are told what is asked"
    );
    let decide = |output: Option<&str>| {
        let output = output.map(json);
        let step_id = house.step(job, "ask").step_id;
        house
            .engine
            .decide(step_id, Decision::Approve { output }, "ann", house.now())
    };
    for wrong in [None, Some("{}"), Some(r#"{"ticket": "X-1", "more": 1}"#)] {
        let refused = decide(wrong);
        assert!(
            matches!(refused, Err(EngineError::InputInvalid { .. })),
            "{refused:?}"
        );
        assert_eq!(house.step_state(job, "ask").as_str(), "suspended");
    }
    decide(Some(r#"{"ticket": "X-1"}"#)).unwrap();
    let assignment = house.worker("ann", &[], 1).claim();
    let Action::Script { script, .. } = assignment.action else {
        panic!("{:?}", assignment.action);
    };
    assert_eq!(script, "echo 'X-1'");
}

#[test]
fn a_step_that_does_not_give_what_it_promises_fails() {
    let house = TestHouse::new();
    let step = StepDraft {
        outputs: vec![ValueSpec {
            required: true,
            ..ValueSpec::new("rows", ValueType::Integer)
        }],
        ..script("count")
    };
    for (output, state) in [
        (Some(r#"{"rows": 3}"#), "completed"),
        (Some(r#"{"rows": "three"}"#), "failed"),
        (None, "failed"),
    ] {
        let job = house.submit(vec![step.clone()]);
        let worker = house.worker("ann", &[], 1);
        let attempt = worker.begin().attempt;
        let output = output.map(json);
        let exit_code = Some(0);
        worker.finish(attempt, Finished::Completed { output, exit_code });
        let ended = house.step(job, "count");
        assert_eq!(ended.state.as_str(), state);
        if state == "failed" {
            assert_eq!(ended.reason, Some(Reason::OutputInvalid));
            assert!(ended.message.unwrap().contains("rows"));
        }
    }
}

/// A task that is given a secret, and what it says of it.
fn secretive(steps: Vec<StepDraft>) -> TaskDraft {
    TaskDraft {
        inputs: vec![ValueSpec {
            secret: true,
            ..ValueSpec::new("pin", ValueType::String)
        }],
        ..TaskDraft::new("main", steps)
    }
}

fn submit_pin(house: &TestHouse, tasks: Vec<TaskDraft>, pin: &str) -> stepward::domain::JobId {
    let submission = Submission {
        input: Json(serde_json::json!({"pin": pin}).to_string()),
        ..Submission::of(&frozen(tasks))
    };
    house.submission(submission).unwrap()
}

/// Nothing of the database may hold it.
fn assert_nowhere(house: &TestHouse, secret: &str) {
    for file in ["stepward.db", "stepward.db-wal"] {
        let bytes = std::fs::read(house.database().with_file_name(file)).unwrap();
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "{secret} is in {file}");
    }
}

#[test]
fn when_may_look_at_a_secret() {
    let house = TestHouse::new();
    for (pin, state) in [("yes-it-is-the-pin", "ready"), ("no", "skipped")] {
        let step = StepDraft {
            when: Some(json(r#""{{ input.pin == 'yes-it-is-the-pin' }}""#)),
            ..script("a")
        };
        let job = submit_pin(&house, vec![secretive(vec![step])], pin);
        assert_eq!(house.step_state(job, "a").as_str(), state, "{pin}");
    }
}

#[test]
fn a_child_is_handed_what_is_made_of_a_secret_and_its_rules_hold() {
    let house = TestHouse::new();
    let mut call = StepDraft::task("call", "child");
    call.action = Action::Task {
        task: "child".to_string(),
        input: json(r#"{"key": "pre-{{ input.pin | upper }}"}"#),
    };
    let child = TaskDraft {
        inputs: vec![ValueSpec {
            secret: true,
            pattern: Some("^pre-[A-Z0-9-]{8,}$".to_string()),
            ..ValueSpec::new("key", ValueType::String)
        }],
        ..TaskDraft::new("child", vec![script("inner")])
    };
    let tasks = || vec![secretive(vec![call.clone()]), child.clone()];
    submit_pin(&house, tasks(), "hunter2-hunter2");
    let assignment = house.worker("ann", &[], 1).claim();
    assert!(assignment.input.0.contains("pre-HUNTER2-HUNTER2"));
    assert_eq!(assignment.masks, ["pre-HUNTER2-HUNTER2"]);

    let job = submit_pin(&house, tasks(), "short");
    let step = house.step(job, "call");
    assert_eq!(step.reason, Some(Reason::PayloadError));
    assert!(!step.message.unwrap().contains("SHORT"));
    assert_nowhere(&house, "HUNTER2");
}

#[test]
fn what_an_action_does_not_take_is_told_without_the_secret() {
    let house = TestHouse::new();
    let mut step = script("act");
    step.named_action = Some(stepward::domain::task::NamedAction {
        name: "typed".to_string(),
        inputs: vec![ValueSpec::new("n", ValueType::Integer)],
        env: Default::default(),
    });
    step.input = json(r#"{"n": "{{ input.pin }}"}"#);
    let job = submit_pin(&house, vec![secretive(vec![step])], "hunter2-hunter2");
    assert_eq!(house.worker("ann", &[], 1).poll(1, &[]).assignments, []);
    let message = house.step(job, "act").message.unwrap();
    assert!(
        message.ends_with("does not take its input: n (values are not shown, there are secrets)"),
        "{message}"
    );
    assert_nowhere(&house, "hunter2");
}

#[test]
fn a_secret_that_an_approval_asks_for_is_sealed_and_opened_for_a_worker() {
    let house = TestHouse::new();
    let ask = StepDraft::new(
        "ask",
        Action::Approval {
            message: "code?".to_string(),
            inputs: vec![ValueSpec {
                secret: true,
                ..ValueSpec::new("code", ValueType::String)
            }],
        },
    );
    let mut used = script("use").after(&["ask"]);
    used.env = [(
        "CODE".to_string(),
        "{{ steps.ask.output.code }}".to_string(),
    )]
    .into();
    let job = house.submit(vec![ask, used]);
    let decision = Decision::Approve {
        output: Some(json(r#"{"code": "hunter2-hunter2"}"#)),
    };
    let step_id = house.step(job, "ask").step_id;
    house
        .engine
        .decide(step_id, decision, "ann", house.now())
        .unwrap();
    assert_nowhere(&house, "hunter2");
    let assignment = house.worker("ann", &[], 1).claim();
    assert_eq!(assignment.env["CODE"], "hunter2-hunter2");
    assert_eq!(assignment.masks, ["hunter2-hunter2"]);
}

#[test]
fn a_sealed_value_from_elsewhere_is_not_taken() {
    let house = TestHouse::new();
    let refused = house.submission(Submission {
        input: json(r#"{"pin": {"$sealed": "v1.AAAA"}}"#),
        ..Submission::of(&frozen(vec![secretive(vec![script("a")])]))
    });
    assert!(
        matches!(refused, Err(EngineError::InputInvalid { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_key_remembers_a_request_without_telling_its_secrets() {
    let house = TestHouse::new();
    let submission = |pin: &str| Submission {
        input: Json(serde_json::json!({"pin": pin}).to_string()),
        idempotency_key: Some("k".to_string()),
        ..Submission::of(&frozen(vec![secretive(vec![script("a")])]))
    };
    let job = house.submission(submission("4711")).unwrap();
    assert_eq!(house.submission(submission("4711")).unwrap(), job);
    assert!(house.submission(submission("4712")).is_err());
    // Whoever has the database alone cannot try all pins.
    let request = serde_json::json!(["submit", "main", "{\"pin\":\"4711\"}", null, null, {}]);
    let plain = stepward::store::hex_sha256(request.to_string().as_bytes());
    assert_nowhere(&house, &plain);
}
