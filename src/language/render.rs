//! Diagnostics as text: with the source and a caret, or one line each.

use annotate_snippets::renderer::DEFAULT_TERM_WIDTH;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::diagnostic::{Diagnostic, Severity, Spot, printable};

/// Lines between two places of one problem; farther ones get a picture of their own.
const WINDOW_LINES_MAX: u32 = 2_000;

/// As rustc does it. Colour only for who asked.
pub fn human(diagnostics: &[Diagnostic], colour: bool) -> String {
    let renderer = match colour {
        true => Renderer::styled(),
        false => Renderer::plain(),
    };
    let renderer = renderer.term_width(DEFAULT_TERM_WIDTH);
    let mut shown = String::new();
    for diagnostic in diagnostics {
        shown.push_str(&renderer.render(&report(diagnostic)));
        shown.push_str("\n\n");
    }
    shown
}

/// `file:line:col: error: message [E012]`
pub fn short(diagnostic: &Diagnostic) -> String {
    let Diagnostic {
        code,
        severity,
        message,
        at,
        ..
    } = diagnostic;
    let word = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let message = message.replace('\n', " ");
    let Spot {
        file, line, column, ..
    } = at;
    let file = file_name(file);
    format!("{file}:{line}:{column}: {word}: {message} [{code}]")
}

/// `::error file=a.yaml,line=3,col=5,title=E012::message`, as GitHub Actions reads it from a log.
pub fn github(diagnostic: &Diagnostic) -> String {
    let word = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    // What stands for something in such a line is written by its number.
    let text = |text: &str| {
        let text = text.replace('%', "%25");
        text.replace('\r', "%0D").replace('\n', "%0A")
    };
    let value = |value: &str| text(value).replace(':', "%3A").replace(',', "%2C");
    let Diagnostic {
        code, message, at, ..
    } = diagnostic;
    let (line, column) = (at.line, at.column);
    let file = value(&file_name(&at.file));
    let message = text(message);
    format!("::{word} file={file},line={line},col={column},title={code}::{message}")
}

/// A file may be called anything, also what a terminal takes for an order.
fn file_name(file: &str) -> String {
    printable(file).replace('\n', "\\n")
}

fn report(diagnostic: &Diagnostic) -> Vec<Group<'_>> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&diagnostic.message).id(diagnostic.code);
    let mut group = Group::with_title(title);
    let at = &diagnostic.at;
    let near =
        |spot: &&Spot| spot.file == at.file && spot.line.abs_diff(at.line) <= WINDOW_LINES_MAX;
    let (near, far): (Vec<&Spot>, Vec<&Spot>) = diagnostic.related.iter().partition(near);
    group = match at.text.is_empty() {
        // A file that could not be read has no line to show.
        true => group.element(Origin::path(file_name(&at.file))),
        false => group.element(picture(at, &near)),
    };
    for spot in far {
        group = group.element(picture_of_other(spot));
    }
    for help in &diagnostic.help {
        group = group.element(Level::HELP.message(help));
    }
    vec![group]
}

/// The lines from the first to the last of these places, folded where nothing is said.
fn picture<'a>(at: &'a Spot, near: &[&'a Spot]) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let all = || near.iter().copied().chain([at]);
    let first = all().map(|spot| spot.range.start).min().unwrap_or(0);
    let last = all().map(shown_end).max().unwrap_or(0);
    let window = window(&at.text, first, last);
    let line_start = all().map(|spot| spot.line).min().unwrap_or(1);
    let marks = |spot: &'a Spot, kind: AnnotationKind| {
        let start = spot.range.start - window.start;
        let end = shown_end(spot) - window.start;
        kind.span(start..end).label(&*spot.label)
    };
    let snippet = Snippet::source(&at.text[window.clone()])
        .line_start(line_start as usize)
        .path(file_name(&at.file));
    let snippet = snippet.annotation(marks(at, AnnotationKind::Primary));
    snippet.annotations(near.iter().map(|spot| marks(spot, AnnotationKind::Context)))
}

fn picture_of_other(spot: &Spot) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
    let window = window(&spot.text, spot.range.start, shown_end(spot));
    let start = spot.range.start - window.start;
    let end = shown_end(spot) - window.start;
    Snippet::source(&spot.text[window.clone()])
        .line_start(spot.line as usize)
        .path(file_name(&spot.file))
        .annotation(AnnotationKind::Context.span(start..end).label(&*spot.label))
}

/// A value of many lines is marked in its first one.
fn shown_end(spot: &Spot) -> usize {
    let text = &spot.text[spot.range.clone()];
    let first_line = memchr::memchr(b'\n', text.as_bytes()).unwrap_or(text.len());
    spot.range.start + text[..first_line].trim_end().len()
}

/// Whole lines around these bytes.
fn window(text: &str, first: usize, last: usize) -> std::ops::Range<usize> {
    let start = memchr::memrchr(b'\n', &text.as_bytes()[..first]).map_or(0, |at| at + 1);
    let end = memchr::memchr(b'\n', &text.as_bytes()[last..]).map_or(text.len(), |at| last + at);
    start..end
}
