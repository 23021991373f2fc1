//! Everything that is not imported has a row in the table.

use std::fs;

use super::{import, import_dag, said};

/// Checks that the table has a row for each place with this outcome and this part of a note.
fn has_rows(table: &str, file: &str, rows: &[(&str, &str, &str)]) {
    for (place, outcome, note) in rows {
        let begin = format!("{file}{place} ");
        let mut lines = table.lines().filter(|line| line.starts_with(&begin));
        let is_it = |line: &str| line.contains(&format!("  {outcome} ")) && line.contains(note);
        assert!(lines.any(is_it), "{place} {outcome} {note}:\n{table}");
    }
}

/// A value of a type that nobody expects is converted or reported, and so is every key of an inner mapping.
#[test]
fn no_value_of_a_dag_vanishes() {
    let (written, table) = import_dag(
        r#"
name: types
timeoutSec: "60"
maxActiveRuns: "2"
params:
  - { name: N, type: integer, minimum: 1, default: "3" }
  - my-param: dash
env: { PORT: "${CFG.port}", LIST: [1] }
handlerOn: "echo x"
mailOn: true
errorMail: ops@example.org
workerSelector: gpu
secrets: { A: b }
defaults: none
schedule: [{ expression: "5 4 * * *", timezone: Europe/Oslo }]
steps:
  - name: a
    command: echo a
    retryPolicy: { limit: "3", intervalSec: "5" }
    continueOn: { failure: "true", markSuccess: true }
  - { name: b, command: echo b, continueOn: true, retryPolicy: { limit: 100000 } }
  - { name: c, command: echo c, continueOn: [exit_code], executor: { type: shell, config: { errexit: true } } }
  - { name: d, command: echo d, with: { x: y } }
  - name: e
    command: echo e
    parallel: { items: [1, 2], maxConcurrent: "1", foo: z }
    preconditions: { condition: "`echo 1`", expected: "1", foo: bar, negate: "true" }
  - { name: f, action: exec, with: { command: ls, env: { Q: z } } }
  - { name: g, command: python3, script: 'print("${N}")' }
  - { name: h, command: "echo ${CFG.items[0].name}" }
  - { name: i, command: echo i, preconditions: [{ condition: "$N", expected: 're:(?i)x' }] }
"#,
    );
    for line in [
        "timeout: 60s",
        "limit: 2",
        "max_attempts: 4",
        "delay: 5s",
        "continue_on_failure: true",
        "max_parallel: 1",
        "if ! { [ ",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
    has_rows(
        &table,
        "d.yaml: ",
        &[
            (
                "params.N.minimum",
                "not supported",
                "no equivalent of `minimum`",
            ),
            ("params.my-param", "changed", "are called my_param"),
            ("env.LIST", "not supported", "expected a text, found a list"),
            ("env.PORT", "not supported", "${CFG.port} is read by Dagu"),
            (
                "handlerOn",
                "not supported",
                "expected a mapping, found `echo x`",
            ),
            ("mailOn", "not supported", "expected a mapping"),
            ("errorMail", "not supported", "expected a mapping"),
            ("workerSelector", "not supported", "expected a mapping"),
            (
                "secrets",
                "not supported",
                "expected a list, found a mapping",
            ),
            ("defaults", "not supported", "expected a mapping"),
            ("schedule[0].timezone", "not supported", "no equivalent"),
            (
                "steps.a.continue_on.markSuccess",
                "not supported",
                "shown as failed",
            ),
            (
                "steps.b.continueOn",
                "not supported",
                "expected failed or skipped",
            ),
            ("steps.b.retry_policy", "changed", "more are not allowed"),
            (
                "steps.c.continueOn",
                "not supported",
                "expected failed or skipped",
            ),
            (
                "steps.c.executor.config.errexit",
                "not supported",
                "no equivalent",
            ),
            ("steps.d.with.x", "not supported", "no equivalent"),
            ("steps.e.parallel.foo", "not supported", "no equivalent"),
            (
                "steps.e.preconditions.foo",
                "not supported",
                "no equivalent",
            ),
            ("steps.f.with.env", "not supported", "no equivalent"),
            (
                "steps.g.script",
                "not supported",
                "Dagu puts in the values of $N",
            ),
            (
                "steps.h",
                "not supported",
                "${CFG.items[0].name} is read by Dagu",
            ),
            ("steps.i.preconditions", "not supported", "holds (?"),
        ],
    );
}

/// A DAG without steps leaves nothing behind, merges of YAML are applied, and a new name has a row.
#[test]
fn dags_without_steps_merges_and_new_names_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for sub in ["a", "b"] {
        fs::create_dir(folder.path().join(sub)).unwrap();
    }
    let merged = "x: &c { env: { K: V } }\nsteps: [{ <<: *c, name: a, command: make }]\n";
    fs::write(folder.path().join("a/etl.yaml"), merged).unwrap();
    fs::write(folder.path().join("b/etl.yaml"), merged).unwrap();
    let empty = "steps: []\nschedule: 0 0 * * *\nhandlerOn: { exit: { command: make } }\n";
    fs::write(folder.path().join("b/none.yaml"), empty).unwrap();
    let [a, b] = ["a", "b"].map(|sub| folder.path().join(sub).display().to_string());
    let (written, table) = said(&import(&["dagu", &a, &b, "--dry-run"]));
    assert!(written.contains("env: { K: V }"), "{written}");
    assert!(!written.contains("none"), "{written}");
    let row = "none.yaml: steps ";
    assert_eq!(table.matches("none.yaml").count(), 1, "{table}");
    assert!(table.contains(row), "{table}");
    has_rows(
        &table,
        &format!("{b}/etl.yaml: "),
        &[("name", "changed", "the task is called etl-2 here")],
    );
}

#[test]
fn no_value_of_a_stroem_workspace_vanishes() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
common: &c { retry: { max_attempts: 3 } }
actions:
  both: { type: script, script: make, source: x.sh, image: alpine, manifest: { x: y } }
  dock: { type: docker, image: alpine, script: make, language: python }
  odd: { type: script, script: make, tags: { a: b }, workdir: [x] }
  kept: { type: script, language: python, script: "open(os.environ['ARTIFACTS_DIR'])" }
  tell: { type: script, script: make, retry: { max_attempts: 4 } }
  call: { type: task, task: sub, input: { x: { type: string, default: dflt } } }
tasks:
  sub: { input: { x: { type: string, secret: "true" } }, flow: { p: { type: script, script: make } } }
  main:
    flow:
      m: { <<: *c, type: script, script: make, sequential: "yes" }
      t: { action: call }
    on_success:
      - { action: tell, when: "{{ false }}" }
      - { action: tell, timeout: 5m, name: told }
triggers:
  off: { type: scheduler, cron: "0 0 * * *", task: main, enabled: "false" }
  bad: { type: scheduler, cron: "0 0 * * *", task: main, concurrency: forbid }
  web: { type: webhook, task: sub, timeout_secs: 10 }
"#;
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    fs::write(folder.path().join("empty.yaml"), "").unwrap();
    let output = import(&["stroem", folder.path().to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    let tasks = &document["tasks"];
    assert_eq!(tasks["main"]["flow"]["m"]["retry"]["max_attempts"], 3);
    assert_eq!(tasks["main"]["flow"]["t"]["input"]["x"], "dflt");
    assert_eq!(tasks["main"]["schedules"]["off"]["enabled"], false);
    assert_eq!(tasks["sub"]["input"]["x"]["secret"], true);
    assert_eq!(tasks["main"]["on_success"].as_sequence().unwrap().len(), 1);
    has_rows(
        &table,
        "",
        &[
            ("empty.yaml", "left out", "is empty"),
            (
                "a.yaml: actions.both.source",
                "not supported",
                "is not used",
            ),
            ("a.yaml: actions.both.image", "not supported", "is not used"),
            (
                "a.yaml: actions.both.manifest",
                "not supported",
                "is not used",
            ),
            (
                "a.yaml: actions.dock.script",
                "not supported",
                "is not used",
            ),
            (
                "a.yaml: actions.dock.language",
                "not supported",
                "is not used",
            ),
            (
                "a.yaml: actions.odd.tags",
                "not supported",
                "expected a list, found a mapping",
            ),
            (
                "a.yaml: actions.odd.workdir",
                "not supported",
                "expected a text, found a list",
            ),
            (
                "a.yaml: actions.kept.script",
                "not supported",
                "ARTIFACTS_DIR is not set",
            ),
            (
                "a.yaml: tasks.main.flow.m.sequential",
                "not supported",
                "expected true or false",
            ),
            (
                "a.yaml: tasks.main.on_success[0]",
                "not supported",
                "a hook has no when here",
            ),
            (
                "a.yaml: tasks.main.on_success[1]",
                "changed",
                "the retry of tell does not hold",
            ),
            (
                "a.yaml: tasks.main.on_success[1].timeout",
                "not supported",
                "no equivalent",
            ),
            ("a.yaml: triggers.bad", "not supported", "left out"),
            (
                "a.yaml: triggers.web.timeout_secs",
                "not supported",
                "no equivalent",
            ),
        ],
    );
    // What was taken out is not called converted, too.
    assert_eq!(table.matches("a.yaml: triggers.bad ").count(), 1, "{table}");
}

#[test]
fn a_line_of_a_crontab_that_was_taken_out_is_not_called_converted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system");
    fs::write(
        &file,
        "5 4 * * * $USER make\n-5 4 * * * root make\n1 1 * * * root true\n",
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let (_, table) = said(&import(&["crontab", path, "--system", "--dry-run"]));
    has_rows(
        &table,
        path,
        &[
            (":1", "not supported", "`user-$USER` cannot be a tag"),
            (
                ":2",
                "not supported",
                "the leading - (do not log) is not supported; remove it",
            ),
        ],
    );
    assert_eq!(table.matches(&format!("{path}:1 ")).count(), 1, "{table}");
}
