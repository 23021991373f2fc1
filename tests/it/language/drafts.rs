//! What good files become.

use stepward::domain::depends::DependsOn;
use stepward::domain::reason::Reason;
use stepward::domain::schedule::{CatchUp, Overlap};
use stepward::domain::secret::SecretRef;
use stepward::domain::task::{
    Action, HookDoes, HookOn, Items, Rules, Runner, TaskSecret, WhenFull,
};
use stepward::domain::webhook::WebhookScheme;
use stepward::language::{Checked, render};

use super::check;

fn good(text: &str) -> Checked {
    let checked = check(text);
    let shown = render::human(&checked.diagnostics, false);
    assert!(checked.diagnostics.is_empty(), "{shown}");
    checked
}

/// The example of the language's own page.
pub const RELEASE: &str = r#"
tasks:
  release:
    description: Build, test, publish
    input:
      version: { type: string, required: true, pattern: '^\d+\.\d+\.\d+$' }
      channel: { type: string, options: [stable, beta], default: beta }
      token:   { type: string, secret: true }
    timeout: 1h
    queue_timeout: 10m
    priority: 10
    concurrency: { group: "release-{{ input.channel }}", limit: 1, when_full: queue }
    env: { CHANNEL: "{{ input.channel }}" }
    flow:
      build:
        type: script
        script: |
          make build VERSION="$INPUT_VERSION"
          echo "image=app:$INPUT_VERSION" >> "$STEPWARD_OUTPUT"
        timeout: 20m
        retry: { max_attempts: 3, delay: 10s, backoff: exponential, jitter: true, on: [exit_code, worker_lost] }
      test:
        type: script
        runner: docker
        image: "{{ steps.build.output.image }}"
        depends_on: [build]
        for_each: [unit, api, ui]
        max_parallel: 2
        script: ./test.sh "$EACH_ITEM"
      scan:
        type: script
        tags: [docker]
        depends_on: [build]
        continue_on_failure: true
        script: scan
      approve:
        type: approval
        depends_on: [test, { step: scan, accept: terminal }]
        message: Publish {{ input.version }}?
        timeout: 30m
      publish:
        type: task
        task: publish
        depends_on: [approve]
        when: "{{ input.channel == 'stable' }}"
        input: { version: "{{ input.version }}" }
      cleanup:
        type: script
        depends_on: { any: [publish, { step: approve, accept: [failed, cancelled] }] }
        env: { KEY: "{{ secret.deploy_key }}" }
        script: ./cleanup.sh
    on_error:   [{ action: page-me, input: { text: "{{ hook.summary }}" } }, { notify: ops }]
    on_success: []
    on_cancel:  []
    on_suspended: []
    schedules:
      nightly: { cron: "0 2 * * *", timezone: Europe/Oslo, input: { channel: beta, version: 1.2.3 },
                 overlap: skip, catch_up: { latest: 2h }, enabled: true }
    webhooks:
      push: { secret: { env: PUSH_SECRET }, scheme: github, input: { version: "{{ body.tag }}" } }
  publish:
    input: { version: { type: string } }
    flow:
      page: { action: page-me, input: { text: "{{ input.version }}" }, tags: [docker] }

actions:
  page-me: { type: script, input: { text: { type: string } }, env: { A: b }, timeout: 5s, script: ./page.sh "$INPUT_TEXT" }

secrets:
  deploy_key: { file: /etc/stepward/deploy.key }
  db_password: { env: DB_PASSWORD }
"#;

#[test]
fn the_whole_language_becomes_a_definition() {
    let checked = good(RELEASE);
    let workflows = &checked.workflows;
    let (_, release) = workflows
        .tasks()
        .find(|(name, _)| *name == "release")
        .unwrap();
    let names: Vec<&str> = release
        .tasks()
        .iter()
        .map(|task| task.draft.name.as_str())
        .collect();
    assert_eq!(names, ["release", "publish", "hook.page-me"]);
    let task = &release.root().draft;
    assert_eq!(task.description.as_deref(), Some("Build, test, publish"));
    assert_eq!(
        (task.timeout_ms, task.queue_timeout_ms),
        (Some(3_600_000), Some(600_000))
    );
    assert_eq!(task.priority, 10);
    let concurrency = task.concurrency.as_ref().unwrap();
    assert_eq!(concurrency.group, "release-{{ input.channel }}");
    assert_eq!(concurrency.when_full, WhenFull::Queue);
    assert_eq!(task.env["CHANNEL"], "{{ input.channel }}");
    let inputs: Vec<&str> = task
        .inputs
        .iter()
        .map(|input| input.name.as_str())
        .collect();
    assert_eq!(inputs, ["version", "channel", "token"]);
    assert!(task.inputs[0].required && task.inputs[2].secret);
    assert_eq!(task.inputs[1].default.as_ref().unwrap().0, "\"beta\"");
    let key = TaskSecret {
        reference: SecretRef::File("/etc/stepward/deploy.key".to_string()),
        rules: Rules::V2,
    };
    assert_eq!(
        task.secrets.iter().collect::<Vec<_>>(),
        [(&"deploy_key".to_string(), &key)]
    );

    let [build, test, scan, approve, publish, cleanup] = task.steps.as_slice() else {
        panic!("{:?}", task.steps);
    };
    assert_eq!(build.retry.on, [Reason::ExitCode, Reason::WorkerLost]);
    assert_eq!(
        (build.retry.max_attempts, build.retry.delay_ms),
        (3, 10_000)
    );
    assert!(
        matches!(&build.action, Action::Script { script, .. } if script.ends_with("\"$STEPWARD_OUTPUT\"\n"))
    );
    assert!(matches!(
        &test.action,
        Action::Script {
            runner: Runner::Docker,
            image: Some(_),
            ..
        }
    ));
    let for_each = test.for_each.as_ref().unwrap();
    assert!(matches!(&for_each.items, Items::List(items) if items.len() == 3));
    assert_eq!(for_each.max_parallel, Some(2));
    assert!(scan.continue_on_failure && scan.tags == ["docker"]);
    assert!(
        matches!(&approve.action, Action::Approval { message, .. } if message == "Publish {{ input.version }}?")
    );
    assert!(matches!(&approve.depends_on, DependsOn::All(group) if group.len() == 2));
    assert_eq!(
        publish.when.as_ref().unwrap().0,
        "\"{{ input.channel == 'stable' }}\""
    );
    assert!(
        matches!(&publish.action, Action::Task { task, input } if task == "publish" && input.0 == r#"{"version":"{{ input.version }}"}"#)
    );
    assert!(matches!(&cleanup.depends_on, DependsOn::Any(group) if group.len() == 2));

    let [page, notify] = task.hooks.as_slice() else {
        panic!("{:?}", task.hooks);
    };
    assert_eq!(page.on, HookOn::Error);
    assert!(matches!(&page.does, HookDoes::Job { task, .. } if task == "hook.page-me"));
    assert!(matches!(&notify.does, HookDoes::Notify { target } if target == "ops"));

    let schedule = &workflows.schedules()[0];
    assert_eq!(
        (schedule.task.as_str(), schedule.name.as_str()),
        ("release", "nightly")
    );
    assert_eq!(schedule.timezone, "Europe/Oslo");
    assert_eq!(schedule.overlap, Overlap::Skip);
    assert_eq!(
        schedule.catch_up,
        CatchUp::Latest {
            within_ms: 7_200_000
        }
    );
    let webhook = &workflows.webhooks()[0];
    assert_eq!(webhook.secret, SecretRef::Env("PUSH_SECRET".to_string()));
    assert_eq!(webhook.scheme, Some(WebhookScheme::Github));

    let (_, publish) = workflows
        .tasks()
        .find(|(name, _)| *name == "publish")
        .unwrap();
    let page = &publish.root().draft.steps[0];
    let action = page.named_action.as_ref().unwrap();
    assert_eq!(
        (action.name.as_str(), action.env["A"].as_str()),
        ("page-me", "b")
    );
    assert_eq!(page.timeout_ms, Some(5_000));
    assert_eq!(page.tags, ["docker"]);
    assert_eq!(page.input.0, r#"{"text":"{{ input.version }}"}"#);
}

#[test]
fn steps_keep_their_order_and_variables_the_way_they_are_written() {
    let checked = good(
        "
tasks:
  t:
    flow:
      zeta: { script: make, env: { A: 1.10, B: \"yes\", C: true } }
      alpha: { type: docker, image: busybox, command: [echo, hi], entrypoint: sh }
      pod: { type: pod, manifest: { kind: Pod, spec: { n: 1 } } }
      ask: { type: approval, input: { why: { type: text, required: true } } }
      each: { script: x, for_each: \"{{ steps.zeta.output.list }}\", depends_on: zeta }
",
    );
    let (_, task) = checked.workflows.tasks().next().unwrap();
    let steps = &task.root().draft.steps;
    let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["zeta", "alpha", "pod", "ask", "each"]);
    assert_eq!(steps[0].env["A"], "1.10");
    assert_eq!(steps[0].env["C"], "true");
    let Action::Docker {
        entrypoint,
        command,
        ..
    } = &steps[1].action
    else {
        panic!("{:?}", steps[1]);
    };
    assert_eq!((entrypoint.len(), command.len()), (1, 2));
    let manifest = r#"{"kind":"Pod","spec":{"n":1}}"#.to_string();
    assert_eq!(steps[2].action, Action::Pod { manifest });
    let Action::Approval { inputs, .. } = &steps[3].action else {
        panic!("{:?}", steps[3]);
    };
    assert_eq!(inputs[0].name, "why");
    let items = &steps[4].for_each.as_ref().unwrap().items;
    assert_eq!(
        *items,
        Items::Template("{{ steps.zeta.output.list }}".to_string())
    );
}

/// The failure of a step that starts a task is that of the job it started.
#[test]
fn a_task_that_is_retried_is_retried_when_it_fails() {
    let checked = good(
        "tasks:\n  a:\n    flow:\n      call: { type: task, task: b, retry: { max_attempts: 3 } }\n      \
         named: { type: task, task: b, retry: { max_attempts: 3, on: [step_timeout] } }\n      \
         own: { script: echo, retry: { max_attempts: 3 } }\n  b: { flow: { s: { script: echo } } }\n",
    );
    let (_, task) = checked.workflows.tasks().next().unwrap();
    let on = |at: usize| task.root().draft.steps[at].retry.on.clone();
    assert!(on(0).contains(&Reason::ChildFailed) && on(0).contains(&Reason::StepTimeout));
    assert_eq!(on(1), [Reason::StepTimeout]);
    assert!(!on(2).contains(&Reason::ChildFailed));
}
