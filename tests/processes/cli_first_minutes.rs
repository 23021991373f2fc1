//! The first minutes with the binary: a project out of nothing, and whatever a new user types next.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stepward::config::{ServerConfig, WorkerConfig};

use crate::cli_dev::{Dev, project};
use crate::pseudo_terminal::plain;
use crate::pty::Terminal;
use crate::typed::{Typed, typed_in};

const TEMPLATES: [&str; 5] = ["minimal", "backup", "etl", "ci", "edge"];

/// Every file below a folder, with what is in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => {
                    found.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

fn fails(typed: &Typed, words: &str) {
    assert_eq!(typed.code, Some(1), "{typed:?}");
    assert_eq!(typed.stdout, "", "{typed:?}");
    assert_eq!(typed.stderr.lines().count(), 1, "{typed:?}");
    assert!(typed.stderr.contains(words), "{typed:?}");
}

#[test]
fn init_writes_a_project_that_loads_and_says_what_is_what() {
    let folder = tempfile::tempdir().unwrap();
    let typed = typed_in(folder.path(), &["init", "my project"]);
    assert_eq!(typed.code, Some(0), "{typed:?}");
    assert_eq!(
        typed.stdout,
        "created  workflows/hello.yaml            tasks: hello, checks\n\
         created  server-config.yaml              every setting with its default, commented out\n\
         created  worker-config.yaml              for a worker on a second machine; not needed here\n\
         created  .stepward/workflow.schema.json  what editors complete and check workflow files with\n\
         created  .stepward/.gitignore            keeps the server's data out of repositories\n"
    );
    assert_eq!(
        typed.stderr,
        "Next: cd 'my project' && stepward run hello\n"
    );
    let project = folder.path().join("my project");
    let server = ServerConfig::load(Some(&project.join("server-config.yaml"))).unwrap();
    let wanted = ServerConfig {
        workflows_dir: Some("workflows".into()),
        ..ServerConfig::default()
    };
    assert_eq!(server, wanted);
    let worker = WorkerConfig::load(Some(&project.join("worker-config.yaml"))).unwrap();
    assert_eq!(worker, WorkerConfig::default());
    let mode = project
        .join(".stepward")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700, "as the server makes it");
    let schema = fs::read_to_string(project.join(".stepward/workflow.schema.json")).unwrap();
    assert_eq!(schema, typed_in(&project, &["schema", "workflow"]).stdout);
    let workflow = fs::read_to_string(project.join("workflows/hello.yaml")).unwrap();
    let modelines: Vec<&str> = workflow.lines().take(2).collect();
    assert_eq!(
        modelines,
        [
            "# yaml-language-server: $schema=../.stepward/workflow.schema.json",
            "# $schema: ../.stepward/workflow.schema.json",
        ]
    );
}

#[test]
fn init_once_more_changes_nothing_and_never_what_somebody_wrote() {
    let folder = project();
    let mine = folder.path().join("server-config.yaml");
    fs::write(&mine, "listen: 127.0.0.1:9999\n").unwrap();
    fs::remove_file(folder.path().join("worker-config.yaml")).unwrap();
    let before = files(folder.path());
    let again = typed_in(folder.path(), &["init"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let states: Vec<&str> = again
        .stdout
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(states, ["kept", "kept", "created", "kept", "kept"]);
    let mut after = files(folder.path());
    assert!(
        after
            .remove(&folder.path().join("worker-config.yaml"))
            .is_some()
    );
    assert_eq!(after, before);

    // Two tasks of one name would be a mistake.
    let file = folder.path().join("workflows/hello.yaml");
    fs::rename(&file, folder.path().join("workflows/mine.yaml")).unwrap();
    let third = typed_in(folder.path(), &["init"]);
    assert!(
        third.stdout.contains("there is a task checks already"),
        "{third:?}"
    );
    assert!(!file.exists());
    assert_eq!(typed_in(folder.path(), &["validate"]).code, Some(0));
}

#[test]
fn a_dry_run_writes_nothing_and_json_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let dry = typed_in(folder.path(), &["init", "new", "--dry-run", "--json"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(dry.stderr, "");
    let told = dry.json();
    assert_eq!(told["dry_run"], true);
    assert_eq!(told["template"], "minimal");
    assert_eq!(told["next"], "cd new && stepward run hello");
    assert_eq!(told["files"][0]["path"], "workflows/hello.yaml");
    assert_eq!(told["files"][0]["state"], "would_create");
    assert!(files(folder.path()).is_empty());
    assert!(!folder.path().join("new").exists());
    let made = typed_in(folder.path(), &["init", "new", "--json"]).json();
    assert_eq!(made["files"][4]["state"], "created");
    let again = typed_in(folder.path(), &["init", "new", "--json"]).json();
    assert_eq!(again["files"][4]["state"], "kept");
}

#[test]
fn a_place_where_nothing_can_be_written_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    fails(
        &typed_in(folder.path(), &["init", "file"]),
        "file is no folder, name one",
    );
    fails(
        &typed_in(folder.path(), &["init", "file/below"]),
        "cannot be made: ",
    );
    fails(
        &typed_in(folder.path(), &["init", "/proc/none"]),
        "cannot be made: ",
    );
    fs::create_dir(folder.path().join("odd")).unwrap();
    fs::write(folder.path().join("odd/workflows"), "").unwrap();
    let odd = typed_in(folder.path(), &["init", "odd"]);
    fails(
        &odd,
        "odd/workflows cannot be made: something else has its name",
    );
    let wrong = typed_in(folder.path(), &["init", "--template", "bakcup"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("'backup'"), "{wrong:?}");
}

#[test]
fn every_template_is_valid_and_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let list = typed_in(folder.path(), &["init", "--list-templates"]);
    let names: Vec<&str> = list
        .stdout
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(names, TEMPLATES);
    let listed = typed_in(folder.path(), &["init", "--list-templates", "--json"]).json();
    for (at, name) in TEMPLATES.iter().enumerate() {
        let item = &listed["items"][at];
        assert_eq!(item["name"], *name);
        let made = typed_in(folder.path(), &["init", name, "--template", name]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let project = folder.path().join(name);
        let valid = typed_in(&project, &["validate", "--deny-warnings"]);
        assert_eq!(valid.code, Some(0), "{valid:?}");
        let tags = "script,edge,site-north,site-south";
        let dev = Dev::start(&project, &["--tags", tags, "--slots", "2"]);
        let task = item["tasks"][0].as_str().unwrap();
        let job = dev.await_end(dev.submit(task));
        assert_eq!(job.status, "completed", "{name}: {:?}", job.message);
        for step in job.steps.unwrap() {
            // What it makes outside of its folder, it tells.
            let output = step
                .output
                .map(|output| serde_json::to_value(output).unwrap());
            let target = output.as_ref().and_then(|output| output["target"].as_str());
            if let Some(target) = target.filter(|target| target.starts_with("/tmp/stepward-")) {
                fs::remove_dir_all(target).unwrap();
            }
        }
        dev.stop();
    }
}

/// What somebody who has never seen it types, in this order, in an empty folder.
#[test]
fn the_first_five_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = |words: &[&str], code: i32| {
        let typed = typed_in(folder, words);
        assert_eq!(typed.code, Some(code), "{words:?}: {typed:?}");
        typed
    };
    let says = |typed: &Typed, words: &[&str]| {
        let all = format!("{}{}", typed.stdout, typed.stderr);
        for word in words {
            assert!(all.contains(word), "{word}: {typed:?}");
        }
    };

    says(
        &types(&[], 0),
        &[
            "stepward demo",
            "stepward init",
            "stepward run",
            "stepward dev",
        ],
    );
    says(
        &types(&["init"], 0),
        &["created  workflows/hello.yaml", "Next: stepward run hello"],
    );
    says(
        &types(&["init"], 0),
        &["kept  workflows/hello.yaml", "Next: stepward run hello"],
    );
    says(
        &types(&["validate"], 0),
        &["1 file, 2 tasks: nothing is wrong"],
    );

    // No server: the same engine in the process that was typed.
    says(
        &types(&["run", "hello", "-i", "name=Ada"], 0),
        &["greet", "shout", "completed"],
    );
    let failed = types(&["run", "checks"], 10);
    says(
        &failed,
        &[
            "unit",
            "rounds_up: expected 3, got 2",
            "package",
            "skipped",
            "failed",
        ],
    );
    assert!(
        !folder.join(".stepward/stepward.db").exists(),
        "nothing is kept"
    );

    let file = folder.join("workflows/hello.yaml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replacen("depends_on", "depnds_on", 1)).unwrap();
    let typo = types(&["validate"], 3);
    says(
        &typo,
        &[
            "depnds_on",
            "workflows/hello.yaml:",
            "^^^^^^^^^",
            "did you mean `depends_on`?",
        ],
    );
    says(&types(&["run", "hello"], 3), &["depnds_on"]);
    fs::write(&file, &good).unwrap();
    types(&["validate"], 0);

    // With one: the folder knows it.
    let dev = Dev::start(folder, &["--tags", "script"]);
    dev.await_said("tags script");
    types(&["status"], 0);
    says(
        &types(&["run", "hello", "-i", "name=Ada"], 0),
        &["shout", "completed"],
    );
    says(
        &types(&["logs", "hello@latest"], 0),
        &["Hello, Ada", "HELLO, ADA!"],
    );
    says(
        &types(&["run", "checks"], 10),
        &["rounds_up: expected 3, got 2"],
    );
    says(
        &types(&["logs", "checks@latest", "unit"], 0),
        &["test rounds_up ... FAILED"],
    );
    let why = types(&["why", "checks@latest"], 0);
    says(&why, &["unit", "exit code 1"]);
    let why = types(&["why", "checks@latest", "--json"], 0).json();
    assert_eq!(why["task"], "checks");
    types(&["run", "helo"], 5);
    types(&["doctor"], 0);
    says(&types(&["status"], 0), &["checks"]);
    dev.stop();

    // It is gone, and whoever asks is told what to do.
    says(&types(&["logs", "latest"], 6), &["stepward dev"]);
    let dev = Dev::start(folder, &["--tags", "script"]);
    says(&types(&["logs", "hello@latest"], 0), &["HELLO, ADA!"]);
    dev.stop();
}

/// The same at a terminal, where things look otherwise.
#[test]
fn the_first_five_minutes_at_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = |words: &[&str], code: i32, shown: &[&str]| {
        let mut terminal = Terminal::run(folder, 80, &[], words);
        let (ended, screen) = terminal.end();
        let seen = plain(&terminal.written());
        assert_eq!(ended, Some(code), "{words:?}: {screen}");
        for text in shown {
            assert!(seen.contains(text), "{words:?} {text}: {screen}");
        }
        assert!(!seen.contains('\u{fffd}'), "{words:?}: {screen}");
        assert!(!seen.contains("panicked"), "{words:?}: {screen}");
    };
    types(
        &[],
        0,
        &["Start here", "stepward demo", "no server is known here"],
    );
    types(&["init"], 0, &["created  workflows/hello.yaml"]);
    types(&[], 0, &["There are workflows here"]);
    let name = ["run", "hello", "-i", "name=Ada"];
    types(&name, 0, &["✔ greet", "Hello, Ada", "✔ completed in "]);
    types(
        &["run", "checks"],
        10,
        &["rounds_up: expected 3, got 2", "because  step unit failed"],
    );
    let file = folder.join("workflows/hello.yaml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replacen("depends_on", "depnds_on", 1)).unwrap();
    let typo = ["unknown key `depnds_on`", "did you mean `depends_on`?"];
    types(&["validate"], 3, &typo);
    types(&["run", "hello"], 3, &typo);
    fs::write(&file, &good).unwrap();

    let dev = Dev::start(folder, &["--tags", "script"]);
    dev.await_said("tags script");
    types(
        &["run", "--watch", "hello"],
        0,
        &["✔ shout", "✔ completed in "],
    );
    types(
        &["run", "checks"],
        10,
        &["why      stepward why 2", "retry    stepward retry 2"],
    );
    types(
        &["why", "latest"],
        0,
        &["root cause: step unit", "stepward logs 2 unit"],
    );
    types(&["logs", "latest"], 0, &["! rounds_up: expected 3, got 2"]);
    types(
        &["events", "--job", "latest"],
        0,
        &["step_failed", "job_failed"],
    );
    types(&["job", "ls"], 0, &["JOB", "✘ failed", "✔ completed"]);
    types(&["recovery", "forecast"], 0, &["nothing is foreseen"]);
    types(&["doctor"], 0, &["0 problems"]);
    types(&["statsu"], 2, &["'status'"]);
    types(&["ps"], 2, &["'job ls'"]);
    dev.stop();
}
