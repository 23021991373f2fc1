//! All that is wrong at once, and nothing that only follows from it.

use super::{check, codes};

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let found = check(
        "
tasks:
  one:
    timeot: 5m
    flow:
      build: { scrpt: make, timeout: soon, tags: ['a b'] }
      test: { script: make test, depends_on: [biuld, build], when: \"{{ input.x }}\" }
  two:
    flow:
      greet: { script: 'echo {{ input.name }}', retry: 3 }
    schedules:
      nightly: { cron: '0 99 * * *', timezone: Europe/Olso }
",
    );
    let mut codes = codes(&found);
    codes.sort();
    assert_eq!(
        codes,
        [
            "E011", "E012", "E012", "E021", "E022", "E023", "E024", "E030", "E041", "E041", "W103"
        ]
    );
}

#[test]
fn a_broken_thing_is_told_once_and_not_by_those_that_need_it() {
    for (text, expected) in [
        // Whoever depends on, or reads from, a broken step.
        (
            "tasks:\n  t:\n    flow:\n      a: { scrpt: x, type: approval }\n      b: { script: 'echo {{ steps.a.output.x | sh }}', depends_on: [a] }\n",
            vec!["E012"],
        ),
        // Whoever uses a broken action.
        (
            "tasks:\n  t:\n    flow:\n      a: { action: say, input: { text: hi } }\nactions:\n  say: { type: docker }\n",
            vec!["E010"],
        ),
        // Whoever calls a task in a file that cannot be read.
        (
            "# file: a.yaml\ntasks: { t: { flow: { a: { type: task, task: u } } } }\n# file: b.yaml\ntasks: { u: [\n",
            vec!["E001"],
        ),
        // A word of another tool instead of the dependency.
        (
            "tasks:\n  t:\n    flow:\n      a: { script: x }\n      b: { script: 'echo {{ steps.a.output.x | sh }}', needs: [a] }\n",
            vec!["E015"],
        ),
        // A duplicate, with a body that is good.
        (
            "tasks:\n  t: { flow: { a: { script: x } } }\n  t: { flow: { a: { script: x } } }\n",
            vec!["E003"],
        ),
    ] {
        assert_eq!(codes(&check(text)), expected, "{text}");
    }
}

#[test]
fn a_place_inside_a_template_is_a_place_in_the_file() {
    let text = "tasks:\n  t:\n    flow:\n      a:\n        script: |\n          # first\n            echo {{ input.nmae | sh }}\n      b: { script: \"echo {{ input.b | sh }}\" }\n      c:\n        script: >\n          folded\n          {{ input.c | sh }}\n";
    let found = check(text);
    let places: Vec<(u32, u32, u32)> = found
        .diagnostics
        .iter()
        .map(|found| (found.at.line, found.at.column, found.at.end_column))
        .collect();
    assert_eq!(places[..2], [(7, 21, 31), (8, 29, 36)]);
    assert_eq!((places[2].0, places[2].1), (11, 11));
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = "\u{feff}tasks:\r\n  t:\r\n    flow:\r\n      a:\r\n        script: |\r\n          echo {{ input.x | sh }}\r\n";
    let found = check(text);
    assert_eq!(codes(&found), ["E041"]);
    let at = &found.diagnostics[0].at;
    assert_eq!((at.line, at.column), (6, 19));
}

#[test]
fn a_diagnostic_is_the_same_for_programs() {
    let found = check("tasks:\n  t:\n    flow:\n      a: { scrpt: x, type: approval }\n");
    let json = serde_json::to_value(&found.diagnostics[0]).unwrap();
    assert_eq!(json["code"], "E012");
    assert_eq!(json["severity"], "error");
    assert_eq!(json["file"], "hello.yaml");
    assert_eq!(
        (json["line"].as_u64(), json["column"].as_u64()),
        (Some(4), Some(12))
    );
    assert_eq!(json["fix"]["text"], "script");
    assert_eq!(json["source"], "      a: { scrpt: x, type: approval }");
    let short = stepward::language::render::short(&found.diagnostics[0]);
    assert_eq!(
        short,
        "hello.yaml:4:12: error: unknown key `scrpt` in step `a` [E012]"
    );
}
