//! What a step finds around it: exactly its environment, its inputs byte by byte, its folder and no other.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use stepward::domain::protocol::{Assignment, Finished};
use stepward::domain::reason::Reason;
use stepward::domain::{Json, Timestamp};

use super::{Bench, exists, failed};

/// What the step finds, as it finds it.
fn environment(bench: &Bench, assignment: Assignment) -> BTreeMap<String, String> {
    let finished = bench.finish(assignment);
    assert_eq!(finished, Finished::completed(), "{:?}", bench.notes());
    let bytes = std::fs::read(bench.place.workspace().join("env")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let variables = text.split_terminator('\0');
    let pairs = variables.map(|variable| variable.split_once('=').unwrap());
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

const SHOW: &str = "cat /proc/self/environ > env";
const BY_ITS_FIRST_LINE: &str = "#!/bin/bash -e\ncat /proc/self/environ > env";

#[test]
fn it_is_exactly_this() {
    let mut bench = Bench::new();
    let mut tools = (*bench.tools).clone();
    tools.env = [("FROM_WORKER", "w"), ("BOTH", "w")]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into();
    bench.tools = tools.into();
    let mut assignment = bench.assignment(Some("/bin/sh"), SHOW);
    assignment.env = [
        ("FROM_STEP", "s"),
        ("BOTH", "s"),
        ("STEPWARD_JOB_ID", "lie"),
    ]
    .map(|(name, value)| (name.to_string(), value.to_string()))
    .into();
    assignment.input = Json(r#"{"version": "1.2", "dry-run": true, "list": [1, "a"]}"#.to_string());
    assignment.item = Some(3);
    assignment.scheduled_at = Some(Timestamp(1_700_000_000_000));
    assignment.item_value = Some(Json(r#"{"a": 1}"#.to_string()));
    let mut found = environment(&bench, assignment);

    for (name, value) in std::env::vars() {
        let inherited = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ"];
        if inherited.contains(&name.as_str()) || name.starts_with("LC_") {
            assert_eq!(found.remove(&name), Some(value), "{name}");
        }
    }
    // dash and bash add these to what they start.
    for name in ["PWD", "OLDPWD", "SHLVL", "_"] {
        found.remove(name);
    }
    let folder = bench.place.folder.display();
    let expected = [
        ("BOTH", "s".to_string()),
        ("CI", "true".to_string()),
        ("EACH_INDEX", "3".to_string()),
        ("EACH_ITEM", r#"{"a":1}"#.to_string()),
        ("FROM_STEP", "s".to_string()),
        ("FROM_WORKER", "w".to_string()),
        ("INPUT_DRY_RUN", "true".to_string()),
        ("INPUT_LIST", r#"[1,"a"]"#.to_string()),
        ("INPUT_VERSION", "1.2".to_string()),
        ("STEPWARD", "1".to_string()),
        ("STEPWARD_ATTEMPT", "2".to_string()),
        (
            "STEPWARD_ATTEMPT_KEY",
            format!("{}/7.2", bench.tools.instance_key),
        ),
        ("STEPWARD_JOB_ID", "5".to_string()),
        (
            "STEPWARD_JOB_URL",
            "http://127.0.0.1:7717/jobs/5".to_string(),
        ),
        ("STEPWARD_OUTPUT", format!("{folder}/output")),
        (
            "STEPWARD_SCHEDULED_AT",
            "2023-11-14T22:13:20.000Z".to_string(),
        ),
        ("STEPWARD_STEP", "build".to_string()),
        ("STEPWARD_TASK", "deploy".to_string()),
        ("STEPWARD_TMP", format!("{folder}/tmp")),
        ("STEPWARD_WORKER", "ann".to_string()),
        ("STEPWARD_WORKSPACE", format!("{folder}/workspace")),
        ("TMPDIR", format!("{folder}/tmp")),
    ];
    let expected = expected.map(|(name, value)| (name.to_string(), value));
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn inputs_arrive_byte_by_byte_and_never_become_code() {
    for value in [
        "'; touch pwned #",
        "$(touch pwned)",
        "`touch pwned`",
        "%0a touch pwned",
        "{{secrets.x}} ${HOME}",
        "two\nlines\r\n",
        " \t ",
        "",
        "ä \u{202e} \u{1f600} \u{1}\u{7f}",
        "\\x41\\n",
    ] {
        for script in [SHOW, BY_ITS_FIRST_LINE] {
            let bench = Bench::new();
            let mut assignment = bench.assignment(None, script);
            let input = serde_json::json!({ "value": value });
            assignment.input = Json(input.to_string());
            let found = environment(&bench, assignment);
            assert_eq!(found["INPUT_VALUE"], value);
            assert!(!exists(&bench.place.workspace().join("pwned")));
        }
    }
}

#[test]
fn an_input_that_no_environment_can_hold_is_the_steps_fault() {
    let too_long = "x".repeat(128 << 10);
    for (input, sentence) in [
        (
            r#"{"a": "x\u0000y"}"#.to_string(),
            "INPUT_A has a NUL byte in it, which no environment can hold".to_string(),
        ),
        (
            r#"{"a-b": 1, "a_b": 2}"#.to_string(),
            "two inputs become INPUT_A_B, one of them is \"a_b\"".to_string(),
        ),
        (
            format!(r#"{{"a": "{too_long}"}}"#),
            "INPUT_A is 131072 bytes long, and no program can be given a variable of more than 128 KiB".to_string(),
        ),
        ("[1]".to_string(), "its input is not a JSON object".to_string()),
    ] {
        let bench = Bench::new();
        let mut assignment = bench.assignment(None, "true");
        assignment.input = Json(input);
        let finished = bench.finish(assignment);
        assert_eq!(failed(&finished), (Reason::PayloadError, sentence.as_str()));
    }
}

#[test]
fn as_much_as_the_system_takes_is_handed_over() {
    let bench = Bench::new();
    let mut assignment = bench.assignment(None, "printf %s \"$INPUT_A\" > a");
    let value = "x".repeat((128 << 10) - "INPUT_A=".len() - 1);
    assignment.input = Json(format!(r#"{{"a": "{value}"}}"#));
    assert_eq!(bench.finish(assignment), Finished::completed());
    let kept = std::fs::read_to_string(bench.place.workspace().join("a")).unwrap();
    assert_eq!(kept, value);
}

#[test]
fn a_step_begins_in_its_workspace_or_below_it_or_where_it_says() {
    for (workdir, expected) in [
        (None, "workspace"),
        (Some("."), "workspace"),
        (Some("a/b"), "workspace/a/b"),
        (Some("~root"), "workspace/~root"),
    ] {
        let bench = Bench::new();
        let mut assignment = bench.assignment(None, "pwd -P");
        assignment.workdir = workdir.map(str::to_string);
        assert_eq!(bench.finish(assignment), Finished::completed());
        let expected = bench.place.folder.canonicalize().unwrap().join(expected);
        assert_eq!(bench.stdout(), [expected.display().to_string()]);
    }
    let bench = Bench::new();
    let mut assignment = bench.assignment(None, "pwd");
    assignment.workdir = Some("/usr".to_string());
    assert_eq!(bench.finish(assignment), Finished::completed());
    assert_eq!(bench.stdout(), ["/usr"]);
}

#[test]
fn no_working_directory_leads_out_of_the_workspace() {
    for workdir in ["..", "../..", "a/../../b", "link", "link/below", "file"] {
        let bench = Bench::new();
        std::fs::create_dir_all(bench.place.workspace()).unwrap();
        symlink("/etc", bench.place.workspace().join("link")).unwrap();
        std::fs::write(bench.place.workspace().join("file"), "").unwrap();
        let mut assignment = bench.assignment(None, "pwd");
        assignment.workdir = Some(workdir.to_string());
        let finished = bench.finish(assignment);
        let sentence = format!("the working directory {workdir:?} leads out of the workspace");
        assert_eq!(failed(&finished), (Reason::PayloadError, sentence.as_str()));
    }
    let bench = Bench::new();
    let mut assignment = bench.assignment(None, "pwd");
    assignment.workdir = Some("/no/such/folder".to_string());
    let finished = bench.finish(assignment);
    let sentence = "the working directory \"/no/such/folder\" does not exist on this worker";
    assert_eq!(failed(&finished), (Reason::SpawnError, sentence));
}
