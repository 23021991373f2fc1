//! Templates: texts with `{{ … }}` in them, rendered against what they may speak of.
//!
//! Jinja, strict: a name that is not defined is an error. Nothing is read, nothing is included, and all work is bounded
//! (`engine.rs`), because templates and values come from people. What is wrong is told by names, never by values
//! (`faults.rs`): a value may be a secret. What a template mentions is known without rendering it (`mentions.rs`).
//!
//! A text that is exactly one `{{ … }}` stands for a value and keeps its type; white space around it does not count.
//! Anything else is text, where a value that is no text stands as JSON does: `true`, `null`, `[1,2]`. Keys of objects are never templates.

mod engine;
mod faults;
mod mentions;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde_json::Value;

use crate::domain::Json;
use crate::domain::task::is_template;
use crate::language::shell::Program;

pub use mentions::{Mention, ScriptFault, Why, exposed, mentions, script_faults};

/// What templates may speak of.
#[derive(Default, Clone)]
pub struct Context {
    values: serde_json::Map<String, Value>,
    /// The same as the engine reads them; shared, so that cloning is cheap.
    shown: BTreeMap<String, minijinja::Value>,
}

impl Context {
    pub fn new() -> Context {
        Context::default()
    }

    pub fn with(mut self, name: &str, value: Value) -> Context {
        self.set(name, value);
        self
    }

    pub fn set(&mut self, name: &str, value: Value) {
        let shown = minijinja::Value::from(minijinja::value::Serde(&value));
        self.shown.insert(name.to_string(), shown);
        self.values.insert(name.to_string(), value);
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}

/// Names alone: values may be secrets.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// Why a template cannot be read or rendered, without any value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateFault {
    pub message: String,
    /// Bytes of the template's text.
    pub span: Range<usize>,
}

/// A text that is no template comes back as it is.
pub fn render_text(text: &str, context: &Context) -> Result<String, TemplateFault> {
    match is_template(text) {
        true => engine::render(text, context),
        false => Ok(text.to_string()),
    }
}

/// The same, and nothing untrusted becomes code: what the checker of definitions refuses is refused here as well.
pub fn render_script(
    text: &str,
    program: Program,
    context: &Context,
) -> Result<String, TemplateFault> {
    check_code(text, program)?;
    render_text(text, context)
}

/// Renders a script as version 0.1 did, which did not look at the quotes around JSON.
pub fn render_script_as_0_1(
    text: &str,
    program: Program,
    context: &Context,
) -> Result<String, TemplateFault> {
    let mut found = script_faults(text, program)?.into_iter();
    match found.find(|fault| fault.why != Why::JsonPlace) {
        Some(fault) => Err(faults::in_script(&fault)),
        None => render_text(text, context),
    }
}

/// Refuses a template that would put an untrusted value into the text of a program.
pub fn check_code(text: &str, program: Program) -> Result<(), TemplateFault> {
    match script_faults(text, program)?.first() {
        Some(fault) => Err(faults::in_script(fault)),
        None => Ok(()),
    }
}

/// The typed result of one text.
pub fn evaluate(text: &str, context: &Context) -> Result<Value, TemplateFault> {
    if !is_template(text) {
        return Ok(Value::String(text.to_string()));
    }
    match engine::evaluate_single(text, context)? {
        Some(value) => Ok(value),
        None => engine::render(text, context).map(Value::String),
    }
}

/// The same for a text in which Kubernetes replaces `$(NAME)`, and takes `$$` for one `$`: what a template writes stays as it is, and
/// what stands around the template is replaced.
pub fn evaluate_for_kubernetes(text: &str, context: &Context) -> Result<Value, TemplateFault> {
    if !is_template(text) {
        return Ok(Value::String(text.to_string()));
    }
    match engine::evaluate_single(text, context)? {
        Some(Value::String(value)) => Ok(Value::String(value.replace('$', "$$"))),
        Some(value) => Ok(value),
        None => {
            let text = doubled_before_tags(text);
            engine::render_doubling_dollars(&text, context).map(Value::String)
        }
    }
}

/// Doubles a single `$` directly in front of a template: with a value that begins with `(`, it would begin a reference.
fn doubled_before_tags(text: &str) -> String {
    let mut doubled = String::with_capacity(text.len());
    let mut rest = text;
    let begins_tag = |rest: &str| {
        let bytes = rest.as_bytes();
        let mut pairs = bytes.windows(2);
        pairs.position(|pair| matches!(pair, b"{{" | b"{%"))
    };
    while let Some(at) = begins_tag(rest) {
        let (before, tag) = rest.split_at(at);
        doubled.push_str(before);
        // `{{-` removes the white space in front of it.
        let literal = match tag.as_bytes().get(2) {
            Some(b'-') => before.trim_end(),
            _ => before,
        };
        let dollars = literal.len() - literal.trim_end_matches('$').len();
        if dollars % 2 == 1 {
            doubled.insert(doubled.len() - (before.len() - literal.len()), '$');
        }
        doubled.push_str(&tag[..2]);
        rest = &tag[2..];
    }
    doubled + rest
}

/// Every string in the tree that is a template is rendered.
pub fn render_value(json: &Json, context: &Context) -> Result<Value, TemplateFault> {
    let value = serde_json::from_str(&json.0).map_err(|_| TemplateFault {
        message: "this is not JSON".to_string(),
        span: 0..json.0.len(),
    })?;
    render_tree(value, context)
}

fn render_tree(value: Value, context: &Context) -> Result<Value, TemplateFault> {
    match value {
        Value::String(text) => evaluate(&text, context),
        Value::Array(items) => {
            let items = items.into_iter().map(|item| render_tree(item, context));
            items.collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(map) => {
            let rendered = map
                .into_iter()
                .map(|(key, value)| Ok((key, render_tree(value, context)?)));
            rendered.collect::<Result<_, _>>().map(Value::Object)
        }
        plain => Ok(plain),
    }
}

/// Whether the text is exactly one `{{ … }}`, which keeps the type of its value.
pub fn is_single_expression(text: &str) -> bool {
    engine::is_single_expression(text)
}

/// What `when` takes for no. Words count in any case, since templates give text.
pub fn means_no(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => {
            let word = text.trim().to_lowercase();
            ["", "false", "0", "null", "none", "[]", "{}"].contains(&word.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn context() -> Context {
        Context::new()
            .with(
                "input",
                json!({
                    "channel": "stable", "version": "1.2", "count": 3, "big": 9_007_199_254_740_993_i64,
                    "huge": u64::MAX, "ratio": 1.0, "yes": true, "nothing": null, "list": ["a b", "c'd"],
                    "name": "Grüße 🚀", "like_json": "[1, 2]", "deep": {"z": 1, "a": {"b": "x"}}, "evil": "'; rm -rf / #",
                }),
            )
            .with("steps", json!({"build": {"output": {"image": "app:1"}, "status": "completed"}, "skipped": {"output": null}}))
            .with("secret", json!({"token": "hunter2-hunter2"}))
    }

    #[test]
    fn a_text_is_rendered() {
        for (text, expected) in [
            ("plain", "plain"),
            (
                "{{ [{'n': 2}, {'n': 1}] | sort(attribute='n') | map(attribute='n') | json }}",
                "[1,2]",
            ),
            ("{{ 'a\\nb' | indent(width=2, first=true) }}", "  a\n  b"),
            ("{{ input.no.where.near | default('y') }}", "y"),
            (
                "{{ input.no.where.at.all | default('y', true) | upper }}",
                "Y",
            ),
            (
                "{{ input.deep.a.b | default('y') }}{{ input.deep.a.c | d('z') }}",
                "xz",
            ),
            (
                "{{ input.no.where | default }}|{{ input.deep.z.q.r | default(input.count) }}",
                "|3",
            ),
            (
                "{{ input.no.where.x is defined }} {{ input.deep.a.b is defined }} {{ input.no.where is undefined }}",
                "false true true",
            ),
            (
                "{{ (1 if input.yes else input.no.where) | default('y') }}",
                "1",
            ),
            (
                "{{ (input.no.where if input.no.where is defined else input.deep.a) | default('y') | json }}",
                "{\"b\":\"x\"}",
            ),
            ("{{ input.count and input.deep.a.b | default('y') }}", "x"),
            (
                "{% for x in [input] %}{{ x.no.where | default('y') }}{% endfor %}",
                "y",
            ),
            (
                "{% macro m(x) %}{{ x.a.b | default('y') }}{{ x.q.b | default('y') }}{% endmacro %}{{ m(input.deep) }}",
                "xy",
            ),
            ("", ""),
            ("a { b } $x", "a { b } $x"),
            ("{{ input.channel }}-{{ input.version }}", "stable-1.2"),
            ("line\n{{ input.count }}\n", "line\n3\n"),
            ("{{ input.name }}", "Grüße 🚀"),
            (
                "{{ input.big }} {{ input.huge }} {{ input.ratio }}",
                "9007199254740993 18446744073709551615 1.0",
            ),
            (
                "{% if input.count > 2 %}many{% else %}few{% endif %}",
                "many",
            ),
            (
                "{% for x in input.list %}[{{ x }}]{% endfor %}",
                "[a b][c'd]",
            ),
            ("{{ steps.build.output.missing | default('y') }}", "y"),
            ("{{ steps.skipped.output.missing | default('y') }}", "y"),
            ("{{ input.list | join(',') | upper }}", "A B,C'D"),
            ("{{ input.list | sh }}", r"'a b' 'c'\''d'"),
            ("{{ input.evil | sh }}", r"''\''; rm -rf / #'"),
            (
                "{{ '' | sh }} {{ 3 | sh }} {{ true | sh }}",
                "'' '3' 'true'",
            ),
            ("{{ input.deep | json }}", r#"{"a":{"b":"x"},"z":1}"#),
            (
                "{{ '<a & b>' | json }} {{ '<' | tojson }}",
                r#""<a & b>" "<""#,
            ),
            ("{{ input.deep.a | json | sh }}", r#"'{"b":"x"}'"#),
            (
                "{{ [[1], [2]] | json }} {{ [1, [2]] | json }}",
                "[ [1],[2]] [1,[2]]",
            ),
            (
                "{{ 'a\u{2028}b\u{2029}c\u{85}' | json }}",
                r#""a\u2028b\u2029c\u0085""#,
            ),
            (
                "{{ 2 * 3 + 1 }} {{ 'a' ~ 1 ~ 'b' }} {{ 'a' + 'b' }} {{ [1] + [2] }}",
                "7 a1b ab [1,2]",
            ),
            (
                "{{ {'a': 1}.a }} {{ [1, 2] == [1, 2] }} {{ 1 != 2 }}",
                "1 true true",
            ),
            (
                "{{ range(3) | join('-') }} {{ range(5, 0, -2) | list }}",
                "0-1-2 [5,3,1]",
            ),
            ("{{ 'x' if input.yes else 'y' }}{{ 'z' if false }}", "x"),
            ("{% raw %}{{ .Names }}{% endraw %}", "{{ .Names }}"),
            ("{%# said #%}x", "x"),
            ("n=${#list[@]} {{ input.count }}", "n=${#list[@]} 3"),
            (
                "{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(1) }}{{ m('b') }}",
                "<1><b>",
            ),
            ("{% set x = 4 %}{{ x * 2.5 }}", "10.0"),
            ("{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}", "A1"),
            ("{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"),
            (
                "{{ input.list | length }} {{ 'a,b' | split(',') | last }} {{ '7' | int + 1 }}",
                "2 b 8",
            ),
            (
                "{{ input['list'][-1] }}{{ input.list[0] | unsafe }}",
                "c'da b",
            ),
        ] {
            assert_eq!(
                render_text(text, &context()).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn exactly_one_expression_keeps_its_type() {
        for (text, expected) in [
            ("{{ input.count }}", json!(3)),
            ("  {{ input.count }}\n", json!(3)),
            ("{{ input.big }}", json!(9_007_199_254_740_993_i64)),
            ("{{ input.huge }}", json!(u64::MAX)),
            ("{{ input.ratio }}", json!(1.0)),
            ("{{ input.yes }}", json!(true)),
            ("{{ input.nothing }}", json!(null)),
            ("{{ input.deep }}", json!({"z": 1, "a": {"b": "x"}})),
            ("{{ input.like_json }}", json!("[1, 2]")),
            ("{{ input.list | length }}", json!(2)),
            ("{{ input.missing | default([1]) }}", json!([1])),
            ("{{ 'x' if false }}", json!(null)),
            ("{{ input.count }}{{ input.count }}", json!("33")),
            ("a {{ input.count }}", json!("a 3")),
            ("{%# c #%}{{ input.count }}", json!("3")),
            ("{{ '}}' }}", json!("}}")),
            ("{{ '{{ a }}' }}", json!("{{ a }}")),
            ("plain", json!("plain")),
            ("3", json!("3")),
        ] {
            assert_eq!(evaluate(text, &context()), Ok(expected), "{text}");
        }
        assert!(is_single_expression(" {{ a }} "));
        for text in [
            "a",
            "{{ a }} b",
            "{{ a }}{{ b }}",
            "{% if a %}{% endif %}",
            "{{",
            "{{ a }}{%# b #%}",
        ] {
            assert!(!is_single_expression(text), "{text}");
        }
    }

    #[test]
    fn a_tree_is_rendered_leaf_by_leaf() {
        let tree = Json(r#"{"n": "{{ input.count }}", "l": ["{{ input.yes }}", "x{{ 1 }}", 7], "{{ key }}": {"t": "plain"}}"#.to_string());
        let expected = json!({"n": 3, "l": [true, "x1", 7], "{{ key }}": {"t": "plain"}});
        assert_eq!(render_value(&tree, &context()), Ok(expected));
    }

    #[test]
    fn what_means_no() {
        for no in [
            json!(""),
            json!(" FALSE\n"),
            json!("0"),
            json!("Null"),
            json!("none"),
            json!("[]"),
            json!("{}"),
            json!(false),
            json!(0),
            json!(0.0),
            json!(null),
            json!([]),
            json!({}),
        ] {
            assert!(means_no(&no), "{no}");
        }
        for yes in [
            json!("no"),
            json!("x"),
            json!(true),
            json!(1),
            json!([0]),
            json!({"a": 1}),
            json!("0.0"),
        ] {
            assert!(!means_no(&yes), "{yes}");
        }
    }

    #[test]
    fn faults_name_what_is_wrong_and_where() {
        for (text, message, place) in [
            (
                "x {{ input.chanel }}",
                "input.chanel is not defined; did you mean channel? input has: ",
                "input.chanel",
            ),
            (
                "{{ steps.biuld.output }}",
                "steps.biuld is not defined; did you mean build? steps has: build, skipped",
                "steps.biuld",
            ),
            (
                "{{ imput.x }}",
                "imput is not defined; did you mean input? defined here: input, secret, steps",
                "imput",
            ),
            (
                "{{ input.count.x }}",
                "input.count.x is not defined",
                "input.count.x",
            ),
            (
                "{{ input.list[7] }}",
                "input.list[7] is not defined",
                "input.list[7]",
            ),
            (
                "{% if input.wrong %}{% endif %}",
                "input.wrong is not defined",
                "input.wrong",
            ),
            (
                "{{ input.channel }} {{ 'ü' }} {{ input.wrong | upper }}",
                "input.wrong is not defined",
                "input.wrong",
            ),
            (
                "{% for x in input.wrong %}{% endfor %}",
                "input.wrong is not defined",
                "input.wrong",
            ),
            (
                "{{ input.channel | uper }}",
                "the filter uper does not exist; did you mean upper?",
                "uper",
            ),
            (
                "{{ debug() }}",
                "the function debug does not exist",
                "debug",
            ),
            ("{% include 'x' %}", "a template is one text", "include"),
            ("{{ a b }}", "the template cannot be read: ", "b"),
            (
                "{{ imput.no.where | default('y') }}",
                "imput is not defined; did you mean input?",
                "imput",
            ),
            (
                "{{ input.no.where }}",
                "input.no is not defined",
                "input.no",
            ),
            (
                "x: ${{ github.sha }}",
                "github is not defined; defined here: input, secret, steps; ${{ … }} is an",
                "github",
            ),
            ("{% if a %}", "the template cannot be read: ", ""),
            (
                "docker ps --format '{{.Names}}'",
                "this looks like a Go template",
                "",
            ),
            (
                "run: ${{ github.sha }} {{ }}",
                "the template cannot be read",
                "",
            ),
            ("printf '{%s}'", "", ""),
            ("{{ input.nothing | sh }}", "sh takes no null", ""),
            ("{{ input.channel * 2 }}", "* multiplies numbers", ""),
        ] {
            let fault = render_text(text, &context()).unwrap_err();
            assert!(
                fault.message.starts_with(message),
                "{text}: {}",
                fault.message
            );
            assert!(
                text[fault.span.clone()].contains(place),
                "{text}: {:?}",
                &text[fault.span.clone()]
            );
            assert!(!fault.message.contains('\n'), "{}", fault.message);
        }
    }

    #[test]
    fn no_fault_tells_a_value() {
        let context = context().with("input", json!({"s": "hunter2", "n": 777_333, "l": ["hunter2"], "o": {"k": "hunter2"}, "x": "hunter2",
            "conf": {"hunter2": {"hunter2": 1}, "list": [{"hunter2": 1}], "no": false}}))
            .with("steps", json!({"ask": {"output": {"code": {"hunter2": {"hunter2": 1}}}, "status": "completed"}}));
        for text in [
            "{{ input.conf.hunter }}",
            "{{ input.conf.hunter.x }}",
            "{{ input.conf.hunter == 1 }}",
            "{{ input.conf['hunter'].x }}",
            "{{ input.conf.list[0].hunter.x }}",
            "{{ steps.ask.output.code.hunter }}",
            "{{ steps.ask.output.code.hunter.x }}",
            "{% set c = input.conf %}{{ c.hunter.x }}",
            "{% for c in input.conf.list %}{{ c.hunter.x }}{% endfor %}",
            "{{ input.s + 1 }}",
            "{{ input.s - 1 }}",
            "{{ input.n ** 999 }}",
            "{{ input.n * input.s }}",
            "{{ input.n // 0 }}",
            "{{ input.n / 0 }}",
            "{{ input.n % 0 }}",
            "{{ input.s.foo() }}",
            "{{ input.s() }}",
            "{{ input.o.k.z.y }}",
            "{{ input[input.s] }}",
            "{{ input[input.s].y }}",
            "{{ [1] | map(input.s) | list }}",
            "{{ [1] | select(input.s) | list }}",
            "{{ input | attr(input.s) }}",
            "{{ input.s | int }}",
            "{{ input.s | float }}",
            "{{ input.s | round }}",
            "{{ input.s | abs }}",
            "{{ input.l | sum }}",
            "{{ input.o | sort(attribute=input.s) }}",
            "{% set a, b = input.l %}",
            "{{ -input.s }}",
            "{{ input.s | items }}",
            "{{ input.n | length }}",
            "{{ input.n | join }}",
            "{{ input.s[input.l] }}",
            "{{ input.s[::0] }}",
            "{{ input.o | sh }}",
            "{{ [input.o] | sh }}",
            "{{ range(input.n) }}",
            "{{ range(input.s) }}",
            "{{ input.s | indent(input.s) }}",
            "{{ input.l | groupby(input.s) }}",
            "{{ input.l | batch(input.s) }}",
            "{{ input.s | replace(input.s) }}",
            "{{ input.s | split(1, input.s) }}",
            "{% for a, b in input.l %}{% endfor %}",
            "{{ input.s | default(1, 2, input.s) }}",
            "{{ input.s | json(input.s) }}",
            "{{ 1 in input.n }}",
            "{{ input.l[input.s] }}",
            "{{ secret[input.s] }}",
            "{{ input.s | upper(x=input.s) }}",
            "{{ input.n | string | int(input.s) | abs | items }}",
        ] {
            let faults = [
                render_text(text, &context).err(),
                evaluate(text, &context).err(),
            ];
            for fault in faults.into_iter().flatten() {
                let shown = format!("{fault} {fault:?}");
                assert!(
                    !shown.contains("hunter2") && !shown.contains("777333"),
                    "{text}: {shown}"
                );
            }
        }
        assert!(!format!("{context:?}").contains("hunter2"));
        // Nor how many items a list has, and of which kind a value is.
        for path in ["input.conf.list[7]", "input.conf.no.x"] {
            let fault = render_text(&format!("{{{{ {path} }}}}"), &context).unwrap_err();
            assert_eq!(fault.message, format!("{path} is not defined"));
        }
        // Names that workflow files declare are listed.
        let fault = render_text("{{ steps.ask.output.cod }}", &context).unwrap_err();
        assert!(
            fault.message.ends_with("steps.ask.output has: code"),
            "{fault}"
        );
    }

    /// In a debug build too each takes well below a second; what matters is that each ends, without panic or overflow.
    #[test]
    fn a_hostile_template_ends() {
        let long = "x".repeat(60_000);
        let context = Context::new().with(
            "input",
            json!({"s": long, "l": (0..2000).collect::<Vec<_>>()}),
        );
        let doubled = |start: &str, step: &str| format!("{start}{}{{{{ x }}}}", step.repeat(60));
        let hostile = [
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}"
                .to_string(),
            "{{ range(100000) }}".to_string(),
            "{{ range(-9223372036854775807, 9223372036854775807) }}".to_string(),
            "{{ 'a' * 100000000 }}".to_string(),
            "{{ ('a' ~ 'b') * 100000000 }}".to_string(),
            "{{ [1] * 100000000 }}".to_string(),
            "{{ input.s * 10000 }}".to_string(),
            doubled("{% set x = input.s %}", "{% set x = x ~ x %}"),
            doubled("{% set x = input.s %}", "{% set x = x + x %}"),
            doubled("{% set x = [1] %}", "{% set x = x + x %}"),
            doubled("{% set x = [1] %}", "{% set x = [x, x] %}"),
            doubled("{% set x = [1] %}", "{% set x = {'a': x, 'b': x} %}"),
            doubled("{% set x = [1] %}", "{% set x = x | chain(x) %}"),
            doubled("{% set x = [1] %}", "{% set x = [x, x] | list %}"),
            doubled("{% set x = 'a' %}", "{% set x %}{{ x }}{{ x }}{% endset %}"),
            format!(
                "{{% set x = [1] %}}{}{{{{ x == x }}}}",
                "{% set x = [x] %}".repeat(20_000)
            ),
            "{{ input.l | join(input.s) }}".to_string(),
            "{{ input.s | replace('', input.s) }}".to_string(),
            "{{ input.s | indent(1000000000, true) }}".to_string(),
            "{{ input.s | indent(width=1000000000, first=true) }}".to_string(),
            "{{ 1.5 | round(2000000000) }}".to_string(),
            "{{ [1] | slice(1000000000) | list }}".to_string(),
            "{{ [1] | batch(1000000000, 0) | list }}".to_string(),
            "{{ 9 ** 9 ** 9 ** 9 }}".to_string(),
            "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}".to_string(),
            "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_string(),
            format!("{{% for x in range(9999) %}}{long}{{% endfor %}}"),
            format!("{{% set y %}}{{% for x in range(9999) %}}{long}{{% endfor %}}{{% endset %}}"),
            format!("{{{{ range(9999){} }}}}", " | sort".repeat(400)),
            format!("{{{{ {}1 }}}}", "1+".repeat(100_000)),
            format!("{{{{ {}1 }}}}", "- ".repeat(990)),
            format!("{{{{ {}1 }}}}", "not ".repeat(990)),
            format!("{{{{ {}1{} }}}}", "(".repeat(490), ")".repeat(490)),
            format!("{{{{ {}1{} }}}}", "[".repeat(490), "]".repeat(490)),
            format!("{{{{ {}1{} }}}}", "f(".repeat(330), ")".repeat(330)),
            format!("{{{{ {}1{} }}}}", "x[".repeat(330), "]".repeat(330)),
            format!("{{{{ {}1{} }}}}", "{1:".repeat(240), "}".repeat(240)),
            format!("{{{{ {}1{} }}}}", "1|abs(".repeat(190), ")".repeat(190)),
            format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(240)),
            format!("{{{{ {}1 }}}}", "1 ** ".repeat(490)),
            format!("{{{{ {} }}}}", "f(x[(".repeat(190)),
            format!("{}{{{{ {}1", "{% if 1 %}".repeat(140), "f(".repeat(330)),
            format!("{}{{{{ {}1", "{% set x %}".repeat(120), "f(".repeat(330)),
            format!("{}{{{{ {}1", "{% for x in y %}".repeat(90), "f(".repeat(60)),
            format!(
                "{}{{{{ {}1",
                "{% macro f() %}{% call f() %}".repeat(70),
                "f(".repeat(60)
            ),
            format!("{{{{ x{} }}}}", ".a".repeat(100_000)),
            format!("{{{{ 1{} }}}}", " | abs".repeat(100_000)),
            format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(50_000)),
            "{% if 1 %}".repeat(50_000),
            "{{ ".repeat(100_000),
            "{#".repeat(20_000),
            "{#".repeat(100_000),
            "x".repeat(2 << 20) + "{{ 1 }}",
        ];
        for text in &hostile {
            let shown: String = text.chars().take(80).collect();
            let began = std::time::Instant::now();
            let ended = [
                render_text(text, &context).err(),
                evaluate(text, &context).err(),
                script_faults(text, Program::Shell).err(),
            ];
            let took = began.elapsed();
            for fault in ended.into_iter().flatten() {
                assert!(fault.message.len() < 1_000, "{}", fault.message);
            }
            assert!(took.as_secs() < 20, "{took:?}: {shown}");
        }
        for text in &hostile[..29] {
            let shown: String = text.chars().take(80).collect();
            assert!(render_text(text, &context).is_err(), "{shown}");
        }
    }

    #[test]
    fn what_is_long_but_honest_renders() {
        let context = Context::new().with(
            "input",
            json!({"l": (0..2000).collect::<Vec<_>>(), "s": "x".repeat(60_000)}),
        );
        for (text, bytes) in [
            (
                "{% for x in input.l %}{{ loop.index }}: {{ x * 2 }}\n{% endfor %}".to_string(),
                19_000,
            ),
            (
                format!("{}{{{{ input.s }}}}", "line\n".repeat(10_000)),
                110_000,
            ),
            (
                "{{ input.l | map('string') | join(', ') }}".to_string(),
                10_888,
            ),
            (format!("{{{{ 1{} }}}}", " + 1".repeat(400)), 3),
            ("{{ 1 }}".repeat(5_000), 5_000),
        ] {
            let rendered = render_text(&text, &context).map(|text| text.len());
            let near = rendered
                .clone()
                .is_ok_and(|length| length.abs_diff(bytes) <= bytes / 10);
            assert!(near, "{rendered:?}, expected about {bytes}");
        }
    }

    /// Fragments in any order: whatever they say, there is an answer, and its span is in the text.
    #[test]
    fn no_text_makes_it_panic() {
        const FRAGMENTS: &[&str] = &[
            "{{",
            "}}",
            "{%",
            "%}",
            "{#",
            "#}",
            " ",
            "input",
            ".",
            "a",
            "[",
            "]",
            "(",
            ")",
            "'",
            "\"",
            "|",
            "sh",
            "json",
            "upper",
            "if ",
            "else",
            "endif",
            "for x in ",
            "endfor",
            "set x = ",
            "x",
            "1",
            "-",
            "+",
            "*",
            "~",
            "==",
            "is defined",
            "not ",
            "{% endif %}",
            "{% endfor %}",
            "{{ input.a }}",
            "{% for x in input.l %}",
            "{% if input.a %}",
            "ü",
            "🚀",
            "\n",
            ",",
            ":",
            "{%- ",
            " -%}",
            "raw",
            "endraw",
            "macro m(x)",
            "endmacro",
            "m(",
            "default(",
            "{",
            "}",
            "range(3)",
            "loop",
            "filter sh",
            "{% set x = ",
            "{% macro m(y) %}",
            "{% endmacro %}",
            "{{ m(x) }}",
            "0.5",
            "\\",
            "\u{0}",
            "'a'",
            "steps['b'].c",
            "**",
            "9999999999999999999999",
        ];
        let context = Context::new().with("input", json!({"a": 1, "l": [1, "b"]}));
        // A xorshift, so that a failure comes again.
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        for _ in 0..20_000 {
            let text: String = (0..next(14) + 1)
                .map(|_| FRAGMENTS[next(FRAGMENTS.len())])
                .collect();
            let faults = [
                render_text(&text, &context).err(),
                render_script(&text, Program::Shell, &context).err(),
                evaluate(&text, &context).err(),
                mentions(&text).err(),
            ];
            for fault in faults.into_iter().flatten() {
                assert!(
                    text.get(fault.span.clone()).is_some(),
                    "{text:?}: {fault:?}"
                );
            }
            for mention in mentions(&text).unwrap_or_default() {
                assert!(
                    text.get(mention.span.clone()).is_some(),
                    "{text:?}: {mention:?}"
                );
            }
        }
    }
}
