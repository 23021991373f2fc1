//! From the tree of a file to drafts: every key by hand, every problem with its place.
//!
//! A broken key never hides what is wrong with its neighbours; whoever was decoded while errors were found is not whole,
//! and nothing is built on it.

mod action;
mod depends;
mod document;
mod hooks;
mod policies;
mod schedule;
mod step;
mod task;
mod values;

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use super::arguments::{self, Choice, Role};
use super::budget::Suggestions;
use super::diagnostic::Problems;
use super::manifest::Reference;
use super::scalar::{self, Meaning};
use super::scripts::Scripts;
use super::shell::Program;
use super::source::Span;
use super::tree::{Entry, Key, Kind, Node, Scalar, Style};
use super::words::{self, Where};
use crate::domain::task::is_template;
use crate::sealer::SEALED_KEY;

pub use action::{ActionParts, ManifestParts};
pub use depends::Edge;
pub use document::Document;
pub use hooks::{HookParts, HookTarget};
pub use policies::Policies;
pub use schedule::{ScheduleParts, WebhookParts};
pub use step::{Does, StepParts};
pub use task::TaskParts;
pub use values::SpecParts;

/// The thing whose keys are read.
#[derive(Debug, Clone)]
pub struct Owner {
    /// ``step `build` ``
    pub what: String,
    /// `step`
    pub kind: &'static str,
    pub span: Span,
    pub at: Where,
}

impl Owner {
    pub fn new(kind: &'static str, key: &Key, at: Where) -> Owner {
        Owner {
            what: format!("{kind} `{}`", key.text),
            kind,
            span: key.span,
            at,
        }
    }

    /// A map below it that has no name of its own.
    pub fn below(&self, kind: &'static str, key: &Key) -> Owner {
        Owner {
            what: format!("`{kind}` of {}", self.what),
            kind,
            span: key.span,
            at: Where::Other,
        }
    }

    fn label(&self) -> String {
        match self.has_name() {
            true => format!("in this {}", self.kind),
            false => format!("in this `{}`", self.kind),
        }
    }

    /// As opposed to a map that is known by its key alone.
    fn has_name(&self) -> bool {
        !self.what.starts_with('`')
    }
}

/// Where a text stands, which says what its templates may speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Becomes a program.
    Script,
    /// Rendered for a worker: image, command, manifest, workdir.
    Worker,
    /// The environment of a step, made before what the step adds to its inputs.
    StepEnv,
    TaskEnv,
    When,
    ForEach,
    /// Rendered for a worker, and kept nowhere.
    WorkInput,
    /// Of a task that is called: it is kept with that job.
    CallInput,
    Message,
    Concurrency,
    HookInput,
    ScheduleInput,
    WebhookInput,
}

/// A text that may be a template, and where it stands.
#[derive(Debug)]
pub struct Text<'t> {
    pub node: &'t Node,
    pub text: Cow<'t, str>,
    pub place: Place,
    /// Of another file than the node's: positions inside it cannot be shown.
    pub from_file: bool,
    /// The role of the text: data, code or choice.
    pub role: Role,
    /// It is one text of a manifest, with references `$(NAME)` replaced. It is checked for its role alone, because the text as it is
    /// written is checked as another `Text`.
    pub part: Option<ManifestPart>,
    line_starts: OnceCell<Vec<usize>>,
    verbatim_bytes: OnceCell<usize>,
    /// Where lines of a literal text stand in the file, as far as somebody asked: the first byte and the length of each.
    literal_lines: RefCell<HashMap<usize, Option<(usize, usize)>>>,
}

/// Where a text of a manifest comes from.
#[derive(Debug)]
pub struct ManifestPart {
    /// `/spec/containers/0/image`
    pub place: String,
    /// The references that were replaced.
    pub references: Vec<Reference>,
}

impl<'t> Text<'t> {
    pub fn new(node: &'t Node, text: Cow<'t, str>, place: Place, from_file: bool) -> Text<'t> {
        Text {
            node,
            text,
            place,
            from_file,
            role: match place {
                Place::Script => Role::Code(Program::Shell),
                _ => Role::Data,
            },
            part: None,
            line_starts: OnceCell::new(),
            verbatim_bytes: OnceCell::new(),
            literal_lines: RefCell::default(),
        }
    }

    /// Where a line of the text stands in the file, looked for only once: a line may hold thousands of templates.
    pub fn literal_line(
        &self,
        line: usize,
        find: impl FnOnce() -> Option<(usize, usize)>,
    ) -> Option<(usize, usize)> {
        let mut lines = self.literal_lines.borrow_mut();
        *lines.entry(line).or_insert_with(find)
    }

    /// How many bytes of the scalar's text are in the file as they are, from its beginning on. `written`: the file from there on.
    pub fn verbatim_bytes(&self, scalar: &str, written: &[u8]) -> usize {
        *self.verbatim_bytes.get_or_init(|| {
            let pairs = scalar.bytes().zip(written);
            pairs.take_while(|(read, written)| read == *written).count()
        })
    }

    /// The line that this byte is in, from 0, and where it starts. A script may have many lines with a template in each.
    pub fn line_of(&self, byte: usize) -> (usize, usize) {
        let starts = self.line_starts.get_or_init(|| {
            let breaks = memchr::memchr_iter(b'\n', self.text.as_bytes());
            std::iter::once(0).chain(breaks.map(|at| at + 1)).collect()
        });
        let line = starts.partition_point(|&start| start <= byte) - 1;
        (line, starts[line])
    }
}

/// Reads keys and values, and says what is wrong with them.
pub struct Decoder<'d> {
    pub problems: &'d mut Problems,
    pub suggestions: &'d Suggestions,
    pub scripts: &'d mut Scripts,
    /// Keys that are there with a typing error, and whose they are: that they are missing need not be said as well.
    pub meant: HashSet<(Span, &'static str)>,
    /// The names of all time zones, once somebody asks for the nearest one.
    pub zones: OnceCell<Vec<String>>,
}

impl Decoder<'_> {
    /// The entries of a map. Nothing counts as an empty one, and no map is read any more when the time for the check is over.
    pub fn map<'t>(&mut self, node: &'t Node, owner: &Owner) -> Option<&'t [Entry]> {
        if self.problems.is_out_of_time() {
            return None;
        }
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Broken => None,
            _ if node.is_null() => Some(&[]),
            _ => {
                self.wrong_type(node, &owner.what, "a map of keys and values");
                None
            }
        }
    }

    /// Says which keys nobody knows.
    pub fn known_keys(&mut self, entries: &[Entry], owner: &Owner, known: &[&'static str]) {
        for entry in entries {
            if !known.contains(&entry.key.text.as_str()) {
                self.unknown_key(entry, owner, known);
            }
        }
    }

    pub fn unknown_key(&mut self, entry: &Entry, owner: &Owner, known: &[&'static str]) {
        let (key, span) = (&entry.key.text, entry.key.span);
        if let Some(foreign) = words::foreign(owner.at, key) {
            let message = format!("`{key}` is a word of {}", foreign.tool);
            let problem = self.problems.error("E015", span, message);
            problem
                .label("not a key here")
                .also(owner.span, owner.label());
            problem.help(foreign.help);
            if let Some(rename) = foreign.rename {
                problem.fix(span, rename);
            }
            if let (Kind::Scalar(minutes), "timeout-minutes") = (&entry.value.kind, key.as_str()) {
                let whole = Span {
                    end: entry.value.span.end,
                    ..span
                };
                problem.fix(whole, format!("timeout: {}m", minutes.text));
            }
            return;
        }
        let message = format!("unknown key `{key}` in {}", owner.what);
        let problem = self.problems.error("E012", span, message);
        problem
            .label(match owner.has_name() {
                true => format!("not a key of {}", words::one(owner.kind)),
                false => format!("not a key of `{}`", owner.kind),
            })
            .also(owner.span, owner.label());
        match self.suggestions.nearest(key, known.iter().copied()) {
            Some(near) => {
                problem
                    .help(format!("did you mean `{near}`?"))
                    .fix(span, near);
                self.meant.insert((owner.span, near));
            }
            None => {
                problem.help(format!(
                    "known are {}",
                    words::listed(known.iter().copied())
                ));
            }
        }
    }

    pub fn missing(&mut self, owner: &Owner, key: &'static str, help: impl Into<String>) {
        // What a step does is told by any of these.
        let told_by = match key {
            "type" => &["type", "script", "file", "action"][..],
            _ => &[key][..],
        };
        if told_by
            .iter()
            .any(|key| self.meant.contains(&(owner.span, *key)))
        {
            return;
        }
        let message = format!("{} has no `{key}`", owner.what);
        let problem = self.problems.error("E010", owner.span, message);
        problem.label(format!("needs `{key}`")).help(help);
    }

    pub fn wrong_type(&mut self, node: &Node, what: &str, expected: &str) {
        if node.is_broken() {
            return;
        }
        let message = format!("{what} is {}, expected {expected}", describe(node));
        self.problems
            .error("E011", first_line(node), message)
            .label(format!("expected {expected}"));
    }

    /// Any scalar that is there, as its text.
    pub fn text<'t>(&mut self, entry: &'t Entry, owner: &Owner) -> Option<&'t str> {
        let what = format!("`{}` of {}", entry.key.text, owner.what);
        self.text_at(&entry.value, &what)
    }

    pub fn text_at<'t>(&mut self, node: &'t Node, what: &str) -> Option<&'t str> {
        match &node.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => {
                self.surprises(node, scalar);
                Some(&scalar.text)
            }
            _ => {
                self.wrong_type(node, what, "text");
                None
            }
        }
    }

    /// A text that is not empty.
    pub fn some_text<'t>(&mut self, entry: &'t Entry, owner: &Owner) -> Option<&'t str> {
        let text = self.text(entry, owner)?;
        if text.trim().is_empty() {
            let message = format!("`{}` of {} is empty", entry.key.text, owner.what);
            let problem = self.problems.error("E019", entry.value.span, message);
            problem
                .label("nothing in it")
                .also(owner.span, owner.label());
            return None;
        }
        Some(text)
    }

    /// Words that older readers of YAML take for something else.
    pub fn surprises(&mut self, node: &Node, scalar: &Scalar) {
        if scalar.style != Style::Plain {
            return;
        }
        let text = &scalar.text;
        if scalar::old_boolean(text).is_some() && text.len() > 1 {
            let message = format!("`{text}` is a text here, older YAML takes it for true or false");
            self.problems
                .error("W106", node.span, message)
                .label("text without quotes")
                .help(format!("put it in quotes: \"{text}\""))
                .fix(node.span, format!("\"{text}\""));
        } else if scalar::has_leading_zero(text) {
            let message =
                format!("`{text}` begins with a zero, which readers of YAML take differently");
            self.problems
                .error("W107", node.span, message)
                .label("text without quotes")
                .help(format!("put it in quotes if it is a text: \"{text}\""))
                .fix(node.span, format!("\"{text}\""));
        }
    }

    pub fn flag(&mut self, entry: &Entry, owner: &Owner) -> Option<bool> {
        if let Kind::Scalar(scalar) = &entry.value.kind
            && scalar.style == Style::Plain
        {
            if let Meaning::Bool(flag) = scalar::meaning(&scalar.text) {
                return Some(flag);
            }
            if let Some(flag) = scalar::old_boolean(&scalar.text) {
                let message = format!(
                    "`{}` of {} is `{}`, which is a text",
                    entry.key.text, owner.what, scalar.text
                );
                self.problems
                    .error("E011", entry.value.span, message)
                    .label("expected true or false")
                    .help(format!("write `{flag}`"))
                    .fix(entry.value.span, flag.to_string());
                return None;
            }
        }
        let what = format!("`{}` of {}", entry.key.text, owner.what);
        self.wrong_type(&entry.value, &what, "true or false");
        None
    }

    /// A whole number within bounds.
    pub fn number(&mut self, entry: &Entry, owner: &Owner, min: i64, max: i64) -> Option<i64> {
        let what = format!("`{}` of {}", entry.key.text, owner.what);
        let number = match &entry.value.kind {
            Kind::Scalar(scalar) if scalar.style == Style::Plain => {
                match scalar::meaning(&scalar.text) {
                    Meaning::Number(number) => {
                        if scalar::has_leading_zero(&scalar.text) {
                            self.surprises(&entry.value, scalar);
                        }
                        number.as_i64()
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(number) = number else {
            self.wrong_type(&entry.value, &what, "a whole number");
            return None;
        };
        if !(min..=max).contains(&number) {
            let message = format!("{what} is {number}, expected {min} to {max}");
            let problem = self.problems.error("E017", entry.value.span, message);
            problem.label(format!("expected {min} to {max}"));
            problem.also(owner.span, owner.label());
            return None;
        }
        Some(number)
    }

    pub fn duration(&mut self, entry: &Entry, owner: &Owner, min_ms: i64) -> Option<i64> {
        let what = format!("`{}` of {}", entry.key.text, owner.what);
        let text = match &entry.value.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => &scalar.text,
            _ => {
                self.wrong_type(
                    &entry.value,
                    &what,
                    "a duration such as 90, 30s, 5m or 1h30m",
                );
                return None;
            }
        };
        let max_ms = crate::domain::limits::DURATION_MS_MAX;
        match super::duration::parse(text) {
            Ok(ms) if (min_ms..=max_ms).contains(&ms) => Some(ms),
            Ok(_) => {
                let message = format!("{what} is `{text}`, which is out of bounds");
                let least = if min_ms > 0 { "more than 0" } else { "0" };
                self.problems
                    .error("E017", entry.value.span, message)
                    .label(format!("expected {least}, at most ten years"))
                    .also(owner.span, owner.label());
                None
            }
            Err(_) => {
                let message = format!("{what} is not a duration");
                let problem = self.problems.error("E021", entry.value.span, message);
                problem
                    .label("expected something like 90, 30s, 5m, 1h30m or 2d")
                    .also(owner.span, owner.label());
                if let Some(meant) = super::duration::meant(text) {
                    problem
                        .help(format!("did you mean `{meant}`?"))
                        .fix(entry.value.span, meant);
                }
                None
            }
        }
    }

    /// One of a closed set of words.
    pub fn word<T: Copy>(
        &mut self,
        node: &Node,
        key: &str,
        owner: &Owner,
        from_word: fn(&str) -> Option<T>,
        all: &[&str],
    ) -> Option<T> {
        let what = format!("`{key}` of {}", owner.what);
        let text = match &node.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => &scalar.text,
            _ => {
                let expected = words::listed(all.iter().copied());
                self.wrong_type(node, &what, &expected);
                return None;
            }
        };
        if let Some(word) = from_word(text) {
            return Some(word);
        }
        if let Some((tool, help)) = words::foreign_value(key, text) {
            let message = format!("`{text}` is a word of {tool}");
            let problem = self.problems.error("E015", node.span, message);
            let expected = words::listed(all.iter().copied());
            problem.label(format!("expected {expected}")).help(help);
            return None;
        }
        let message = format!("{what} is `{text}`, which is not known");
        let problem = self.problems.error("E016", node.span, message);
        problem.label(format!("expected {}", words::listed(all.iter().copied())));
        problem.also(owner.span, owner.label());
        if let Some(near) = self.suggestions.nearest(text, all.iter().copied()) {
            problem
                .help(format!("did you mean `{near}`?"))
                .fix(node.span, near);
        }
        None
    }

    /// One text or a list of them.
    pub fn texts<'t>(&mut self, entry: &'t Entry, owner: &Owner) -> Vec<(&'t str, &'t Node)> {
        let what = format!("`{}` of {}", entry.key.text, owner.what);
        match &entry.value.kind {
            Kind::List(members) => {
                let texts = members.iter();
                let texts = texts.filter_map(|node| Some((self.text_at(node, &what)?, node)));
                texts.collect()
            }
            Kind::Scalar(scalar) if !scalar.is_null() => {
                vec![(scalar.text.as_str(), &entry.value)]
            }
            _ => {
                self.wrong_type(&entry.value, &what, "a list of texts");
                Vec::new()
            }
        }
    }

    fn reserved_key(&mut self, key: &Key) {
        let message = format!("the key `{SEALED_KEY}` is reserved");
        self.problems
            .new_rule("E056", key.span, message)
            .label("only the server writes sealed values")
            .help("write the value itself, or use another key");
    }

    /// Any value; its templates are collected.
    pub fn json<'t>(
        &mut self,
        node: &'t Node,
        place: Place,
        texts: &mut Vec<Text<'t>>,
    ) -> Option<Value> {
        match &node.kind {
            Kind::Broken => None,
            Kind::List(members) => {
                let values = members.iter().map(|member| self.json(member, place, texts));
                // All of them are looked at before one that is broken makes the whole so.
                let values: Vec<Option<Value>> = values.collect();
                values
                    .into_iter()
                    .collect::<Option<Vec<Value>>>()
                    .map(Value::Array)
            }
            Kind::Map(entries) => {
                let mut map = Map::new();
                let mut whole = true;
                for entry in entries {
                    // A manifest is for Kubernetes; every other value may become an input.
                    if entry.key.text == SEALED_KEY && place != Place::Worker {
                        self.reserved_key(&entry.key);
                    }
                    match self.json(&entry.value, place, texts) {
                        Some(value) => {
                            map.insert(entry.key.text.clone(), value);
                        }
                        None => whole = false,
                    }
                }
                whole.then_some(Value::Object(map))
            }
            Kind::Scalar(scalar) if scalar.style == Style::Plain => {
                match scalar::json(&scalar.text) {
                    Some(value) => {
                        if value.is_string() || scalar::has_leading_zero(&scalar.text) {
                            self.surprises(node, scalar);
                        }
                        collect(node, &scalar.text, place, texts);
                        Some(value)
                    }
                    None => {
                        self.wrong_type(
                            node,
                            "this value",
                            "a number that JSON has, or a text in quotes",
                        );
                        None
                    }
                }
            }
            Kind::Scalar(scalar) => {
                collect(node, &scalar.text, place, texts);
                Some(Value::String(scalar.text.clone()))
            }
        }
    }

    /// Names and texts, as an environment has them: numbers stay as they were written.
    pub fn env<'t>(
        &mut self,
        entry: &'t Entry,
        owner: &Owner,
        place: Place,
        texts: &mut Vec<Text<'t>>,
    ) -> BTreeMap<String, String> {
        let owner = owner.below("env", &entry.key);
        let mut env = BTreeMap::new();
        for variable in self.map(&entry.value, &owner).unwrap_or_default() {
            self.env_name(&variable.key, &owner);
            let Some(text) = self.text(variable, &owner) else {
                continue;
            };
            let role = match arguments::is_loader_variable(&variable.key.text) {
                true => Role::Choice(Choice::Variable),
                false => Role::Data,
            };
            collect_as(role, &variable.value, text, place, texts);
            self.looks_secret(&variable.key.text, text, variable.value.span);
            env.insert(variable.key.text.clone(), text.to_string());
        }
        env
    }

    fn env_name(&mut self, key: &Key, owner: &Owner) {
        if crate::domain::check::env_name_fault(&key.text).is_some() {
            let message = format!("`{}` cannot be the name of a variable", key.text);
            let problem = self.problems.error("E025", key.span, message);
            problem.label("letters, digits and `_`, not a digit first");
            problem.also(owner.span, "in this environment");
            if key.text.starts_with("STEPWARD_") {
                problem.help("names that begin with STEPWARD_ are the worker's own");
            } else {
                let clean = key.text.to_uppercase().replace(['-', '.', ' '], "_");
                if crate::domain::check::env_name_fault(&clean).is_none() {
                    problem
                        .help(format!("did you mean `{clean}`?"))
                        .fix(key.span, clean);
                }
            }
        }
    }

    /// A password in a file is read by everybody who reads the file.
    pub fn looks_secret(&mut self, name: &str, value: &str, span: Span) {
        if super::secrets::looks_secret(name, value) {
            let message = format!("the value of `{name}` looks like a secret");
            self.problems
                .error("W105", span, message)
                .label("everybody who sees this file can read it")
                .help(
                    "name it under `secrets:` with `env:` or `file:`, and write {{ secret.NAME }}",
                );
        }
    }

    /// A name that people type and templates speak of.
    pub fn name(&mut self, key: &Key, kind: &str) {
        if let Some(why) = name_fault(&key.text) {
            let message = format!("`{}` cannot be the name of a {kind}: {why}", key.text);
            let problem = self.problems.error("E020", key.span, message);
            problem
                .label("not a name")
                .help("use letters, digits, `-`, `_` and `.`, at most 128 bytes");
        }
    }
}

/// What is wrong with a name of a task, step, action, schedule or webhook.
fn name_fault(name: &str) -> Option<String> {
    use crate::domain::limits::NAME_BYTES_MAX;
    use crate::domain::task::HOOK_TASK_PREFIX;
    if name.trim().is_empty() {
        return Some("it is empty".to_string());
    }
    if name.len() > NAME_BYTES_MAX {
        return Some(format!("it is {} bytes long", name.len()));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control() || "[]/@".contains(*c)) {
        return Some(format!("it holds {bad:?}"));
    }
    if name == "_server" || name.starts_with(HOOK_TASK_PREFIX) {
        return Some("it is reserved".to_string());
    }
    None
}

/// Keeps what has to be rendered.
pub fn collect<'t>(node: &'t Node, text: &'t str, place: Place, texts: &mut Vec<Text<'t>>) {
    if is_template(text) {
        texts.push(Text::new(node, Cow::Borrowed(text), place, false));
    }
}

/// The same, of a text that has this role.
pub fn collect_as<'t>(
    role: Role,
    node: &'t Node,
    text: &'t str,
    place: Place,
    texts: &mut Vec<Text<'t>>,
) {
    if is_template(text) {
        let mut text = Text::new(node, Cow::Borrowed(text), place, false);
        text.role = role;
        texts.push(text);
    }
}

pub fn describe(node: &Node) -> &'static str {
    match &node.kind {
        Kind::List(_) => "a list",
        Kind::Map(_) => "a map",
        Kind::Broken => "broken",
        Kind::Scalar(scalar) if scalar.style != Style::Plain => "text",
        Kind::Scalar(scalar) => match scalar::meaning(&scalar.text) {
            Meaning::Null => "empty",
            Meaning::Bool(_) => "true or false",
            Meaning::Number(_) | Meaning::NoJson => "a number",
            Meaning::Text => "text",
        },
    }
}

/// A block is pointed at by its first line.
pub fn first_line(node: &Node) -> Span {
    match &node.kind {
        Kind::Map(entries) => entries.first().map_or(node.span, |entry| {
            if entry.key.span.start == node.span.start {
                entry.key.span
            } else {
                node.span
            }
        }),
        _ => node.span,
    }
}

pub fn find<'t>(entries: &'t [Entry], key: &str) -> Option<&'t Entry> {
    entries.iter().find(|entry| entry.key.text == key)
}
