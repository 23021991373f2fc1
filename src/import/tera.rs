//! Templates of Tera, in which Strøm is written, as templates of ours.
//!
//! The two are close. What differs: the names of what a template sees, filters that take their arguments by name, filters
//! that only one of them has, and that our scripts say how a value from outside is quoted.

use std::collections::{BTreeMap, BTreeSet};

use crate::language::shell::{Around, Shell};

/// What the names in a template stand for where it is used.
#[derive(Debug, Default, Clone)]
pub struct Scope {
    /// Steps by the name that a template of Strøm calls them.
    pub steps: BTreeMap<String, String>,
    /// Secrets by their path there.
    pub secrets: BTreeMap<String, String>,
    /// Inputs that are not inputs here, and the expressions that stand for them.
    pub given: BTreeMap<String, String>,
    /// Inputs that may be numbers with a fraction.
    pub numbers: BTreeSet<String>,
    pub in_hook: bool,
    /// The name of the workspace.
    pub workspace: String,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Translated {
    pub text: String,
    /// What is different now, in words.
    pub notes: BTreeSet<String>,
    /// What cannot be said; the text is of no use then.
    pub faults: Vec<String>,
    /// The inputs that it mentions.
    pub inputs: BTreeSet<String>,
    /// Whether it mentions a step, and a secret.
    pub uses_steps: bool,
    pub uses_secrets: bool,
}

/// How a value that comes from outside is put into the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// As it is: no script is around it.
    None,
    /// As one word of a shell where that is possible.
    Shell,
    /// As it is, and the script says so.
    Unsafe,
    /// The text decides what is run, such as an image: values are put in as they are.
    Choice,
}

const WHOLE_FLOATS: &str = "where a whole number that is kept with a fraction becomes text, it is 1.0 here and 1 in Strøm; write | int if it is always whole";

/// Whether it says anything but itself.
pub fn is_template(text: &str) -> bool {
    next_mark(text).is_some()
}

/// Where the next one begins. Tera takes the shell's `${#list[@]}` for a comment too, and fails; whoever wrote it meant the
/// shell's, and here it is.
fn next_mark(text: &str) -> Option<usize> {
    let comment = text.match_indices("{#").map(|(at, _)| at);
    let comment = comment.filter(|at| !text[..*at].ends_with('$')).min();
    let others = ["{{", "{%"].iter().filter_map(|mark| text.find(mark));
    others.chain(comment).min()
}

pub fn translate(text: &str, scope: &Scope, quoting: Quoting) -> Translated {
    let mut out = Translated::default();
    let mut locals = BTreeSet::new();
    let mut shell = Shell::default();
    let mut rest = text;
    while let Some(start) = next_mark(rest) {
        let (before, mark, after) = (&rest[..start], &rest[start..start + 2], &rest[start + 2..]);
        out.text.push_str(before);
        shell.read(before);
        let close = match mark {
            "{{" => "}}",
            "{%" => "%}",
            _ => "#}",
        };
        let Some(end) = after.find(close) else {
            out.faults
                .push(format!("a template is not closed by {close}"));
            return out;
        };
        let inner = &after[..end];
        rest = &after[end + 2..];
        if mark == "{#" {
            // What would end it too early is taken apart.
            let inner = inner.replace("#%}", "# %}");
            out.text.push_str(&format!("{{%#{inner}#%}}"));
            continue;
        }
        if mark == "{%" && inner.trim_matches(['-', ' ']) == "raw" {
            let Some(end) = end_of_raw(rest) else {
                out.faults.push("{% raw %} has no {% endraw %}".to_string());
                return out;
            };
            out.text.push_str(&format!("{{%{inner}%}}{}", &rest[..end]));
            shell.read(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let (left, inner) = trim_mark(inner);
        let (inner, right) = (
            inner.trim_end_matches('-'),
            if inner.ends_with('-') { "-" } else { "" },
        );
        let filter = match quoting {
            Quoting::Shell if shell.around() == Around::Nothing => "sh",
            _ => "unsafe",
        };
        if mark == "{{" {
            shell.value();
        }
        if mark == "{%" {
            locals.extend(locals_of(inner));
        }
        let mut expression = Expression::new(inner, scope, &locals, &mut out);
        let mut said = expression.rewrite();
        let (is_trusted, has_operator) = (expression.is_trusted, expression.has_operator);
        if mark == "{{" && expression.may_be_float && !expression.has_comparison {
            out.notes.insert(WHOLE_FLOATS.to_string());
        }
        if mark == "{{" && quoting != Quoting::None && !is_trusted {
            if has_operator {
                said = format!("({})", said.trim());
            }
            let note = match filter {
                _ if quoting == Quoting::Choice => {
                    "values decide what is run and are put in as they are (| unsafe), as Strøm does; better give their inputs \
                     options or a pattern"
                }
                "sh" => "values are put in as one quoted word (| sh)",
                _ => {
                    "values inside quotes are put in as they are (| unsafe), as Strøm does; better take them from the environment: \"$INPUT_NAME\""
                }
            };
            out.notes.insert(note.to_string());
            said = format!(" {} | {filter} ", said.trim());
        }
        let said = format!(" {} ", said.trim());
        out.text
            .push_str(&format!("{mark}{left}{said}{right}{close}"));
    }
    out.text.push_str(rest);
    out
}

/// Where the statement stands that ends what is not a template.
fn end_of_raw(text: &str) -> Option<usize> {
    let mut statements = text.match_indices("{%").map(|(at, _)| at);
    statements.find(|at| {
        let inner = text[at + 2..].trim_start_matches(['-', ' ']);
        inner.starts_with("endraw")
    })
}

/// The minus sign that takes blanks away.
fn trim_mark(inner: &str) -> (&str, &str) {
    match inner.strip_prefix('-') {
        Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit()) => ("-", rest),
        _ => ("", inner),
    }
}

/// Names that a statement gives: `for x in …`, `for k, v in …`, `set x = …`.
fn locals_of(statement: &str) -> Vec<String> {
    let words: Vec<&str> = statement
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .collect();
    let names: &[&str] = match words.first() {
        Some(&"for") => {
            let end = words.iter().position(|word| *word == "in").unwrap_or(1);
            &words[1..end]
        }
        Some(&"set") if words.len() > 1 => &words[1..2],
        _ => &[],
    };
    names
        .iter()
        .map(|name| name.trim_end_matches('=').to_string())
        .collect()
}

const KEYWORDS: &[&str] = &[
    "and", "or", "not", "in", "is", "if", "elif", "else", "endif", "for", "endfor", "set", "true",
    "false", "True", "False", "loop", "none", "None", "null", "raw", "endraw",
];

/// Filters that mean the same without arguments.
const FILTERS: &[&str] = &[
    "upper",
    "lower",
    "trim",
    "first",
    "last",
    "length",
    "reverse",
    "sort",
    "unique",
    "capitalize",
    "title",
    "abs",
    "int",
    "float",
    "escape",
];

struct Expression<'a> {
    rest: &'a str,
    scope: &'a Scope,
    locals: &'a BTreeSet<String>,
    out: &'a mut Translated,
    is_trusted: bool,
    has_operator: bool,
    /// Whether it compares, so that its value is no number.
    has_comparison: bool,
    /// Whether its value may be a whole number that is kept as one with a fraction.
    may_be_float: bool,
}

impl<'a> Expression<'a> {
    fn new(
        text: &'a str,
        scope: &'a Scope,
        locals: &'a BTreeSet<String>,
        out: &'a mut Translated,
    ) -> Expression<'a> {
        Expression {
            rest: text,
            scope,
            locals,
            out,
            is_trusted: true,
            has_operator: false,
            has_comparison: false,
            may_be_float: false,
        }
    }

    fn rewrite(&mut self) -> String {
        let mut said = String::new();
        while let Some(c) = self.rest.chars().next() {
            match c {
                '"' | '\'' | '`' => said.push_str(&self.string(c)),
                '|' => {
                    self.rest = &self.rest[1..];
                    let filter = self.filter();
                    // A filter that is gone leaves no mark.
                    if !filter.is_empty() {
                        said = format!("{} | {filter}", said.trim_end());
                    }
                }
                c if c.is_alphabetic() || c == '_' => {
                    let word = self.word(&said);
                    said.push_str(&word);
                }
                c if c.is_ascii_digit() => {
                    let end = self
                        .rest
                        .find(|c: char| !c.is_ascii_digit() && c != '.')
                        .unwrap_or(self.rest.len());
                    let number = &self.rest[..end];
                    self.may_be_float |=
                        number.contains('.') && number.parse().is_ok_and(|n: f64| n.fract() == 0.0);
                    said.push_str(number);
                    self.rest = &self.rest[end..];
                }
                c => {
                    self.has_comparison |= "<>=!".contains(c);
                    self.may_be_float |= c == '/';
                    self.has_operator |= "~+-*/%<>=!".contains(c);
                    said.push(c);
                    self.rest = &self.rest[c.len_utf8()..];
                }
            }
        }
        said
    }

    /// Tera's strings know no escapes but may stand in three kinds of quotes; ours stand in two.
    fn string(&mut self, quote: char) -> String {
        let body = &self.rest[1..];
        let end = body.find(quote).unwrap_or(body.len());
        let inner = &body[..end];
        self.rest = body.get(end + 1..).unwrap_or("");
        match quote {
            '`' => serde_json::Value::from(inner).to_string(),
            quote => format!("{quote}{inner}{quote}"),
        }
    }

    fn ident(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(self.rest.len());
        let (ident, rest) = self.rest.split_at(end);
        self.rest = rest;
        ident
    }

    /// A word and the path behind it.
    fn word(&mut self, before: &str) -> String {
        if let Some(step) = self.hyphenated_step() {
            return step;
        }
        let head = self.ident();
        let is_test = before.trim_end().ends_with(" is")
            || before.trim_end().ends_with(" is not")
            || before.trim_end() == "is";
        if is_test {
            return self.test(head);
        }
        if KEYWORDS.contains(&head) || self.locals.contains(head) {
            self.is_trusted &= !self.locals.contains(head);
            self.has_operator |= ["and", "or", "not", "in", "is", "if"].contains(&head);
            return head.to_string() + &self.path().concat();
        }
        let next = self.rest.trim_start();
        if next.starts_with('(') {
            self.fault(format!("Stepward has no function {head}()"));
            return head.to_string();
        }
        // A name before `=` is given by a statement, or names an argument.
        if next.starts_with('=') && !next.starts_with("==") {
            return head.to_string();
        }
        let path = self.path();
        match head {
            "input" => self.input(&path),
            "secret" | "secrets" => self.secret(&path),
            "hook" if self.scope.in_hook => self.hook(&path),
            "each" if matches!(path.first().map(String::as_str), Some(".item" | ".index")) => {
                self.is_trusted = false;
                head.to_string() + &path.concat()
            }
            head => match self.scope.steps.get(head) {
                Some(step) => self.step(&step.clone()) + &path.concat(),
                None => {
                    self.fault(format!(
                        "Stepward has no {head}{} in templates",
                        path.concat()
                    ));
                    head.to_string()
                }
            },
        }
    }

    /// `fetch-items.output`, which Tera takes for a subtraction, but whoever wrote it did not.
    fn hyphenated_step(&mut self) -> Option<String> {
        let rest = self.rest;
        let names = self.scope.steps.values().filter(|name| name.contains('-'));
        let named = |name: &&String| {
            rest.strip_prefix(name.as_str())
                .is_some_and(|after| after.starts_with('.'))
        };
        let name = names.filter(named).max_by_key(|name| name.len())?.clone();
        self.rest = &rest[name.len()..];
        let path = self.path().concat();
        Some(self.step(&name) + &path)
    }

    fn step(&mut self, name: &str) -> String {
        self.out.uses_steps = true;
        self.is_trusted = false;
        let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match is_word && !name.starts_with(|c: char| c.is_ascii_digit()) {
            true => format!("steps.{name}"),
            false => format!("steps['{name}']"),
        }
    }

    fn input(&mut self, path: &[String]) -> String {
        self.is_trusted = false;
        let Some(name) = path.first().and_then(|part| part.strip_prefix('.')) else {
            return format!("input{}", path.concat());
        };
        if let Some(expression) = self.scope.given.get(name) {
            self.is_trusted = expression.starts_with("secret.") && path.len() == 1;
            self.out.uses_secrets |= expression.contains("secret.");
            self.out.uses_steps |= expression.contains("steps");
            let more = path[1..].concat();
            return match expression.contains([' ', '|']) {
                true => format!("({expression}){more}"),
                false => format!("{expression}{more}"),
            };
        }
        self.may_be_float |= self.scope.numbers.contains(name);
        self.out.inputs.insert(name.to_string());
        format!("input{}", path.concat())
    }

    fn secret(&mut self, path: &[String]) -> String {
        self.out.uses_secrets = true;
        let dotted: String = path.concat();
        match self.scope.secrets.get(dotted.trim_start_matches('.')) {
            Some(name) => format!("secret.{name}"),
            None => {
                self.fault(format!(
                    "secret{dotted} is not among the secrets of the workspace"
                ));
                "secret".to_string()
            }
        }
    }

    fn hook(&mut self, path: &[String]) -> String {
        let field = path.concat();
        if field == ".workspace" {
            let name = serde_json::Value::from(self.scope.workspace.as_str()).to_string();
            let note = format!(
                "hook.workspace is written out as {name}, the name of the folder; there are no workspaces here"
            );
            self.out.notes.insert(note);
            return name;
        }
        let (here, note) = match field.as_str() {
            ".job_id" => ("hook.job", None),
            ".task_name" => ("hook.task", None),
            ".status" => ("hook.status", None),
            ".started_at" => ("hook.started_at", None),
            ".completed_at" => ("hook.ended_at", None),
            ".failed_steps" => (
                "hook.failed_steps",
                Some("each of hook.failed_steps has name, reason and message here"),
            ),
            ".is_success" => ("(hook.status == 'completed')", None),
            ".error_message" => (
                "hook.summary",
                Some("hook.error_message is hook.summary here, one sentence instead of all errors"),
            ),
            _ => {
                self.fault(format!("Stepward has no hook{field}"));
                return "hook".to_string();
            }
        };
        self.out.notes.extend(note.map(str::to_string));
        here.to_string()
    }

    /// `.a`, `[0]`, `["b"]`, as they stand.
    fn path(&mut self) -> Vec<String> {
        let mut parts = Vec::new();
        loop {
            if let Some(after) = self.rest.strip_prefix('.') {
                self.rest = after;
                let end = self
                    .rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(self.rest.len());
                let (part, rest) = self.rest.split_at(end);
                self.rest = rest;
                let is_index = part.starts_with(|c: char| c.is_ascii_digit());
                parts.push(if is_index {
                    format!("[{part}]")
                } else {
                    format!(".{part}")
                });
            } else if self.rest.starts_with('[') {
                let end = self.rest.find(']').map_or(self.rest.len(), |end| end + 1);
                parts.push(self.rest[..end].to_string());
                self.rest = &self.rest[end..];
            } else {
                return parts;
            }
        }
    }

    fn test(&mut self, name: &str) -> String {
        match name {
            "not" | "defined" | "undefined" | "odd" | "even" | "string" | "number" | "iterable" => {
                name.to_string()
            }
            "starting_with" => "startingwith".to_string(),
            "ending_with" => "endingwith".to_string(),
            "divisibleby" => name.to_string(),
            _ => {
                self.fault(format!("Stepward has no test {name}"));
                name.to_string()
            }
        }
    }

    fn filter(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let name = self.ident();
        let arguments = self.arguments();
        let named = |key: &str| {
            arguments
                .iter()
                .find(|(name, _)| name.as_deref() == Some(key))
                .map(|(_, value)| value.clone())
        };
        let rewritten = match name {
            "default" => named("value").map(|value| format!("default({value})")),
            "replace" => named("from")
                .zip(named("to"))
                .map(|(from, to)| format!("replace({from}, {to})")),
            "join" => named("sep")
                .map(|sep| format!("join({sep})"))
                .or(Some("join".to_string())),
            "split" => named("pat").map(|pat| format!("split({pat})")),
            "round" if named("method").is_none() => match named("precision") {
                Some(precision) => Some(format!("round({precision})")),
                None => Some("round".to_string()),
            },
            "json_encode" => Some("tojson".to_string()),
            // Nothing is escaped by itself here.
            "safe" => Some(String::new()),
            "as_str" => Some("string".to_string()),
            name if FILTERS.contains(&name) && arguments.is_empty() => Some(name.to_string()),
            _ => None,
        };
        rewritten.unwrap_or_else(|| {
            self.fault(format!("Stepward has no filter {name}"));
            name.to_string()
        })
    }

    /// `(a=1, b=x)`, each rewritten by itself.
    fn arguments(&mut self) -> Vec<(Option<String>, String)> {
        if !self.rest.starts_with('(') {
            return Vec::new();
        }
        let mut depth = 0;
        let mut quote = None;
        let mut parts = vec![String::new()];
        let mut end = self.rest.len();
        for (index, c) in self.rest.char_indices() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '"' | '\'' | '`') => quote = Some(c),
                (None, '(' | '[') => depth += 1,
                (None, ')' | ']') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = index + 1;
                break;
            }
            match (quote, c) {
                (None, '(') if depth == 1 => {}
                (None, ',') if depth == 1 => parts.push(String::new()),
                _ => parts.last_mut().expect("never empty").push(c),
            }
        }
        self.rest = &self.rest[end..];
        let mut arguments = Vec::new();
        for part in parts
            .iter()
            .map(|part| part.trim())
            .filter(|part| !part.is_empty())
        {
            let is_word = |text: &str| text.trim().chars().all(|c| c.is_alphanumeric() || c == '_');
            let (name, value) = match part.split_once('=') {
                Some((name, value)) if is_word(name) && !value.starts_with('=') => {
                    (Some(name.trim().to_string()), value.trim())
                }
                _ => (None, part),
            };
            let mut inner = Expression::new(value, self.scope, self.locals, self.out);
            let said = inner.rewrite();
            self.is_trusted &= inner.is_trusted;
            arguments.push((name, said));
        }
        arguments
    }

    fn fault(&mut self, fault: String) {
        self.out.faults.push(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let steps = [("build", "build"), ("say_hello", "say-hello")];
        let secrets = [("API_KEY", "API_KEY"), ("db.password", "db_password")];
        let pairs =
            |pairs: [(&str, &str); 2]| pairs.map(|(a, b)| (a.to_string(), b.to_string())).into();
        Scope {
            steps: pairs(steps),
            secrets: pairs(secrets),
            ..Scope::default()
        }
    }

    #[test]
    fn names_and_filters_become_ours() {
        for (theirs, ours) in [
            ("plain", "plain"),
            ("{{ input.name }}", "{{ input.name }}"),
            ("{{input.name|upper}}", "{{ input.name | upper }}"),
            ("{{ build.output.image }}", "{{ steps.build.output.image }}"),
            (
                "{{ say_hello.output.greeting }}",
                "{{ steps['say-hello'].output.greeting }}",
            ),
            (
                "{{ say-hello.output.greeting }}",
                "{{ steps['say-hello'].output.greeting }}",
            ),
            (
                "{{ input.a | default(value='x, y') }}",
                "{{ input.a | default('x, y') }}",
            ),
            (
                "{{ input.a | default(value=build.output.b) }}",
                "{{ input.a | default(steps.build.output.b) }}",
            ),
            (
                "{{ input.a | replace(from=\"-\", to=`_`) }}",
                "{{ input.a | replace(\"-\", \"_\") }}",
            ),
            (
                "{{ build.output.list.0 }}",
                "{{ steps.build.output.list[0] }}",
            ),
            (
                "{{ build.output | json_encode() }}",
                "{{ steps.build.output | tojson }}",
            ),
            (
                "{{ input.a == 'b' and not input.c }}",
                "{{ input.a == 'b' and not input.c }}",
            ),
            ("{{ input.a is defined }}", "{{ input.a is defined }}"),
            (
                "{{ secret.db.password }}/{{ secrets.API_KEY }}",
                "{{ secret.db_password }}/{{ secret.API_KEY }}",
            ),
            (
                "{% for x in input.list %}{{ x }}{% endfor %}",
                "{% for x in input.list %}{{ x }}{% endfor %}",
            ),
            (
                "{%- if input.a -%}b{%- endif -%}",
                "{%- if input.a -%}b{%- endif -%}",
            ),
            ("{# said #}a{#- #%} -#}", "{%# said #%}a{%#- # %} -#%}"),
            ("n=${#list[@]}", "n=${#list[@]}"),
            (
                "n=${#list[@]} {# the last #}{{ input.a }} ${x#}",
                "n=${#list[@]} {%# the last #%}{{ input.a }} ${x#}",
            ),
            (
                "{%- raw %}{{ .Names }}{# x {% endraw -%}{{ input.a|upper }}",
                "{%- raw %}{{ .Names }}{# x {% endraw -%}{{ input.a | upper }}",
            ),
        ] {
            let translated = translate(theirs, &scope(), Quoting::None);
            assert_eq!(translated.faults, Vec::<String>::new(), "{theirs}");
            assert_eq!(translated.text, ours);
        }
    }

    #[test]
    fn what_cannot_be_said_is_told() {
        for (theirs, fault) in [
            ("{{ now() }}", "Stepward has no function now()"),
            ("{{ input.a | slugify }}", "Stepward has no filter slugify"),
            (
                "{{ other.output }}",
                "Stepward has no other.output in templates",
            ),
            (
                "{{ secret.nobody }}",
                "secret.nobody is not among the secrets of the workspace",
            ),
            (
                "{{ input.a is matching('b') }}",
                "Stepward has no test matching",
            ),
            ("{{ input.a", "a template is not closed by }}"),
            ("{# said", "a template is not closed by #}"),
            ("{% raw %}{{ a }}", "{% raw %} has no {% endraw %}"),
        ] {
            let translated = translate(theirs, &scope(), Quoting::None);
            assert_eq!(translated.faults, [fault], "{theirs}");
        }
    }

    #[test]
    fn scripts_say_how_values_are_quoted() {
        for (theirs, ours) in [
            ("echo {{ input.a }}", "echo {{ input.a | sh }}"),
            (
                "echo \"{{ input.a }}\" {{ input.b }}",
                "echo \"{{ input.a | unsafe }}\" {{ input.b | sh }}",
            ),
            (
                "echo 'it {{ input.a }}'",
                "echo 'it {{ input.a | unsafe }}'",
            ),
            (
                "cat <<E\n{{ input.a }}\nE",
                "cat <<E\n{{ input.a | unsafe }}\nE",
            ),
            ("login {{ secret.API_KEY }}", "login {{ secret.API_KEY }}"),
            (
                "echo {{ input.a ~ 'x' }}",
                "echo {{ (input.a ~ 'x') | sh }}",
            ),
        ] {
            assert_eq!(translate(theirs, &scope(), Quoting::Shell).text, ours);
        }
    }
}
