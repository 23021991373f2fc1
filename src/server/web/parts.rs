//! Small things that many pages show: states, times, reasons, values.

use maud::{Markup, html};

use super::links;
use crate::domain::Now;
use crate::domain::span::span;
use crate::wire::api::{WhyFactJson, WhyJson, WhyOutcomeJson, WhyWorkerJson};
use crate::wire::{Raw, Time};
use crate::words;

pub use crate::words::count;

/// A state as a sign and a word.
pub fn state(word: &str) -> Markup {
    let sign = match word {
        "draining" | "paused" | "queued" | "returned" => "suspended",
        "silent" | "refused" | "given_up" | "missed" | "error" => "problem",
        "fired" | "delivered" => "completed",
        "caught_up" => "completed",
        word => word,
    };
    html! {
        span class={ "state state-" (word) } { (self::sign(sign)) (word) }
    }
}

pub fn sign(name: &str) -> Markup {
    html! { svg.sign aria-hidden="true" { use href={ "#sign-" (name) } {} } }
}

/// How long ago; it goes on counting.
pub fn ago(at: Time, now: Now) -> Markup {
    let ms = at.0.0;
    html! {
        time datetime=(moment(at)) title=(moment(at)) data-ago=(ms) { (span(now.wall.0 - ms)) " ago" }
    }
}

pub fn ago_or_never(at: Option<Time>, now: Now) -> Markup {
    match at {
        Some(at) => ago(at, now),
        None => none(),
    }
}

/// How long since; it goes on counting.
pub fn since(at: Time, now: Now) -> Markup {
    let ms = at.0.0;
    html! { span.number title={ "since " (moment(at)) } data-for=(ms) { (span(now.wall.0 - ms)) } }
}

/// The same of something that is so many seconds old.
pub fn since_secs(secs: f64, now: Now) -> Markup {
    let ms = now.wall.0 - (secs * 1_000.0) as i64;
    html! { span.number data-for=(ms) { (span((secs * 1_000.0) as i64)) } }
}

/// How far away, counting down.
pub fn until(at: Time, now: Now) -> Markup {
    let ms = at.0.0;
    html! { time datetime=(moment(at)) title=(moment(at)) data-in=(ms) { "in " (span(ms - now.wall.0)) } }
}

/// The same of something that is so many seconds away.
pub fn countdown(in_secs: f64, now: Now) -> Markup {
    let ms = now.wall.0 + (in_secs * 1_000.0) as i64;
    html! { span.number.countdown data-in=(ms) { "in " (span((in_secs * 1_000.0) as i64)) } }
}

pub fn duration(ms: i64) -> Markup {
    html! { span.number { (span(ms)) } }
}

/// From one to the other, or until now.
pub fn took(started: Option<Time>, ended: Option<Time>, now: Now) -> Markup {
    match (started, ended) {
        (Some(started), Some(ended)) => duration(ended.0.0 - started.0.0),
        (Some(started), None) => since(started, now),
        (None, _) => none(),
    }
}

/// For what there is nothing to say of.
pub fn none() -> Markup {
    html! { span.none { "–" } }
}

/// RFC 3339 in UTC.
pub fn moment(at: Time) -> String {
    words::moment_ms(at)
}

pub fn tags(tags: &[String]) -> Markup {
    html! {
        @if tags.is_empty() { (none()) }
        @for tag in tags { span.tag { (tag) } " " }
    }
}

/// JSON with line breaks; short values in one line.
pub fn json(raw: &Raw) -> Markup {
    let value: serde_json::Value = raw.value();
    let text = match &value {
        serde_json::Value::Object(entries) if entries.is_empty() => return none(),
        value if value.to_string().len() <= 60 => value.to_string(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    const SHOWN_MAX: usize = 20_000;
    let (shown, more) = match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => (&text[..end], text.len() - end),
        None => (text.as_str(), 0),
    };
    html! {
        pre.json tabindex=[(shown.len() > 200).then_some("0")] { (shown) @if more > 0 { "\n… " (more) " more bytes" } }
    }
}

/// What to type.
pub fn command(text: &str) -> Markup {
    html! {
        span.command { code { (text) } button.quiet.copy type="button" data-copy=(text) aria-label={ "copy " (text) } hidden { "copy" } }
    }
}

/// What recovery will do, and when.
pub fn outcome(outcome: &WhyOutcomeJson, now: Now) -> Markup {
    let class = match is_soon(outcome) {
        true => "outcome",
        false => "note",
    };
    html! {
        span class=(class) { (sign("problem")) " recovery phase " (outcome.phase) ": " (outcome.action) " " (countdown(outcome.in_secs, now)) }
    }
}

/// What is farther away alarms nobody.
pub fn is_soon(outcome: &WhyOutcomeJson) -> bool {
    const SOON_SECS: f64 = 3_600.0;
    outcome.in_secs <= SOON_SECS
}

/// Everything that is known of why something is as it is.
pub fn why_details(why: &WhyJson, now: Now) -> Markup {
    let soon = why.outcome.as_ref().filter(|outcome| is_soon(outcome));
    html! {
        (why_reasons(why))
        @if let Some(outcome) = soon { p { (self::outcome(outcome, now)) } }
    }
}

/// The same without what recovery will do.
pub fn why_reasons(why: &WhyJson) -> Markup {
    let is_ended = why.outcome.is_none();
    let is_soon = why.outcome.as_ref().is_some_and(is_soon);
    let has_table = !why.workers.is_empty();
    let returned = (why.details.iter()).filter(|fact| has_table && fact.kind == "returned");
    let returned: Vec<&WhyFactJson> = returned.collect();
    html! {
        // The table of workers repeats every fact except why an earlier assignment came back.
        @if !why.facts.is_empty() && !has_table {
            ul.facts { @for fact in &why.facts { li { (fact) } } }
        }
        @if !returned.is_empty() {
            ul.facts { @for fact in returned { li { (fact.text) } } }
        }
        @if let Some(root) = &why.root_cause {
            p { "It began with " a href=(links::step(root.job_id, &root.step)) { "job " (root.job_id) ", step " (root.step) }
                ": " (root.sentence) }
        }
        @if !why.workers.is_empty() { (why_workers(why)) }
        @if !why.skips.is_empty() && is_ended { p { "Never run because of it: " (why.skips.join(", ")) } }
        @if !why.skips.is_empty() && is_soon { p { "Then never run: " (why.skips.join(", ")) } }
        @if !why.fix.is_empty() {
            p.fixes { "What to do: " @for fix in &why.fix { (fix_text(fix)) " " } }
        }
    }
}

/// A command is shown as one, anything else as the sentence it is.
pub fn fix_text(fix: &str) -> Markup {
    match fix.starts_with("stepward ") {
        true => command(fix),
        false => html! { span { (fix) } },
    }
}

fn why_workers(why: &WhyJson) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Workers" {
            table.small {
                caption.hidden { "Workers, and what each lacks" }
                thead { tr { th scope="col" { "worker" } th scope="col" { "state" } th scope="col" { "offers" } th scope="col" { "lacks" } th scope="col" { "slots" } th scope="col" { "heard" } } }
                tbody {
                    @for worker in &why.workers {
                        @let WhyWorkerJson { name, offers, state, seen_secs_ago, slots_used, slots, .. } = worker;
                        @let lacks = worker.missing();
                        tr {
                            td { (name) } td { (self::state(state)) } td { (tags(offers)) }
                            td { @if lacks.is_empty() { "nothing" } @else { (tags(&lacks)) } }
                            td.number { (slots_used) "/" (slots) }
                            td.number { (span((seen_secs_ago * 1_000.0) as i64)) " ago" }
                        }
                    }
                }
            }
        }
    }
}

/// Where there is nothing yet, and what to do about it.
pub fn empty(text: &str, commands: &[&str]) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @for text in commands { p { (command(text)) } }
        }
    }
}

/// The ways to what is before and after this page of a list; (its word, its address).
pub fn paging(back: Option<(&str, String)>, on: Option<(&str, String)>) -> Markup {
    html! {
        @if back.is_some() || on.is_some() {
            nav.paging aria-label="More" {
                @for (word, address) in back.iter().chain(&on) { a href=(address) { (word) } }
            }
        }
    }
}
