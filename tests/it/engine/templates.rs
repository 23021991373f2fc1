//! Templates: rendered when they are needed, with the types that values have; what cannot be rendered fails its step.

use stepward::domain::Json;
use stepward::domain::reason::Reason;
use stepward::domain::secret::SecretRef;
use stepward::domain::task::{
    Action, Concurrency, ForEach, Items, NamedAction, Rules, Runner, StepDraft, TaskDraft,
    TaskSecret, WhenFull,
};
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::engine::{Assignment, Finished, Retry, RetryScope, Submission};

use crate::house::{TestHouse, TestWorker, frozen, script};

fn json(text: &str) -> Json {
    Json(text.to_string())
}

fn task(steps: Vec<StepDraft>) -> TaskDraft {
    TaskDraft {
        inputs: vec![
            ValueSpec::new("name", ValueType::String),
            ValueSpec::new("count", ValueType::Integer),
            ValueSpec::new("list", ValueType::Json),
        ],
        ..TaskDraft::new("main", steps)
    }
}

fn submit(house: &TestHouse, task: TaskDraft, input: &str) -> stepward::domain::JobId {
    let submission = Submission {
        input: json(input),
        ..Submission::of(&frozen(vec![task]))
    };
    house.submission(submission).unwrap()
}

fn text_of(assignment: &Assignment) -> &str {
    match &assignment.action {
        Action::Script { script, .. } => script,
        other => panic!("{other:?}"),
    }
}

/// Completes the one step that is claimable, with this output.
fn complete(worker: &TestWorker, output: &str) -> Assignment {
    let assignment = worker.begin();
    worker.finish(
        assignment.attempt,
        Finished::Completed {
            output: Some(json(output)),
            exit_code: Some(0),
        },
    );
    assignment
}

#[test]
fn a_script_sees_inputs_and_what_steps_before_it_gave() {
    let house = TestHouse::new();
    let build = StepDraft::script("build", "make {{ input.name | sh }}");
    let mut ship = StepDraft::script("ship", "ship {{ steps.build.output.image | sh }}");
    ship.env = [
        ("N".to_string(), "{{ input.count + 1 }}".to_string()),
        ("BUILD".to_string(), "{{ steps.build.status }}".to_string()),
        ("WHERE".to_string(), "{{ env.REGION }}-1".to_string()),
    ]
    .into();
    ship.workdir = Some("out/{{ input.name }}".to_string());
    let main = TaskDraft {
        env: [("REGION".to_string(), "eu-{{ input.count }}".to_string())].into(),
        ..task(vec![build, ship.after(&["build"])])
    };
    submit(&house, main, r#"{"name": "it's", "count": 4}"#);
    let worker = house.worker("ann", &[], 1);
    let built = complete(&worker, r#"{"image": "app:1"}"#);
    assert_eq!(text_of(&built), r"make 'it'\''s'");
    assert_eq!(built.env["REGION"], "eu-4");
    let shipped = worker.claim();
    assert_eq!(text_of(&shipped), "ship 'app:1'");
    assert_eq!(shipped.env["N"], "5");
    assert_eq!(shipped.env["BUILD"], "completed");
    assert_eq!(shipped.env["WHERE"], "eu-4-1");
    assert_eq!(shipped.workdir.as_deref(), Some("out/it's"));
    assert!(shipped.unrendered.is_none());
}

#[test]
fn when_decides_whether_a_step_runs() {
    let house = TestHouse::new();
    for (when, state) in [
        (r#""{{ input.count > 3 }}""#, "ready"),
        (r#""{{ input.count > 4 }}""#, "skipped"),
        (r#""{{ input.name == 'a' }}""#, "ready"),
        (r#""{{ input.list }}""#, "skipped"),
        (r#""0""#, "skipped"),
        ("true", "ready"),
        ("false", "skipped"),
    ] {
        let step = StepDraft {
            when: Some(json(when)),
            ..script("maybe")
        };
        let input = r#"{"name": "a", "count": 4, "list": []}"#;
        let job = submit(&house, task(vec![step]), input);
        let found = house.step(job, "maybe");
        assert_eq!(found.state.as_str(), state, "{when}");
        if state == "skipped" {
            assert_eq!(found.reason, Some(Reason::WhenFalse));
        }
    }
}

#[test]
fn a_loop_goes_over_what_a_step_gave() {
    let house = TestHouse::new();
    let mut each = StepDraft::script("each", "echo {{ each.item.id | sh }} {{ each.index | sh }}");
    each.for_each = Some(ForEach {
        items: Items::Template("{{ steps.find.output.rows }}".to_string()),
        max_parallel: None,
    });
    let all = StepDraft::script("all", "echo {{ steps.each.output | length | sh }}");
    let steps = vec![script("find"), each.after(&["find"]), all.after(&["each"])];
    let job = submit(&house, task(steps), "{}");
    let worker = house.worker("ann", &[], 1);
    complete(&worker, r#"{"rows": [{"id": "x"}, {"id": "y"}]}"#);
    let texts: Vec<String> = (0..2)
        .map(|_| text_of(&complete(&worker, "1")).to_string())
        .collect();
    assert_eq!(texts, ["echo 'x' '0'", "echo 'y' '1'"]);
    assert_eq!(text_of(&worker.claim()), "echo '2'");
    assert_eq!(house.step_state(job, "each").as_str(), "completed");
    let shown = house.engine.job_detail(job).unwrap().steps;
    let each = shown.iter().find(|step| step.name == "each").unwrap();
    assert_eq!(each.output, Some(json("[1,1]")));
}

#[test]
fn an_empty_list_skips_the_loop_and_no_list_fails_it() {
    let house = TestHouse::new();
    for (list, state, reason) in [
        ("[]", "skipped", Reason::EmptyLoop),
        ("\"text\"", "failed", Reason::TemplateError),
    ] {
        let mut each = script("each");
        each.for_each = Some(ForEach {
            items: Items::Template("{{ input.list }}".to_string()),
            max_parallel: None,
        });
        let job = submit(&house, task(vec![each]), &format!(r#"{{"list": {list}}}"#));
        let step = house.step(job, "each");
        assert_eq!((step.state.as_str(), step.reason), (state, Some(reason)));
    }
}

#[test]
fn what_cannot_be_rendered_fails_its_step_and_skips_what_follows() {
    let house = TestHouse::new();
    let steps = vec![
        StepDraft::script("a", "echo {{ steps.b.output.gone | sh }}").after(&["b"]),
        script("b"),
        script("c").after(&["a"]),
    ];
    let job = submit(&house, task(steps), "{}");
    let worker = house.worker("ann", &[], 1);
    complete(&worker, "{}");
    assert_eq!(worker.poll(1, &[]).assignments, []);
    assert_eq!(
        house.summary(job),
        "a failed, b completed, c skipped → failed"
    );
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::TemplateError));
    assert!(step.message.unwrap().starts_with("script: "));
}

#[test]
fn a_fault_in_when_or_in_an_approvals_message_fails_the_step_at_once() {
    let house = TestHouse::new();
    let step = StepDraft {
        when: Some(json(r#""{{ input.nmae }}""#)),
        ..script("a")
    };
    let ask = StepDraft::approval("b", "{{ input.nmae }}?");
    let job = submit(&house, task(vec![step, ask]), "{}");
    assert_eq!(house.summary(job), "a failed, b failed → failed");
    let message = house.step(job, "a").message.unwrap();
    assert!(
        message.starts_with("when: ") && message.contains("nmae"),
        "{message}"
    );
}

#[test]
fn a_named_action_sees_what_it_is_given_alone() {
    let house = TestHouse::new();
    let mut page = StepDraft::script("page", "page {{ input.text | sh }}");
    page.named_action = Some(NamedAction {
        name: "page-me".to_string(),
        inputs: vec![
            ValueSpec::new("text", ValueType::String),
            ValueSpec {
                default: Some(json("\"low\"")),
                ..ValueSpec::new("level", ValueType::String)
            },
        ],
        env: [("LEVEL".to_string(), "{{ input.level }}".to_string())].into(),
    });
    page.input = json(r#"{"text": "hello {{ input.name }}"}"#);
    page.env = [("WHO".to_string(), "{{ input.name }}".to_string())].into();
    let worker = house.worker("ann", &[], 1);
    submit(&house, task(vec![page.clone()]), r#"{"name": "Ada"}"#);
    let assignment = complete(&worker, "{}");
    assert_eq!(text_of(&assignment), "page 'hello Ada'");
    assert_eq!(
        (
            assignment.env["LEVEL"].as_str(),
            assignment.env["WHO"].as_str()
        ),
        ("low", "Ada")
    );
    assert_eq!(assignment.input.0, r#"{"level":"low","text":"hello Ada"}"#);

    page.input = json(r#"{"txt": "hello"}"#);
    let job = submit(&house, task(vec![page]), r#"{"name": "Ada"}"#);
    assert_eq!(worker.poll(1, &[]).assignments, []);
    let step = house.step(job, "page");
    assert_eq!(step.reason, Some(Reason::PayloadError));
    assert!(step.message.unwrap().contains("txt"));
}

#[test]
fn a_steps_own_input_is_added_to_the_jobs() {
    let house = TestHouse::new();
    let mut step = StepDraft::script("a", "echo {{ input.greeting | sh }}");
    step.input = json(r#"{"greeting": "hi {{ input.name }}", "n": "{{ input.count }}"}"#);
    submit(&house, task(vec![step]), r#"{"name": "Ada", "count": 2}"#);
    let assignment = house.worker("ann", &[], 1).claim();
    assert_eq!(text_of(&assignment), "echo 'hi Ada'");
    let input: serde_json::Value = serde_json::from_str(&assignment.input.0).unwrap();
    assert_eq!(
        input,
        serde_json::json!({"name": "Ada", "count": 2, "greeting": "hi Ada", "n": 2})
    );
}

#[test]
fn a_secret_is_looked_up_for_the_assignment_and_masked() {
    let house = TestHouse::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret-value\n").unwrap();
    let path = file.path().to_str().unwrap().to_string();
    let mut step = script("a");
    step.env = [("KEY".to_string(), "{{ secret.deploy_key }}".to_string())].into();
    let secret = TaskSecret {
        reference: SecretRef::File(path),
        rules: Rules::V2,
    };
    let main = TaskDraft {
        secrets: [("deploy_key".to_string(), secret)].into(),
        ..task(vec![step])
    };
    let worker = house.worker("ann", &[], 1);
    let job = submit(&house, main.clone(), "{}");
    let assignment = worker.begin();
    assert_eq!(assignment.env["KEY"], "s3cret-value");
    assert_eq!(assignment.masks, ["s3cret-value"]);
    worker.complete(assignment.attempt);
    assert_eq!(house.summary(job), "a completed → completed");

    // A secret that is not there fails the step, and says where it was looked for.
    file.close().unwrap();
    let job = submit(&house, main, "{}");
    assert_eq!(worker.poll(1, &[]).assignments, []);
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::PayloadError));
    let message = step.message.unwrap();
    assert!(message.starts_with("secret deploy_key: "), "{message}");
}

#[test]
fn a_group_is_named_by_the_input() {
    let house = TestHouse::new();
    let main = TaskDraft {
        concurrency: Some(Concurrency {
            group: "release-{{ input.name }}".to_string(),
            limit: 1,
            when_full: WhenFull::Queue,
        }),
        ..task(vec![script("a")])
    };
    let first = submit(&house, main.clone(), r#"{"name": "stable"}"#);
    let second = submit(&house, main.clone(), r#"{"name": "stable"}"#);
    let other = submit(&house, main, r#"{"name": "beta"}"#);
    let group = |job| house.job(job).job.concurrency_group.unwrap();
    assert_eq!(
        (group(first), group(other)),
        ("release-stable".to_string(), "release-beta".to_string())
    );
    assert_eq!(house.step_state(second, "a").as_str(), "pending");
    assert_eq!(house.step_state(other, "a").as_str(), "ready");
    house.run_all(&[]);
    assert_eq!(house.summary(second), "a completed → completed");
}

#[test]
fn an_input_that_was_not_given_is_null_and_its_variable_empty() {
    let house = TestHouse::new();
    let mut step = script("a");
    step.when = Some(json(r#""{{ input.name is none }}""#));
    step.env = [
        ("NAME".to_string(), "{{ input.name }}".to_string()),
        ("OR".to_string(), "{{ input.name or 'nobody' }}".to_string()),
    ]
    .into();
    submit(&house, task(vec![step]), "{}");
    let assignment = house.worker("ann", &[], 1).claim();
    assert_eq!(assignment.env["NAME"], "");
    assert_eq!(assignment.env["OR"], "nobody");
    assert_eq!(assignment.input.0, "{}", "it has no variable of its own");
}

fn docker(image: &str, entrypoint: &[&str], command: &[&str]) -> StepDraft {
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    StepDraft::new(
        "s",
        Action::Docker {
            image: image.to_string(),
            entrypoint: words(entrypoint),
            command: words(command),
        },
    )
}

fn pod(manifest: &str) -> StepDraft {
    let manifest = manifest.to_string();
    StepDraft::new("s", Action::Pod { manifest })
}

/// What a worker is given of a task of one step, or why the step failed.
fn given(house: &TestHouse, step: StepDraft, rules: Rules, input: &str) -> Result<Action, String> {
    let job = submit(house, task(vec![StepDraft { rules, ..step }]), input);
    given_of(house, job)
}

fn given_of(house: &TestHouse, job: stepward::domain::JobId) -> Result<Action, String> {
    let worker = house.worker(&format!("worker-{}", job.0), &["docker", "kubernetes"], 1);
    let assignments = worker.poll(1, &[]).assignments;
    match assignments.into_iter().next() {
        Some(assignment) => {
            worker.start(assignment.attempt);
            worker.finish(
                assignment.attempt,
                Finished::Completed {
                    output: None,
                    exit_code: Some(0),
                },
            );
            Ok(assignment.action)
        }
        None => Err(house.step(job, "s").message.unwrap()),
    }
}

#[test]
fn code_in_a_command_is_checked_again_with_the_words_as_they_are() {
    let house = TestHouse::new();
    let input = r#"{"name": "x; id", "list": "sh"}"#;
    // Only now it is known that this is a shell and its program.
    let hidden = docker("a", &["{{ input.list }}", "-c"], &["echo {{ input.name }}"]);
    let refused = given(&house, hidden, Rules::V2, input).unwrap_err();
    assert!(
        refused.starts_with("command: input.name would become code"),
        "{refused}"
    );
    let data = docker(
        "a",
        &["tool"],
        &["{{ input.list }}", "-c", "{{ input.name }}"],
    );
    let given = given(&house, data, Rules::V2, input).unwrap();
    assert!(
        matches!(&given, Action::Docker { command, .. } if command[..] == ["sh", "-c", "x; id"]),
        "{given:?}"
    );
}

#[test]
fn json_in_quotes_is_refused_except_in_what_0_1_froze() {
    let house = TestHouse::new();
    let step = |text: &str| {
        let mut step = docker("a", &[], &[]);
        step.action = Action::Script {
            runner: Runner::Docker,
            image: Some("python:3".to_string()),
            language: Some("python".to_string()),
            script: text.to_string(),
        };
        step
    };
    let given = |text: &str, rules| match given(&house, step(text), rules, r#"{"name": "a"}"#) {
        Ok(Action::Script { script, .. }) => Ok(script),
        Ok(other) => panic!("{other:?}"),
        Err(message) => Err(message),
    };
    let quoted = "print('{{ input.name | json }}')";
    let refused = given(quoted, Rules::V2).unwrap_err();
    assert!(refused.contains("inside single quotes"), "{refused}");
    assert_eq!(given(quoted, Rules::V1).unwrap(), "print('\"a\"')");
    let refused = given("print('{{ input.name }}')", Rules::V1).unwrap_err();
    assert!(refused.contains("would become code"), "{refused}");
}

#[test]
fn a_value_cannot_change_the_structure_of_a_manifest() {
    let house = TestHouse::new();
    let evil = r#"{"name": "x\"}], hostPID: true, a: [{b: \"", "list": [1]}"#;
    let quoted = "spec: { containers: [{ name: main, args: [\"{{ input.name }}\"] }] }\n";
    let made = |rules, manifest: &str| match given(&house, pod(manifest), rules, evil) {
        Ok(Action::Pod { manifest }) => Ok(manifest),
        Ok(other) => panic!("{other:?}"),
        Err(message) => Err(message),
    };
    let read = |manifest: &str| stepward::language::manifest::read(manifest).unwrap();
    let now = read(&made(Rules::V2, quoted).unwrap());
    assert_eq!(now["spec"]["hostPID"], serde_json::Value::Null);
    assert_eq!(
        now["spec"]["containers"][0]["args"][0],
        "x\"}], hostPID: true, a: [{b: \""
    );
    // An action that 0.1 froze is rendered as 0.1 did.
    let former = "spec: { containers: [{ name: main, args: [\"{{ input.name }}\"}], hostPID: false, a: [{ b: \"c\" }] }\n";
    assert!(made(Rules::V1, former).unwrap().contains("hostPID: true"));

    let structure = "spec: { containers: \"{{ input.list }}\" }\n";
    let refused = made(Rules::V2, structure).unwrap_err();
    assert!(
        refused.starts_with("manifest: spec/containers: the template gives a list"),
        "{refused}"
    );
    let tree = r#"{"spec":{"containers":"{{ input.list }}"}}"#;
    assert_eq!(
        made(Rules::V1, tree).unwrap(),
        r#"{"spec":{"containers":[1]}}"#
    );
    assert!(made(Rules::V2, tree).is_err());
}

#[test]
fn a_pod_is_given_text_where_kubernetes_expects_text() {
    let house = TestHouse::new();
    let tree = r#"{"spec":{"activeDeadlineSeconds":"{{ input.count }}","containers":[{"args":["echo","{{ input.count }}"]}]}}"#;
    let made = given(&house, pod(tree), Rules::V2, r#"{"count": 3}"#).unwrap();
    let expected = r#"{"spec":{"activeDeadlineSeconds":3,"containers":[{"args":["echo","3"]}]}}"#;
    assert!(
        matches!(&made, Action::Pod { manifest } if manifest == expected),
        "{made:?}"
    );
}

#[test]
fn a_reference_to_a_variable_is_checked_again_with_its_value() {
    let house = TestHouse::new();
    let with_env = |name: &str, value: &str, command: &str| {
        let manifest = format!("spec: {{ containers: [{{ command: {command} }}] }}");
        let mut step = pod(&manifest);
        step.env.insert(name.to_string(), value.to_string());
        given(
            &house,
            step,
            Rules::V2,
            r#"{"name": "x; id", "list": "sh"}"#,
        )
    };
    let code = "[$(TOOL), -c, 'echo {{ input.name }}']";
    for (tool, command) in [
        ("sh", code),
        ("{{ input.list }}", code),
        ("tool", "['{{ input.list }}', -c, 'echo $(INPUT_NAME)']"),
        (
            "{{ input.name }}",
            "['{{ input.list }}', -c, 'echo $(TOOL)']",
        ),
    ] {
        let refused = with_env("TOOL", tool, command).unwrap_err();
        assert!(refused.contains("would become code"), "{refused}");
    }
    assert!(with_env("TOOL", "tool", code).is_ok());
}

#[test]
fn a_definition_that_0_1_froze_keeps_its_rules_in_a_retry() {
    let house = TestHouse::new();
    let step = docker(
        "{{ input.list }}",
        &["sh", "-c"],
        &["echo {{ input.name }}"],
    );
    let former = StepDraft {
        rules: Rules::V1,
        ..step.clone()
    };
    let draft = task(vec![former]);
    let input = r#"{"name": "a b", "list": "busybox"}"#;
    let job = submit(&house, draft, input);
    let first = given_of(&house, job).unwrap();
    let retry = Retry::of(job, RetryScope::All);
    let again = house.engine.retry(retry, house.now()).unwrap().job_id;
    assert_eq!(given_of(&house, again).unwrap(), first);
    assert!(
        matches!(&first, Action::Docker { command, .. } if command[..] == ["echo a b"]),
        "{first:?}"
    );
    assert!(given(&house, step, Rules::V2, input).is_err());
}

#[test]
fn each_secret_of_a_task_keeps_the_rules_that_it_was_accepted_under() {
    let house = TestHouse::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "1234").unwrap();
    let secret = |rules| TaskSecret {
        reference: SecretRef::File(file.path().to_str().unwrap().to_string()),
        rules,
    };
    let using = |name: &str| {
        let mut step = script(name);
        step.env = [("PIN".to_string(), format!("{{{{ secret.{name} }}}}"))].into();
        step
    };
    let draft = TaskDraft {
        secrets: [
            ("former".to_string(), secret(Rules::V1)),
            ("new".to_string(), secret(Rules::V2)),
        ]
        .into(),
        ..task(vec![using("former"), using("new")])
    };
    let worker = house.worker("ann", &[], 2);
    let job = submit(&house, draft, "{}");
    let given = worker.poll(2, &[]).assignments;
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].env["PIN"], "1234");
    let message = house.step(job, "new").message.unwrap();
    assert!(message.contains("too short to be masked"), "{message}");
}
