//! Values in scripts: what `| sh` makes is one word to a real shell, whatever the value; and what the checker lets into a script
//! no value turns into a command.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use stepward::language::shell::Program;
use stepward::language::template::{Context, render_script, render_text, script_faults};

use super::dice::Dice;
use super::watch::Tried;
use super::{mutate, site};

/// The file that only a value could make.
const CANARY: &str = "canary";

/// Ways out of wherever a value may stand.
#[rustfmt::skip]
const VALUES: &[&str] = &[
    "; : >canary #", "'; : >canary; #", "\"; : >canary; #", "$(: >canary)", "`: >canary`", "\n: >canary\n",
    "\nEOF\n: >canary\n", "')\n: >canary\n(: '", "\"$(: >canary)\"", "'$(: >canary)'", "\\'; : >canary; \\'",
    "}; : >canary; {", "${x:=$(: >canary)}", ") ; : >canary ;; (", "a[$(: >canary)]",
    "x`: >canary`'`: >canary`'\"`: >canary`\"", "\\", "\\\n: >canary", "-e\n'\n: >canary\n'",
];

/// Pieces of scripts. None of them does anything by itself but print.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "echo ", "printf %s ", ": ", " ", "\n", "; ", " && ", " || ", " | cat ", "'", "\"", "\"a b\"", "'a b'", "\\",
    "\\\\", "$(", ")", "`", "${x:-", "}", "$", "$x", "$((", "))", "((", "# ", " # it's\n", "cat <<EOF\n", "\nEOF\n",
    "cat <<'EOF'\n", "cat <<-EOF\n\t", "<<\"EOF\" cat\n", "if true; then ", "\nfi\n", "case a in ", "a) ", ";;\n",
    "esac\n", "for i in ", "; do ", "done\n", "{ ", "}\n", "( ", " )\n", "x=", "export x=", "[ ", " ]", "[[ a == ",
    " ]]", "$'", "\\'", "\t", "<<<", "2>&1 ", "! ", "&& { ", "f() { ", "echo a\\\n", "a#b", "${#x}", "${x#", "${x%'",
    "\"${x:-", "$(cat <<EOF\n", "=", "é",
];

/// Values as scripts of users have them, well and badly.
#[rustfmt::skip]
const MENTIONS: &[&str] = &[
    "{{ input.x | sh }}", "{{ input.x | sh }}", "{{ input.x | sh }}", "{{ input.x }}", "{{ input.x | json }}",
    "{{ input.x | upper | sh }}", "{{ input.list | sh }}", "{% if input.flag %}'{% endif %}",
    "{% if input.flag %}{{ input.x | sh }}{% else %}\"{% endif %}",
    "{% for i in input.list %}{{ i | sh }} {% endfor %}", "{% set y = input.x %}{{ y | sh }}",
    "{% set y = input.x | sh %}{{ y }}", "{{ (input.x | sh) ~ '' }}", "{{ 'a' if input.flag else input.x }}",
    "{{ job.id }}",
];

pub fn play(dice: &mut Dice, tried: &Tried) {
    words(dice, tried);
    for _ in 0..40 {
        let script = script(dice);
        let value = dice.pick(VALUES).expect("there are some");
        run(&script, value, dice.chance(50), tried);
    }
}

pub fn again(bytes: &[u8], tried: &Tried) {
    let script = String::from_utf8_lossy(bytes);
    for value in VALUES {
        run(&script, value, true, tried);
        run(&script, value, false, tried);
    }
}

/// A hundred values in one command: each comes back byte by byte.
fn words(dice: &mut Dice, tried: &Tried) {
    let values: Vec<String> = (0..100)
        .map(|_| match dice.chance(30) {
            true => dice.pick(VALUES).expect("there are some").to_string(),
            false => mutate::noise(dice, 30).replace('\0', ""),
        })
        .collect();
    let context = Context::new().with("input", json!({ "list": values, "x": values[0] }));
    let script = "printf '%s\\0' {{ input.list | sh }} {{ input.x | sh }}";
    let script = render_script(script, Program::Shell, &context).expect("it is rendered");
    tried.now(&script);
    for shell in ["sh", "bash"] {
        let Some((_, printed)) = shell_runs(shell, &script, &site::memory()) else {
            continue;
        };
        let mut expected: Vec<&str> = values.iter().map(String::as_str).collect();
        expected.push(&values[0]);
        let expected: String = expected.iter().map(|value| format!("{value}\0")).collect();
        let is_same = printed == expected.as_bytes();
        assert!(is_same, "{shell} read {}", printed.escape_ascii());
    }
    let null = Context::new().with("input", json!({ "x": "a\0b" }));
    assert!(
        render_text("{{ input.x | sh }}", &null).is_err(),
        "no shell has a NUL"
    );
}

fn script(dice: &mut Dice) -> String {
    let mut script = String::new();
    for _ in 0..dice.roll(12) + 1 {
        script += match dice.chance(25) {
            true => dice.pick(MENTIONS),
            false => dice.pick(PIECES),
        }
        .expect("there are some");
    }
    script
}

/// What the checker accepts is run, with a value that wants out.
fn run(script: &str, value: &str, flag: bool, tried: &Tried) {
    tried.now(format!("{script:?} with {value:?}, flag {flag}"));
    match script_faults(script, Program::Shell) {
        Ok(faults) if faults.is_empty() && script.contains("input.") => {}
        _ => return,
    }
    let context = Context::new()
        .with(
            "input",
            json!({ "x": value, "list": ["a", value], "flag": flag }),
        )
        .with("job", json!({ "id": 7 }));
    let Ok(rendered) = render_script(script, Program::Shell, &context) else {
        return;
    };
    tried.now(format!("{script:?} became {rendered:?}"));
    let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
    for shell in ["sh", "bash"] {
        shell_runs(shell, &rendered, folder.path());
        let is_made = folder.path().join(CANARY).exists();
        assert!(!is_made, "{shell} ran what stands in the value");
    }
}

/// Whether it ended well, and what it printed. `None`: there is no such shell here.
fn shell_runs(shell: &str, script: &str, folder: &Path) -> Option<(bool, Vec<u8>)> {
    let mut command = Command::new("timeout");
    command
        .args(["-s", "KILL", "10", shell, "-c", script])
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let folders = ["/usr/bin", "/bin"].map(Path::new);
    let is_there = folders.iter().any(|folder| folder.join(shell).exists());
    if !is_there {
        return None;
    }
    let output = command.output().expect("a shell starts");
    Some((output.status.success(), output.stdout))
}
