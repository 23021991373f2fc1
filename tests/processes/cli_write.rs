//! What those who write workflows ask a server: pictures of its tasks and jobs, and whether anybody offers what they need.

use std::fs;

use serde_json::Value;

use crate::house::House;
use crate::typed::{announce, typed, typed_in};

const SHIP: &str = "
tasks:
  ship:
    flow:
      build: { script: echo built }
      test: { depends_on: [build], for_each: [unit, api], script: exit 3 }
      tell: { depends_on: [{ step: test, accept: [failed] }], script: echo told }
      publish: { depends_on: [test], script: echo out }
";

#[test]
fn a_graph_shows_the_task_of_a_server_and_how_a_job_of_it_went() {
    let mut house = House::with(SHIP);
    let worker = house.worker(2);
    let task = typed(&house, &["graph", "ship"]);
    assert_eq!(task.code, Some(0), "{task:?}");
    assert!(
        task.stdout
            .contains("tell     script · after test (failed)"),
        "{task:?}"
    );

    let job_id = house.submit("ship");
    house.await_job(job_id, "failed");
    let drawn = typed(&house, &["graph", "--job", "ship@latest"]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    let line = |name: &str| {
        let found = drawn.stdout.lines().find(|line| line.contains(name));
        found
            .unwrap_or_else(|| panic!("{name}: {drawn:?}"))
            .to_string()
    };
    assert!(line("build ").contains("completed · script"), "{drawn:?}");
    assert!(
        line("test ").contains("failed · script for each · 0 of 2 completed"),
        "{drawn:?}"
    );
    assert!(line("tell ").contains("✔"), "{drawn:?}");
    assert!(line("tell ").contains("after test (failed)"), "{drawn:?}");
    assert!(
        line("publish ").contains("skipped · script · dependency_not_accepted"),
        "{drawn:?}"
    );
    assert!(
        !drawn.stdout.contains("test["),
        "instances are told with their loop: {drawn:?}"
    );

    let json = typed(&house, &["graph", "--job", "1", "--json"]).json();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 4);
    let of_task = typed(&house, &["graph", "ship", "--json"]).json();
    assert_eq!(json["edges"], of_task["edges"]);
    let svg = typed(&house, &["graph", "--job", "1", "--format", "svg"]);
    assert!(svg.stdout.contains("state-failed"), "{svg:?}");
    let wrong = typed(&house, &["graph", "shipp"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(5), ""));
    assert!(wrong.stderr.contains("did you mean ship?"), "{wrong:?}");
    assert_eq!(typed(&house, &["graph", "--job", "77"]).code, Some(5));
    drop(worker);
    house.check();
}

#[test]
fn a_server_that_a_folder_names_is_asked_and_does_not_give_way_to_the_files() {
    let mut house = House::with(SHIP);
    let folder = house.folder.path().to_path_buf();
    announce(&folder, &house.url(), None);
    let there = typed_in(&folder, &["graph", "ship"]);
    assert_eq!((there.code, there.stderr.as_str()), (Some(0), ""));
    // Its process lives, and does not answer.
    assert!(house.stop_server());
    let silent = typed_in(&folder, &["graph", "ship"]);
    assert_eq!((silent.code, silent.stdout.as_str()), (Some(6), ""));
    assert!(silent.stderr.contains("does not answer"), "{silent:?}");
    // Whoever names one wants that one.
    let named = typed_in(
        &folder,
        &["graph", "ship", "--server", "http://127.0.0.1:1"],
    );
    assert_eq!((named.code, named.stdout.as_str()), (Some(6), ""));
    // Where there is none, the files count.
    fs::remove_file(folder.join(".stepward/server.json")).unwrap();
    let gone = typed_in(&folder, &["graph", "ship"]);
    assert_eq!((gone.code, gone.stderr.as_str()), (Some(0), ""));
    assert_eq!(gone.stdout, there.stdout);
    house.check();
}

#[test]
fn a_server_that_is_named_knows_which_tags_nobody_offers() {
    let mut house = House::with(SHIP);
    let worker = house.worker(1);
    house.await_worker(&house.workers()[0].name, "active");
    let folder = house.folder.path();
    let text = "tasks: { t: { flow: { s: { script: x, tags: [gpu] } } } }\n";
    fs::write(folder.join("gpu.yaml"), text).unwrap();
    let url = house.url();
    // By the environment alone nobody is asked.
    let alone = typed(&house, &["validate", "gpu.yaml", "--json"]);
    assert_eq!(
        (alone.code, alone.json()),
        (Some(0), Value::Array(Vec::new()))
    );
    let asked = typed(
        &house,
        &["validate", "gpu.yaml", "--json", "--server", &url],
    );
    assert_eq!(asked.code, Some(0), "{asked:?}");
    assert_eq!(asked.json()[0]["code"], "W101");
    let denied = ["validate", "gpu.yaml", "--deny-warnings", "--server", &url];
    assert_eq!(typed(&house, &denied).code, Some(3));
    let nobody = ["validate", "gpu.yaml", "--server", "http://127.0.0.1:1"];
    assert_eq!(typed(&house, &nobody).code, Some(6));
    drop(worker);
    house.check();
}

#[test]
fn the_name_of_a_file_does_not_colour_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let red = folder.path().join("\x1b[31mx.yaml");
    fs::write(&red, "tasks: { a: { flwo: {} } }\n").unwrap();
    for format in ["human", "short", "github"] {
        let told = typed_in(folder.path(), &["validate", ".", "--format", format]);
        assert_eq!(told.code, Some(3), "{told:?}");
        assert!(told.stdout.contains("[31mx.yaml"), "{told:?}");
        assert!(!told.stdout.contains('\x1b'), "{format}: {told:?}");
    }
    for words in [
        &["validate", "\x1b[31mnowhere"][..],
        &["db", "check", "\x1b[31mnowhere"],
        &["config", "show", "--config", "\x1b[31mnowhere"],
        &["man", "--out", "/dev/null/\x1b[31m"],
        &["status", "--server", "\x1b[31m"],
        &["graph", "\x1b[31mx.yaml"],
        &["run", "\x1b[31mnowhere.yaml"],
    ] {
        let told = typed_in(folder.path(), words);
        assert_ne!(told.code, Some(0), "{words:?}: {told:?}");
        assert!(!told.stderr.contains('\x1b'), "{words:?}: {told:?}");
        assert!(!told.stdout.contains('\x1b'), "{words:?}: {told:?}");
    }
    let flow = "tasks: { a: { flow: { b: { script: 'true' } } } }\n";
    fs::write(folder.path().join("good.yaml"), flow).unwrap();
    let words = ["graph", "good.yaml", "-o", "/dev/null/\x1b[31m"];
    let told = typed_in(folder.path(), &words);
    assert!(told.stderr.contains("cannot be written"), "{told:?}");
    assert!(!told.stderr.contains('\x1b'), "{told:?}");
}

#[test]
fn what_is_not_shown_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let steps: String = (0..500)
        .map(|at| format!("      s{at}: {{ skript: x }}\n"))
        .collect();
    let text = format!("tasks:\n  a:\n    flow:\n{steps}");
    fs::write(folder.path().join("many.yaml"), text).unwrap();
    let told = typed_in(folder.path(), &["validate", "many.yaml", "--json"]);
    assert_eq!(told.json().as_array().unwrap().len(), 50);
    let unshown = told.stderr.split(" of them are not shown").next().unwrap();
    let unshown: usize = unshown
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap_or_else(|_| panic!("{told:?}"));
    assert!(unshown >= 450, "{told:?}");
}

#[test]
fn a_folder_without_workflow_files_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    fs::write(folder.path().join("empty/README.md"), "hello").unwrap();
    let told = typed_in(folder.path(), &["validate", "empty"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let warning = "stepward: warning: no workflow files found in empty\n";
    assert_eq!(told.stderr, warning);
    let told = typed_in(folder.path(), &["validate", "empty", "--json"]);
    assert_eq!(told.json(), serde_json::json!([]));
}

/// What is right is what was wrong, mended.
#[test]
fn the_examples_of_an_unknown_key_fit_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let told = typed_in(folder.path(), &["explain", "E012"]).stdout;
    assert_eq!(told.matches("script: echo hello").count(), 2, "{told}");
    assert!(
        told.contains("timout: 5m") && told.contains("timeout: 5m"),
        "{told}"
    );
}
