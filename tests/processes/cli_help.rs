//! What the command line says of itself: help, completions, manual pages. None of it opens a database or a connection.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::house::BINARY;
use crate::typed::{Typed, announce, command, typed_in};

#[test]
fn help_shows_every_group_and_a_misspelt_word_is_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let help = typed_in(folder.path(), &["--help"]);
    assert_eq!(help.code, Some(0));
    for title in [
        "Examples:",
        "Begin",
        "Run and follow",
        "Look",
        "Write workflows",
        "Operate",
    ] {
        assert!(help.stdout.contains(title), "{title}: {help:?}");
    }
    let too_wide: Vec<&str> = help
        .stdout
        .lines()
        .filter(|line| line.chars().count() > 100)
        .collect();
    assert_eq!(too_wide, Vec::<&str>::new());

    for (word, meant) in [
        ("lgos", "logs"),
        ("serve", "server"),
        ("valdate", "validate"),
    ] {
        let wrong = typed_in(folder.path(), &[word]);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.stderr.contains(&format!("'{meant}'")), "{wrong:?}");
        assert!(!wrong.stderr.contains("supervise"), "{wrong:?}");
    }
    let flag = typed_in(folder.path(), &["logs", "--folow", "1"]);
    assert_eq!(flag.code, Some(2), "{flag:?}");
    assert!(flag.stderr.contains("'--follow'"), "{flag:?}");
}

/// A folder that names a server, and the server that must not be asked.
#[test]
fn what_needs_no_server_asks_none() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let data = folder.path().join(".stepward");
    announce(folder.path(), &format!("http://{address}"), None);
    std::fs::write(
        folder.path().join("a.yaml"),
        "tasks:\n  a:\n    flow:\n      s: { script: echo }\n",
    )
    .unwrap();
    for words in [
        &["--help"][..],
        &["--version"],
        &["help", "run"],
        &["run", "--help"],
        &["completions", "bash"],
        &["man"],
        &["validate", "a.yaml"],
        &["explain", "E012"],
        &["schema", "workflow"],
    ] {
        let done = command(folder.path(), words)
            .env("STEPWARD_SERVER_URL", format!("http://{address}"))
            .output()
            .unwrap();
        let done = Typed::from(done);
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
    }
    let asked = listener.accept();
    assert!(asked.is_err(), "somebody was connected to: {asked:?}");
    let left: Vec<_> = std::fs::read_dir(&data)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["server.json"], "no database was made");
}

#[test]
fn bash_completes_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("stepward.bash");
    let completions = typed_in(folder.path(), &["completions", "bash"]);
    assert!(
        !completions.stdout.contains("supervise"),
        "only programs of ours type that"
    );
    std::fs::write(&script, &completions.stdout).unwrap();
    let complete = |words: &str, word: &str| {
        let asks = format!(
            "source {}; COMP_WORDS=(stepward {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _stepward stepward '{word}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let done = Command::new("bash").args(["-c", &asks]).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let completed = complete("re", "re");
    let mut completed: Vec<&str> = completed.split_whitespace().collect();
    completed.sort();
    assert_eq!(
        completed,
        ["recovery", "reject", "render", "restore", "retry"]
    );
    assert!(complete("logs --f", "--f").contains("--follow"));
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        let script = typed_in(folder.path(), &["completions", shell]);
        assert!(script.stdout.contains("validate"), "{shell}");
    }
    let wrong = typed_in(folder.path(), &["completions", "csh"]);
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    let written = typed_in(folder.path(), &["man", "--out", "man1"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    for name in [
        "stepward",
        "stepward-run",
        "stepward-worker-ls",
        "stepward-config-show",
    ] {
        let page = std::fs::read_to_string(out.join(format!("{name}.1"))).unwrap();
        assert!(
            page.contains(".SH \"EXIT STATUS\"") || page.contains(".SH EXIT"),
            "{page}"
        );
    }
    let run = typed_in(folder.path(), &["man", "run"]);
    assert!(
        run.stdout.contains("EXAMPLES") && run.stdout.contains("stepward run"),
        "{run:?}"
    );
    let wrong = typed_in(folder.path(), &["man", "rnu"]);
    assert_eq!(wrong.code, Some(5));
    assert!(
        wrong.stderr.contains("did you mean `stepward run`?"),
        "{wrong:?}"
    );
}

/// Whoever reads only the first line is no error.
#[test]
fn a_reader_that_has_had_enough_is_no_fault() {
    for words in [
        "--help",
        "man",
        "completions bash",
        "explain --list",
        "schema workflow",
    ] {
        let line = format!("set -o pipefail; {BINARY} {words} | head -1");
        let done = Command::new("bash")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let done = Typed::from(done);
        assert_eq!(done.code, Some(0), "{words}: {done:?}");
        assert_eq!(done.stderr, "", "{words}");
        assert_eq!(done.stdout.lines().count(), 1, "{words}");
    }
}
