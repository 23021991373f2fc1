//! How a template is parsed, compiled and run, all of it bounded.
//!
//! The engine counts instructions (fuel), but one instruction may be huge: `x ~ x` doubles a text, `[x, x]` a tree. So
//! every instruction and filter that makes something larger is replaced by one that first pays for what it reads and
//! makes. What is deep is refused before it exists, because the engine walks and drops values by recursion.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::OnceLock;

use minijinja::machinery::ast::{Expr, Stmt};
use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, Token, eval, make_string_output, parse, tokenize,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, filters};

use super::faults;
use super::mentions;
use super::{Context, TemplateFault};

/// Bounds what is read, and what is made.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
/// Instructions of one rendering: some ten milliseconds.
const FUEL: u64 = 200_000;
/// Bytes that all instructions of one rendering may read and make, about; a value that is no text counts as some.
const WORK_MAX: usize = 32 << 20;
const VALUE_WORK: usize = 32;
/// The text between the tags costs one instruction however long it is. In loops and macros this bounds the copies of it.
const RAW_BYTES_MAX: usize = 64 << 20;
const DEPTH_MAX: usize = 64;
/// Brackets in brackets of one tag.
const BRACKETS_MAX: usize = 50;
const RANGE_MAX: usize = 10_000;
/// The parser and the engine go down a long expression by recursion.
const TAG_TOKENS_MAX: usize = 1_000;
/// The engine counts columns in 16 bits.
const LINE_BYTES_MAX: usize = 65_000;
const ELIF_MAX: usize = 100;
const CALLS_MAX: usize = 100;

thread_local! {
    /// What the rendering on this thread has spent so far.
    static WORK: Cell<usize> = const { Cell::new(0) };
}

fn syntax() -> SyntaxConfig {
    let config = SyntaxConfig::builder()
        // A script without its last line end would be another text.
        .keep_trailing_newline(true)
        // Jinja's own begin with `{#`, and so does the shell's `${#list[@]}`.
        .comment_delimiters("{%#", "#%}")
        .build();
    config.expect("these delimiters are distinct")
}

pub(super) fn parsed(text: &str) -> Result<Stmt<'_>, TemplateFault> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TemplateFault {
            message: format!(
                "the template is {} bytes long, at most {TEXT_BYTES_MAX} are read",
                text.len()
            ),
            span: 0..0,
        });
    }
    check_lengths(text)?;
    let template =
        parse(text, "template", syntax()).map_err(|error| faults::syntax(text, error))?;
    mentions::check(text, &template)?;
    Ok(template)
}

fn check_lengths(text: &str) -> Result<(), TemplateFault> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.len() > LINE_BYTES_MAX {
            return Err(TemplateFault {
                message: format!("this line has more than {LINE_BYTES_MAX} bytes; break it"),
                span: start..start + line.len(),
            });
        }
        start += line.len();
    }
    let (mut in_tag, mut open, mut elifs) = (0, 0_usize, 0);
    for token in tokenize(text, false, syntax()) {
        let (token, span) = token.map_err(|error| faults::syntax(text, error))?;
        in_tag = match token {
            Token::VariableStart | Token::BlockStart => 0,
            Token::TemplateData(_) => {
                continue;
            }
            _ => in_tag + 1,
        };
        match token {
            Token::VariableStart | Token::BlockStart => open = 0,
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => open += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                open = open.saturating_sub(1);
            }
            Token::Ident("elif") => elifs += 1,
            _ => {}
        }
        let long = if in_tag > TAG_TOKENS_MAX {
            format!("this tag has more than {TAG_TOKENS_MAX} words and signs")
        } else if open > BRACKETS_MAX {
            format!("this lies within more than {BRACKETS_MAX} brackets")
        } else if elifs > ELIF_MAX {
            format!("the template has more than {ELIF_MAX} times elif")
        } else {
            continue;
        };
        let span = faults::bytes(text, span);
        return Err(TemplateFault {
            message: long,
            span,
        });
    }
    Ok(())
}

pub(super) fn single<'a, 'text>(text: &str, template: &'a Stmt<'text>) -> Option<&'a Expr<'text>> {
    let alone = text.trim();
    let Stmt::Template(template) = template else {
        return None;
    };
    if !alone.starts_with("{{") || !alone.ends_with("}}") {
        return None;
    }
    let mut found = None;
    for child in &template.children {
        match child {
            Stmt::EmitRaw(raw) if raw.raw.trim().is_empty() => {}
            Stmt::EmitExpr(emit) if found.is_none() => found = Some(&emit.expr),
            _ => return None,
        }
    }
    found
}

pub(super) fn is_single_expression(text: &str) -> bool {
    parsed(text).is_ok_and(|template| single(text, &template).is_some())
}

pub(super) fn render(text: &str, context: &Context) -> Result<String, TemplateFault> {
    render_in(environment(), text, context)
}

/// The same, with every `$` of a value doubled.
pub(super) fn render_doubling_dollars(
    text: &str,
    context: &Context,
) -> Result<String, TemplateFault> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    let environment = ENVIRONMENT.get_or_init(|| {
        let mut environment = build();
        environment.set_formatter(|out, _, value| {
            let text = written(value)?.replace('$', "$$");
            out.write_str(&text).map_err(Error::from)
        });
        environment
    });
    render_in(environment, text, context)
}

fn render_in(
    environment: &Environment<'static>,
    text: &str,
    context: &Context,
) -> Result<String, TemplateFault> {
    let template = parsed(text)?;
    let mut generator = CodeGenerator::new("template", text);
    generator.compile_stmt(&template);
    let (mut instructions, blocks) = generator.finish();
    let mut rendered = String::new();
    run(
        environment,
        text,
        &mut instructions,
        &blocks,
        context,
        &mut rendered,
        &template,
    )?;
    if rendered.len() > TEXT_BYTES_MAX {
        return Err(faults::too_large(text));
    }
    Ok(rendered)
}

/// `None`: the text is not exactly one expression.
pub(super) fn evaluate_single(
    text: &str,
    context: &Context,
) -> Result<Option<serde_json::Value>, TemplateFault> {
    let template = parsed(text)?;
    let Some(expression) = single(text, &template) else {
        return Ok(None);
    };
    let mut generator = CodeGenerator::new("template", text);
    generator.compile_expr(expression);
    let (mut instructions, blocks) = generator.finish();
    let mut nothing = String::new();
    let value = run(
        environment(),
        text,
        &mut instructions,
        &blocks,
        context,
        &mut nothing,
        &template,
    )?;
    let value = value.unwrap_or_default();
    let fault = |error: Error| {
        let span = faults::bytes(text, expression.span());
        faults::running(text, context, error, Some(span))
    };
    if value.is_undefined() {
        // Of `{{ a if b }}` without an else: no value.
        return match expression {
            Expr::IfExpr(_) => Ok(Some(serde_json::Value::Null)),
            _ => Err(fault(ErrorKind::UndefinedError.into())),
        };
    }
    weigh(&value, 0).map_err(fault)?;
    let value = serde_json::to_value(&value).map_err(|_| fault(told(NO_JSON)))?;
    if serde_json::to_vec(&value).map_or(0, |bytes| bytes.len()) > TEXT_BYTES_MAX {
        return Err(faults::too_large(text));
    }
    Ok(Some(value))
}

fn run<'text>(
    environment: &Environment<'static>,
    text: &'text str,
    instructions: &mut Instructions<'text>,
    blocks: &BTreeMap<&'text str, Instructions<'text>>,
    context: &Context,
    out: &mut String,
    template: &Stmt<'_>,
) -> Result<Option<Value>, TemplateFault> {
    bound(instructions);
    allow_missing_parents(instructions);
    WORK.set(0);
    let repeated = mentions::longest_repeated_raw(template).max(1);
    let fuel = FUEL.min((RAW_BYTES_MAX / repeated) as u64);
    let thrifty;
    let environment = match fuel == FUEL {
        true => environment,
        false => {
            let mut changed = environment.clone();
            changed.set_fuel(Some(fuel));
            thrifty = changed;
            &thrifty
        }
    };
    let root = Value::from_pairs(context.shown.clone());
    let mut output = make_string_output(out);
    let ran = eval(
        environment,
        instructions,
        root,
        blocks,
        &mut output,
        AutoEscape::None,
    );
    ran.map(|(value, _)| value)
        .map_err(|error| faults::running(text, context, error, None))
}

/// Filters and tests that are found by name each time.
const UNCACHED: u8 = !0;

/// Replaces what can make something large by filters that pay. Each takes as many values as the instruction did, and no
/// template can name them.
fn bound(instructions: &mut Instructions<'_>) {
    let mut at = 0;
    while let Some(instruction) = instructions.get_mut(at) {
        at += 1;
        let (name, values) = match *instruction {
            Instruction::Add => ("+", 2),
            Instruction::Mul => ("*", 2),
            Instruction::StringConcat => ("~", 2),
            Instruction::Eq => ("==", 2),
            Instruction::Ne => ("!=", 2),
            Instruction::BuildList(Some(count @ 1..=1000)) => ("[]", count),
            Instruction::BuildTuple(Some(count @ 1..=1000)) => ("()", count),
            Instruction::BuildMap(pairs @ 1..=1000) => ("{}", 2 * pairs),
            _ => continue,
        };
        *instruction = Instruction::ApplyFilter(name, Some(values as u16), UNCACHED);
    }
}

/// By how many attributes the path has, from two on.
const DEEP_DEFAULT: &[&str] = &["", "", "?2", "?3", "?4", "?5", "?6", "?7", "?8"];
const DEEP_DEFINED: &[&str] = &["", "", "+2", "+3", "+4", "+5", "+6", "+7", "+8"];
const DEEP_UNDEFINED: &[&str] = &["", "", "-2", "-3", "-4", "-5", "-6", "-7", "-8"];

/// Lets `a.b.c | default('x')` and `a.b.c is defined` mean what they say when `a.b` is missing already.
///
/// The engine would stop at `a.b`. Here the names of the path become constants, and the filter or test looks them up
/// itself. Nothing moves, and where a jump ends inside nothing is changed; nor where the default is more than a constant or
/// a path, and a missing parent stays an error there.
fn allow_missing_parents(instructions: &mut Instructions<'_>) {
    let mut targets = BTreeSet::new();
    let mut length = 0;
    while let Some(instruction) = instructions.get(length) {
        if let Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::Iterate(target) = instruction
        {
            targets.insert(*target);
        }
        length += 1;
    }
    for at in 0..length {
        let (names, others) = match instructions.get(at) {
            Some(Instruction::ApplyFilter("default" | "d", Some(count @ 1..=3), _)) => {
                (DEEP_DEFAULT, u32::from(*count) - 1)
            }
            Some(Instruction::PerformTest("defined", Some(1), _)) => (DEEP_DEFINED, 0),
            Some(Instruction::PerformTest("undefined", Some(1), _)) => (DEEP_UNDEFINED, 0),
            _ => continue,
        };
        // The path is what comes before the other values, if those are simple.
        let before = |end, _| simple_start(instructions, end);
        let Some(path_end) = (0..others).try_fold(at, before) else {
            continue;
        };
        let mut start = path_end;
        while start > 0 && matches!(instructions.get(start - 1), Some(Instruction::GetAttr(_))) {
            start -= 1;
        }
        let attributes = (path_end - start) as usize;
        let Some(name) = names.get(attributes).filter(|name| !name.is_empty()) else {
            continue;
        };
        let rooted =
            start > 0 && matches!(instructions.get(start - 1), Some(Instruction::Lookup(_)));
        let entered = targets.range(start..=at).next().is_some();
        if !rooted || entered {
            continue;
        }
        for part in start - 1..path_end {
            let part = instructions.get_mut(part).expect("it was read above");
            if let Instruction::Lookup(name) | Instruction::GetAttr(name) = part {
                *part = Instruction::LoadConst(Value::from(*name));
            }
        }
        let count = Some((attributes as u32 + 1 + others) as u16);
        let changed = match names {
            DEEP_DEFAULT => Instruction::ApplyFilter(name, count, UNCACHED),
            _ => Instruction::PerformTest(name, count, UNCACHED),
        };
        *instructions.get_mut(at).expect("it was read above") = changed;
    }
}

/// Where a constant or a path begins that ends there.
fn simple_start(instructions: &Instructions<'_>, end: u32) -> Option<u32> {
    let mut at = end.checked_sub(1)?;
    while let Some(Instruction::GetAttr(_)) = instructions.get(at) {
        at = at.checked_sub(1)?;
    }
    let begins = matches!(
        instructions.get(at),
        Some(Instruction::LoadConst(_) | Instruction::Lookup(_))
    );
    begins.then_some(at)
}

/// What the path leads to, or undefined. Its root has to be there: nobody means a wrong word to be missing.
fn walked(state: &State, path: &[Value]) -> Result<Value, Error> {
    let mut names = path.iter().filter_map(Value::as_str);
    let root = names.next().and_then(|root| state.lookup(root));
    let mut value = root.ok_or(Error::from(ErrorKind::UndefinedError))?;
    for name in names {
        if !value.is_undefined() {
            value = value.get_attr(name).unwrap_or_default();
        }
    }
    Ok(value)
}

fn add_deep_default(environment: &mut Environment<'static>) {
    for parts in 3..=DEEP_DEFAULT.len() {
        let at = parts - 1;
        environment.add_filter(
            DEEP_DEFAULT[at],
            move |state: &State, values: Rest<Value>| {
                let (path, others) = values.split_at(parts.min(values.len()));
                let value = walked(state, path)?;
                let lax = others.get(1).is_some_and(Value::is_true);
                Ok::<_, Error>(match value.is_undefined() || lax && !value.is_true() {
                    true => others.first().cloned().unwrap_or_else(|| Value::from("")),
                    false => value,
                })
            },
        );
        let is_missing = |state: &State, values: Rest<Value>| {
            walked(state, &values).map(|value| value.is_undefined())
        };
        environment.add_test(DEEP_UNDEFINED[at], is_missing);
        environment.add_test(
            DEEP_DEFINED[at],
            move |state: &State, values: Rest<Value>| {
                is_missing(state, values).map(|missing| !missing)
            },
        );
    }
}

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(build)
}

/// The filters that templates may name.
macro_rules! builtin_filters {
    ($($name:ident)+) => {
        const BUILTIN_FILTERS: &[&str] = &[$(stringify!($name)),+];

        fn builtin_filters() -> Vec<Value> {
            vec![$(Value::from_function(filters::$name)),+]
        }
    };
}

builtin_filters! {
    abs attr batch bool capitalize chain dictsort escape first float groupby indent int items last length lines
    list lower map max min reject rejectattr replace reverse round select selectattr slice sort split sum title
    trim unique upper zip
}

const OWN_FILTERS: &[&str] = &[
    "count", "d", "default", "json", "join", "sh", "string", "tojson", "unsafe",
];
pub(super) const FUNCTIONS: &[&str] = &["range"];

pub(super) fn filter_names() -> impl Iterator<Item = &'static str> {
    BUILTIN_FILTERS.iter().chain(OWN_FILTERS).copied()
}

pub(super) fn is_test(name: &str) -> bool {
    TESTS.contains(&name)
}

pub(super) const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "even",
    "false",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "int",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
    "upper",
];

fn build() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(CALLS_MAX);
    environment.set_formatter(|out, _, value| {
        let text = written(value)?;
        out.write_str(&text).map_err(Error::from)
    });
    // `debug` shows the whole context, `format` and `pprint` make texts of any width.
    for name in ["debug", "dict", "namespace"] {
        environment.remove_global(name);
    }
    for name in ["format", "pprint", "safe", "e"] {
        environment.remove_filter(name);
    }
    for (name, filter) in BUILTIN_FILTERS.iter().zip(builtin_filters()) {
        environment.add_filter(*name, paying(name, filter));
    }
    let length = Value::from_function(filters::length);
    environment.add_filter("count", paying("count", length));
    environment.add_filter("json", json);
    environment.add_filter("tojson", json);
    environment.add_filter("join", join);
    environment.add_filter("string", |value: &Value| written(defined(value)?));
    environment.add_filter("sh", shell_words);
    environment.add_filter("unsafe", |value: &Value| defined(value).cloned());
    environment.add_filter("~", |left: &Value, right: &Value| {
        Ok::<_, Error>(Value::from(written(left)? + &written(right)?))
    });
    environment.add_filter("+", add);
    environment.add_filter("*", multiply);
    environment.add_filter("==", |left: &Value, right: &Value| equal(left, right));
    environment.add_filter("!=", |left: &Value, right: &Value| {
        equal(left, right).map(|equal| !equal)
    });
    environment.add_filter("[]", |items: Rest<Value>| made(Value::from(items.0)));
    environment.add_filter("()", |items: Rest<Value>| made(Value::from(items.0)));
    environment.add_filter("{}", |items: Rest<Value>| {
        let pairs = items
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()));
        made(Value::from_pairs(pairs))
    });
    add_deep_default(&mut environment);
    environment.add_function("range", range);
    environment
}

/// An error whose words are ours, and so without values.
pub(super) const OURS: char = '\u{1}';

fn told(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{OURS}{message}"))
}

fn pay(work: usize) -> Result<(), Error> {
    let spent = WORK.get().saturating_add(work);
    WORK.set(spent);
    match spent > WORK_MAX {
        true => Err(ErrorKind::OutOfFuel.into()),
        false => Ok(()),
    }
}

/// Pays for a value and all that is in it.
fn weigh(value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(told("lists are nested too deep"));
    }
    match value.kind() {
        ValueKind::String | ValueKind::Bytes => pay(value.len().unwrap_or(0)),
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                pay(VALUE_WORK)?;
                weigh(&item, depth + 1)?;
            }
            Ok(())
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                pay(VALUE_WORK)?;
                weigh(&key, depth + 1)?;
                weigh(&value.get_item(&key)?, depth + 1)?;
            }
            Ok(())
        }
        _ => pay(VALUE_WORK),
    }
}

fn made(value: Value) -> Result<Value, Error> {
    weigh(&value, 0)?;
    Ok(value)
}

fn defined(value: &Value) -> Result<&Value, Error> {
    match value.is_undefined() {
        true => Err(ErrorKind::UndefinedError.into()),
        false => Ok(value),
    }
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        pay(text.len()).map_err(|_| std::fmt::Error)?;
        if self.0.len() + text.len() > TEXT_BYTES_MAX {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

const NO_JSON: &str = "the value has no form in JSON: a number may be too large";

/// A text as it is, anything else as JSON: `true`, `null`, `[1, 2]`.
fn written(value: &Value) -> Result<String, Error> {
    let mut text = Bounded(String::new());
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String | ValueKind::Bytes => {
            write!(text, "{value}").map_err(|_| Error::from(ErrorKind::OutOfFuel))?;
        }
        _ => {
            weigh(value, 0)?;
            let json = serde_json::to_string(value).map_err(|_| told(NO_JSON))?;
            text.write_str(&json)
                .map_err(|_| Error::from(ErrorKind::OutOfFuel))?;
        }
    }
    Ok(text.0)
}

/// A filter of the engine that pays for what it is given and gives back.
fn paying(
    name: &'static str,
    filter: Value,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state: &mut State, values: Rest<ValueOrKwargs>| {
        let values = values.into_values();
        for value in values.iter().filter(|value| !value.is_undefined()) {
            weigh(value, 0)?;
        }
        let first = values.first().cloned().unwrap_or_default();
        let size = first.len().unwrap_or(0).saturating_add(1);
        let text_of = |at: usize| values.get(at).and_then(Value::as_str).unwrap_or_default();
        match name {
            "replace" => pay((size / text_of(1).len().max(1)).saturating_mul(text_of(2).len()))?,
            "indent" | "round" | "batch" | "slice" => {
                pay(size.saturating_mul(largest_number(&values[1..])))?;
            }
            _ => {}
        }
        let value = filter.call(state, &values)?;
        if !value.is_undefined() {
            weigh(&value, 0)?;
        }
        Ok(value)
    }
}

/// Of arguments and named arguments.
fn largest_number(values: &[Value]) -> usize {
    let sizes = values.iter().map(|value| match value.kind() {
        ValueKind::Map => value
            .try_iter()
            .into_iter()
            .flatten()
            .filter_map(|key| value.get_item(&key).ok()?.as_usize())
            .max()
            .unwrap_or(0),
        ValueKind::Number => value
            .as_i64()
            .map_or(usize::MAX, |number| number.unsigned_abs() as usize),
        _ => 0,
    });
    sizes.max().unwrap_or(0)
}

fn whole(value: &Value) -> Option<i128> {
    match value.is_integer() {
        true => i128::try_from(value.clone()).ok(),
        false => None,
    }
}

fn fraction(value: &Value) -> Option<f64> {
    match value.is_number() {
        true => f64::try_from(value.clone()).ok(),
        false => None,
    }
}

fn number(whole: i128) -> Value {
    match i64::try_from(whole) {
        Ok(small) => Value::from(small),
        Err(_) => Value::from(whole),
    }
}

fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    let (left, right) = (defined(left)?, defined(right)?);
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        let sum = left.checked_add(right);
        return sum.map(number).ok_or_else(|| told("the sum is too large"));
    }
    if let (Some(left), Some(right)) = (fraction(left), fraction(right)) {
        return Ok(Value::from(left + right));
    }
    if left.as_str().is_some() && right.as_str().is_some() {
        return Ok(Value::from(written(left)? + &written(right)?));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        let items = left.try_iter()?.chain(right.try_iter()?);
        return made(items.collect());
    }
    let (left, right) = (left.kind(), right.kind());
    Err(told(&format!(
        "+ adds two numbers, two texts or two lists, not {left} and {right}; use ~ to join texts"
    )))
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    let (left, right) = (defined(left)?, defined(right)?);
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        let product = left.checked_mul(right);
        return product
            .map(number)
            .ok_or_else(|| told("the product is too large"));
    }
    match (fraction(left), fraction(right)) {
        (Some(left), Some(right)) => Ok(Value::from(left * right)),
        _ => Err(told(&format!(
            "* multiplies numbers, not {} and {}",
            left.kind(),
            right.kind()
        ))),
    }
}

fn equal(left: &Value, right: &Value) -> Result<bool, Error> {
    for value in [defined(left)?, defined(right)?] {
        if matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map
        ) {
            weigh(value, 0)?;
        }
    }
    Ok(left == right)
}

fn range(lower: isize, upper: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    let (from, to) = upper.map_or((0, lower), |upper| (lower, upper));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(told("a range needs a step other than 0"));
    }
    let width = if step > 0 {
        to.saturating_sub(from)
    } else {
        from.saturating_sub(to)
    };
    let count = (width.max(0) as usize).div_ceil(step.unsigned_abs());
    if count > RANGE_MAX {
        return Err(told(&format!("a range has at most {RANGE_MAX} numbers")));
    }
    let numbers = (0..count as isize).map(|at| from + at * step);
    made(numbers.map(|number| Value::from(number as i64)).collect())
}

fn json(value: &Value, indent: Option<usize>) -> Result<Value, Error> {
    weigh(defined(value)?, 0)?;
    if indent.is_some_and(|indent| indent > 16) {
        return Err(told("json indents by at most 16"));
    }
    let plain = |_| told("json takes what has a form in JSON");
    let text = match indent {
        None | Some(0) => serde_json::to_string(value).map_err(plain)?,
        Some(width) => {
            let margin = " ".repeat(width);
            let mut bytes = Vec::new();
            let style = serde_json::ser::PrettyFormatter::with_indent(margin.as_bytes());
            let mut writer = serde_json::Serializer::with_formatter(&mut bytes, style);
            serde::Serialize::serialize(value, &mut writer).map_err(plain)?;
            String::from_utf8(bytes).expect("JSON is text")
        }
    };
    made(Value::from(without_double_bracket(
        without_line_separators(text),
    )))
}

/// Puts a blank into `[[` at the beginning of a list of lists: in Lua `[[` begins a text, and `--[[` a comment, which the value could end.
fn without_double_bracket(json: String) -> String {
    match json.strip_prefix("[[") {
        Some(rest) => format!("[ [{rest}"),
        None => json,
    }
}

/// Escapes what some languages take for the end of a line, so that JSON never ends a comment. In JSON these characters stand in
/// texts only.
fn without_line_separators(json: String) -> String {
    let mut json = json;
    for (separator, escaped) in [
        ('\u{85}', "\\u0085"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        if json.contains(separator) {
            json = json.replace(separator, escaped);
        }
    }
    json
}

fn join(list: &Value, between: Option<&Value>) -> Result<Value, Error> {
    let between = between.map_or(Ok(String::new()), written)?;
    let mut joined = Bounded(String::new());
    for (at, item) in defined(list)?.try_iter()?.enumerate() {
        let item = written(defined(&item)?)?;
        let between = if at > 0 { between.as_str() } else { "" };
        let whole = joined
            .write_str(between)
            .and_then(|()| joined.write_str(&item));
        whole.map_err(|_| Error::from(ErrorKind::OutOfFuel))?;
    }
    Ok(Value::from(joined.0))
}

/// One quoted shell word, or one for each item of a list.
fn shell_words(value: &Value) -> Result<Value, Error> {
    weigh(defined(value)?, 0)?;
    let words = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let words = value.try_iter()?.map(|item| shell_word(&item));
            words.collect::<Result<Vec<_>, _>>()?.join(" ")
        }
        _ => shell_word(value)?,
    };
    made(Value::from(words))
}

fn shell_word(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => {
            let text = written(value)?;
            match text.contains('\0') {
                true => Err(told(
                    "sh takes no text with a NUL byte in it: a shell has none",
                )),
                false => Ok(format!("'{}'", text.replace('\'', r"'\''"))),
            }
        }
        ValueKind::None => Err(told(
            "sh takes no null: give it a default first, as in | default('', true) | sh",
        )),
        ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
        _ => Err(told(
            "sh takes texts, numbers, booleans and lists of them; write | json | sh for anything else",
        )),
    }
}
