//! A task: run it, see how it went, what waits for what in it, when it runs by itself, and how it is written.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use super::form::Form;
use super::frame::{Here, Live, View};
use super::inputs::{self, Typed};
use super::{links, outcomes, parts, schedules, source};
use crate::domain::limits::{clip, shorten};
use crate::domain::task::Task;
use crate::domain::{Json, ScheduleId, Timestamp};
use crate::engine::{EngineError, Submission};
use crate::graph;
use crate::language::values::{Violation, check_values};
use crate::server::App;
use crate::server::api::tasks::find;
use crate::server::api::{jobs, show};
use crate::server::auth::random_text;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::{Frozen, PastJob};
use crate::wire::api::{ScheduleJson, TaskJson};
use crate::words::shell_word;

const PAST: u32 = 50;
const SHOWN: usize = 10;
const SCHEDULES: u32 = 1_000;
/// Labels without a value that a refusal names.
const LABEL_FAULTS_MAX: usize = 10;
/// Length of one reason why a form was refused.
const FAULT_BYTES_MAX: usize = 4 << 10;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let frozen = find(app, request.param(0))?;
    let specs = &frozen.definition.root().draft.inputs;
    let typed = match request.query("from") {
        // As an earlier job was given it, to be changed.
        Some(job) => {
            let job = app.engine.job(jobs::selected(app, job)?)?.job;
            let input = serde_json::to_value(show::masked(&job.input)).unwrap_or_default();
            Typed::of_input(&input, specs)
        }
        None => Typed::of_query(&request.query),
    };
    page(app, request, &frozen, &typed, &Refused::default())
}

/// Where a form that was refused was sent to, loaded again.
pub fn show_again(_: &App, request: &Request) -> Result<Reply, ApiError> {
    Ok(Response::see_other(links::task(request.param(0))).into())
}

/// What was wrong with a form, and where.
#[derive(Default)]
struct Refused {
    fields: Vec<Violation>,
    /// What belongs to no field.
    others: Vec<String>,
    /// What stood in the fields that every task has.
    priority: String,
    not_before: String,
    labels: String,
}

impl Refused {
    fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.others.is_empty()
    }
}

pub fn run(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    app.count_submissions(request, 1)?;
    let frozen = find(app, request.param(0))?;
    let specs = &frozen.definition.root().draft.inputs;
    let refused = match submission(&form, &frozen) {
        Err(refused) => refused,
        Ok(submission) => match app.engine_for(request).submit(submission, app.clock.now()) {
            Ok(made) => {
                let to = format!("/jobs/{}?said=submitted", made.job_id);
                return Ok(Response::see_other(to).into());
            }
            Err(EngineError::InputInvalid { violations, .. }) => Refused {
                fields: violations,
                ..Refused::default()
            },
            Err(error @ EngineError::Store(_)) => return Err(error.into()),
            Err(error) => Refused {
                others: vec![clip(&error.to_string(), FAULT_BYTES_MAX)],
                ..Refused::default()
            },
        },
    };
    let typed = Typed::of_form(&form, specs);
    let mut refused = refused;
    let mut text = |name: &str, title: &str| {
        let text = form.text(name).unwrap_or_default();
        if text.len() <= inputs::SHOWN_AGAIN_BYTES_MAX {
            return text.to_string();
        }
        refused.others.push(format!(
            "What you entered in {title} is too long to be shown again. Enter it again."
        ));
        String::new()
    };
    let (priority, not_before, labels) = (
        text("priority", "Priority"),
        text("not_before", "Not before"),
        text("labels", "Labels"),
    );
    let refused = Refused {
        priority,
        not_before,
        labels,
        ..refused
    };
    page(app, request, &frozen, &typed, &refused)
}

fn submission(form: &Form, frozen: &Frozen) -> Result<Submission, Refused> {
    let specs = &frozen.definition.root().draft.inputs;
    let mut refused = Refused::default();
    let (input, unread) = inputs::read(form, specs);
    if !unread.is_empty() {
        // Whoever has to mend one thing is told all others as well.
        let known = |fault: &Violation| unread.iter().any(|known| known.name == fault.name);
        let others = check_values(specs, &Value::Object(input.clone())).err();
        let others = others.unwrap_or_default().into_iter();
        refused.fields = others.filter(|fault| !known(fault)).collect();
        refused.fields.extend(unread);
    }
    let mut say = |fault: String| refused.others.push(fault);
    let priority = form.said("priority").map(str::parse::<i32>).transpose();
    let priority = priority.unwrap_or_else(|_| {
        say("the priority is not a whole number".to_string());
        None
    });
    let not_before = form.said("not_before").map(|text| {
        let whole = inputs::whole_time(text);
        whole.parse::<jiff::Timestamp>()
    });
    let not_before = not_before.transpose().unwrap_or_else(|_| {
        say("the earliest start is not a time such as 2026-01-31T08:00:00Z".to_string());
        None
    });
    let mut submission = Submission {
        input: Json(Value::Object(input).to_string()),
        priority,
        not_before: not_before.map(|at| Timestamp(at.as_millisecond())),
        // Who presses twice gets one job.
        idempotency_key: form.said("once").map(|key| format!("page {key}")),
        ..Submission::of(frozen)
    };
    let mut unread_labels = 0;
    for line in form.said("labels").unwrap_or_default().lines() {
        match line.split_once('=') {
            Some((label, value)) => {
                let (label, value) = (label.trim().to_string(), value.trim().to_string());
                submission.labels.insert(label, value);
            }
            None if line.trim().is_empty() => {}
            None => {
                unread_labels += 1;
                if unread_labels <= LABEL_FAULTS_MAX {
                    say(format!(
                        "the label {} has no value, write label=value",
                        shorten(line)
                    ));
                }
            }
        }
    }
    if unread_labels > LABEL_FAULTS_MAX {
        let more = unread_labels - LABEL_FAULTS_MAX;
        say(format!("{more} more labels have no value"));
    }
    match refused.is_empty() {
        true => Ok(submission),
        false => Err(refused),
    }
}

fn page(
    app: &App,
    request: &Request,
    frozen: &Frozen,
    typed: &Typed,
    refused: &Refused,
) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let task = frozen.definition.root();
    let name = &task.draft.name;
    let past = app.engine.last_of_tasks(&[name], PAST)?.remove(0);
    let loaded = app.workflows.current();
    let place = loaded.places.get(name);
    let main = html! {
        div.title {
            h1 { (name) }
            @if let Some(description) = &task.draft.description { span.note { (description) } }
        }
        @if place.is_some_and(|place| loaded.stale.contains(&place.file)) {
            p.refused #stale { "Its file has errors, " a href="#yaml-title" { "shown below" } ". What runs is the task as it was when the file was last good." }
        }
        (run_form(task, typed, refused, &past, &view)?)
        div.columns {
            (past_box(name, &past, &view))
            (about(task))
        }
        (graph_box(task))
        (schedules_box(&of_task(app, name)?, &view))
        @if let Some(place) = place {
            section.box aria-labelledby="yaml-title" {
                header { h2 #yaml-title { "How it is written" } a.note href={ "#L" (place.line) } { (place.file) ":" (place.line) } }
                (source::lines(&place.file, Some(place.line), &loaded))
            }
        }
    };
    // Somebody may be typing: what is shown besides is fetched again, what is in the form stays.
    let live = Live::Task(name.clone());
    let page = view.page(name.as_str(), Here::Tasks).live(live);
    match refused.is_empty() {
        true => page.show(main),
        false => page.live(Live::No).status(422).show(main),
    }
}

fn run_form(
    task: &Task,
    typed: &Typed,
    refused: &Refused,
    past: &[PastJob],
    view: &View,
) -> Result<Markup, ApiError> {
    let name = &task.draft.name;
    let command = format!("stepward run {}", shell_word(name));
    let besides = [&refused.priority, &refused.not_before, &refused.labels];
    let is_open = !refused.others.is_empty() || besides.iter().any(|text| !text.is_empty());
    let specs = &task.draft.inputs;
    // Of inputs that this task does not have: an address may be old.
    let strange = refused
        .fields
        .iter()
        .filter(|fault| !specs.iter().any(|spec| spec.name == fault.name));
    Ok(html! {
        section.box #run aria-labelledby="run-title" {
            header {
                h2 #run-title { "Run it" }
                @if let Some(last) = past.first() && !specs.is_empty() { a.note href={ (links::task(name)) "?from=" (last.job_id) "#run" } { "with the values of job " (last.job_id) } }
            }
            // Kept as it is while somebody fills it in.
            form.in data-run data-keep="run" method="post" action={ (links::task(name)) "/run" } {
                (view.proof())
                // A form that is sent twice makes one job.
                input type="hidden" name="once" value=(random_text()?);
                @if !refused.is_empty() {
                    div.refused role="alert" {
                        p { "The job was not submitted." }
                        ul {
                            @for fault in strange { li { (fault.name) " " (fault.message) } }
                            @for fault in &refused.others { li { (fault) } }
                        }
                    }
                }
                @if specs.is_empty() { p.note { "It has no inputs." } }
                @let unknown = typed.unknown(specs);
                @if !unknown.is_empty() { p.fault { "The address names inputs that this task does not have: " (unknown.join(", ")) } }
                @for spec in specs { (inputs::field(spec, typed, &refused.fields)) }
                details open[is_open] {
                    summary { "Priority, earliest start, labels" }
                    div.field { label for="priority" { "Priority" } input #priority name="priority" value=(refused.priority) inputmode="numeric" placeholder=(task.draft.priority) autocomplete="off"; div.note { "higher goes first" } }
                    div.field { label for="not_before" { "Not before" } input #not_before name="not_before" value=(refused.not_before) placeholder="2026-01-31T08:00:00Z" autocomplete="off"; div.note { "RFC 3339; without a zone it is UTC" } }
                    div.field { label for="labels" { "Labels" } textarea #labels name="labels" rows="2" { "\n" (refused.labels) } div.note { "label=value, one per line" } }
                }
                p.actions {
                    button.primary { "Run" }
                    span.command data-command=(command) { code { (command) } button.quiet.copy type="button" data-copy=(command) hidden { "copy as CLI" } }
                }
            }
        }
    })
}

fn past_box(name: &str, past: &[PastJob], view: &View) -> Markup {
    html! {
        section.box aria-labelledby="past-title" {
            header {
                h2 #past-title { "Last jobs" }
                @if let Some((half, most)) = outcomes::usual_ms(past).filter(|_| past.len() >= 5) { span.note { "half take up to " (parts::duration(half)) ", 19 of 20 up to " (parts::duration(most)) } }
                a.more href=(links::jobs(&format!("task:{name}"))) { "all" }
            }
            @if past.is_empty() { div.empty { "It has never run." } }
            @else {
                div.in.scroll tabindex="0" role="group" aria-label="The last jobs as bars" { (outcomes::strip(past)) }
                table {
                    caption.hidden { "The newest jobs of this task" }
                    thead { tr { th scope="col" { "job" } th scope="col" { "state" } th.number scope="col" { "took" } th.number scope="col" { "made" } } }
                    tbody {
                        @for job in past.iter().take(SHOWN) {
                            tr id={ "past-" (job.job_id) } {
                                td { a data-open href=(links::job(job.job_id.0)) { (job.job_id) } }
                                td { (parts::state(job.state.as_str())) }
                                td.number { (parts::took(job.started_at.map(Into::into), job.ended_at.map(Into::into), view.now)) }
                                td.number { (parts::ago(job.created_at.into(), view.now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn about(task: &Task) -> Markup {
    let draft = &task.draft;
    let span_of = |ms: Option<i64>| ms.map(crate::domain::span::span);
    let tags: std::collections::BTreeSet<String> = draft
        .steps
        .iter()
        .flat_map(|step| step.required_tags())
        .collect();
    let tags: Vec<String> = tags.into_iter().collect();
    html! {
        section.box aria-labelledby="about-title" {
            header { h2 #about-title { "About it" } }
            div.in {
                dl.pairs {
                    dt { "steps" } dd { (draft.steps.len()) }
                    dt { "needs" } dd { (parts::tags(&tags)) }
                    dt { "timeout" } dd { (span_of(draft.timeout_ms).unwrap_or_else(|| "the default".to_string())) }
                    dt { "may wait" } dd { (span_of(draft.queue_timeout_ms).unwrap_or_else(|| "as long as it takes".to_string())) }
                    dt { "priority" } dd { (draft.priority) }
                }
            }
        }
    }
}

fn graph_box(task: &Task) -> Markup {
    let graph = graph::of_task(&TaskJson::from(task));
    let collapsed = graph::collapsed(&graph, graph::SHOWN_MAX);
    let picture = graph::Picture {
        prefix: "task-",
        href: &|_| None,
        selected: None,
    };
    let layout = graph::layout(&collapsed.graph);
    let drawn = graph::svg_linked(&collapsed.graph, &layout, &picture);
    html! {
        section.box aria-labelledby="graph-title" {
            header { h2 #graph-title { "What waits for what" } }
            div.graph-box.in tabindex="0" role="group" aria-label="Graph" { (PreEscaped(drawn)) }
        }
    }
}

fn of_task(app: &App, name: &str) -> Result<Vec<ScheduleJson>, EngineError> {
    let all = app.engine.schedules(ScheduleId(0), SCHEDULES)?;
    let own = all.iter().map(show::schedule);
    Ok(own.filter(|schedule| schedule.task == name).collect())
}

fn schedules_box(own: &[ScheduleJson], view: &View) -> Markup {
    html! {
        @if !own.is_empty() {
            section.box aria-labelledby="schedules-title" {
                header { h2 #schedules-title { "Schedules" } a.more href="/schedules" { "all" } }
                (schedules::table(own, view))
            }
        }
    }
}
