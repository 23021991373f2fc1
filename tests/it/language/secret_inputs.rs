//! Secret inputs in texts that are stored: whatever way leads to one is refused.

use super::{check, codes};

/// What a text must not say where it is stored. `pin` is a secret input of the task, `code` one that its approval asks for.
const LEAKS: &[&str] = &[
    "{{ input.pin }}",
    "{{ input['pin'] }}",
    "{{ input['p' ~ 'in'] }}",
    "{{ input }}",
    "{{ input | tojson }}",
    "{{ input | items | list }}",
    "{{ input.items() }}",
    "{{ input | attr('pin') }}",
    "{{ [input] | map(attribute='pin') | join }}",
    "{{ [input] | map(attribute=input.other) | join }}",
    "{{ input[input.other] }}",
    "{{ 'a' ~ input }}",
    "{{ 'x' | replace('x', input) }}",
    "{{ 'x' if input else 'y' }}",
    "{{ input == {} }}",
    "{% set x = input %}{{ x.pin }}",
    "{% set x = input %}{{ x.other }}",
    "{% set x %}{{ input.pin }}{% endset %}{{ x }}",
    "{% set n = 'pin' %}{{ input[n] }}",
    "{% for k in input %}{{ input[k] }}{% endfor %}",
    "{% for k, v in input | items %}{{ k }}{{ v }}{% endfor %}",
    "{% for x in [input] %}{{ loop.index }}{{ x.pin }}{% endfor %}",
    "{% with x = input %}{{ x.pin }}{% endwith %}",
    "{% macro m(x) %}{{ x.pin }}{% endmacro %}{{ m(input) }}",
    "{% macro m() %}{{ input.pin }}{% endmacro %}{{ m() }}",
    "{% macro m(x=input) %}{{ x.pin }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller(input) }}{% endmacro %}{% call(x) m() %}{{ x.pin }}{% endcall %}",
    "{% filter upper %}{{ input.pin }}{% endfilter %}",
    "{% if input.other %}{% set input = {} %}{% endif %}{{ input.pin }}",
    "{% if input.pin == 'a' %}a{% endif %}",
];

const ENTERED: &[&str] = &[
    "{{ steps.ask.output.code }}",
    "{{ steps.ask.output }}",
    "{{ steps.ask.output | tojson }}",
    "{{ steps.ask | tojson }}",
    "{% set x = steps.ask %}{{ x.output.code }}",
    "{% set n = 'code' %}{{ steps.ask.output[n] }}",
];

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The text at every place where it would be stored; at the last one it would be sealed again.
fn places(text: &str, of_steps: bool) -> Vec<(&'static str, String)> {
    let flow = |step: &str| {
        format!(
            "    flow:\n      ask: {{ type: approval, message: Go?, input: {{ code: {{ type: string, secret: true }}, other: {{ type: string }} }} }}\n      last: {{ depends_on: [ask], {step} }}\n"
        )
    };
    let head = "tasks:\n  main:\n    input: { pin: { type: string, secret: true }, other: { type: string } }\n";
    let inner = "  inner:\n    input: { open: { type: json }, hidden: { type: json, secret: true } }\n    flow: { a: { script: 'true' } }\n";
    let text = quoted(text);
    let plain = flow("script: 'true'");
    let mut places = vec![
        (
            "message",
            format!(
                "{head}{}",
                flow(&format!("type: approval, message: {text}"))
            ),
        ),
        (
            "for_each",
            format!(
                "{head}{}",
                flow(&format!("script: 'true', for_each: {text}"))
            ),
        ),
        (
            "item",
            format!(
                "{head}{}",
                flow(&format!("script: 'true', for_each: [{text}]"))
            ),
        ),
        (
            "child",
            format!(
                "{head}{}{inner}",
                flow(&format!(
                    "type: task, task: inner, input: {{ open: {text} }}"
                ))
            ),
        ),
        (
            "hook",
            format!(
                "{head}{plain}    on_error: [{{ task: inner, input: {{ open: {text} }} }}]\n{inner}"
            ),
        ),
        (
            "sealed",
            format!(
                "{head}{}{inner}",
                flow(&format!(
                    "type: task, task: inner, input: {{ hidden: {text} }}"
                ))
            ),
        ),
    ];
    if !of_steps {
        let group = format!("{head}    concurrency: {{ group: {text} }}\n{plain}");
        places.insert(0, ("group", group));
    }
    places
}

#[test]
fn every_way_to_store_a_secret_is_refused() {
    for (texts, of_steps) in [(LEAKS, false), (ENTERED, true)] {
        for text in texts {
            for (place, file) in places(text, of_steps) {
                let found = check(&file);
                let codes = codes(&found);
                // A text that is not one expression never gives a list, and is refused for that.
                if place == "for_each" && codes.contains(&"E011") {
                    continue;
                }
                let is_refused = codes.contains(&"E046");
                assert_eq!(
                    is_refused,
                    place != "sealed",
                    "{place}: {text}: {codes:?}\n{file}"
                );
                if place == "sealed" {
                    assert!(
                        !codes.iter().any(|code| code.starts_with("E04")),
                        "{text}: {codes:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn functions_that_could_carry_the_whole_context_do_not_exist() {
    for text in [
        "{{ namespace(x=input).x.pin }}",
        "{{ dict(x=input).x.pin }}",
        "{{ debug() }}",
    ] {
        for (place, file) in places(text, false) {
            let found = check(&file);
            let is_refused = codes(&found).iter().any(|code| code.starts_with("E04"));
            assert!(is_refused, "{place}: {text}");
        }
    }
}

#[test]
fn what_is_not_secret_may_be_stored() {
    for (text, of_steps) in [
        ("{{ input.other }}", false),
        ("{{ input['other'] | upper }}", false),
        ("{% set x = input.other %}{{ x }}", false),
        ("{{ steps.ask.output.other }}", true),
        ("{{ steps.ask.status }}", true),
    ] {
        for (place, file) in places(text, of_steps) {
            let found = check(&file);
            let codes = codes(&found);
            // A text that is not one expression never gives a list.
            let is_no_list = |code: &str| place == "for_each" && code == "E011";
            assert!(
                !codes
                    .iter()
                    .any(|code| code.starts_with('E') && !is_no_list(code)),
                "{place}: {text}: {codes:?}\n{file}"
            );
        }
    }
}

#[test]
fn the_reserved_key_is_refused_in_every_value_of_a_file() {
    let task = |more: &str| {
        format!(
            "tasks:\n  main:\n    input: {{ config: {{ type: json }} }}\n    flow: {{ a: {{ script: 'true' }} }}\n{more}"
        )
    };
    for file in [
        "tasks:\n  main:\n    input: { pin: { type: json, default: { $sealed: v1.x } } }\n    flow: { a: { script: 'true' } }\n".to_string(),
        "tasks:\n  main:\n    input: { pin: { type: string, secret: true, default: { $sealed: v1.x } } }\n    flow: { a: { script: 'true' } }\n".to_string(),
        task("    schedules: { night: { cron: '0 3 * * *', input: { config: { a: [{ $sealed: v1.x }] } } } }\n"),
        task("    webhooks: { push: { secret: { env: X }, input: { config: { $sealed: '{{ body.x }}' } } } }\n"),
        task("    on_error: [{ task: other, input: { config: { $sealed: v1.x } } }]\n  other:\n    input: { config: { type: json } }\n    flow: { a: { script: 'true' } }\n"),
        task("  other:\n    flow: { call: { type: task, task: main, input: { config: { $sealed: v1.x } } } }\n"),
        task("  other:\n    flow: { a: { script: 'true', input: { config: { $sealed: v1.x } } } }\n"),
    ] {
        let found = check(&file);
        let codes = codes(&found);
        assert!(codes.contains(&"E056"), "{codes:?}\n{file}");
        assert!(!codes.contains(&"E050"), "{codes:?}\n{file}");
    }
}
