//! `stepward import`, through the real binary: what is written, and what the table says of it.

mod behaviour;
mod loads;
mod reported;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use stepward::domain::Timestamp;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/import");

/// Imports, and checks what every import has in common: the files that it writes pass `stepward validate`.
fn import(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepward"));
    command.current_dir(HERE).arg("import").args(words);
    let output = command.output().unwrap();
    if output.status.success() {
        let folder = tempfile::tempdir().unwrap();
        let written = folder.path().join("workflows");
        let mut words = words.to_vec();
        words.retain(|word| !["--dry-run", "--json"].contains(word));
        if let Some(at) = words.iter().position(|word| *word == "--output") {
            words.drain(at..at + 2);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_stepward"));
        command.current_dir(HERE).arg("import").args(words);
        let written_output = command.arg("--output").arg(&written).output().unwrap();
        assert!(written_output.status.success(), "{written_output:?}");
        loads::loads(&written);
    }
    output
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// What is written and what is said of it, against the files that hold both.
fn is_golden(words: &[&str], golden: &str) {
    let output = import(words);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    let expected =
        |ending: &str| fs::read_to_string(format!("{HERE}/golden/{golden}{ending}")).unwrap();
    same_lines(&written, &expected(".yaml"));
    same_lines(&table, &expected(".table"));
}

fn same_lines(found: &str, expected: &str) {
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {}", number + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn a_users_crontab_becomes_tasks_that_do_the_same() {
    is_golden(
        &[
            "crontab",
            "crontab/user",
            "--timezone",
            "Europe/Oslo",
            "--dry-run",
        ],
        "crontab-user",
    );
}

#[test]
fn a_system_crontab_names_the_user_of_each_line() {
    is_golden(
        &[
            "crontab",
            "crontab/system",
            "--timezone",
            "UTC",
            "--dry-run",
        ],
        "crontab-system",
    );
}

#[test]
fn a_workspace_of_stroem_becomes_workflows_of_the_same_names() {
    is_golden(&["stroem", "stroem", "--dry-run"], "stroem");
}

#[test]
fn dags_of_dagu_become_tasks_that_do_the_same() {
    is_golden(
        &["dagu", "dagu", "--timezone", "Europe/Oslo", "--dry-run"],
        "dagu",
    );
}

/// Each line of a DAG is in the table, whatever became of it.
#[test]
fn every_key_of_a_dag_is_in_the_table() {
    let (_, table) = said(&import(&[
        "dagu",
        "dagu/etl.yaml",
        "dagu/report.yml",
        "--dry-run",
    ]));
    for key in [
        "name",
        "description",
        "tags",
        "type",
        "schedule[0]",
        "schedule[2]",
        "params.REGION",
        "params.DAY",
        "env.DATA_DIR",
        "env.TODAY_DIR",
        "env.STEPWARD_X",
        "max_active_runs",
        "maxActiveSteps",
        "timeout_sec",
        "histRetentionDays",
        "logDir",
        "dotenv",
        "preconditions",
        "mail_on.failure",
        "error_mail",
        "error_mail.prefix",
        "smtp",
        "handler_on.failure",
        "handler_on.exit",
        "steps.list files",
        "steps.list files.retry_policy",
        "steps.list files.retry_policy.exit_code",
        "steps.list files.output",
        "steps.check.continue_on",
        "steps.check.continue_on.exitCode",
        "steps.check.preconditions",
        "steps.load.preconditions",
        "steps.load.timeout_sec",
        "steps.load.mail_on_error",
        "steps.load.signalOnStop",
        "steps.load.repeatPolicy",
        "steps.report",
        "steps.convert.executor.config.volumes",
        "steps.page",
        "steps.show port",
    ] {
        let place = format!("etl.yaml: {key} ");
        assert!(
            table.lines().any(|row| row.starts_with(&place)),
            "{key}: {table}"
        );
    }
}

/// A task that was imported does what the DAG does: positions, outputs of steps, conditions.
#[test]
fn an_imported_dag_runs() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("workflows");
    let output = import(&["dagu", "dagu/small.yaml", "--output", to.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let ran = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["run", "--logs"])
        .arg(to.join("small.yaml"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (told, complained) = said(&ran);
    let all = format!("{told}{complained}");
    assert!(ran.status.success(), "{all}");
    for line in ["first one", "two words", "heard two words"] {
        assert!(all.contains(line), "{line}: {all}");
    }
    // Its precondition does not hold, and so it prints nothing.
    assert!(!all.contains("it ran"), "{all}");
}

/// Imports one DAG, and gives what is written and the table.
fn import_dag(text: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.yaml");
    fs::write(&file, text).unwrap();
    let output = import(&["dagu", file.to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    (written, table)
}

/// No step of a DAG runs if its precondition does not hold, also not behind a step that may be skipped.
#[test]
fn no_step_runs_if_the_precondition_of_its_dag_does_not_hold() {
    let dag = r#"
type: graph
preconditions:
  - condition: "`echo no`"
    expected: "yes"
steps:
  - name: first
    command: echo first ran
    continueOn: { skipped: true }
  - name: second
    command: echo second ran
    depends: first
  - name: third
    command: echo third ran
    depends: second
"#;
    let with_init = format!("{dag}handlerOn:\n  init: {{ command: echo init ran }}\n");
    for dag in [dag, with_init.as_str()] {
        let (written, _) = import_dag(dag);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("d.yaml");
        fs::write(&file, &written).unwrap();
        let ran = Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(["run", "--logs"])
            .arg(&file)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (told, complained) = said(&ran);
        let all = format!("{told}{complained}");
        assert!(ran.status.success(), "{written}{all}");
        assert!(!all.contains(" ran"), "{written}{all}");
    }
}

/// Each list of addresses is a target of its own, in all DAGs, and the table asks for each target once.
#[test]
fn mail_of_dagu_goes_to_the_addresses_that_it_names() {
    let dag = |name: &str, error: &str, info: &str| {
        format!(
            "name: {name}\nsteps: [{{ name: s, command: make }}]\nmailOn: {{ failure: true, success: true }}\n\
             errorMail: {{ to: {error} }}\ninfoMail: {{ to: {info} }}\n"
        )
    };
    let text = format!(
        "{}---\n{}",
        dag("a", "ops@example.org", "all@example.org"),
        dag("b", "all@example.org", "new@example.org")
    );
    let (written, table) = import_dag(&text);
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    for (task, event, target) in [
        ("a", "on_error", "mail"),
        ("a", "on_success", "mail-2"),
        ("b", "on_error", "mail-2"),
        ("b", "on_success", "mail-3"),
    ] {
        let hook = &document["tasks"][task][event][0]["notify"];
        assert_eq!(hook, target, "{written}");
    }
    for definition in [
        "notify: { mail: { type: email, to: [ops@example.org] } }",
        "notify: { mail-2: { type: email, to: [all@example.org] } }",
        "notify: { mail-3: { type: email, to: [new@example.org] } }",
    ] {
        assert_eq!(table.matches(definition).count(), 1, "{table}");
    }
}

/// The table says what is not the same as in Dagu.
#[test]
fn the_table_says_what_is_different_in_an_imported_dag() {
    let (written, table) = import_dag(
        r#"
name: parent
type: graph
steps:
  - name: other
    run: unknown-dag
  - name: risky
    command: ./risky
    output: FOUND
    continueOn: { failure: true }
  - name: use
    command: echo "$FOUND"
    depends: risky
  - name: each
    run: child
    parallel: { items: [a, b] }
  - name: pairs
    run: child
    parallel: { items: [WHO=a, WHO=b] }
  - name: lost
    run: bare
    parallel: { items: [a, b] }
---
name: child
params: [WHO: nobody]
steps: [{ name: greet, command: "echo hello $WHO" }]
---
name: bare
steps: [{ name: greet, command: "echo hello $1" }]
"#,
    );
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    let each = &document["tasks"]["parent"]["flow"]["each"];
    assert_eq!(each["for_each"][1], "b", "{written}");
    assert_eq!(each["input"]["WHO"], "{{ each.item }}", "{written}");
    for (place, outcome, note) in [
        (
            "steps.other",
            "changed",
            "is taken as a command; if it is the name of a DAG",
        ),
        (
            "steps.risky.output",
            "changed",
            "the output of a failed step is not passed on",
        ),
        (
            "steps.pairs",
            "not supported",
            "the items of parallel are lists of parameters",
        ),
        ("steps.lost", "changed", "the item is not handed over"),
    ] {
        let begin = format!("d.yaml: parent.{place} ");
        let mut rows = table.lines().filter(|row| row.starts_with(&begin));
        let row = rows.next().unwrap_or_default();
        assert!(
            row.contains(outcome) && row.contains(note),
            "{place}: {table}"
        );
        assert_eq!(rows.next(), None, "{table}");
    }

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty.yaml"), "# nothing yet\n").unwrap();
    fs::write(
        folder.path().join("full.yaml"),
        "steps: [{ name: s, command: make }]\n",
    )
    .unwrap();
    let (_, table) = said(&import(&[
        "dagu",
        folder.path().to_str().unwrap(),
        "--dry-run",
    ]));
    assert!(table.contains("is empty: it holds no DAG"), "{table}");
}

/// Whatever Strøm keeps, or renders to text, is written so that it works here, or it is in the table.
#[test]
fn what_stroem_does_besides_is_converted_or_told() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("acme");
    fs::create_dir(&workspace).unwrap();
    let text = r#"
actions:
  serve:
    type: script
    input:
      port: { type: string, default: 8080 }
      fast: { type: bool, default: "true" }
      count: { type: integer, default: "3" }
      loud: { type: string }
      zones: { type: string, options: [eu, us], multiple: true, default: [eu] }
    script: |
      #!/bin/bash
      ./serve "$INPUT_PORT" > "$ARTIFACTS_DIR/log"
      cp cursor "$STATE_OUT_DIR/"
      echo "STATE: {"cursor": 1}"
  tell:
    type: script
    input: { text: { type: string }, job: { type: string } }
    script: echo "$INPUT_TEXT"
tasks:
  start:
    input:
      size: { type: integer, default: 2 }
      level: { type: string, default: 1 }
    flow:
      - name: first
        action: serve
        input: { port: 9090, loud: true, count: "{{ input.size }}" }
      - name: second
        action: serve
        depends_on: [first]
        input: { port: "{{ input.size }}", loud: "{{ input.level }}" }
      - just words
    on_error:
      - action: tell
        input: { text: "{{ hook.workspace }} is down", job: "{{ hook.job_id }}" }
triggers:
  nightly: { type: scheduler, cron: "0 2 * * *", task: start, input: { level: 5 } }
"#;
    fs::write(workspace.join("a.yaml"), text).unwrap();
    let output = import(&["stroem", workspace.to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    for line in [
        "port: { type: string, default: \"8080\" }",
        "fast: { type: boolean, default: true }",
        "count: { type: integer, default: 3 }",
        "multiple: true",
        "port: \"9090\"",
        "loud: \"true\"",
        "count: \"{{ input.size }}\"",
        "port: \"{{ input.size | string }}\"",
        "loud: \"{{ input.level }}\"",
        "level: \"5\"",
        "export ARTIFACTS_DIR=\"$STEPWARD_TMP/artifacts_dir\"; mkdir -p \"$ARTIFACTS_DIR\"",
        "export STATE_OUT_DIR=\"$STEPWARD_TMP/state_out_dir\"; mkdir -p \"$STATE_OUT_DIR\"",
        "text: '{{ \"acme\" }} is down'",
        "job: \"{{ hook.job | string }}\"",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
    for told in [
        "$ARTIFACTS_DIR is an empty folder",
        "$STATE_DIR and $STATE_OUT_DIR are empty folders",
        "a line that begins with STATE: is only a line of the log",
        "hook.workspace is written out as \"acme\"",
        "a.yaml: tasks.start.flow[2]",
    ] {
        assert!(table.contains(told), "{told}: {table}");
    }
}

/// Strøm renders 1.0 as 1, null as nothing, and a list as [1, 2].
#[test]
fn values_of_stroem_become_the_text_that_it_renders() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
actions:
  show:
    type: script
    script: echo "{{ input.ratio }}"
    env: { FACTOR: 2.0 }
    input:
      ratio: { type: number }
      a: { type: string, default: 3.0 }
      b: { type: string }
      c: { type: string }
      d: { type: string }
tasks:
  t:
    flow:
      one: { action: show, input: { ratio: 1.5, a: 1.0, b: 1e3, c: null, d: [1, 2.0, x] } }
"#;
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let output = import(&["stroem", folder.path().to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    let given = &document["tasks"]["t"]["flow"]["one"]["input"];
    for (name, text) in [("a", "1"), ("b", "1000"), ("c", ""), ("d", "[1, 2, x]")] {
        assert_eq!(given[name], text, "{written}");
    }
    assert_eq!(given["ratio"], 1.5, "{written}");
    let action = &document["actions"]["show"];
    assert_eq!(action["env"]["FACTOR"], "2", "{written}");
    assert_eq!(action["input"]["a"]["default"], "3", "{written}");
    assert!(table.contains("it is 1.0 here and 1 in Strøm"), "{table}");
}

/// A part that would not load is left out, and the table says which and why.
#[test]
fn what_would_not_pass_validation_is_left_out_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
actions:
  go: { type: script, script: make, tags: ["no good tag"] }
  odd: { type: script, script: make, env: [A=1] }
tasks:
  ring:
    timeout: soon
    input: { n: { type: integer, default: many } }
    flow:
      a: { type: script, script: make a, depends_on: [b] }
      b: { type: script, script: make b, depends_on: [a] }
      c: { action: go }
      d: { type: script, script: "echo {{ input.n }}", timeout: never, input: [1] }
    on_error: odd
"#;
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let output = import(&["stroem", folder.path().to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    assert!(written.contains("this step was not imported"), "{written}");
    for place in [
        "a.yaml: tasks.ring.timeout",
        "a.yaml: tasks.ring.input.n.default",
        "a.yaml: actions.go",
        "a.yaml: tasks.ring.flow.c",
        "a.yaml: tasks.ring.flow.d.timeout",
        "a.yaml: tasks.ring.flow.d.input",
        "a.yaml: tasks.ring.on_error",
        "a.yaml: actions.odd.env",
    ] {
        let told =
            |row: &&str| row.starts_with(&format!("{place} ")) && row.contains("not supported");
        assert!(table.lines().any(|row| told(&row)), "{place}: {table}");
    }
}

/// Several errors in one step make one step that fails. What is around it stays, and each error has its row.
#[test]
fn several_errors_in_one_step_take_out_that_step_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
actions:
  show:
    type: script
    script: echo shown
    input: { text: { type: string }, more: { type: string }, third: { type: string } }
tasks:
  t:
    flow:
      one: { type: script, script: make one }
      two: { action: show, depends_on: [one], input: { text: { a: 1 }, more: { b: 2 } } }
  u:
    flow:
      only: { action: show, input: { text: { a: 1 }, more: { b: 2 }, third: { c: 3 } } }
"#;
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let output = import(&["stroem", folder.path().to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(output.status.success(), "{table}");
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    let two = &document["tasks"]["t"]["flow"]["two"];
    assert_eq!(two["depends_on"][0], "one", "{written}");
    for step in [two, &document["tasks"]["u"]["flow"]["only"]] {
        let script = step["script"].as_str().unwrap();
        assert!(script.contains("this step was not imported"), "{written}");
    }
    for (place, faults) in [("tasks.t.flow.two", 2), ("tasks.u.flow.only", 3)] {
        let begin = format!("a.yaml: {place} ");
        let rows: Vec<&str> = table
            .lines()
            .filter(|row| row.starts_with(&begin))
            .collect();
        assert_eq!(rows.len(), faults, "{table}");
        assert!(
            rows.iter().all(|row| row.contains("not supported")),
            "{table}"
        );
    }
    assert!(!table.contains("tasks.u  not supported"), "{table}");
}

#[test]
fn a_retry_that_is_no_mapping_is_told_and_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let text = "actions:\n  g:\n    type: script\n    script: make\n    retry: { max_attempts: 4 }\n    input: { a: { type: string, hint: x } }\ntasks:\n  t:\n    flow:\n      s: { action: g, retry: 3 }\n";
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let output = import(&["stroem", folder.path().to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(written.contains("max_attempts: 4"), "{written}");
    let row = |path: &str| {
        let mut rows = table.lines().filter(|row| row.contains(path));
        rows.find(|row| row.contains("not supported")).is_some()
    };
    assert!(row("tasks.t.flow.s.retry"), "{table}");
    assert!(row("actions.g.input.a.hint"), "{table}");
}

#[test]
fn what_is_there_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    let first = import(&["crontab", "crontab/user", "--output", to]);
    assert_eq!(said(&first).0, format!("wrote {to}/user.yaml\n"));
    fs::write(folder.path().join("user.yaml"), "tasks: {}\n").unwrap();
    let second = import(&["crontab", "crontab/user", "crontab/system", "--output", to]);
    assert_eq!(second.status.code(), Some(7));
    let (_, complaint) = said(&second);
    let refusal = format!(
        "stepward: {to}/user.yaml is there already, nothing was written; move it away or name another folder with --output\n"
    );
    assert!(complaint.ends_with(&refusal), "{complaint}");
    assert_eq!(
        fs::read_to_string(folder.path().join("user.yaml")).unwrap(),
        "tasks: {}\n"
    );
    assert!(
        !folder.path().join("system.yaml").exists(),
        "nothing at all is written"
    );
}

#[test]
fn a_crontab_comes_from_a_pipe_from_a_folder_or_from_the_program_that_keeps_it() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["import", "crontab", "-", "--dry-run", "--timezone", "UTC"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"5 4 * * * true\n")
        .unwrap();
    let (written, _) = said(&child.wait_with_output().unwrap());
    assert!(
        written.starts_with("# workflows/crontab.yaml\n"),
        "{written}"
    );
    assert!(written.contains("cron: \"5 4 * * *\""), "{written}");

    // As in /etc/cron.d: a user in each line, and a file that cron passes over.
    let folder = tempfile::tempdir().unwrap();
    let cron_d = folder.path().join("cron.d");
    fs::create_dir(&cron_d).unwrap();
    fs::write(cron_d.join("sweep"), "5 4 * * * root /sbin/sweep\n").unwrap();
    fs::write(cron_d.join("sweep.dpkg-old"), "5 4 * * * root /sbin/old\n").unwrap();
    let output = import(&["crontab", cron_d.to_str().unwrap(), "--dry-run"]);
    let (written, table) = said(&output);
    assert!(written.contains("tags: [user-root]"), "{written}");
    assert!(!written.contains("/sbin/old"), "{written}");
    assert!(table.contains("sweep.dpkg-old is passed over"), "{table}");

    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let crontab = bin.join("crontab");
    fs::write(
        &crontab,
        "#!/bin/sh\n[ \"$1\" = -l ] && echo '1 2 * * * kept'\n",
    )
    .unwrap();
    make_executable(&crontab);
    let asked = |path: &Path| {
        Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(["import", "crontab", "--dry-run"])
            .env("PATH", format!("{}:/usr/bin:/bin", path.display()))
            .output()
            .unwrap()
    };
    let (written, _) = said(&asked(&bin));
    assert!(written.contains("cron: \"1 2 * * *\""), "{written}");
    fs::write(
        &crontab,
        "#!/bin/sh\necho 'no crontab for ada' >&2\nexit 1\n",
    )
    .unwrap();
    let (_, complaint) = said(&asked(&bin));
    assert_eq!(
        complaint,
        "stepward: crontab -l gives no crontab: no crontab for ada\n"
    );
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Two days that both say something: either is enough, in cron and here.
#[test]
fn schedules_fire_on_the_days_that_cron_means() {
    let written = fs::read_to_string(format!("{HERE}/golden/crontab-user.yaml")).unwrap();
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    let schedule = &document["tasks"]["report-monthly"]["schedules"]["cron"];
    let text = |key: &str| schedule[key].as_str().unwrap();
    let cron = stepward::cron::Cron::parse(text("cron"), text("timezone")).unwrap();
    let mut at = Timestamp(1_767_265_200_000); // 2026-01-01 12:00 in Oslo
    for day in ["2026-01-02", "2026-01-09", "2026-01-15", "2026-01-16"] {
        at = cron.next_after(at).unwrap();
        let fired = jiff::Timestamp::from_millisecond(at.0).unwrap();
        let fired = fired.in_tz("Europe/Oslo").unwrap();
        assert_eq!(
            fired.date().to_string(),
            day,
            "the 1st, the 15th and Fridays"
        );
    }
}

#[test]
fn what_cannot_be_read_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let long = file("long", &vec![b'#'; (1 << 20) + 1]);
    let binary = file("binary", b"\xff\xfe");
    let empty = file("empty", b"# nothing\n");
    let nothing = folder.path().join("nothing");
    for (words, expected) in [
        (
            vec!["crontab", long.to_str().unwrap()],
            "long cannot be read: it is longer than 1048576 bytes",
        ),
        (
            vec!["crontab", binary.to_str().unwrap()],
            "binary cannot be read: it is not UTF-8",
        ),
        (
            vec!["crontab", nothing.to_str().unwrap()],
            "nothing cannot be read: No such file or directory",
        ),
        (
            vec!["crontab", empty.to_str().unwrap()],
            "nothing was found that could be written",
        ),
        (
            vec!["crontab", "crontab/user", "--timezone", "Oslo"],
            "--timezone is \"Oslo\", expected an IANA name such as Europe/Oslo",
        ),
        (
            vec!["dagu", nothing.to_str().unwrap()],
            "nothing cannot be read: No such file or directory",
        ),
        (
            vec!["dagu", empty.to_str().unwrap()],
            "nothing was found that could be written",
        ),
        (
            vec!["stroem", nothing.to_str().unwrap()],
            "nothing cannot be read, name a Strøm workspace",
        ),
        (
            vec!["stroem", folder.path().to_str().unwrap()],
            "holds no workflow files (*.yaml, *.yml)",
        ),
    ] {
        let output = import(&words);
        let (written, complaint) = said(&output);
        let code = match expected {
            expected if expected.contains("--timezone") => 2,
            expected if expected.starts_with("nothing cannot be read") => 5,
            _ => 1,
        };
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert_eq!(written, "", "{words:?}");
        assert!(complaint.contains(expected), "{words:?}: {complaint}");
    }
}

#[test]
fn programs_are_told_what_would_be_written_and_what_became_of_each_line() {
    let told = import(&["crontab", "crontab/system", "--dry-run", "--json"]);
    assert_eq!(told.status.code(), Some(0));
    let (written, complaint) = said(&told);
    assert_eq!(complaint, "");
    let json: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(json["dry_run"], true);
    assert_eq!(json["files"][0]["path"], "workflows/system.yaml");
    assert!(
        json["files"][0]["text"]
            .as_str()
            .unwrap()
            .contains("tasks:")
    );
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows[6]["place"], "crontab/system:7");
    assert_eq!(rows[6]["outcome"], "not supported");
}
