//! Attempts to read the secret input of another job. Whoever tries is refused, or sees `***`.

use rusqlite::Connection;
use serde_json::{Value, json};
use stepward::domain::reason::Reason;
use stepward::domain::task::{
    Action, Concurrency, ForEach, Hook, HookDoes, HookOn, Items, StepDraft, TaskDraft, WhenFull,
};
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::domain::{JobId, Json};
use stepward::engine::{Decision, EngineError, Finished, Retry, RetryScope, Submission};

use crate::house::{TestHouse, frozen, script};

const PIN: &str = "hunter2-hunter2";

fn secret(name: &str, value_type: ValueType) -> ValueSpec {
    ValueSpec {
        secret: true,
        ..ValueSpec::new(name, value_type)
    }
}

/// Takes a secret `pin`, a secret `key` and anything as `config`.
fn vault(steps: Vec<StepDraft>) -> TaskDraft {
    TaskDraft {
        inputs: vec![
            secret("pin", ValueType::String),
            secret("key", ValueType::Json),
            ValueSpec::new("config", ValueType::Json),
        ],
        ..TaskDraft::new("vault", steps)
    }
}

fn submission(tasks: Vec<TaskDraft>, input: Value) -> Submission {
    Submission {
        input: Json(input.to_string()),
        ..Submission::of(&frozen(tasks))
    }
}

fn submit_pin(house: &TestHouse, tasks: Vec<TaskDraft>) -> JobId {
    house
        .submission(submission(tasks, json!({"pin": PIN})))
        .unwrap()
}

fn stored_input(house: &TestHouse, job: JobId) -> Value {
    serde_json::from_str(&house.job(job).job.input.0).unwrap()
}

fn ciphertext(house: &TestHouse, job: JobId, name: &str) -> String {
    let input = stored_input(house, job);
    input[name]["$sealed"].as_str().unwrap().to_string()
}

fn change(house: &TestHouse, sql: &str) {
    let connection = Connection::open(house.database()).unwrap();
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
}

fn ask(name: &str) -> StepDraft {
    StepDraft::new(
        "ask",
        Action::Approval {
            message: "code?".to_string(),
            inputs: match name {
                "" => Vec::new(),
                name => vec![secret(name, ValueType::Json)],
            },
        },
    )
}

fn approve(house: &TestHouse, job: JobId, output: Value) -> Result<(), EngineError> {
    let step_id = house.step(job, "ask").step_id;
    let decision = Decision::Approve {
        output: Some(Json(output.to_string())),
    };
    house.engine.decide(step_id, decision, "ann", house.now())
}

/// The paths that are named in a refusal.
fn refused_at(result: Result<impl std::fmt::Debug, EngineError>) -> String {
    let Err(EngineError::InputInvalid { violations, .. }) = result else {
        panic!("{result:?}");
    };
    violations[0].message.clone()
}

#[test]
fn people_cannot_give_a_sealed_value_at_any_depth() {
    let house = TestHouse::new();
    let victim = submit_pin(&house, vec![vault(vec![script("a")])]);
    let stolen = json!({"$sealed": ciphertext(&house, victim, "pin")});
    for (input, path) in [
        (json!({"pin": stolen}), "at \"pin\","),
        (json!({"key": stolen}), "at \"key\","),
        (json!({"config": stolen}), "at \"config\","),
        (
            json!({"config": {"a": [1, {"b": stolen}]}}),
            "at \"config.a[1].b\",",
        ),
        (
            json!({"config": {"a": {"$sealed": 1, "b": 2}}}),
            "at \"config.a\",",
        ),
        (json!({"key": [[stolen]]}), "at \"key[0][0]\","),
        (json!({"$sealed": "v2.x"}), "at \"$sealed\","),
    ] {
        let tasks = vec![vault(vec![script("a")])];
        let told = refused_at(house.submission(submission(tasks, input.clone())));
        assert!(told.contains(path), "{input}: {told}");
    }
    // A letter of a key may be written in another way.
    let escaped = r#"{"config": [{"\u0024sealed": "v2.x"}]}"#;
    let told = refused_at(house.submission(Submission {
        input: Json(escaped.to_string()),
        ..Submission::of(&frozen(vec![vault(vec![script("a")])]))
    }));
    assert!(told.contains("at \"config[0]\","), "{told}");

    // Neither what an approval asks for nor an approval that takes anything.
    for name in ["code", ""] {
        let job = house.submit(vec![ask(name)]);
        let told = refused_at(approve(&house, job, json!({"code": {"x": [stolen]}})));
        assert!(told.contains("at \"code.x[0]\","), "{told}");
        assert_eq!(house.step_state(job, "ask").as_str(), "suspended");
    }
}

#[test]
fn a_worker_cannot_report_a_sealed_value() {
    let house = TestHouse::new();
    let victim = submit_pin(&house, vec![vault(vec![ask("")])]);
    let stolen = ciphertext(&house, victim, "pin");
    let typed = StepDraft {
        outputs: vec![ValueSpec::new("x", ValueType::Json)],
        ..script("give")
    };
    for step in [script("give"), typed] {
        for output in [
            format!(r#"{{"x": {{"$sealed": "{stolen}"}}}}"#),
            format!(r#"{{"x": [{{"y": {{"\u0024sealed": "{stolen}"}}}}]}}"#),
        ] {
            let job = house.submit(vec![step.clone()]);
            let worker = house.worker("ann", &[], 1);
            let finished = Finished::Completed {
                output: Some(Json(output)),
                exit_code: Some(0),
            };
            worker.finish(worker.begin().attempt, finished);
            let ended = house.step(job, "give");
            assert_eq!(ended.reason, Some(Reason::OutputInvalid));
            let message = ended.message.unwrap();
            assert!(message.contains("`$sealed` at \"output.x"), "{message}");
        }
    }
}

#[test]
fn a_worker_cannot_hide_a_sealed_value_behind_a_member_of_the_same_name() {
    let house = TestHouse::new();
    let worker = house.worker("ann", &[], 1);
    for (output, stored) in [
        (
            r#"{"b": 2, "a": {"$sealed": "v2.X"}, "a": 1}"#,
            r#"{"a":1,"b":2}"#,
        ),
        (
            r#"{"a": {"\u0024s\u0065aled": "v2.X"}, "a": 1}"#,
            r#"{"a":1}"#,
        ),
        (
            r#"{"b": "\u00e9", "a": 1.0}"#,
            r#"{"b": "\u00e9", "a": 1.0}"#,
        ),
    ] {
        let job = house.submit(vec![script("give")]);
        let finished = Finished::Completed {
            output: Some(Json(output.to_string())),
            exit_code: Some(0),
        };
        worker.finish(worker.begin().attempt, finished);
        assert_eq!(house.step(job, "give").output.unwrap().0, stored);
    }
}

#[test]
fn a_ciphertext_that_is_copied_to_another_job_or_input_does_not_open() {
    let house = TestHouse::new();
    let victim = submit_pin(&house, vec![vault(vec![ask("")])]);
    let stolen = json!({"$sealed": ciphertext(&house, victim, "pin")});
    for (input, name) in [
        (json!({"pin": stolen}), "another job"),
        (json!({"key": stolen}), "another job"),
    ] {
        let task = vault(vec![script("a")]);
        let job = house.submission(submission(vec![task], json!({}))).unwrap();
        change(
            &house,
            &format!("UPDATE job SET input = '{input}' WHERE job_id = {job}"),
        );
        let worker = house.worker("ann", &[], 1);
        assert_eq!(worker.poll(1, &[]).assignments, []);
        let step = house.step(job, "a");
        assert_eq!(step.reason, Some(Reason::PayloadError));
        assert!(step.message.unwrap().contains(name));
    }
    // The same job, and another input of it.
    let task = vault(vec![script("a")]);
    let job = submit_pin(&house, vec![task]);
    let moved = json!({"key": {"$sealed": ciphertext(&house, job, "pin")}});
    change(
        &house,
        &format!("UPDATE job SET input = '{moved}' WHERE job_id = {job}"),
    );
    assert_eq!(house.worker("ann", &[], 1).poll(1, &[]).assignments, []);
    assert_eq!(house.step(job, "a").reason, Some(Reason::PayloadError));
}

#[test]
fn only_declared_secret_inputs_are_opened() {
    let house = TestHouse::new();
    let job = submit_pin(&house, vec![vault(vec![script("a")])]);
    let own = json!({"$sealed": ciphertext(&house, job, "pin")});
    // As version 0.1 could leave it behind: sealed, inside of an input that is not secret.
    let nested = json!({"pin": own, "config": {"a": [own]}});
    change(
        &house,
        &format!("UPDATE job SET input = '{nested}' WHERE job_id = {job}"),
    );
    assert_eq!(house.worker("ann", &[], 1).poll(1, &[]).assignments, []);
    let message = house.step(job, "a").message.unwrap();
    assert!(message.contains("input config.a[0]"), "{message}");
    assert!(!message.contains("hunter2"));
}

/// Also without any template or secret input, when nothing has to be rendered.
#[test]
fn no_worker_is_given_what_version_0_1_left_sealed_in_a_plain_input() {
    let house = TestHouse::new();
    let task = TaskDraft {
        inputs: vec![ValueSpec::new("config", ValueType::Json)],
        ..TaskDraft::new("main", vec![script("a")])
    };
    let job = house
        .submission(submission(vec![task], json!({"config": {"pin": 1}})))
        .unwrap();
    change(
        &house,
        &format!(
            r#"UPDATE job SET seal_id = NULL, input = '{{"config":{{"pin":{{"$sealed":"v1.AAAA"}}}}}}' WHERE job_id = {job}"#
        ),
    );
    assert_eq!(house.worker("ann", &[], 1).poll(1, &[]).assignments, []);
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::PayloadError));
    let message = step.message.unwrap();
    assert!(
        message.contains("input config.pin holds a sealed value"),
        "{message}"
    );
    let retry = Retry::of(job, RetryScope::All);
    let told = refused_at(house.engine.retry(retry, house.now()));
    assert!(
        told.contains("input config.pin holds a sealed value"),
        "{told}"
    );
}

#[test]
fn no_message_tells_a_key_of_a_secret_json_value() {
    let house = TestHouse::new();
    let when = |name: &str, when: &str| StepDraft {
        when: Some(Json(json!(when).to_string())),
        ..script(name).after(&["ask"])
    };
    let steps = vec![
        ask("code"),
        when("a", "{{ input.key.nokey == 1 }}"),
        when("b", "{{ steps.ask.output.code.nokey.x }}"),
        StepDraft {
            env: [("K".to_string(), "{{ input.key.in.nokey }}".to_string())].into(),
            ..script("c").after(&["ask"])
        },
    ];
    let key = json!({"Keyname-Secret": 1, "in": {"Keyname-Secret": 2}});
    let input = json!({"pin": PIN, "key": key});
    let job = house
        .submission(submission(vec![vault(steps)], input))
        .unwrap();
    approve(&house, job, json!({"code": key})).unwrap();
    assert_eq!(house.worker("ann", &[], 1).poll(1, &[]).assignments, []);
    for (name, path) in [
        ("a", "input.key.nokey"),
        ("b", "steps.ask.output.code.nokey"),
        ("c", "input.key.in.nokey"),
    ] {
        let message = house.step(job, name).message.unwrap();
        assert!(
            message.ends_with(&format!("{path} is not defined")),
            "{message}"
        );
    }
}

#[test]
fn values_of_version_0_1_open_for_jobs_of_that_time_alone() {
    let house = TestHouse::new();
    let folder = house.database().parent().unwrap().to_path_buf();
    let sealer = stepward::sealer::Sealer::open(&folder).unwrap();
    let old = stepward::sealer::SealPlace {
        seal_id: None,
        value: stepward::sealer::SealedValue::Input("pin"),
    };
    let sealed = json!({"pin": sealer.seal(old, &json!(PIN))});
    let job = submit_pin(&house, vec![vault(vec![script("a")])]);
    let worker = house.worker("ann", &[], 1);
    change(
        &house,
        &format!("UPDATE job SET input = '{sealed}' WHERE job_id = {job}"),
    );
    assert_eq!(worker.poll(1, &[]).assignments, []);
    let message = house.step(job, "a").message.unwrap();
    assert!(message.contains("sealed for another job"), "{message}");

    change(
        &house,
        &format!("UPDATE job SET seal_id = NULL WHERE job_id = {job}"),
    );
    let again = house
        .engine
        .retry(Retry::of(job, RetryScope::All), house.now());
    let again = again.unwrap().job_id;
    assert!(ciphertext(&house, again, "pin").starts_with("v2."));
    assert!(worker.claim().input.0.contains(PIN));
}

#[test]
fn a_retry_a_child_and_a_hook_seal_anew() {
    let house = TestHouse::new();
    let call = StepDraft {
        action: Action::Task {
            task: "inner".to_string(),
            input: Json(r#"{"pin": "{{ input.pin }}"}"#.to_string()),
        },
        ..StepDraft::task("call", "inner")
    };
    let inner = TaskDraft {
        inputs: vec![secret("pin", ValueType::String)],
        ..TaskDraft::new("inner", vec![script("a")])
    };
    let main = TaskDraft {
        hooks: vec![Hook {
            on: HookOn::Error,
            does: HookDoes::Job {
                task: "inner".to_string(),
                input: Json(r#"{"pin": "{{ input.pin }}"}"#.to_string()),
            },
        }],
        ..vault(vec![call])
    };
    let job = submit_pin(&house, vec![main, inner]);
    let child = house.child_of(job, "call");
    let worker = house.worker("ann", &[], 1);
    worker.fail(worker.begin().attempt);
    let hook = JobId(child.0 + 1);
    assert_eq!(house.job(hook).job.hook_of, Some(job));
    let retry = house
        .engine
        .retry(Retry::of(job, RetryScope::All), house.now());
    let retry = retry.unwrap().job_id;
    let mut all: Vec<String> = [job, child, hook, retry]
        .iter()
        .map(|job| ciphertext(&house, *job, "pin"))
        .collect();
    assert!(all.iter().all(|sealed| sealed.starts_with("v2.")));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4);
    // All open, each with its own id: the hook's, and the child's of the retry.
    for _ in 0..2 {
        let assignment = worker.begin();
        assert!(assignment.input.0.contains(PIN));
        worker.complete(assignment.attempt);
    }
}

#[test]
fn what_was_entered_at_an_approval_is_sealed_anew_by_a_retry() {
    let house = TestHouse::new();
    let uses = |name: &str| StepDraft {
        env: [(
            "CODE".to_string(),
            "{{ steps.ask.output.code }}".to_string(),
        )]
        .into(),
        ..script(name).after(&["ask"])
    };
    let job = house.submit(vec![ask("code"), uses("use")]);
    approve(&house, job, json!({"code": PIN})).unwrap();
    let worker = house.worker("ann", &[], 1);
    worker.fail(worker.begin().attempt);
    let retry = house
        .engine
        .retry(Retry::of(job, RetryScope::Failed), house.now());
    let retry = retry.unwrap().job_id;
    let output = |job| house.step(job, "ask").output.unwrap().0;
    assert_ne!(output(job), output(retry));
    let assignment = worker.begin();
    assert_eq!(assignment.env["CODE"], PIN);
    assert_eq!(assignment.masks, [PIN]);
    // Views of the step and of the job show neither the value nor what it was sealed to.
    worker.complete(assignment.attempt);
    let detail = format!("{:?}", house.engine.job_detail(retry).unwrap().output);
    let shown = house.engine.output(retry, "ask").unwrap().unwrap().0;
    assert_eq!(shown, r#"{"code":"***"}"#);
    assert!(!detail.contains("$sealed"), "{detail}");
}

#[test]
fn a_child_that_asks_for_a_secret_gives_it_to_its_parent_as_an_output() {
    let house = TestHouse::new();
    let inner = TaskDraft::new("inner", vec![ask("code")]);
    let uses = StepDraft {
        env: [(
            "CODE".to_string(),
            "{{ steps.call.output.ask.code }}".to_string(),
        )]
        .into(),
        ..script("use").after(&["call"])
    };
    let main = TaskDraft::new("main", vec![StepDraft::task("call", "inner"), uses]);
    let job = house.submit_tasks(vec![main, inner]);
    approve(&house, house.child_of(job, "call"), json!({"code": PIN})).unwrap();
    let assignment = house.worker("ann", &[], 1).claim();
    assert_eq!(assignment.env["CODE"], PIN);
    assert_eq!(assignment.masks, [PIN]);
}

/// Ways to print a secret that the checker of workflow files refuses. A definition that version 0.1 has frozen may have them.
const LEAKS: &[&str] = &[
    "{{ input | tojson }}",
    "{{ input.pin }}",
    "{{ input['pin'] }}",
    "{% set x = input %}{{ x.pin }}",
    "{% set n = 'pin' %}{{ input[n] }}",
    "{{ input | attr('pin') }}",
    "{{ [input] | map(attribute='pin') | join }}",
    "{% for k, v in input | items %}{{ k }}={{ v }},{% endfor %}",
    "{% with x = input %}{{ x.pin }}{% endwith %}",
    "{% macro m(x) %}{{ x.pin }}{% endmacro %}{{ m(input) }}",
    "{{ steps.ask.output | tojson }}",
    "{{ steps.ask | tojson }}",
    "{{ steps.ask.output.code }}",
];

#[test]
fn no_stored_text_holds_a_secret_or_what_it_was_sealed_to() {
    for leak in LEAKS {
        let house = TestHouse::new();
        let given = Json(json!({"config": format!("x {leak}")}).to_string());
        let told = StepDraft::new(
            "told",
            Action::Approval {
                message: format!("x {leak}"),
                inputs: Vec::new(),
            },
        );
        let called = StepDraft {
            action: Action::Task {
                task: "inner".to_string(),
                input: given.clone(),
            },
            ..StepDraft::task("called", "inner")
        };
        let looped = StepDraft {
            for_each: Some(ForEach {
                items: Items::Template(format!("{{{{ [] }}}}{leak}")),
                max_parallel: None,
            }),
            ..script("looped")
        };
        let listed = StepDraft {
            for_each: Some(ForEach {
                items: Items::List(vec![Json(json!(format!("x {leak}")).to_string())]),
                max_parallel: None,
            }),
            ..script("listed")
        };
        let steps = [told, called, looped, listed].map(|step| step.after(&["ask"]));
        let inner = TaskDraft {
            inputs: vec![ValueSpec::new("config", ValueType::Json)],
            ..TaskDraft::new("inner", vec![script("a")])
        };
        let main = TaskDraft {
            concurrency: (!leak.contains("steps")).then(|| Concurrency {
                group: format!("group {leak}"),
                limit: 1,
                when_full: WhenFull::Queue,
            }),
            hooks: vec![Hook {
                on: HookOn::Suspended,
                does: HookDoes::Job {
                    task: "inner".to_string(),
                    input: given,
                },
            }],
            ..vault([ask("code")].into_iter().chain(steps).collect())
        };
        let job = submit_pin(&house, vec![main, inner]);
        let sealed = ciphertext(&house, job, "pin");
        approve(&house, job, json!({"code": PIN})).unwrap();
        let entered = house.step(job, "ask").output.unwrap().0;
        let entered: Value = serde_json::from_str(&entered).unwrap();
        let entered = entered["code"]["$sealed"].as_str().unwrap().to_string();
        let connection = Connection::open(house.database()).unwrap();
        let mut texts = Vec::new();
        for query in [
            "SELECT coalesce(concurrency_group, '') || coalesce(message, '') FROM job",
            "SELECT input FROM job WHERE task = 'inner'",
            "SELECT coalesce(message, '') || coalesce(item_value, '') FROM step",
            "SELECT output FROM step WHERE kind <> 'approval' AND output IS NOT NULL",
            "SELECT message || coalesce(data, '') FROM event",
        ] {
            let mut statement = connection.prepare(query).unwrap();
            let rows = statement
                .query_map([], |row| row.get::<_, String>(0))
                .unwrap();
            texts.extend(rows.map(Result::unwrap));
        }
        let all = texts.join("\n");
        for hidden in [PIN, sealed.as_str(), entered.as_str(), "$sealed"] {
            assert!(!all.contains(hidden), "{leak}: {hidden} in {all}");
        }
        assert!(all.contains("***"), "{leak}: {all}");
    }
}

#[test]
fn texts_and_numbers_anywhere_in_a_secret_json_value_are_masked() {
    let house = TestHouse::new();
    let uses = StepDraft {
        env: [("KEY".to_string(), "{{ input.key | tojson }}".to_string())].into(),
        ..script("use")
    };
    let key =
        json!({"user": {"password": PIN, "pin": 4_711_815}, "codes": [[123_456.5], null, true]});
    let input = json!({"pin": "another-secret", "key": key});
    house
        .submission(submission(vec![vault(vec![uses])], input))
        .unwrap();
    let mut masks = house.worker("ann", &[], 1).claim().masks;
    masks.sort();
    assert_eq!(masks, ["123456.5", "4711815", "another-secret", PIN]);
}
