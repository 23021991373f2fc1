//! Templates and values that others wrote: rendering one ends, what it makes is bounded, what is wrong has a place in the text.

use serde_json::{Value, json};
use stepward::domain::Json;
use stepward::language::program_quotes::Syntax;
use stepward::language::shell::Program;
use stepward::language::template::{
    Context, TemplateFault, evaluate, is_single_expression, mentions, render_script, render_text,
    render_value, script_faults,
};

use super::dice::Dice;
use super::mutate;
use super::watch::Tried;

/// A mebibyte, as the engine bounds it; quotes and commas of a value come on top.
const MADE_BYTES_MAX: usize = 1 << 20;

const SEEDS: &[&str] = &[
    "Publish {{ input.version }}?",
    "{{ steps.build.output.image }}",
    "{{ input.name | default('x', true) | sh }}",
    "{% for item in input.list %}{{ loop.index }}: {{ item }}\n{% else %}none{% endfor %}",
    "{% if input.n > 3 and input.name is defined %}{{ input.n * 2 }}{% elif input.flag %}b{% endif %}",
    "{% set ns = namespace(n=0) %}{% for i in range(10) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(twice('a')) }}",
    "{{ input.list | map('upper') | join(', ') | replace('A', 'BB') }}",
    "{{ input.object | items | list | tojson }} {{ input.list[1:3] }} {{ input.list | sort(reverse=true) }}",
    "{%- with a = input.name ~ input.name -%}{{ a | length }}{%- endwith -%}",
    "{% set a %}text {{ input.name }}{% endset %}{{ a | trim | title | indent(4) }}",
    "{{ 'a' * 1000 }}{{ [1, 2] + [3] }}{{ {'a': 1}['a'] }}{{ 1 // 0 }}{{ 7 % 3 }}{{ 2 ** 70 }}",
    "{% filter upper %}{{ input.name }}{% endfilter %}{% raw %}{{ no }}{% endraw %}",
    "{%# a comment #%}{{ input['odd key'] }}{{ input.list | first | json }}",
];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "input.name", "input.list", "input.object", "input.n", "input.deep", "steps", "each.item", "secret.key", "loop",
    "range(", "range(10000)", "| length", "| join", "| sort", "| unique", "| batch(2)", "| slice(3)",
    "| groupby('a')", "| tojson", "| sh", "| json", "| unsafe", "| default(1)", "| int", "| float", "| round",
    "| list", "| dictsort", "| reverse", "| min", "| sum", "| map(attribute='a')", "| select('odd')",
    "| indent(99999)", "| replace('', 'x')", "~", "*", "**", "//", "in", "not in", "is defined", "is odd", "if",
    "else", "[", "]", "[::-1]", "[0:99999999]", "(", ")", "{% for a in b %}", "{% endfor %}", "{% set x = x ~ x %}",
    "{% if x %}", "{% endif %}", "{% macro m(a) %}", "{% endmacro %}", "{% call m() %}", "{% include 'a' %}",
    "{% import 'a' as b %}", "{% extends 'a' %}", "{% block a %}", "{{ self.a() }}", "{{ caller() }}", "{{ m(m) }}",
    "{{ debug() }}", "'%s' % x", "-", "1e308", "9 ** 9", "99999999999999999999999999999999999999", "namespace(",
    "dict(", "cycler(", "lipsum(", "joiner(",
];

pub fn play(dice: &mut Dice, tried: &Tried) {
    let seeds: Vec<String> = SEEDS.iter().map(|seed| seed.to_string()).collect();
    let context = context(dice);
    for _ in 0..30 {
        let text = match dice.roll(4) {
            0 => format!("{{{{ {} }}}}", expression(dice, 5)),
            1 => statement(dice, 4),
            _ => mutate::text(dice, &seeds, WORDS),
        };
        examine(&text, &context, tried);
    }
}

pub fn again(bytes: &[u8], tried: &Tried) {
    let text = String::from_utf8_lossy(bytes);
    for seed in 0..4 {
        examine(&text, &context(&mut Dice::new(seed)), tried);
    }
}

fn context(dice: &mut Dice) -> Context {
    let deep = (0..dice.roll(100)).fold(json!("deep"), |inner, _| json!([inner]));
    let list: Vec<Value> = (0..dice.roll(30)).map(|_| mutate::value(dice, 2)).collect();
    Context::new()
        .with(
            "input",
            json!({
                "name": mutate::noise(dice, 20), "n": dice.between(-5, 5), "flag": dice.chance(50), "list": list,
                "object": { "a": mutate::value(dice, 3), "b": 1 }, "long": "x".repeat(dice.roll(100_000) as usize),
                "odd key": mutate::value(dice, 3), "deep": deep, "version": "1.2.3",
            }),
        )
        .with("steps", json!({ "build": { "output": { "image": mutate::noise(dice, 9) } } }))
        .with("each", json!({ "item": mutate::value(dice, 3), "index": 0 }))
        .with("secret", json!({ "key": "hunter2-hunter2" }))
}

fn expression(dice: &mut Dice, depth: u32) -> String {
    #[rustfmt::skip]
    const ATOMS: &[&str] = &[
        "input.name", "input.list", "input.object", "input.n", "input.deep", "input.long", "each.item", "1", "-1",
        "2.5", "'a'", "none", "true", "[]", "[1, 2]", "{}", "{'a': 1}", "range(100)", "secret.key", "nothing", "x",
    ];
    #[rustfmt::skip]
    const FILTERS: &[&str] = &[
        "length", "join(',')", "sort", "unique", "upper", "list", "tojson", "sh", "json", "int", "float", "string",
        "reverse", "first", "last", "default('d')", "replace('a', 'aa')", "indent(3)", "items", "dictsort",
        "batch(2)", "slice(2)", "abs", "round", "title", "trim", "min", "max", "sum", "lines", "split(',')",
        "map('upper')", "select", "reject('none')", "groupby('a')", "bool", "urlencode", "escape", "pprint",
        "format(1)", "unsafe",
    ];
    const SIGNS: &[&str] = &[
        "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "and", "or", "in",
        "not in",
    ];
    if depth == 0 {
        return dice.pick(ATOMS).expect("there are some").to_string();
    }
    let inner = expression(dice, depth - 1);
    match dice.roll(7) {
        0 => format!(
            "({inner} | {})",
            dice.pick(FILTERS).expect("there are some")
        ),
        1 | 2 => {
            let sign = dice.pick(SIGNS).expect("there are some");
            format!("({inner} {sign} {})", expression(dice, depth - 1))
        }
        3 => format!("({inner})[{}]", expression(dice, depth - 1)),
        4 => format!("({inner})[{}:]", dice.between(-9, 9)),
        5 => format!("({inner} if {} else 0)", expression(dice, depth - 1)),
        _ => format!("[{inner}, {inner}]"),
    }
}

fn statement(dice: &mut Dice, depth: u32) -> String {
    let value = expression(dice, 2);
    if depth == 0 {
        return format!("{{{{ {value} }}}}");
    }
    let (a, b) = (statement(dice, depth - 1), statement(dice, depth - 1));
    match dice.roll(6) {
        0 => format!("{{% for x in {value} %}}{a}{{% else %}}{b}{{% endfor %}}"),
        1 => format!("{{% if {value} %}}{a}{{% else %}}{b}{{% endif %}}"),
        2 => format!("{{% set x = {value} %}}{a}{b}"),
        3 => format!("{{% macro x(y=1) %}}{a}{{% endmacro %}}{{{{ x({value}) }}}}{b}"),
        4 => format!("{{% with x = {value} %}}{a}{{% endwith %}}{b}"),
        _ => format!("{{% for x in range(1000) %}}{a}{{% endfor %}}"),
    }
}

fn examine(text: &str, context: &Context, tried: &Tried) {
    tried.now(text);
    let place = |fault: &TemplateFault| {
        let (start, end) = (fault.span.start, fault.span.end);
        let is_within = start <= end && end <= text.len();
        assert!(is_within, "{fault:?} of {} bytes", text.len());
        assert!(
            text.is_char_boundary(start) && text.is_char_boundary(end),
            "{fault:?}"
        );
        assert!(
            !fault.message.contains("hunter2"),
            "a value is told: {fault:?}"
        );
    };
    match mentions(text) {
        Ok(mentions) => {
            for mention in mentions {
                assert!(text.get(mention.span.clone()).is_some(), "{mention:?}");
            }
        }
        Err(fault) => {
            place(&fault);
            assert!(
                render_text(text, context).is_err(),
                "what cannot be read is not rendered"
            );
        }
    }
    let _ = is_single_expression(text);
    let mut made = 0;
    match render_text(text, context) {
        Ok(rendered) => made = made.max(rendered.len()),
        Err(fault) => place(&fault),
    }
    match evaluate(text, context) {
        Ok(value) => made = made.max(value.to_string().len()),
        Err(fault) => place(&fault),
    }
    for program in [
        Program::Shell,
        Program::Interpolating,
        Program::Other(Syntax::Python),
        Program::Other(Syntax::JavaScript),
        Program::Other(Syntax::Any),
        Program::Unknown,
    ] {
        let faults = script_faults(text, program).map(|faults| faults.len());
        match render_script(text, program, context) {
            Ok(rendered) => {
                assert_eq!(faults, Ok(0), "what is refused is not rendered");
                made = made.max(rendered.len());
            }
            Err(fault) => place(&fault),
        }
    }
    let tree = json!([{ "a": text }]);
    if let Ok(value) = render_value(&Json(tree.to_string()), context) {
        assert_eq!(Ok(&value[0]["a"]), evaluate(text, context).as_ref());
    }
    // Text that is no ASCII may be longer as JSON.
    assert!(made <= 6 * MADE_BYTES_MAX, "{made} bytes were made");
}
