//! `stepward cancel`.

use clap::Args;

use super::exit::Exit;
use super::look::Show;
use super::reach::{Reach, job_in_url, name};
use super::say::{answer, answer_json_list, say};
use super::words::printable;
use crate::wire::api::{CancelRequest, JobJson};

#[derive(Args)]
#[command(before_help = "Examples:
  stepward cancel 42
  stepward cancel 42 43 nightly@latest")]
pub struct CancelArgs {
    /// Numbers, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB", required = true, value_parser = name)]
    jobs: Vec<String>,
    /// Why, for whoever looks at the job.
    #[arg(short = 'm', long = "message", value_name = "WHY")]
    why: Option<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    show: Show,
}

pub fn run(args: CancelArgs) -> anyhow::Result<Exit> {
    let jobs = args.jobs.iter().map(|job| job_in_url(job));
    let jobs: Vec<String> = jobs.collect::<Result<_, _>>()?;
    let remote = args.reach.server()?;
    let request = CancelRequest {
        // A variable of a script that is not set is no reason.
        why: args.why.filter(|why| !why.trim().is_empty()),
    };
    let mut exit = Exit::Success;
    let mut cancelled = Vec::new();
    for job in &jobs {
        let path = format!("/api/jobs/{job}/cancel");
        match remote.post::<JobJson>(&path, &request) {
            Ok(job) => {
                if !args.show.json {
                    // Whoever does not read it has cancelled it all the same.
                    let _ = answer(format!(
                        "job {} {} is cancelled",
                        job.id,
                        printable(&job.task)
                    ));
                }
                cancelled.push(job);
            }
            Err(error) => {
                say(format!("{error:#}"));
                if exit == Exit::Success {
                    exit = Exit::of(&error);
                }
            }
        }
    }
    if args.show.json {
        // As above.
        let _ = answer_json_list(cancelled);
    }
    Ok(exit)
}
