//! A workflow file as it is on disk, with what is wrong with it in its place.

use std::collections::BTreeSet;
use std::io::Read;

use maud::{Markup, html};

use super::frame::{Here, Live, View};
use super::{links, tasks};
use crate::language::{Diagnostic, FILE_BYTES_MAX};
use crate::server::App;
use crate::server::catalogue::Loaded;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};

/// Lines of a file on one page; more belong into an editor.
const LINES_MAX: usize = 5_000;

pub fn address(file: &str) -> String {
    links::with_query("/files", &[("name", Some(file))])
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["name", "said"])?;
    let view = View::begin(app, request)?;
    let loaded = app.workflows.current();
    let name = request.query("name").unwrap_or_default();
    // Only what was loaded, or would have been: nobody gets to read any other file by naming it.
    let known = known(&loaded);
    let file = known.get(name).copied();
    let file = file.ok_or_else(|| ApiError::not_found("there is no such workflow file"))?;
    let main = html! {
        div.title { h1 { (file) } span.note { (tasks::standing(&loaded, file)) } }
        section.box aria-label="The file" { (lines(file, None, &loaded)) }
    };
    view.page(file, Here::Tasks)
        .live(Live::Jobs(Vec::new()))
        .show(main)
}

fn known(loaded: &Loaded) -> BTreeSet<&str> {
    let places = loaded.places.values().map(|place| place.file.as_str());
    let problems = loaded.problems.iter().map(|found| found.at.file.as_str());
    let others = loaded.stale.iter().chain(&loaded.left_out);
    places
        .chain(problems)
        .chain(others.map(String::as_str))
        .collect()
}

/// The file, line by line, each an anchor; to be looked at from one on.
pub fn lines(file: &str, line: Option<u32>, loaded: &Loaded) -> Markup {
    let text = match read(file) {
        Ok(text) => text,
        Err(fault) => return html! { div.empty { (file) " cannot be read: " (fault) } },
    };
    let problems: Vec<&Diagnostic> = loaded
        .problems
        .iter()
        .filter(|problem| problem.at.file == file)
        .collect();
    let count = text.lines().count();
    html! {
        div.source tabindex="0" role="group" aria-label="YAML" data-line=[line] {
            @for (n, line) in (1..).zip(text.lines()).take(LINES_MAX) {
                @let here = problems.iter().filter(|problem| problem.at.line == n);
                @let is_marked = here.clone().any(|problem| problem.is_error());
                div class=(if is_marked { "line marked" } else { "line" }) id={ "L" (n) } {
                    a href={ "#L" (n) } aria-label={ "line " (n) } { (n) }
                    span { (crate::graph::clean_line(line)) }
                }
                @for problem in here { (diagnostic(problem)) }
            }
            @if count > LINES_MAX { div.note { "and " (count - LINES_MAX) " more lines" } }
        }
    }
}

fn diagnostic(problem: &Diagnostic) -> Markup {
    let class = match problem.is_error() {
        true => "diagnostic",
        false => "diagnostic warning",
    };
    let word = if problem.is_error() {
        "error"
    } else {
        "warning"
    };
    html! {
        div class=(class) {
            b { (word) " [" (problem.code) "] " } (problem.message)
            @if !problem.at.label.is_empty() { " – " (problem.at.label) }
            @for help in &problem.help { div { "help: " (help) } }
        }
    }
}

fn read(file: &str) -> Result<String, String> {
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
