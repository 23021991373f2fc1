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

pub use mentions::{Mention, mentions, unfiltered};

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
pub fn render_script(text: &str, context: &Context) -> Result<String, TemplateFault> {
    match unfiltered(text)?.first() {
        Some(mention) => Err(faults::unfiltered(mention)),
        None => render_text(text, context),
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
            ("{# said #}x", "x"),
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
            ("{# c #}{{ input.count }}", json!("3")),
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
            "{{ a }}{# b #}",
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
                "input.count.x is not defined; input.count is a number",
                "input.count.x",
            ),
            (
                "{{ input.list[7] }}",
                "input.list[7] is not defined; input.list is a list of 2",
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
            ("n=${#list[@]}", "the shell's ${#…} begins a comment", ""),
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
}
