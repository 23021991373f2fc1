//! A step of a flow.

use std::sync::LazyLock;

use super::action::{ManifestParts, StepType, is_body_key, step_keys};
use super::policies::Policies;
use super::{Decoder, Edge, Owner, Place, SpecParts, Text, collect, find};
use crate::domain::Json;
use crate::domain::depends::DependsOn;
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::task::{Action, ForEach, Items, is_template};
use crate::language::scalar;
use crate::language::source::Span;
use crate::language::template;
use crate::language::tree::{Entry, Key, Kind, Node, Style};
use crate::language::words::{Where, foreign_value};

static KEYS: LazyLock<Vec<&str>> = LazyLock::new(step_keys);

/// A step as it stands in its file.
#[derive(Debug)]
pub struct StepParts<'t> {
    pub key: &'t Key,
    /// Span of everything that the step says.
    pub span: Span,
    pub owner: Owner,
    pub does: Does<'t>,
    pub depends_on: DependsOn<String>,
    pub edges: Vec<Edge<'t>>,
    /// `false`: what it waits for is not known.
    pub depends_whole: bool,
    pub when: Option<(Json, Span)>,
    pub for_each: Option<ForEach>,
    /// It has `for_each`, even if that is broken.
    pub looped: bool,
    /// A JSON object of templates.
    pub input: Json,
    pub input_entry: Option<&'t Entry>,
    pub policies: Policies,
    pub continue_on_failure: bool,
    pub texts: Vec<Text<'t>>,
    pub manifest: Option<ManifestParts<'t>>,
    pub whole: bool,
}

#[derive(Debug)]
pub enum Does<'t> {
    /// Itself, or asks a person.
    Own {
        action: Action,
        asks: Vec<SpecParts>,
    },
    Calls {
        task: String,
        span: Span,
    },
    Uses {
        action: &'t str,
        span: Span,
    },
    /// It is broken, and that has been said.
    Unknown,
}

impl Decoder<'_> {
    pub fn step<'t>(&mut self, key: &'t Key, node: &'t Node) -> StepParts<'t> {
        let errors_before = self.problems.errors();
        let owner = Owner::new("step", key, Where::Step);
        let mut parts = StepParts {
            key,
            span: node.span,
            owner: owner.clone(),
            does: Does::Unknown,
            depends_on: DependsOn::nothing(),
            edges: Vec::new(),
            depends_whole: true,
            when: None,
            for_each: None,
            looped: false,
            input: Json::empty_object(),
            input_entry: None,
            policies: Policies::default(),
            continue_on_failure: false,
            texts: Vec::new(),
            manifest: None,
            whole: true,
        };
        if let Kind::Scalar(scalar) = &node.kind
            && !scalar.is_null()
        {
            let message = format!("{} is text, expected a map", owner.what);
            let problem = self.problems.error("E011", node.span, message);
            problem
                .label("expected a map")
                .help("if this is what it does, write it under `script:`");
            parts.depends_whole = false;
        } else if let Some(entries) = self.map(node, &owner) {
            self.step_keys(entries, &owner, &mut parts);
            // Whatever an unknown key was meant to be may have been this.
            let odd = |entry: &Entry| !KEYS.contains(&entry.key.text.as_str());
            parts.depends_whole &= !entries.iter().any(odd);
        } else {
            parts.depends_whole = false;
        }
        parts.whole = self.problems.errors() == errors_before && !node.is_broken();
        parts
    }

    fn step_keys<'t>(&mut self, entries: &'t [Entry], owner: &Owner, parts: &mut StepParts<'t>) {
        self.known_keys(entries, owner, &KEYS);
        parts.does = self.does(entries, owner, parts);
        parts.policies = self.policies(entries, owner, &mut parts.texts);
        // Its failure is that of the job that it started.
        let names_reasons = find(entries, "retry").is_some_and(|entry| match &entry.value.kind {
            Kind::Map(entries) => find(entries, "on").is_some(),
            _ => false,
        });
        if let (Does::Calls { .. }, Some(retry), false) =
            (&parts.does, &mut parts.policies.retry, names_reasons)
        {
            retry.on.push(Reason::ChildFailed);
        }
        for entry in entries {
            match entry.key.text.as_str() {
                "depends_on" => {
                    let depends_on = self.depends_on(entry, owner, &mut parts.edges);
                    parts.depends_whole = depends_on.is_some();
                    parts.depends_on = depends_on.unwrap_or_else(DependsOn::nothing);
                }
                "when" => parts.when = self.when(entry, owner, &mut parts.texts),
                "continue_on_failure" => {
                    parts.continue_on_failure = self.flag(entry, owner).unwrap_or(false);
                }
                _ => {}
            }
        }
        parts.looped = find(entries, "for_each").is_some();
        parts.for_each = self.for_each(entries, owner, &mut parts.texts);
    }

    fn does<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        parts: &mut StepParts<'t>,
    ) -> Does<'t> {
        if let Some(entry) = find(entries, "action") {
            self.input(entries, owner, Place::WorkInput, parts);
            if let Some(kind) = find(entries, "type") {
                self.exclusive(owner, "action", kind);
                return Does::Unknown;
            }
            for other in entries.iter().filter(|entry| is_body_key(&entry.key.text)) {
                let key = &other.key.text;
                self.problems
                    .error(
                        "E013",
                        other.key.span,
                        format!("`{key}` is said by the action"),
                    )
                    .label("not a key of a step with `action`")
                    .also(entry.key.span, "this step does what the action says")
                    .help("give the action values under `input:`, or write a step of its own type");
            }
            let Some(action) = self.some_text(entry, owner) else {
                return Does::Unknown;
            };
            let span = entry.value.span;
            return Does::Uses { action, span };
        }
        let Some(kind) = self.step_type(entries, owner) else {
            return Does::Unknown;
        };
        self.keys_of_type(entries, owner, kind);
        let (texts, manifest) = (&mut parts.texts, &mut parts.manifest);
        let action = self.body(entries, owner, kind, texts, manifest);
        let mut asks = Vec::new();
        match find(entries, "input") {
            Some(entry) if kind == StepType::Approval => asks = self.specs(entry, owner, "input"),
            _ if kind == StepType::Task => self.input(entries, owner, Place::CallInput, parts),
            _ => self.input(entries, owner, Place::WorkInput, parts),
        }
        match action {
            None => Does::Unknown,
            Some(Action::Task { task, .. }) => {
                let entry = find(entries, "task").expect("its name was read");
                let span = entry.value.span;
                Does::Calls { task, span }
            }
            Some(action) => Does::Own { action, asks },
        }
    }

    fn input<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        place: Place,
        parts: &mut StepParts<'t>,
    ) {
        if let Some(entry) = find(entries, "input") {
            let texts = &mut parts.texts;
            parts.input = self.input_object(entry, owner, place, texts);
            parts.input_entry = Some(entry);
        }
    }

    /// A map of values, some of them templates.
    pub fn input_object<'t>(
        &mut self,
        entry: &'t Entry,
        owner: &Owner,
        place: Place,
        texts: &mut Vec<Text<'t>>,
    ) -> Json {
        let below = owner.below("input", &entry.key);
        let Some(entries) = self.map(&entry.value, &below) else {
            return Json::empty_object();
        };
        for entry in entries {
            if let Kind::Scalar(scalar) = &entry.value.kind {
                self.looks_secret(&entry.key.text, &scalar.text, entry.value.span);
            }
        }
        if entry.value.is_null() {
            return Json::empty_object();
        }
        let json = self.json(&entry.value, place, texts);
        let json = json.map(|value| Json(value.to_string()));
        if let Some(json) = &json
            && json.0.len() > limits::INPUT_BYTES_MAX
        {
            let message = format!(
                "{} is longer than {} bytes",
                below.what,
                limits::INPUT_BYTES_MAX
            );
            self.problems
                .error("E062", entry.key.span, message)
                .label("too long");
        }
        json.unwrap_or_else(Json::empty_object)
    }

    fn when<'t>(
        &mut self,
        entry: &'t Entry,
        owner: &Owner,
        texts: &mut Vec<Text<'t>>,
    ) -> Option<(Json, Span)> {
        let node = &entry.value;
        if let Kind::Scalar(scalar) = &node.kind {
            if let Some((tool, help)) = foreign_value("when", &scalar.text) {
                let message = format!("`when: {}` is a word of {tool}", scalar.text);
                let problem = self.problems.error("E015", node.span, message);
                problem.label("expected a template").help(help);
                return None;
            }
            if scalar.text.trim().is_empty() || scalar.is_null() {
                let message = format!("`when` of {} is empty", owner.what);
                self.problems
                    .error("E019", node.span, message)
                    .label("nothing in it: the step would never run")
                    .also(owner.span, owner.label())
                    .help("say when it runs, such as `when: \"{{ input.deploy }}\"`, or remove the key");
                return None;
            }
            let plain = scalar.style == Style::Plain;
            let is_flag =
                plain && matches!(scalar::meaning(&scalar.text), scalar::Meaning::Bool(_));
            if !is_flag && !is_template(&scalar.text) {
                let message = format!("`when` of {} is always the same text", owner.what);
                self.problems
                    .error("E011", node.span, message)
                    .label("expected a template, true or false")
                    .help(format!("write `when: \"{{{{ {} }}}}\"`", scalar.text))
                    .fix(node.span, format!("\"{{{{ {} }}}}\"", scalar.text));
                return None;
            }
        } else {
            let what = format!("`when` of {}", owner.what);
            self.wrong_type(node, &what, "a template, true or false");
            return None;
        }
        let value = self.json(node, Place::When, texts)?;
        Some((Json(value.to_string()), node.span))
    }

    fn for_each<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        texts: &mut Vec<Text<'t>>,
    ) -> Option<ForEach> {
        let max = limits::LOOP_ITEMS_MAX;
        let parallel = find(entries, "max_parallel");
        let max_parallel = parallel.and_then(|entry| self.number(entry, owner, 1, max as i64));
        let Some(entry) = find(entries, "for_each") else {
            if let Some(entry) = parallel {
                self.problems
                    .error("E055", entry.key.span, "`max_parallel` without `for_each`")
                    .label("bounds a loop that is not there")
                    .also(owner.span, "in this step")
                    .help("add `for_each: […]`, or remove it");
            }
            return None;
        };
        let items = match &entry.value.kind {
            Kind::List(members) => {
                if members.len() > max {
                    let message = format!(
                        "a loop over {} items, at most {max} are allowed",
                        members.len()
                    );
                    self.problems
                        .error("E062", entry.key.span, message)
                        .label("too many items");
                    return None;
                }
                let items: Vec<Option<Json>> = members
                    .iter()
                    .map(|node| {
                        let item = self.json(node, Place::ForEach, texts)?;
                        Some(Json(item.to_string()))
                    })
                    .collect();
                Items::List(items.into_iter().collect::<Option<_>>()?)
            }
            Kind::Scalar(scalar) if never_a_list(&scalar.text) => {
                let message = format!("`for_each` of {} never gives a list", owner.what);
                self.problems
                    .error("E011", entry.value.span, message)
                    .label("expected a list, or a template that gives one")
                    .help("only a text that is one `{{ … }}` keeps the type of its value: `for_each: \"{{ steps.NAME.output.list }}\"`");
                return None;
            }
            Kind::Scalar(scalar) if is_template(&scalar.text) => {
                collect(&entry.value, &scalar.text, Place::ForEach, texts);
                Items::Template(scalar.text.clone())
            }
            _ => {
                let what = format!("`for_each` of {}", owner.what);
                self.wrong_type(&entry.value, &what, "a list, or a template that gives one");
                return None;
            }
        };
        Some(ForEach {
            items,
            max_parallel: max_parallel.map(|count| count as u32),
        })
    }
}

/// A template whose value is known to be none. One that cannot be read is told so elsewhere.
fn never_a_list(text: &str) -> bool {
    if !is_template(text) {
        return false;
    }
    let Ok(mentions) = template::mentions(text) else {
        return false;
    };
    if !template::is_single_expression(text) {
        return true;
    }
    let value = template::evaluate(text, &template::Context::new());
    mentions.is_empty() && value.is_ok_and(|value| !value.is_array())
}
