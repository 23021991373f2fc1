//! Large files: everything is linear.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    let text = "# file: a.yaml\ntasks:\n  t:\n    input: { a: { type: string } }\n    env: { B: \"{{ job.id }}\" }\n    flow:\n      \
                used: { action: image, input: { i: \"{{ env.B }}\" } }\n      \
                pod: { type: pod, manifest: { spec: { containers: [{ args: [\"{{ job.id }}\"] }] } } }\n      \
                build: { script: \"echo {{ input.a | sh }}\" }\n      \
                test: { script: \"echo {{ steps.build.output.x | sh }}\", depends_on: [build] }\n  \
                u:\n    timeout: 5m\n    flow: { call: { type: task, task: t } }\n    \
                schedules: { daily: { cron: \"@daily\" } }\n# file: b.yaml\nactions:\n  act: { script: x }\n  \
                image: { type: docker, image: \"{{ input.i }}\", input: { i: { type: string } } }\n";
    assert_eq!(super::codes(&check(text)), [] as [&str; 0]);
    // The time ends at the first question, at the second, and so on, until it does not end any more.
    let mut ended_early = 0;
    for allowed in 0.. {
        let asked = AtomicUsize::new(0);
        let is_over = move || asked.fetch_add(1, Ordering::Relaxed) >= allowed;
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

/// How often the check of this file asks whether its time is over: about as often as it reads a text.
fn questions(text: &str) -> usize {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let is_over = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        false
    };
    let options = CheckOptions {
        budget: CheckBudget::new(Duration::from_secs(2), is_over),
        ..CheckOptions::default()
    };
    let found = language::check_sources(super::files(text), &options);
    assert_eq!(super::codes(&found), [] as [&str; 0]);
    asked.load(Ordering::Relaxed)
}

fn pod(words: usize) -> String {
    let mut text = "tasks:\n  t:\n    flow:\n      a:\n        type: pod\n        \
                    manifest:\n          spec:\n            containers:\n              - args:\n"
        .to_string();
    for at in 0..words {
        writeln!(text, "                  - \"{{{{ job.id }}}} {at}\"").unwrap();
    }
    text
}

/// The templates are checked, and then the words of the command are searched for secrets: both may end at every word.
#[test]
fn the_words_of_a_command_are_checked_one_by_one() {
    let (one, many) = (questions(&pod(1)), questions(&pod(501)));
    assert!(many - one >= 2 * 500, "{one} {many}");
}

#[test]
fn a_variable_that_many_steps_use_is_read_once() {
    let uses = |given: &str| {
        let mut text = "actions:\n  a: { type: docker, image: \"{{ input.i }}\", input: { i: { type: string } } }\n\
                        tasks:\n  t:\n    env: { B: \"{{ job.id }}\" }\n    flow:\n"
            .to_string();
        for at in 0..300 {
            writeln!(
                text,
                "      s{at}: {{ action: a, input: {{ i: \"{given}\" }} }}"
            )
            .unwrap();
        }
        questions(&text)
    };
    let (with_variable, without) = (uses("{{ env.B }}"), uses("{{ job.id }}"));
    assert!(
        with_variable <= without + 1,
        "{with_variable} instead of {without}"
    );
}

/// The reader of manifests refuses this manifest, and nobody else may read it: it would be ten times larger than what is written.
#[test]
fn a_manifest_that_its_reader_refuses_is_read_by_nobody_else() {
    let (items, aliases) = ("x,".repeat(1_000), "*a,".repeat(1_000));
    let text = format!(
        "secrets: {{ s: {{ env: STEPWARD_SECRET_S }} }}\ntasks:\n  t:\n    flow:\n      a:\n        \
         type: pod\n        manifest: |\n          a: &a [{items}]\n          b: [{aliases}]\n          \
         command: [\"{{{{ secret.s }}}}\"]\n"
    );
    assert_eq!(super::codes(&check(&text)), ["E071"]);
}

#[test]
fn a_loop_over_its_own_items_is_not_followed_for_ever() {
    for items in ["\"{{ each.item }}\"", "[\"{{ each.item }}\"]"] {
        let text = format!(
            "tasks:\n  t:\n    flow:\n      a: {{ type: docker, image: \"{{{{ each.item }}}}\", for_each: {items} }}\n"
        );
        assert_eq!(super::codes(&check(&text)), ["E044"], "{items}");
    }
}
