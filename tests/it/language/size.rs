//! Large files: everything is linear.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::check;

/// Each step looks at the first one and at its neighbour.
fn ten_thousand_steps() -> String {
    let mut text =
        "tasks:\n  large:\n    input: { name: { type: string } }\n    flow:\n".to_string();
    text.push_str("      s0: { script: echo }\n");
    for at in 1..10_000 {
        let last = at - 1;
        write!(
            text,
            "      s{at}:\n        type: script\n        depends_on: [s{last}]\n        timeout: 5m\n        \
             env: {{ A: \"{{{{ steps.s0.output.a }}}}\" }}\n        script: |\n          echo {{{{ input.name | sh }}}}\n"
        )
        .unwrap();
    }
    text
}

/// A debug build is some ten times slower than what users have, and the machine may be busy.
#[test]
fn ten_thousand_steps_are_checked_in_a_moment() {
    let text = ten_thousand_steps();
    let begun = Instant::now();
    let found = check(&text);
    let took = begun.elapsed();
    assert_eq!(found.diagnostics, []);
    assert_eq!(found.workflows.tasks().count(), 1);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_large_task_that_many_call_is_bounded() {
    let mut text = ten_thousand_steps();
    for at in 0..900 {
        writeln!(
            text,
            "  t{at}: {{ flow: {{ call: {{ type: task, task: large }} }} }}"
        )
        .unwrap();
    }
    let found = check(&text);
    assert_eq!(super::codes(&found), ["E062"]);
}

/// Suggestions and lookups must not cost names times mistakes.
#[test]
fn ten_thousand_mistakes_are_found_in_a_moment() {
    let mut steps = "tasks:\n  t:\n    flow:\n".to_string();
    for at in 0..10_000 {
        let step = "script: x, tags: [\"a b\"]";
        writeln!(steps, "      s{at}: {{ {step}, depends_on: [t{at}] }}").unwrap();
    }
    let mut inputs =
        "tasks:\n  t:\n    flow:\n      a:\n        type: task\n        task: u\n        input:\n"
            .to_string();
    for at in 0..40_000 {
        writeln!(inputs, "          a{at}: \"{{{{ input.b{at} }}}}\"").unwrap();
    }
    inputs.push_str("  u:\n    input:\n");
    for at in 0..40_000 {
        writeln!(inputs, "      a{at}: {{ type: string }}").unwrap();
    }
    inputs.push_str("    flow: { s: { script: x } }\n");
    let mut added = "tasks:\n  t:\n    flow:\n      a:\n        input:\n".to_string();
    let mut script = String::new();
    for at in 0..30_000 {
        writeln!(added, "          a{at}: x").unwrap();
        writeln!(script, "          {{{{ input.a{at} | sh }}}}").unwrap();
    }
    let added = format!("{added}        script: |\n{script}");
    let long = "a-rather-long-name-that-differs-at-its-end-alone";
    let mut mistyped = "tasks:\n  t:\n    flow:\n".to_string();
    for at in 0..10_000 {
        let step = format!("scrip: x, depends_on: [{long}-x{at}]");
        writeln!(mistyped, "      {long}-{at}: {{ {step} }}").unwrap();
    }
    for text in [steps, inputs, added, mistyped] {
        let begun = Instant::now();
        check(&text);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}: {}", &text[..60]);
    }
}
