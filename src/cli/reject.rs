//! `stepward reject`: a step that waits for a decision fails.

use clap::Args;

use super::approve::{Which, told};
use super::exit::Exit;
use super::look::Show;
use super::reach::{Reach, in_url};
use crate::wire::api::{JobJson, RejectRequest};

#[derive(Args)]
#[command(before_help = "Examples:
  stepward reject 42 -m 'not before the holidays'
  stepward reject 42 gate")]
pub struct RejectArgs {
    #[command(flatten)]
    which: Which,
    /// Why, for whoever looks at the job.
    #[arg(short = 'm', long = "message", value_name = "WHY")]
    why: Option<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    show: Show,
}

pub fn run(args: RejectArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let (job_id, step) = args.which.find(&remote)?;
    let path = format!("/api/jobs/{job_id}/steps/{}/reject", in_url(&step.name));
    let job: JobJson = remote.post(&path, &RejectRequest { why: args.why })?;
    told(&job, &step, "rejected", &args.show);
    Ok(Exit::Success)
}
