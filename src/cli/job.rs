//! `stepward job`: the jobs of a server, listed or one by one.

use std::collections::BTreeMap;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use super::columns::Columns;
use super::columns::Room::{Any, Wide};
use super::exit::{Exit, Fault};
use super::look::{Look, Show};
use super::reach::{Reach, Remote, in_url, job_in_url, name};
use super::say::{answer, answer_json, answer_json_list, print, say};
use super::sheet::{NOTHING, Sheet, joined, plain};
use super::table::Cell;
use super::words::{ago, duration, fit, moment, printable, until};
use crate::clock::wall_time;
use crate::domain::Json;
use crate::domain::job::{JobState, Source};
use crate::domain::reason::Reason;
use crate::wire::api::{AttemptHistory, EventJson, FailRequest, JobJson, List, StepJson, TaskJson};
use crate::wire::{Raw, Time};

/// So many a page of the API holds at most.
const PAGE_MAX: usize = 500;

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward job ls --status failed\n  stepward job ls --task release -n 5 --json\n  stepward job show release@latest"
)]
pub struct JobArgs {
    #[command(subcommand)]
    verb: JobVerb,
}

#[derive(Subcommand)]
enum JobVerb {
    /// Lists jobs, newest first.
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Shows one job and its steps.
    Show(ShowArgs),
    /// Keeps jobs, with their logs, however old they grow.
    Keep(KeepArgs),
    /// Lets jobs go again when they are old enough.
    Release(KeepArgs),
    /// Puts an assigned or running step back in the queue (admin).
    Requeue(RequeueArgs),
    /// Fails a step that has not ended (admin).
    Fail(FailArgs),
}

#[derive(Args)]
#[command(before_help = "Examples:\n  stepward job keep 42\n  stepward job release 42 43")]
struct KeepArgs {
    /// Numbers, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB", required = true, value_parser = name)]
    jobs: Vec<String>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward job requeue 42/build\n  stepward job requeue release@latest/build --json",
    after_help = "An assigned step keeps its place in the queue, and other workers are preferred for it.\n\
    The attempt of a running step ends, counts as a try, and a new one follows. Its worker is told to stop, so for a moment both may run.\n\
    A step in any other state is refused: a ready step is in the queue already, a step that ended needs `stepward retry`."
)]
struct RequeueArgs {
    /// The job and its step: JOB/STEP. The job is a number, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB/STEP", value_parser = name)]
    step: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward job fail 42/build -m 'the license server is down'\n  stepward job fail release@latest/build -m 'wrong branch' --json",
    after_help = "The step fails with reason failed_by_user. It is not retried; steps that depend on it follow as after any failure.\n\
    A worker that runs the step is told to stop. A step that waits for other steps, or that has ended, is refused."
)]
struct FailArgs {
    /// The job and its step: JOB/STEP. The job is a number, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB/STEP", value_parser = name)]
    step: String,
    /// Why, for whoever looks at the job.
    #[arg(short = 'm', long = "message", value_name = "WHY", required = true)]
    why: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward job ls\n  stepward job ls --status failed --since 2d\n  stepward job ls -q 'reason:worker_lost source:schedule' --all --json",
    after_help = "Columns: job, task, status, started, duration, source, why"
)]
struct LsArgs {
    /// Of this task alone.
    #[arg(long)]
    task: Option<String>,
    /// In this state alone.
    #[arg(long, value_parser = states())]
    status: Option<String>,
    /// Ended for this reason alone.
    #[arg(long, value_parser = reasons(), hide_possible_values = true)]
    reason: Option<String>,
    /// From there alone.
    #[arg(long, value_parser = sources())]
    source: Option<String>,
    /// Made so long ago at most, such as 2d; or since a time.
    #[arg(long, value_name = "AGE")]
    since: Option<String>,
    /// A filter as the API has it: status:failed task:release reason:worker_lost source:schedule since:2d.
    #[arg(short = 'q', long = "query", value_name = "FILTER")]
    filter: Option<String>,
    /// How many.
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// However many there are.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward job show 42\n  stepward job show release@failed --json"
)]
struct ShowArgs {
    /// Its number, latest, TASK@latest or TASK@failed.
    #[arg(value_parser = name)]
    job: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(JobState::ALL.iter().map(|state| state.as_str()))
}

fn reasons() -> PossibleValuesParser {
    PossibleValuesParser::new(Reason::ALL.iter().map(|reason| reason.as_str()))
}

fn sources() -> PossibleValuesParser {
    PossibleValuesParser::new(Source::ALL.iter().map(|source| source.as_str()))
}

pub fn run(args: JobArgs) -> anyhow::Result<Exit> {
    match args.verb {
        JobVerb::Ls(args) => list(args),
        JobVerb::Show(args) => show(args),
        JobVerb::Keep(args) => keep(args, true),
        JobVerb::Release(args) => keep(args, false),
        JobVerb::Requeue(args) => {
            let path = step_path(&args.step, "requeue")?;
            let remote = args.reach.server()?;
            let job: JobJson = remote.post_to_newer(&path, &serde_json::json!({}))?;
            step_changed(&args.step, &job, "is ready again", &args.show)
        }
        JobVerb::Fail(args) => {
            let path = step_path(&args.step, "fail")?;
            let request = FailRequest { why: args.why };
            let job: JobJson = args.reach.server()?.post_to_newer(&path, &request)?;
            step_changed(&args.step, &job, "failed", &args.show)
        }
    }
}

/// The path of an action on a step that was typed as JOB/STEP.
fn step_path(typed: &str, action: &str) -> anyhow::Result<String> {
    let Some((job, step)) = typed.split_once('/').filter(|(_, step)| !step.is_empty()) else {
        return Err(Fault::usage(format!(
            "{} names no step, write JOB/STEP",
            printable(typed)
        )));
    };
    let (job, step) = (job_in_url(job)?, in_url(step));
    Ok(format!("/api/jobs/{job}/steps/{step}/{action}"))
}

fn step_changed(typed: &str, job: &JobJson, what: &str, show: &Show) -> anyhow::Result<Exit> {
    let step = typed.split_once('/').map_or(typed, |(_, step)| step);
    // The change is made whether or not somebody reads the answer.
    let _ = match show.json {
        true => answer_json(job),
        false => answer(format!(
            "step {} of job {} {} {what}",
            printable(step),
            job.id,
            printable(&job.task)
        )),
    };
    Ok(Exit::Success)
}

fn keep(args: KeepArgs, kept: bool) -> anyhow::Result<Exit> {
    let jobs = args.jobs.iter().map(|job| job_in_url(job));
    let jobs: Vec<String> = jobs.collect::<Result<_, _>>()?;
    let remote = args.reach.server()?;
    let (word, said) = match kept {
        true => ("keep", "is kept until it is released"),
        false => ("release", "goes when it is old enough"),
    };
    let mut changed = Vec::new();
    for job in &jobs {
        let path = format!("/api/jobs/{job}/{word}");
        let job: JobJson = remote.post(&path, &serde_json::json!({}))?;
        if !args.show.json {
            let _ = answer(format!("job {} {} {said}", job.id, printable(&job.task)));
        }
        changed.push(job);
    }
    if args.show.json {
        let _ = answer_json_list(changed);
    }
    Ok(Exit::Success)
}

fn list(args: LsArgs) -> anyhow::Result<Exit> {
    let query = query(&args)?;
    let remote = args.reach.server()?;
    let limit = match args.all {
        true => usize::MAX,
        false => args.limit as usize,
    };
    // One more than is shown tells whether there are more.
    let asked = limit.saturating_add(1);
    let path = format!(
        "/api/jobs?limit={}&q={}",
        asked.min(PAGE_MAX),
        in_url(&query)
    );
    let jobs = remote.all(&path, "after", asked).map_err(as_typed);
    let mut jobs: Vec<JobJson> = jobs?;
    let is_more = jobs.len() > limit;
    jobs.truncate(limit);
    if args.show.json {
        let last = jobs.last().map(|job| job.id.to_string());
        answer_json(&List {
            next: last.filter(|_| is_more),
            items: jobs,
        });
        return Ok(Exit::Success);
    }
    if jobs.is_empty() {
        say(nothing_found(&remote, args.task.as_deref(), &query));
        return Ok(Exit::Success);
    }
    let look = args.show.look();
    print(&table(&jobs, &look).text(&look));
    if is_more {
        say(format!(
            "these are the newest {limit}, more with -n or --all"
        ));
    }
    Ok(Exit::Success)
}

/// What the flags say, in the language of the API.
fn query(args: &LsArgs) -> anyhow::Result<String> {
    let flags = [
        ("task", &args.task),
        ("status", &args.status),
        ("reason", &args.reason),
        ("source", &args.source),
        ("since", &args.since),
    ];
    let mut terms: Vec<String> = Vec::new();
    for (key, word) in flags {
        let Some(word) = word else { continue };
        if word.is_empty() || word.contains(char::is_whitespace) {
            let fault = format!("--{key} is {word:?}, expected one word");
            return Err(Fault::usage(fault));
        }
        terms.push(format!("{key}:{word}"));
    }
    terms.extend(args.filter.clone());
    Ok(terms.join(" "))
}

/// A filter that is not understood was typed here.
fn as_typed(error: anyhow::Error) -> anyhow::Error {
    match Exit::of(&error) {
        Exit::Invalid => Fault::usage(error.to_string()),
        _ => error,
    }
}

fn nothing_found(remote: &Remote, task: Option<&str>, query: &str) -> String {
    if query.is_empty() {
        return "there are no jobs yet; `stepward task ls` shows what can be run".to_string();
    }
    let fault = task.and_then(|task| {
        let task = remote.get::<TaskJson>(&format!("/api/tasks/{}", in_url(task)));
        task.err().filter(|error| Exit::of(error) == Exit::NotFound)
    });
    match fault {
        Some(fault) => format!("there are no such jobs: {fault}"),
        None => format!("there are no such jobs ({})", printable(query)),
    }
}

/// As lists of jobs look everywhere.
pub fn table(jobs: &[JobJson], look: &Look) -> Columns {
    let mut table = Columns::new(
        look,
        &[
            ("JOB", Any),
            ("TASK", Any),
            ("STATUS", Any),
            ("STARTED", Wide),
            ("DURATION", Wide),
            ("SOURCE", Wide),
            ("WHY", Any),
        ],
    );
    for job in jobs {
        let why = job.message.as_ref().or(job.reason.as_ref());
        table.row(vec![
            Cell::number(job.id),
            Cell::new(&job.task),
            Cell::status(look, &job.status),
            // What never started has its time, too.
            Cell::new(at(look, job.started_at.or(job.ended_at))),
            Cell::new(between(job.started_at, job.ended_at)),
            Cell::new(&job.source),
            Cell::new(why.map_or(NOTHING, String::as_str)),
        ]);
    }
    table
}

/// How long ago for people, when for programs.
fn at(look: &Look, time: Option<Time>) -> String {
    match time {
        None => NOTHING.to_string(),
        Some(time) if look.is_terminal => ago(time),
        Some(time) => moment(time),
    }
}

/// Until now, if it has not ended.
fn between(from: Option<Time>, to: Option<Time>) -> String {
    let to = to.map_or(wall_time(), |to| to.0);
    from.map_or_else(
        || NOTHING.to_string(),
        |from| duration(to.0.saturating_sub(from.0.0)),
    )
}

fn show(args: ShowArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let job: JobJson = remote.get(&format!("/api/jobs/{}", in_url(&args.job)))?;
    if args.show.json {
        answer_json(&job);
        return Ok(Exit::Success);
    }
    let look = args.show.look();
    let first: List<EventJson> = remote.get(&format!("/api/jobs/{}/events?limit=1", job.id))?;
    let made_by = first.items.into_iter().next().and_then(|event| event.actor);
    let mut text = head(&job, made_by, &look).text(&look);
    let steps = job.steps.as_deref().unwrap_or_default();
    text.push('\n');
    text.push_str(&steps_table(steps, &look).text(&look));
    text.push_str(&earlier_attempts(steps, &look));
    for step in steps.iter().filter(|step| is_asked(step)) {
        text.push_str(&asked(step, &look));
    }
    print(&text);
    let next: Vec<String> = next_commands(&job);
    say(format!("next: {}", next.join(", ")));
    Ok(Exit::Success)
}

/// `made_by`: who asked for it, if somebody did.
fn head(job: &JobJson, made_by: Option<String>, look: &Look) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.line("job", job.id.to_string());
    sheet.line("task", &job.task);
    sheet.line("status", &job.status);
    sheet.line_of("reason", job.reason.as_ref());
    sheet.line_of("message", job.message.as_ref());
    let scheduled = job.scheduled_for.map(moment);
    sheet.line(
        "source",
        match scheduled {
            Some(scheduled) => format!("{}, meant for {scheduled}", job.source),
            None => job.source.clone(),
        },
    );
    sheet.line_of("by", made_by);
    let parent = job.parent.as_ref();
    sheet.line_of(
        "parent",
        parent.map(|parent| format!("{}/{}", parent.job_id, parent.step)),
    );
    sheet.line_of("retry of", job.retry_of.map(|of| of.to_string()));
    sheet.line_of("kept", job.kept.then(|| "until it is released".to_string()));
    sheet.line_of(
        "logs",
        job.logs_removed_at
            .map(|at| format!("removed {}", moment(at))),
    );
    sheet.line_of("hook of", job.hook_of.map(|of| of.to_string()));
    sheet.line_of("input", value(Some(&job.input), look));
    sheet.line_of("output", value(job.output.as_ref(), look));
    sheet.line_of("labels", labels(&job.labels));
    sheet.line_of(
        "priority",
        (job.priority != 0).then(|| job.priority.to_string()),
    );
    sheet.line("created", moment(job.created_at));
    sheet.line_of("started", job.started_at.map(moment));
    sheet.line_of("ended", job.ended_at.map(moment));
    let ran = job
        .started_at
        .map(|_| between(job.started_at, job.ended_at));
    sheet.line_of("ran", ran);
    sheet
}

/// JSON in one line that is no longer than people read. `None`: there is nothing in it.
fn value(raw: Option<&Raw>, look: &Look) -> Option<String> {
    const SHOWN_MAX: usize = 400;
    let json = Json::from(raw?.clone()).0;
    let cut = format!("{} (all of it with --json)", look.ellipsis());
    (json != "{}" && json != "null").then(|| fit(&json, SHOWN_MAX, &cut))
}

fn labels(raw: &Raw) -> Option<String> {
    let json = Json::from(raw.clone()).0;
    let labels: BTreeMap<String, String> = serde_json::from_str(&json).unwrap_or_default();
    let labels: Vec<String> = (labels.iter())
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    (!labels.is_empty()).then(|| labels.join(", "))
}

fn steps_table(steps: &[StepJson], look: &Look) -> Columns {
    let mut table = Columns::new(
        look,
        &[
            ("STEP", Any),
            ("STATUS", Any),
            ("TRY", Wide),
            ("WORKER", Wide),
            ("WAITED", Wide),
            ("RAN", Any),
            ("WHY", Any),
        ],
    );
    for step in steps {
        let attempt = match step.attempt {
            0 => NOTHING.to_string(),
            // Requeued steps have attempts beyond the tries that their task allows.
            attempt if attempt > step.max_attempts => attempt.to_string(),
            attempt => format!("{attempt}/{}", step.max_attempts),
        };
        let left_queue = step.started_at.or(step.ended_at);
        table.row(vec![
            Cell::new(&step.name),
            Cell::status(look, &step.status),
            Cell::new(attempt),
            Cell::new(step.worker.as_deref().unwrap_or(NOTHING)),
            Cell::new(between(step.ready_at, left_queue)),
            Cell::new(between(step.started_at, step.ended_at)),
            Cell::new(why(step)),
        ]);
    }
    table
}

/// A table of the attempts that the table of steps does not tell of: those of steps that had more than one, and the attempt of a step
/// that ended for another reason than its attempt, as a step that was held when its worker was lost and rejected later.
fn earlier_attempts(steps: &[StepJson], look: &Look) -> String {
    let mut table = Columns::new(
        look,
        &[
            ("STEP", Any),
            ("ATTEMPT", Any),
            ("OUTCOME", Any),
            ("WORKER", Wide),
            ("RAN", Wide),
            ("WHY", Any),
        ],
    );
    let mut is_empty = true;
    for step in steps {
        let differs =
            |attempt: &AttemptHistory| attempt.message.is_some() && attempt.message != step.message;
        if step.attempts.len() < 2 && !step.attempts.iter().any(differs) {
            continue;
        }
        for attempt in &step.attempts {
            is_empty = false;
            let why = attempt.message.as_ref().or(attempt.reason.as_ref());
            table.row(vec![
                Cell::new(&step.name),
                Cell::number(i64::from(attempt.attempt)),
                Cell::status(look, &attempt.outcome),
                Cell::new(attempt.worker.as_deref().unwrap_or(NOTHING)),
                Cell::new(between(attempt.started_at, attempt.ended_at)),
                Cell::new(why.map_or(NOTHING, String::as_str)),
            ]);
        }
    }
    match is_empty {
        true => String::new(),
        false => format!("\n{}", table.text(look)),
    }
}

fn why(step: &StepJson) -> String {
    if let Some(message) = &step.message {
        return message.clone();
    }
    if let Some(reason) = &step.reason {
        return reason.clone();
    }
    if let Some(not_before) = step.not_before {
        return format!("tried again {}", until(not_before));
    }
    if let Some(child) = step.child_job_id {
        return format!("job {child}");
    }
    let code = step.exit_code.map(|code| format!("exit code {code}"));
    code.unwrap_or_else(|| NOTHING.to_string())
}

fn is_asked(step: &StepJson) -> bool {
    step.status == "suspended" && step.kind == "approval"
}

/// What whoever approves is asked for.
fn asked(step: &StepJson, look: &Look) -> String {
    if step.asks.is_empty() {
        return String::new();
    }
    let mut table = Columns::new(
        look,
        &[
            ("ASKED", Any),
            ("TYPE", Any),
            ("REQUIRED", Any),
            ("DEFAULT", Wide),
            ("OPTIONS", Wide),
            ("WHAT", Wide),
        ],
    );
    for ask in &step.asks {
        let default = ask.default.as_ref().map(plain);
        let options: Vec<String> = ask.options.iter().map(plain).collect();
        table.row(vec![
            Cell::new(&ask.name),
            Cell::new(&ask.value_type),
            Cell::new(if ask.required { "yes" } else { "no" }),
            Cell::new(default.unwrap_or_else(|| NOTHING.to_string())),
            Cell::new(joined(&options)),
            Cell::new(ask.description.as_deref().unwrap_or(NOTHING)),
        ]);
    }
    format!("\n{}", table.text(look))
}

fn next_commands(job: &JobJson) -> Vec<String> {
    let id = job.id;
    let steps = job.steps.as_deref().unwrap_or_default();
    let mut next: Vec<String> = Vec::new();
    for step in steps.iter().filter(|step| step.status == "suspended") {
        let name = printable(&step.name);
        next.push(format!("stepward approve {id} {name}"));
        next.push(format!("stepward reject {id} {name}"));
    }
    let usual: &[&str] = match job.status.as_str() {
        "pending" => &["why", "cancel"],
        "running" => &["watch", "why", "logs"],
        "completed" => &["logs"],
        _ => &["why", "logs", "retry"],
    };
    next.extend(usual.iter().map(|verb| format!("stepward {verb} {id}")));
    next
}
