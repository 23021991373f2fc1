//! `stepward why`: what a job, a step, a worker or a schedule waits for, or what ended it.

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exit::{Exit, Fault};
use super::look::{Look, Show};
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer, answer_json, print};
use super::why_text;
use super::words::printable;
use crate::domain::limits::shorten;
use crate::domain::selector::JobSelector;
use crate::language::words::did_you_mean;
use crate::wire::api::{
    JobJson, JobWhyJson, OneStepWhyJson, ScheduleJson, ScheduleWhyJson, TaskJson, WorkerJson,
    WorkerWhyJson,
};

/// How a sentence of the server goes on that knows better.
const HINT: &str = "; did you mean ";

/// So many names are looked at for the one that was meant.
const NAMES_MAX: usize = 1_000;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward why latest            what the newest job waits for, or what ended it
  stepward why release@failed    the last release that failed
  stepward why 42/unit           one step of job 42
  stepward why edge-2            a worker
  stepward why release.nightly   a schedule")]
pub struct WhyArgs {
    /// A job (42, latest, release@failed), a step of one (42/unit), a schedule (TASK.NAME) or a worker.
    #[arg(value_name = "WHAT", value_parser = name)]
    what: String,
    /// A step of the job.
    #[arg(value_name = "STEP", value_parser = name)]
    step: Option<String>,
    /// It is the name of a worker.
    #[arg(long, conflicts_with_all = ["step", "schedule"])]
    worker: bool,
    /// It is the name of a schedule.
    #[arg(long, conflicts_with = "step")]
    schedule: bool,
    /// Only the code, such as no_matching_worker.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(args: WhyArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let what = args.what.as_str();
    if args.worker {
        let found = worker(&remote, what);
        let found = found.map_err(|error| or_near(error, what, workers(&remote)))?;
        return args.tell(&found, &found.why.code, why_text::worker);
    }
    if args.schedule {
        let found = schedule(&remote, what);
        let found = found.map_err(|error| or_near(error, what, schedules(&remote)))?;
        return args.tell(&found, &found.why.code, why_text::schedule);
    }
    let (job, step) = match (what.split_once('/'), &args.step) {
        (_, Some(step)) => (what, Some(step.as_str())),
        (Some((job, step)), None) if JobSelector::parse(job).is_some() => (job, Some(step)),
        _ => (what, None),
    };
    // The server says what is wrong with a job that is none.
    if JobSelector::parse(job).is_some() || step.is_some() {
        return args.tell_job(&remote, job, step);
    }
    let schedule = match what.contains('.') {
        true => there(schedule(&remote, what))?,
        false => None,
    };
    match (schedule, there(worker(&remote, what))?) {
        (Some(_), Some(_)) => {
            let what = shorten(&printable(what));
            let message =
                format!("{what} is a schedule and a worker: say which with --schedule or --worker");
            Err(Fault::not_found(message))
        }
        (Some(found), None) => args.tell(&found, &found.why.code, why_text::schedule),
        (None, Some(found)) => args.tell(&found, &found.why.code, why_text::worker),
        (None, None) => Err(unknown(&remote, what)?),
    }
}

impl WhyArgs {
    fn tell_job(&self, remote: &Remote, job: &str, step: Option<&str>) -> anyhow::Result<Exit> {
        let path = format!("/api/jobs/{}", in_url(job));
        match step {
            Some(step) if name(step).is_err() || step.contains('/') => {
                let (job, step) = (printable(job), shorten(&printable(step)));
                let message = format!("{step} names no step, write {job}/STEP");
                Err(Fault::not_found(message))
            }
            Some(step) => {
                let step = in_url(step);
                let found: OneStepWhyJson = remote.get(&format!("{path}/steps/{step}/why"))?;
                self.tell(&found, &found.step.why.code, why_text::step)
            }
            None => {
                let found: JobWhyJson = remote.get(&format!("{path}/why"))?;
                self.tell(&found, &found.why.code, why_text::job)
            }
        }
    }

    fn tell<T: Serialize>(
        &self,
        found: &T,
        code: &str,
        text: fn(&T, &Look) -> String,
    ) -> anyhow::Result<Exit> {
        // Whoever does not read it has asked all the same.
        let _ = match (self.show.json, self.quiet) {
            (true, _) => answer_json(found),
            (_, true) => answer(printable(code)),
            _ => print(&text(found, &self.show.look())),
        };
        Ok(Exit::Success)
    }
}

fn worker(remote: &Remote, name: &str) -> anyhow::Result<WorkerWhyJson> {
    remote.get(&format!("/api/workers/{}/why", in_url(name)))
}

fn schedule(remote: &Remote, name: &str) -> anyhow::Result<ScheduleWhyJson> {
    remote.get(&format!("/api/schedules/{}/why", in_url(name)))
}

/// `None`: the server has no such thing.
fn there<T: DeserializeOwned>(found: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match found {
        Err(error) if Exit::of(&error) == Exit::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn workers(remote: &Remote) -> anyhow::Result<Vec<String>> {
    let workers: Vec<WorkerJson> = remote.all("/api/workers", "after", NAMES_MAX)?;
    Ok(workers.into_iter().map(|worker| worker.name).collect())
}

fn schedules(remote: &Remote) -> anyhow::Result<Vec<String>> {
    let schedules: Vec<ScheduleJson> = remote.all("/api/schedules", "after", NAMES_MAX)?;
    let name = |schedule: ScheduleJson| format!("{}.{}", schedule.task, schedule.name);
    Ok(schedules.into_iter().map(name).collect())
}

/// What the server said, and what was probably meant.
fn or_near(error: anyhow::Error, what: &str, names: anyhow::Result<Vec<String>>) -> anyhow::Error {
    match names {
        Ok(names) if Exit::of(&error) == Exit::NotFound => {
            let said = error.to_string();
            let hint = match said.contains("did you mean") {
                true => String::new(),
                false => did_you_mean(what, names.iter().map(String::as_str)),
            };
            Fault::not_found(format!("{said}{hint}"))
        }
        _ => error,
    }
}

/// What was looked for, and what was probably meant.
fn unknown(remote: &Remote, what: &str) -> anyhow::Result<anyhow::Error> {
    let shown = printable(what);
    let tasks: Vec<TaskJson> = remote.all("/api/tasks", "after", NAMES_MAX)?;
    if tasks.iter().any(|task| task.name == what) {
        return Ok(Fault::not_found(format!(
            "{shown} is a task; of its newest job: stepward why {shown}@latest"
        )));
    }
    let job = what.split_once('/').map_or(what, |(job, _)| job);
    let hints = [
        hint(schedule(remote, what)),
        did_you_mean(what, workers(remote)?.iter().map(String::as_str)),
        hint(remote.get::<JobJson>(&format!("/api/jobs/{}", in_url(job)))),
    ];
    Ok(Fault::not_found(format!(
        "there is no job, schedule or worker {}: a job is named by its number or as latest, TASK@latest or \
         TASK@failed, a schedule as TASK.NAME, a worker by its name{}",
        shorten(&shown),
        hints
            .iter()
            .find(|hint| !hint.is_empty())
            .map_or("", String::as_str)
    )))
}

/// What the server thinks was meant, who knows all that there is.
fn hint<T>(refused: anyhow::Result<T>) -> String {
    let said = refused.map_or_else(|error| error.to_string(), |_| String::new());
    let at = said.rfind(HINT);
    at.map_or_else(String::new, |at| printable(&said[at..]))
}
