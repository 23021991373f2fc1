//! `stepward validate` and `stepward explain`: the real binary, its output and exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const GOOD: &str = "tasks: { hello: { flow: { greet: { script: echo hello } } } }\n";
const BAD: &str = "tasks: { hello: { flow: { greet: { scrpt: echo, type: approval } } } }\n";
const ODD: &str = "tasks: { hello: { flow: { greet: { script: echo, when: false } } } }\n";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn stepward(folder: &Path, words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(words)
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have refused its arguments and be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn shown(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn good_files_say_so_and_bad_ones_are_told_on_stdout() {
    let folder = folder(&[("a.yaml", GOOD), ("b.yml", BAD), ("c.txt", "[")]);
    let (code, out, err) = shown(&stepward(folder.path(), &["validate", "a.yaml"], ""));
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(err, "stepward: 1 file, 1 task: nothing is wrong\n");

    let (code, out, err) = shown(&stepward(folder.path(), &["validate", "b.yml"], ""));
    assert_eq!(code, 3);
    assert!(
        out.starts_with("error[E012]: unknown key `scrpt` in step `greet`\n"),
        "{out}"
    );
    assert!(
        !out.contains('\x1b'),
        "no colour where nobody looks: {out:?}"
    );
    assert_eq!(
        err,
        "stepward: 1 error, 0 warnings in 1 file; `stepward explain E012` says more\n"
    );

    let words = ["validate", "--format", "short"];
    let (code, out, _) = shown(&stepward(folder.path(), &words, ""));
    assert_eq!(code, 3);
    let lines: Vec<&str> = out.lines().collect();
    let expected = [
        "./b.yml:1:3: error: there are two tasks called `hello` [E060]",
        "./b.yml:1:36: error: unknown key `scrpt` in step `greet` [E012]",
    ];
    assert_eq!(lines.len(), 2, "{out}");
    assert!(
        lines[0].ends_with("[E060]") && lines[1] == expected[1],
        "{out}"
    );
}

#[test]
fn the_usual_folder_is_found() {
    let folder = folder(&[("bad.yaml", BAD)]);
    std::fs::create_dir(folder.path().join("workflows")).unwrap();
    std::fs::write(folder.path().join("workflows/good.yaml"), GOOD).unwrap();
    let (code, _, err) = shown(&stepward(folder.path(), &["validate"], ""));
    assert_eq!(
        (code, err.as_str()),
        (0, "stepward: 1 file, 1 task: nothing is wrong\n")
    );
}

#[test]
fn what_comes_in_is_checked_under_the_name_it_is_given() {
    let folder = folder(&[]);
    let words = [
        "validate",
        "-",
        "--stdin-filename",
        "x.yaml",
        "--format",
        "json",
    ];
    let (code, out, _) = shown(&stepward(folder.path(), &words, BAD));
    assert_eq!(code, 3);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&found[0]["code"], &found[0]["file"]),
        (&"E012".into(), &"x.yaml".into())
    );

    let (code, out, _) = shown(&stepward(
        folder.path(),
        &["validate", "-", "--format", "json"],
        GOOD,
    ));
    assert_eq!((code, out.as_str()), (0, "[]\n"));
}

#[test]
fn warnings_count_only_for_who_says_so() {
    let folder = folder(&[("a.yaml", ODD)]);
    let (code, out, err) = shown(&stepward(folder.path(), &["validate", "a.yaml"], ""));
    assert_eq!(code, 0);
    assert!(out.starts_with("warning[W102]"), "{out}");
    assert!(err.contains("0 errors, 1 warning in 1 file"), "{err}");
    let words = ["validate", "a.yaml", "--deny-warnings"];
    assert_eq!(stepward(folder.path(), &words, "").status.code(), Some(3));
}

#[test]
fn what_is_asked_wrongly_is_told_apart_from_what_is_wrong() {
    let folder = folder(&[]);
    for words in [
        &["validate", "-", "nowhere"][..],
        &["validate", "--format", "xml"],
        &["validate", "--token-file", "x"],
        &["explain"],
    ] {
        assert_eq!(
            stepward(folder.path(), words, "").status.code(),
            Some(2),
            "{words:?}"
        );
    }
    let missing = stepward(folder.path(), &["validate", "nowhere"], "");
    assert_eq!(missing.status.code(), Some(5));
    // Nothing was opened or made.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn rules_are_explained_and_listed() {
    let folder = folder(&[]);
    let (code, out, _) = shown(&stepward(folder.path(), &["explain", "e045"], ""));
    assert_eq!(code, 0);
    assert!(
        out.starts_with("E045: an untrusted value in a script or command\n"),
        "{out}"
    );
    assert!(
        out.contains("\nWrong:\n") && out.contains("\nRight:\n"),
        "{out}"
    );
    let (_, _, err) = shown(&stepward(folder.path(), &["explain", "E12"], ""));
    assert_eq!(
        err,
        "stepward: there is nothing called \"E12\" to explain; did you mean E012?\n"
    );
    let (code, out, _) = shown(&stepward(folder.path(), &["explain", "--list"], ""));
    assert_eq!(code, 0);
    assert!(
        out.lines().count() >= 45 && out.starts_with("E001\trule\tthe file is not YAML\n"),
        "{out}"
    );
}

#[test]
fn a_file_of_a_folder_is_judged_among_its_neighbours_if_the_folder_is_named() {
    let folder = folder(&[
        ("a.yaml", "tasks: { a: { flow: { s: { scrpt: x } } } }\n"),
        ("b.yaml", GOOD),
        ("run.sh", "echo run"),
    ]);
    let path = folder.path();
    let sub = "tasks:\n  sub:\n    flow:\n      s: { file: run.sh }\n      t: { type: task, task: hello }\n";
    std::fs::create_dir(path.join("sub")).unwrap();
    std::fs::write(path.join("sub/q.yaml"), sub).unwrap();

    let alone = ["validate", "--format", "short", "sub/q.yaml"];
    let (code, out, err) = shown(&stepward(path, &alone, ""));
    assert_eq!(code, 3);
    assert!(out.contains("[E028]") && out.contains("[E033]"), "{out}");
    assert!(err.contains("with --root DIR"), "{err}");

    // What is wrong with the neighbours is not what was asked.
    let among = ["validate", "sub/q.yaml", "--root", "."];
    let (code, out, err) = shown(&stepward(path, &among, ""));
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert_eq!(err, "stepward: 1 file: nothing is wrong\n");

    // An editor gives what is not saved yet, in place of what is.
    let text = sub.replace("task: hello", "task: hallo");
    let words = "validate - --stdin-filename sub/q.yaml --root . --format short";
    let words: Vec<&str> = words.split(' ').collect();
    let (code, out, _) = shown(&stepward(path, &words, &text));
    assert_eq!((code, out.lines().count()), (3, 1), "{out}");
    assert!(out.starts_with("sub/q.yaml:5:"), "{out}");

    let nowhere = ["validate", "sub/q.yaml", "--root", "nowhere"];
    assert_eq!(shown(&stepward(path, &nowhere, "")).0, 2);
}

#[test]
fn one_file_with_two_names_is_one_file() {
    let folder = folder(&[("a.yaml", GOOD)]);
    std::os::unix::fs::symlink("a.yaml", folder.path().join("link.yaml")).unwrap();
    let words = ["validate", "link.yaml", "./link.yaml", "a.yaml"];
    let (code, out, err) = shown(&stepward(folder.path(), &words, ""));
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(err, "stepward: 1 file, 1 task: nothing is wrong\n");
}

#[test]
fn all_problems_are_counted_though_not_all_are_shown() {
    let steps: String = (0..70)
        .map(|at| format!("      s{at}: {{ script: x, scrpt: y }}\n"))
        .collect();
    let text = format!("tasks:\n  t:\n    flow:\n{steps}");
    let folder = folder(&[("a.yaml", &text)]);
    let words = ["validate", "--format", "short", "a.yaml"];
    let (code, out, err) = shown(&stepward(folder.path(), &words, ""));
    assert_eq!((code, out.lines().count()), (3, 50));
    assert!(err.starts_with("stepward: 70 errors, 0 warnings"), "{err}");
}
