//! Large files: everything is linear.

use std::fmt::Write;
use std::time::{Duration, Instant};

use stepward::language::{self, CheckBudget, CheckOptions};

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

/// Each of 3,000 calls lacks each of 1,000 inputs: three million things are wrong, of which a bounded number is kept.
#[test]
fn what_is_wrong_millions_of_times_is_told_a_bounded_number_of_times() {
    let mut text = "tasks:\n  callee:\n    input:\n".to_string();
    for at in 0..1_000 {
        writeln!(text, "      i{at}: {{ required: true }}").unwrap();
    }
    text.push_str("    flow: { a: { script: x } }\n  caller:\n    flow:\n");
    for at in 0..3_000 {
        writeln!(text, "      s{at}: {{ type: task, task: callee }}").unwrap();
    }
    let found = check(&text);
    assert_eq!(found.errors(), 3_000 * 50);
    assert_eq!(found.diagnostics.len(), 50);
}

/// Every step has a copy of its action, and every definition copies of what it calls.
#[test]
fn a_large_text_that_is_used_often_is_bounded() {
    let long = "x".repeat(400_000);
    let mut used = format!("actions:\n  a: {{ script: {long} }}\ntasks:\n  t:\n    flow:\n");
    let mut called = format!("tasks:\n  leaf: {{ flow: {{ a: {{ script: {long} }} }} }}\n");
    for at in 0..5_000 {
        writeln!(used, "      s{at}: {{ action: a }}").unwrap();
        let flow = "{ call: { type: task, task: leaf } }";
        writeln!(called, "  t{at}: {{ flow: {flow} }}").unwrap();
    }
    for text in [used, called] {
        let found = check(&text);
        assert_eq!(super::codes(&found), ["E062"]);
        assert!(found.diagnostics[0].message.contains("256 MiB"));
    }
}

#[test]
fn a_check_whose_time_is_over_says_so_and_nothing_wrong() {
    let text = "# file: a.yaml\ntasks:\n  t:\n    input: { a: { type: string } }\n    flow:\n      \
                build: { script: \"echo {{ input.a | sh }}\" }\n      \
                test: { script: \"echo {{ steps.build.output.x | sh }}\", depends_on: [build] }\n  \
                u:\n    timeout: 5m\n    flow: { call: { type: task, task: t } }\n    \
                schedules: { daily: { cron: \"@daily\" } }\n# file: b.yaml\nactions: { act: { script: x } }\n";
    assert_eq!(super::codes(&check(text)), [] as [&str; 0]);
    // The time ends at the first question, at the second, and so on, until it does not end any more.
    let mut ended_early = 0;
    for allowed in 0.. {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let is_over = move || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= allowed;
        let options = CheckOptions {
            budget: CheckBudget::new(Duration::from_secs(2), is_over),
            ..CheckOptions::default()
        };
        let found = language::check_sources(super::files(text), &options);
        if found.diagnostics.is_empty() {
            break;
        }
        ended_early += 1;
        assert_eq!(super::codes(&found), ["E065"], "{allowed}");
        assert!(
            found.diagnostics[0]
                .message
                .starts_with("the check took longer than 2 s")
        );
        assert_eq!((found.errors(), found.workflows.tasks().count()), (1, 0));
    }
    assert!(ended_early > 10, "{ended_early}");
}
