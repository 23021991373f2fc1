//! Makes sure that every file that an import writes passes `stepward validate`.
//!
//! The importers write what they understand. This module checks the result by the rules of the language, all files together, and
//! takes out whatever has an error: a step becomes one that fails and says so, anything else is left out. The report tells of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use saphyr_parser::{Event, Parser};

use super::report::Outcome::NotSupported;
use super::report::Report;
use super::yaml::{Map, Node, remark};
use super::{Imported, Written};
use crate::language::{CheckOptions, Diagnostic, SourceFile, check_texts};

/// A workflow file that is not checked yet.
pub struct Draft {
    /// Name of the file below the folder of workflows.
    pub name: String,
    /// How the report calls the source of the file.
    pub source: String,
    /// Comments at the top of the file.
    pub head: Vec<String>,
    pub document: Map,
    /// Comments at the end of the file.
    pub tail: Vec<String>,
    /// Paths in the document whose source has another path, and how the report calls that.
    pub places: BTreeMap<Vec<String>, String>,
}

impl Draft {
    fn text(&self) -> String {
        let mut text = self.document.document(&self.head);
        for line in &self.tail {
            remark(&mut text, 0, line);
        }
        text
    }

    /// How the report calls what is at the path of the document.
    fn place(&self, path: &[String]) -> String {
        if path.is_empty() {
            return self.source.clone();
        }
        for length in (1..=path.len()).rev() {
            if let Some(place) = self.places.get(&path[..length]) {
                let below = path[length..].join(".");
                return match (below.is_empty(), place.contains(": ")) {
                    (true, _) => place.clone(),
                    (false, true) => format!("{place}.{below}"),
                    (false, false) => format!("{place}: {below}"),
                };
            }
        }
        format!("{}: {}", self.source, path.join("."))
    }
}

/// A step that stands where a step was that cannot be written. The graph around it stays as it was, and nothing runs that nobody
/// meant.
pub fn failing_step(why: &str) -> Map {
    let mut step = Map::default();
    let said = format!("{FAILING}: {why}")
        .replace(['\'', '\n', '\r', '\0'], " ")
        .replace('{', "(")
        .replace('}', ")");
    step.put("script", format!("echo '{said}' >&2\nexit 1\n"));
    step
}

const FAILING: &str = "this step was not imported";

/// Every round takes something out, so this is only reached by files that nobody writes.
const ROUNDS_MAX: usize = 1_000;

/// Checks the drafts and the scripts that they name with `file:`.
pub fn finish(
    mut drafts: Vec<Draft>,
    mut scripts: BTreeMap<String, String>,
    mut report: Report,
) -> Imported {
    let mut is_valid = false;
    for _ in 0..ROUNDS_MAX {
        drafts.retain(|draft| !draft.document.is_empty());
        let texts: Vec<String> = drafts.iter().map(Draft::text).collect();
        let files = drafts.iter().zip(&texts).map(|(draft, text)| SourceFile {
            path: PathBuf::from(&draft.name),
            text: text.clone(),
        });
        let checked = check_texts(files.collect(), scripts.clone(), &CheckOptions::default());
        is_valid = checked.errors() == 0;
        if is_valid {
            break;
        }
        // All units are found before the first one is taken out: an error speaks of the document as it was checked.
        let errors = checked.diagnostics.iter().filter(|found| found.is_error());
        let errors = errors.filter_map(|error| {
            let index = drafts
                .iter()
                .position(|draft| draft.name == error.at.file)?;
            let unit = Unit::at(&path_at(&texts[index], error), &drafts[index].document);
            Some((index, unit, error))
        });
        let errors: Vec<(usize, Unit, &Diagnostic)> = errors.collect();
        let mut taken_out = BTreeSet::new();
        let mut told = BTreeSet::new();
        for (index, unit, error) in errors {
            if taken_out.insert((index, unit.clone())) {
                unit.take_out(&mut drafts[index], error, &mut report);
            }
            if told.insert((index, unit.clone(), &error.message)) {
                unit.tell(&drafts[index], error, &mut report);
            }
        }
        let is_changed = |(draft, text): (&Draft, &String)| draft.text() != *text;
        if !drafts.iter().zip(&texts).any(is_changed) {
            break;
        }
    }
    if !is_valid {
        for draft in drafts.drain(..) {
            let note = "could not be written so that it loads; the file is not written";
            report.take_back(&draft.source, &[]);
            report.add(draft.source, NotSupported, "", note);
        }
    }
    let named: BTreeSet<String> = drafts
        .iter()
        .flat_map(|draft| draft.document.texts_of("file"))
        .collect();
    scripts.retain(|path, _| named.contains(path));
    let workflows = drafts.iter().map(|draft| Written {
        name: draft.name.clone(),
        text: draft.text(),
    });
    let scripts = scripts
        .into_iter()
        .map(|(name, text)| Written { name, text });
    Imported {
        files: workflows.chain(scripts).collect(),
        report,
    }
}

/// The smallest part around an error that can be taken out without changing what the rest means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    /// The step of a task, which becomes one that fails.
    Step { task: String, step: String },
    /// What is at the path, with everything below it.
    Part(Vec<String>),
}

impl Unit {
    fn at(path: &[String], document: &Map) -> Unit {
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let part = |length: usize| Unit::Part(path[..length].to_vec());
        match parts.as_slice() {
            ["tasks", _, "flow", _, "timeout" | "retry", ..] => part(5),
            ["tasks", task, "flow", step, ..] => {
                let at = ["tasks", task, "flow", step];
                match document.at(&at) {
                    Some(Node::Map(found)) if is_failing(found) => match parts.get(4) {
                        Some(key) if *key != "script" && found.get(key).is_some() => part(5),
                        // Nothing is left of it that could be taken out.
                        _ if found.len() == 1 => part(2),
                        _ => Unit::Part([&path[..4], &[found.last_key()]].concat()),
                    },
                    _ => Unit::Step {
                        task: task.to_string(),
                        step: step.to_string(),
                    },
                }
            }
            ["tasks", _, "flow"] => part(2),
            ["tasks" | "actions", _, "input", _, key, ..] if *key != "type" => part(5),
            ["tasks" | "actions", _, "input", _, ..] => part(4),
            ["tasks", _, "schedules" | "webhooks", _, ..] => part(4),
            ["tasks", _, _, ..] => part(3),
            [_, _, ..] => part(2),
            _ => Unit::Part(path.to_vec()),
        }
    }

    fn path(&self) -> Vec<String> {
        match self {
            Unit::Step { task, step } => ["tasks", task, "flow", step].map(str::to_string).into(),
            Unit::Part(path) => path.clone(),
        }
    }

    /// Takes the unit out of the document, and out of the report what says that it was imported.
    fn take_out(&self, draft: &mut Draft, error: &Diagnostic, report: &mut Report) {
        let path = self.path();
        match self {
            Unit::Step { step, .. } => {
                let flow = draft.document.at_mut(&path[..3]);
                if let Some(Node::Map(flow)) = flow {
                    let mut failing = failing_step(&error.message);
                    // What others expect of it stays, unless that is what is wrong with it.
                    if let Some(Node::Map(was)) = flow.get(step) {
                        for key in ["depends_on", "continue_on_failure"] {
                            if let Some(kept) = was.get(key) {
                                failing.put(key, kept.clone());
                            }
                        }
                    }
                    flow.put(step, failing);
                }
                report.take_back(
                    &draft.place(&path),
                    &[
                        "depends_on",
                        "continue_on_failure",
                        "depends",
                        "continue_on",
                    ],
                );
            }
            Unit::Part(_) => {
                draft.document.remove_at(&path);
                report.take_back(&draft.place(&path), &[]);
                let below = draft.places.iter().filter(|(at, _)| at.starts_with(&path));
                below.for_each(|(_, place)| report.take_back(place, &[]));
            }
        }
    }

    fn tell(&self, draft: &Draft, error: &Diagnostic, report: &mut Report) {
        let what = match self {
            Unit::Step { .. } => "; written as a step that fails and says so",
            Unit::Part(_) => "; left out",
        };
        let note = format!("{}{what}", error.message.replace('\n', " "));
        report.add(draft.place(&self.path()), NotSupported, "", &note);
    }
}

fn is_failing(step: &Map) -> bool {
    let begin = format!("echo '{FAILING}");
    matches!(step.get("script"), Some(Node::Text(script)) if script.starts_with(&begin))
}

/// The keys that lead to the place of an error in the text of a file.
fn path_at(text: &str, error: &Diagnostic) -> Vec<String> {
    let place = (error.at.line as usize, error.at.column as usize);
    let mut found = Vec::new();
    for (line, column, path) in keys(text) {
        // Columns of the parser count from 0.
        if (line, column + 1) > place {
            break;
        }
        found = path;
    }
    found
}

/// Line, column and path of every key, in the order of the text. A key below a list has the path of the list.
fn keys(text: &str) -> Vec<(usize, usize, Vec<String>)> {
    enum Open {
        List,
        /// A map, and the key whose value comes next.
        Map(Option<String>),
    }
    let mut found = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(Ok((event, span))) = parser.next_event() {
        match &event {
            Event::Scalar(key, ..) if matches!(open.last(), Some(Open::Map(None))) => {
                let in_list = open.iter().any(|open| matches!(open, Open::List));
                if let Some(Open::Map(waiting)) = open.last_mut() {
                    *waiting = Some(key.to_string());
                }
                if !in_list {
                    let path = open.iter().filter_map(|open| match open {
                        Open::Map(key) => key.clone(),
                        Open::List => None,
                    });
                    found.push((span.start.line(), span.start.col(), path.collect()));
                }
                continue;
            }
            Event::SequenceStart(..) => open.push(Open::List),
            Event::MappingStart(..) => open.push(Open::Map(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
            }
            Event::Scalar(..) | Event::Alias(_) => {}
            _ => continue,
        }
        let is_value = !matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        if let (true, Some(Open::Map(key))) = (is_value, open.last_mut()) {
            *key = None;
        }
    }
    found
}
