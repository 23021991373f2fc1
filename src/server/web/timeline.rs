//! How time went by in a job: what each step waited for, and how long it ran.

use maud::{Markup, PreEscaped, html};

use super::frame::View;
use super::job::by_step;
use super::{links, parts};
use crate::domain::reason::Waiting;
use crate::timeline::{Row, bars, hatches, of_job};
use crate::wire::api::{JobJson, JobWhyJson, StepJson};

pub fn section(
    job: &JobJson,
    why: &JobWhyJson,
    selected: Option<&StepJson>,
    view: &View,
) -> Markup {
    let explained = by_step(why);
    let timeline = of_job(
        job,
        view.now.wall,
        &|step| format!("{}#log", links::step(job.id, step)),
        &|step| {
            let why = &explained.get(step)?.why;
            Some((why.code.clone(), why.sentence.clone()))
        },
    );
    let axis = timeline.axis();
    html! {
        details.box #timeline open[!timeline.rows.is_empty()] {
            summary { h2 { "How time went" } @if let Some(note) = timeline.note() { span.note { (note) } } }
            (PreEscaped(hatches()))
            div.timeline {
                div.row { span {} (PreEscaped(axis.svg())) span {} }
                @for row in &timeline.rows { (one(row, &PreEscaped(bars(row, &axis)), selected)) }
            }
            (legend(&timeline.rows))
        }
    }
}

/// All of it leads to the step, however thin its bars.
fn one(row: &Row, bars: &Markup, selected: Option<&StepJson>) -> Markup {
    let is_selected = selected.is_some_and(|step| step.name == row.name);
    html! {
        a.row href=(row.href) aria-current=[is_selected.then_some("true")] {
            span.name { @if row.is_instance { "· " } (parts::sign(&row.state)) " " (row.name) }
            (bars)
            span.number { @if row.run_ms() > 0 { (parts::duration(row.run_ms())) } @else { (parts::none()) } }
            // All of it in words, after what is seen.
            span.hidden { (row.said()) }
        }
    }
}

/// What the waits that are seen are called.
fn legend(rows: &[Row]) -> Markup {
    let waits = rows.iter().flat_map(|row| &row.segments);
    let mut codes: Vec<&str> = waits.filter_map(|segment| segment.wait_code()).collect();
    codes.sort_unstable();
    codes.dedup();
    html! {
        div.legend {
            @for code in codes {
                span { svg viewBox="0 0 14 10" aria-hidden="true" { rect class={ "seg wait wait-" (code) } width="14" height="10" fill={ "url(#hatch-" (code) ")" } {} } (in_words(code)) }
            }
        }
    }
}

fn in_words(code: &str) -> String {
    match code {
        "queued" => "waited for a worker".to_string(),
        "requeued" => "came back unstarted".to_string(),
        code if Waiting::from_word(code).is_some() => code.replace('_', " "),
        code => code.to_string(),
    }
}
