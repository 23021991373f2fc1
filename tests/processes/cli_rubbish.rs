//! Rubbish for every command: whatever is typed, the answer is words and a code from the table.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::house::House;
use crate::typed::{Typed, command};

/// The exit codes that the README promises.
const CODES: [i32; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 124, 130];

/// What people never mean, and scripts send.
fn rubbish() -> Vec<OsString> {
    let mut all: Vec<OsString> = [
        " ",
        "-",
        "--",
        "-1",
        "0",
        "99999999999999999999999",
        "../../etc/passwd",
        "a/b/c/d",
        "@",
        "@@latest",
        "hello@nowhere",
        "%00",
        "?q=1#x",
        "\u{1b}[31mred\u{7}",
        "a\nb",
        "\u{202e}abc",
        "'; DROP TABLE job; --",
        "<script>alert(1)</script>",
        "日本語",
    ]
    .map(OsString::from)
    .to_vec();
    all.push("x".repeat(100_000).into());
    all.push(OsString::from_vec(vec![b'a', 0xff, 0xfe]));
    all
}

#[test]
fn rubbish_is_answered_in_words() {
    let house = House::with("tasks: { hello: { flow: { greet: { script: echo hello } } } }");
    let commands: &[&[&str]] = &[
        &[],
        &["run", "--detach"],
        &["run", "hello", "--detach", "-i"],
        &["run", "hello", "--detach", "--label"],
        &["run", "--task", "x"],
        &["watch"],
        &["wait"],
        &["wait", "--timeout", "1"],
        &["logs"],
        &["logs", "1"],
        &["why"],
        &["why", "1"],
        &["cancel"],
        &["retry"],
        &["retry", "1", "--from"],
        &["approve"],
        &["reject"],
        &["job", "ls", "--task"],
        &["job", "ls", "--since"],
        &["job", "show"],
        &["task", "show"],
        &["worker", "show"],
        &["worker", "rm"],
        &["worker", "pause"],
        &["schedule", "show"],
        &["schedule", "fire"],
        &["events", "--job"],
        &["events", "--kind"],
        &["recovery"],
        &["token", "check", "--token-file"],
        &["validate"],
        &["explain"],
        &["render"],
        &["graph"],
        &["graph", "--job"],
        &["import", "crontab"],
        &["import", "stroem"],
        &["config", "show", "--config"],
        &["db", "check"],
        &["doctor"],
        &["completions"],
        &["man"],
        &["status", "--server"],
    ];
    let rubbish = rubbish();
    for words in commands {
        for bad in &rubbish {
            let done = command(house.folder.path(), words)
                .arg(bad)
                .env("STEPWARD_SERVER_URL", house.url())
                .output()
                .unwrap();
            let done = Typed::from(done);
            let shown: String = bad.to_string_lossy().chars().take(40).collect();
            let code = done
                .code
                .unwrap_or_else(|| panic!("{words:?} {shown:?}: {done:?}"));
            assert!(CODES.contains(&code), "{words:?} {shown:?}: {code}");
            let all = format!("{}{}", done.stdout, done.stderr);
            assert!(!all.contains("panicked"), "{words:?} {shown:?}: {all}");
            assert!(!all.contains('\u{1b}'), "{words:?} {shown:?}: {all:?}");
            assert!(
                code == 0 || !all.trim().is_empty(),
                "{words:?} {shown:?}: {code}"
            );
            assert!(
                code == 2 || all.len() < 20_000,
                "{words:?} {shown:?}: {} bytes",
                all.len()
            );
        }
    }
    house.check();
}
