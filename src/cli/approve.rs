//! `stepward approve`: a step that waits for a decision goes on.

use clap::Args;
use serde_json::Value;

use super::exit::{Exit, Fault};
use super::inputs::Given;
use super::look::Show;
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer, answer_json};
use super::words::printable;
use crate::language::words::{listed, nearest};
use crate::wire::api::{ApproveRequest, JobJson, StepJson};

#[derive(Args)]
#[command(before_help = "Examples:
  stepward approve 42
  stepward approve 42 gate -i reason='all green'
  stepward approve release@latest")]
pub struct ApproveArgs {
    #[command(flatten)]
    which: Which,
    /// What is asked for: key=value, again and again; @FILE for a JSON object, @- for one on stdin.
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    show: Show,
}

#[derive(Args)]
pub struct Which {
    /// Its number, latest, TASK@latest or TASK@failed; or JOB/STEP.
    #[arg(value_name = "JOB", value_parser = name)]
    job: String,
    /// The step; not needed if only one waits.
    #[arg(value_name = "STEP")]
    step: Option<String>,
}

pub fn run(args: ApproveArgs) -> anyhow::Result<Exit> {
    let given = Given::read(&args.inputs)?;
    let remote = args.reach.server()?;
    let (job_id, step) = args.which.find(&remote)?;
    let output = match given.is_empty() {
        true => None,
        false => {
            let output = Value::Object(given.typed(&step.asks)?).to_string();
            Some(serde_json::from_str(&output)?)
        }
    };
    let path = format!("/api/jobs/{job_id}/steps/{}/approve", in_url(&step.name));
    let job: JobJson = remote.post(&path, &ApproveRequest { output })?;
    told(&job, &step, "approved", &args.show);
    Ok(Exit::Success)
}

/// Whoever does not read it has decided all the same.
pub fn told(job: &JobJson, step: &StepJson, what: &str, show: &Show) {
    let _ = match show.json {
        true => answer_json(job),
        false => answer(format!(
            "step {} of job {} {} was {what}",
            printable(&step.name),
            job.id,
            printable(&job.task)
        )),
    };
}

impl Which {
    /// The step that waits for a decision, and the number of its job.
    pub fn find(&self, remote: &Remote) -> anyhow::Result<(i64, StepJson)> {
        let (job, step) = match (&self.step, self.job.split_once('/')) {
            (Some(_), Some(_)) => {
                return Err(Fault::usage(
                    "the step is named twice, write JOB STEP or JOB/STEP",
                ));
            }
            (Some(step), None) => (self.job.as_str(), Some(step.as_str())),
            (None, Some((job, step))) => (job, Some(step)),
            (None, None) => (self.job.as_str(), None),
        };
        let job: JobJson = remote.get(&format!("/api/jobs/{}", in_url(job)))?;
        let (job_id, steps) = (job.id, job.steps.unwrap_or_default());
        let mut waiting: Vec<StepJson> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for step in steps {
            names.push(step.name.clone());
            if step.status == "suspended" {
                waiting.push(step);
            }
        }
        let wait: Vec<&str> = waiting.iter().map(|step| step.name.as_str()).collect();
        let conflict = |message: String| Fault::new(Exit::Conflict, message).into();
        match step {
            None if waiting.len() == 1 => Ok((job_id, waiting.remove(0))),
            None if waiting.is_empty() => Err(conflict(format!(
                "no step of job {job_id} waits for a decision, it is {}",
                job.status
            ))),
            None => Err(Fault::usage(format!(
                "several steps of job {job_id} wait for a decision, name one: {}",
                printable(&listed(wait))
            ))),
            Some(name) => {
                if let Some(at) = waiting.iter().position(|step| step.name == name) {
                    return Ok((job_id, waiting.remove(at)));
                }
                let shown = printable(name);
                if names.iter().any(|known| known == name) {
                    let message =
                        format!("step {shown} of job {job_id} does not wait for a decision");
                    return Err(conflict(message));
                }
                let help = match nearest(name, names.iter().map(String::as_str)) {
                    Some(meant) => format!("did you mean {}?", printable(meant)),
                    None => format!(
                        "it has {}",
                        printable(&listed(names.iter().map(String::as_str)))
                    ),
                };
                let message = format!("job {job_id} has no step {shown:?}; {help}");
                Err(Fault::not_found(message))
            }
        }
    }
}
