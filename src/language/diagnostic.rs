//! What is wrong with workflow files, for people and for programs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use super::budget::CheckBudget;
use super::rules;
use super::source::{Source, Span};
use super::tree::Key;
use crate::domain::task::Rules;

/// Of one file; how many more there are is said.
pub const SHOWN_PER_FILE_MAX: usize = 50;
/// Errors and warnings that are kept with all they say, of each this many. The rest is only counted: a hostile file can be wrong in
/// millions of ways.
const KEPT_MAX: usize = 10_000;
/// Rules that are newer than version 0.1 and that the server checks again when it renders an action.
const UNRENDERABLE: [&str; 3] = ["E045", "E048", "E071"];
/// Other places that one problem points at.
const RELATED_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One thing that is wrong, with its place and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub code: &'static str,
    pub severity: Severity,
    pub message: String,
    #[serde(flatten)]
    pub at: Spot,
    /// The thing around it, and other places that have to do with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Spot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

/// A place in a file. Lines and columns count from 1, columns in characters; the end is the first one behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spot {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
    /// Its first line.
    pub source: String,
    pub label: String,
    #[serde(skip)]
    pub(super) text: Arc<str>,
    #[serde(skip)]
    pub(super) range: Range<usize>,
}

/// What to write instead of what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
    pub text: String,
}

impl Diagnostic {
    /// About a file as a whole, such as one that cannot be read.
    pub fn of_file(code: &'static str, file: &str, message: String, help: &str) -> Diagnostic {
        Diagnostic {
            code,
            severity: rules::severity(code),
            message: printable(&message),
            at: Spot {
                file: file.to_string(),
                line: 1,
                column: 1,
                end_line: 1,
                end_column: 1,
                source: String::new(),
                label: String::new(),
                text: "".into(),
                range: 0..0,
            },
            related: Vec::new(),
            help: vec![help.to_string()],
            fix: None,
        }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// An error anywhere else: the file loads because version 0.1 had accepted its text.
    pub fn is_tolerated(&self) -> bool {
        !self.is_error() && rules::severity(self.code) == Severity::Error
    }
}

/// Errors and warnings that are too many to be shown, by file.
pub type Unshown = BTreeMap<String, (usize, usize)>;

/// Collects what is wrong while files are checked.
#[derive(Debug, Default)]
pub struct Problems {
    all: Vec<Problem>,
    errors: usize,
    /// Number of errors among the problems that are kept.
    errors_kept: usize,
    /// The last problem that was only counted.
    last_counted: Option<Problem>,
    /// Errors and warnings that were only counted, by the number of their file.
    counted: HashMap<u32, (usize, usize)>,
    /// Of each file, by its number: whether version 0.1 had accepted its text.
    accepted_by_0_1: Vec<bool>,
    /// Codes and places of violations that are warnings because version 0.1 had accepted the file.
    tolerated: Vec<(&'static str, Span)>,
    budget: CheckBudget,
    is_out_of_time: bool,
}

#[derive(Debug)]
pub struct Problem {
    pub code: &'static str,
    pub span: Span,
    severity: Severity,
    message: String,
    label: String,
    related: Vec<(Span, String)>,
    related_more: usize,
    help: Vec<String>,
    fix: Option<(Span, String)>,
}

impl Problems {
    /// `accepted_by_0_1`: of each file, whether version 0.1 had accepted its text.
    pub fn new(accepted_by_0_1: Vec<bool>, budget: CheckBudget) -> Problems {
        Problems {
            accepted_by_0_1,
            budget,
            ..Problems::default()
        }
    }

    /// Whether the check has used up its time. Every loop whose length a file decides asks this and ends if it has; the first to find
    /// out records an error that says so. Therefore nothing is concluded from what was not looked at: with an error there are no
    /// workflows.
    pub fn is_out_of_time(&mut self) -> bool {
        if self.is_out_of_time {
            return true;
        }
        let Some(limit) = self.budget.exceeded() else {
            return false;
        };
        self.is_out_of_time = true;
        let message = format!(
            "the check took longer than {} s: the files are too large or too intricate for one request",
            limit.as_secs()
        );
        self.errors += 1;
        self.errors_kept += 1;
        let start = Span::new(0, 0, 0);
        let mut problem = Problem::new("E065", start, message, Severity::Error);
        problem
            .label("not all of it was checked")
            .help("split the file, or run `stepward validate` on your machine, where a check may take as long as it needs");
        self.all.push(problem);
        true
    }

    /// The time limit, for what has no access to the problems.
    pub fn budget(&self) -> CheckBudget {
        self.budget.clone()
    }

    /// Whether version 0.1 had accepted the text of this file.
    pub fn is_accepted_by_0_1(&self, file: u32) -> bool {
        let accepted = self.accepted_by_0_1.get(file as usize);
        accepted.copied().unwrap_or(false)
    }

    /// The rules for the secrets and webhooks that this file defines.
    pub fn rules_of(&self, file: u32) -> Rules {
        match self.is_accepted_by_0_1(file) {
            true => Rules::V1,
            false => Rules::V2,
        }
    }

    /// The rules for rendering an action that is written at `span`: those of version 0.1 only if the newer ones would refuse an action
    /// that 0.1 had accepted. That was reported as a warning.
    pub fn action_rules(&self, span: Span) -> Rules {
        let mut tolerated = self.tolerated_in(span);
        match tolerated.any(|(code, _)| UNRENDERABLE.contains(&code)) {
            true => Rules::V1,
            false => Rules::V2,
        }
    }

    /// Returns the violations at `span` that are warnings because version 0.1 had accepted the file.
    pub fn tolerated_in(&self, span: Span) -> impl Iterator<Item = (&'static str, Span)> {
        let all = self.tolerated.iter().copied();
        all.filter(move |(_, found)| {
            found.file == span.file && (span.start..span.end).contains(&found.start)
        })
    }

    /// A violation of a rule that version 0.1 did not have. Use this instead of `error` for every such rule, so that an upgrade breaks
    /// no installation: in a file whose text version 0.1 had accepted the violation is a warning (and the server lists it among its
    /// problems), everywhere else it is an error. Inside a template use `Checker::new_rule`, which knows scripts in files of their own.
    pub fn new_rule(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Problem {
        if !self.is_accepted_by_0_1(span.file) {
            return self.error(code, span, message);
        }
        if self.tolerated.last() != Some(&(code, span)) {
            self.tolerated.push((code, span));
        }
        let problem = self.push(code, span, message.into(), Severity::Warning);
        problem.help("this file still loads because version 0.1 had accepted it; once the file changes this is an error")
    }

    /// An error, or a warning if its rule is one.
    pub fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.push(code, span, message.into(), rules::severity(code))
    }

    fn push(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        severity: Severity,
    ) -> &mut Problem {
        let is_error = severity == Severity::Error;
        self.errors += usize::from(is_error);
        let problem = Problem::new(code, span, message, severity);
        let kept = match is_error {
            true => self.errors_kept,
            false => self.all.len() - self.errors_kept,
        };
        if kept >= KEPT_MAX {
            let (errors, warnings) = self.counted.entry(span.file).or_default();
            match is_error {
                true => *errors += 1,
                false => *warnings += 1,
            }
            return self.last_counted.insert(problem);
        }
        self.errors_kept += usize::from(is_error);
        self.all.push(problem);
        self.all.last_mut().expect("just pushed")
    }

    pub fn duplicate(&mut self, key: &Key, first: Span) {
        let message = format!("the key `{}` is here twice", key.text);
        self.error("E003", key.span, message)
            .label("again")
            .also(first, "first here")
            .help("keep one of them");
    }

    /// Errors so far: whoever decodes something knows by this whether it was whole.
    pub fn errors(&self) -> usize {
        self.errors
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.all.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Problem> {
        self.all.iter_mut()
    }

    /// Sorted by file and place, so many of each file, and how many there are besides.
    pub fn into_diagnostics(mut self, sources: &[Source]) -> (Vec<Diagnostic>, Unshown) {
        self.all
            .sort_by_key(|problem| (problem.span.file, problem.span.start, problem.code));
        self.all
            .dedup_by(|a, b| (a.code, a.span, &a.message) == (b.code, b.span, &b.message));
        let mut counts = std::mem::take(&mut self.counted);
        for problem in &self.all {
            let (errors, warnings) = counts.entry(problem.span.file).or_default();
            match problem.severity {
                Severity::Error => *errors += 1,
                Severity::Warning => *warnings += 1,
            }
        }
        // Errors first: a file is never taken for good because its warnings came before them.
        let mut room: HashMap<u32, (usize, usize)> = HashMap::new();
        for (&file, &(errors, _)) in &counts {
            let errors_shown = errors.min(SHOWN_PER_FILE_MAX);
            room.insert(file, (errors_shown, SHOWN_PER_FILE_MAX - errors_shown));
        }
        let mut diagnostics: Vec<Diagnostic> = Vec::new();
        let mut last_of: HashMap<u32, usize> = HashMap::new();
        for problem in &self.all {
            let file = problem.span.file;
            let (errors, warnings) = room.entry(file).or_default();
            let left = match problem.severity {
                Severity::Error => errors,
                Severity::Warning => warnings,
            };
            if *left > 0 {
                *left -= 1;
                last_of.insert(file, diagnostics.len());
                diagnostics.push(problem.diagnostic(sources));
            }
        }
        let mut unshown = Unshown::new();
        for (file, last) in last_of {
            let (errors, warnings) = counts[&file];
            let more = (errors + warnings).saturating_sub(SHOWN_PER_FILE_MAX);
            if more > 0 {
                let help = format!("{more} more problems in this file are not shown");
                diagnostics[last].help.push(help);
                let errors_more = errors.saturating_sub(SHOWN_PER_FILE_MAX);
                let name = sources[file as usize].name.to_string();
                unshown.insert(name, (errors_more, more - errors_more));
            }
        }
        (diagnostics, unshown)
    }
}

impl Problem {
    fn new(code: &'static str, span: Span, message: String, severity: Severity) -> Problem {
        Problem {
            code,
            span,
            severity,
            message,
            label: String::new(),
            related: Vec::new(),
            related_more: 0,
            help: Vec::new(),
            fix: None,
        }
    }

    pub fn label(&mut self, label: impl Into<String>) -> &mut Problem {
        self.label = label.into();
        self
    }

    /// Another place that has to do with it.
    pub fn also(&mut self, span: Span, label: impl Into<String>) -> &mut Problem {
        if self.related.len() < RELATED_MAX {
            self.related.push((span, label.into()));
        } else {
            self.related_more += 1;
        }
        self
    }

    pub fn unrelated(&mut self) -> &mut Problem {
        self.related.clear();
        self
    }

    pub fn help(&mut self, help: impl Into<String>) -> &mut Problem {
        self.help.push(help.into());
        self
    }

    pub fn fix(&mut self, span: Span, text: impl Into<String>) -> &mut Problem {
        self.fix = Some((span, text.into()));
        self
    }

    fn diagnostic(&self, sources: &[Source]) -> Diagnostic {
        let related = self.related.iter();
        let mut help: Vec<String> = self.help.iter().map(|help| printable(help)).collect();
        if self.related_more > 0 {
            help.push(format!(
                "{} further places are not shown",
                self.related_more
            ));
        }
        Diagnostic {
            code: self.code,
            severity: self.severity,
            // One line: what it quotes may have several.
            message: printable(&self.message).replace('\n', "\\n"),
            at: spot(sources, self.span, &self.label),
            related: related
                .map(|(span, label)| spot(sources, *span, label))
                .collect(),
            help,
            fix: self.fix.as_ref().map(|(span, text)| {
                let at = spot(sources, *span, "");
                Fix {
                    line: at.line,
                    column: at.column,
                    end_line: at.end_line,
                    end_column: at.end_column,
                    text: text.clone(),
                }
            }),
        }
    }
}

fn spot(sources: &[Source], span: Span, label: &str) -> Spot {
    const SOURCE_CHARS_MAX: usize = 500;
    let source = &sources[span.file as usize];
    let span = source.whole_characters(span);
    let (start, end) = (source.position(span.start), source.position(span.end));
    let line = source.line(start.line as usize - 1);
    Spot {
        file: source.name.to_string(),
        line: start.line,
        column: start.column,
        end_line: end.line,
        end_column: end.column,
        source: line.chars().take(SOURCE_CHARS_MAX).collect(),
        label: printable(label),
        text: source.text.clone(),
        range: span.start as usize..span.end as usize,
    }
}

/// What a file says may hold anything; what we say of it shows no control characters and has an end.
pub(super) fn printable(text: &str) -> String {
    const CHARS_MAX: usize = 1_000;
    let mut shown = String::with_capacity(text.len());
    for (count, character) in text.chars().enumerate() {
        if count == CHARS_MAX {
            shown.push('…');
            break;
        }
        match character {
            '\n' => shown.push(character),
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}
