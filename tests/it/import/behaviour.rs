//! Imported DAGs do what they did in Dagu: these stories run them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{import_dag, said};

/// Imports a DAG and runs it to its end, with this folder as the home of its worker. Gives everything that it printed.
fn run_dag(dag: &str, home: &Path) -> (bool, String) {
    let (written, table) = import_dag(dag);
    let file = home.join("imported.yaml");
    fs::write(&file, &written).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["run", "--logs"])
        .arg(&file)
        .current_dir(home)
        .env("HOME", home)
        .output()
        .unwrap();
    let (told, complained) = said(&ran);
    let all = format!("{table}\n{written}\n{told}{complained}");
    (ran.status.success(), all)
}

/// A precondition sees the folder, the variables, the positions and the shell of its step.
#[test]
fn preconditions_are_tested_where_their_step_would_run() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("ready"), "").unwrap();
    let dag = r#"
type: graph
params: first NAMED=x second
workingDir: HOME_FOLDER
preconditions: test -f ready
steps:
  - { name: folder, command: echo folder is right, preconditions: "test -f ready # in the folder of the DAG" }
  - { name: own, env: { Z: zed }, command: echo own is right, preconditions: [{ condition: "$Z", expected: zed }] }
  - { name: place, command: 'echo "1=$1 2=$2 3=$3"', preconditions: [{ condition: "$1", expected: first }] }
  - { name: shell, shell: bash, command: echo shell is right, preconditions: "[[ a == a ]]" }
  - { name: digits, command: echo digits are right, preconditions: [{ condition: "`echo 17`", expected: 're:^\d+$' }] }
  - { name: other, command: echo other ran, preconditions: [{ condition: "`echo 1x7`", expected: 're:^\d+$' }] }
"#;
    let dag = dag.replace("HOME_FOLDER", home.path().to_str().unwrap());
    let (is_completed, all) = run_dag(&dag, home.path());
    assert!(is_completed, "{all}");
    for line in [
        "| folder is right",
        "| own is right",
        "| 1=first 2=NAMED=x 3=second",
        "| shell is right",
        "| digits are right",
    ] {
        assert!(all.contains(line), "{line}: {all}");
    }
    assert!(!all.contains("| other ran"), "{all}");
}

/// A step overrides what its DAG sets, and has the outputs of all steps before it in its environment.
#[test]
fn variables_have_the_values_that_they_have_in_dagu() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("my folder")).unwrap();
    let dag = r#"
type: graph
env: [{ X: "$(echo of-dag)" }, { Y: plain }, { P: "${X}/${Y}" }]
handlerOn: { init: { command: echo begun, output: BEGUN } }
steps:
  - { name: own, env: { X: of-step, Y: other }, command: 'echo "X=$X Y=$Y P=$P"' }
  - { name: home, dir: ~/my folder, command: 'basename "$PWD"' }
  - { name: out, command: echo hello, output: OUT }
  - { name: program, command: printenv OUT BEGUN, depends: out }
  - { name: behind, command: printenv OUT BEGUN, depends: program }
  - name: strict
    shell: bash -e
    output: RESULT
    continueOn: failure
    command: |
      echo before
      sh -c 'exit 3'
      echo after
"#;
    let (is_completed, all) = run_dag(dag, home.path());
    assert!(is_completed, "{all}");
    for line in [
        "own | X=of-step Y=other P=of-dag/plain",
        "home | my folder",
        "program | hello",
        "program | begun",
        "behind | hello",
        "strict | before",
        "exit code 3",
    ] {
        assert!(all.contains(line), "{line}: {all}");
    }
    assert!(!all.contains("strict | after"), "{all}");
}

/// The log of a step with an output is there although the step is ended by its timeout.
#[test]
fn a_step_whose_output_is_kept_logs_while_it_runs() {
    let home = tempfile::tempdir().unwrap();
    let dag =
        "steps: [{ name: slow, command: 'echo progress; sleep 60', output: O, timeoutSec: '1' }]\n";
    let (is_completed, all) = run_dag(dag, home.path());
    assert!(!is_completed, "{all}");
    // A job of one step prints its log without the name of the step.
    assert!(all.contains("\nprogress\n"), "{all}");
}

/// A handler is a job of its own here, so its hook gives it the parameters, the outputs and the status of the run.
#[test]
fn handlers_are_given_the_values_that_they_see_in_dagu() {
    let (written, table) = import_dag(
        r#"
name: nightly
params: one WHO=world
workerSelector: { gpu: "true" }
preconditions: [{ condition: "$WHO", expected: world }]
steps: [{ name: make, command: echo value42, output: OUT }]
handlerOn:
  success: 'echo "$DAG_NAME $DAG_RUN_ID $OUT $WHO $1 $DAG_RUN_STATUS"'
  exit: { command: ./tidy.sh, preconditions: test -f tidy.sh, continueOn: failure, output: X }
"#,
    );
    let document: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
    let success = &document["tasks"]["nightly"]["on_success"][0]["input"];
    for (name, value) in [
        ("DAG_NAME", "{{ hook.task }}"),
        ("DAG_RUN_ID", "{{ hook.job | string }}"),
        ("DAG_RUN_STATUS", "succeeded"),
        ("OUT", "{{ steps['make'].output.OUT | default('') | trim }}"),
        ("WHO", "{{ input.WHO | default('') | string }}"),
        ("arg1", "{{ input.arg1 | default('') | string }}"),
        (
            "preconditions_met",
            "{{ steps['preconditions'].output.ok | default('') | string }}",
        ),
    ] {
        assert_eq!(success[name], value, "{name}: {written}");
    }
    let actions = &document["actions"];
    let script = |name: &str| actions[name]["script"].as_str().unwrap().to_string();
    let success = script("nightly-on-success");
    for line in [
        "set -- \"${INPUT_ARG1-}\" \"WHO=${INPUT_WHO-}\"\n",
        "[ \"$INPUT_PRECONDITIONS_MET\" = true ] || exit 0\n",
    ] {
        assert!(success.contains(line), "{written}");
    }
    let exit = script("nightly-on-exit");
    assert!(exit.contains("test -f tidy.sh\n"), "{written}");
    let tags = &actions["nightly-on-exit"]["tags"];
    assert_eq!(tags[0], "gpu=true", "{written}");
    for key in ["continueOn", "output"] {
        let row = format!("Stepward has no equivalent of `{key}`; not imported");
        assert!(table.contains(&row), "{table}");
    }
}

/// Dagu sets `ITEM` in parallel steps. In other steps it may be a parameter.
#[test]
fn a_parameter_called_item_keeps_its_value() {
    let home = tempfile::tempdir().unwrap();
    let dag = r#"
params: ITEM=apple
steps:
  - { name: a, command: 'echo "the item is $ITEM"' }
"#;
    let (is_completed, all) = run_dag(dag, home.path());
    assert!(is_completed, "{all}");
    assert!(all.contains("the item is apple"), "{all}");
}
