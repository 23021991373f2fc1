//! `stepward retry`: a new job of one that ended, in which what completed is not done again.

use std::time::Duration;

use clap::Args;

use super::exit::Exit;
use super::process;
use super::progress::FollowArgs;
use super::reach::{Reach, job_in_url, name};
use super::run::follow_at;
use crate::wire::api::{JobJson, RetryRequest};

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Args)]
#[command(before_help = "Examples:
  stepward retry 42                       what did not complete
  stepward retry release@failed --all     everything once more
  stepward retry 42 --from test --detach  this step and what did not complete; prints the new job's number")]
pub struct RetryArgs {
    /// Its number, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB", value_parser = name)]
    job: String,
    /// What did not complete, as without it.
    #[arg(long, conflicts_with_all = ["from", "all"])]
    failed: bool,
    /// This step, and what did not complete.
    #[arg(long, value_name = "STEP", conflicts_with = "all")]
    from: Option<String>,
    /// Everything once more.
    #[arg(long)]
    all: bool,
    /// Shows how it goes and exits with the new job's outcome, as without it.
    #[arg(long, conflicts_with = "detach")]
    watch: bool,
    /// Prints the new job's number and leaves it to the server.
    #[arg(long, conflicts_with = "logs")]
    detach: bool,
    /// The same key makes no second job, it names the first.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    follow: FollowArgs,
}

pub fn run(args: RetryArgs) -> anyhow::Result<Exit> {
    let path = format!("/api/jobs/{}/retry", job_in_url(&args.job)?);
    let remote = args.reach.server()?;
    let request = RetryRequest {
        from: args.from,
        all: args.all,
    };
    let signals = process::signals()?;
    let job: JobJson = remote.heard(match &args.idempotency_key {
        Some(key) => remote.client.post_once(&path, &request, key, PATIENCE),
        None => remote.client.post(&path, &request, PATIENCE),
    })?;
    follow_at(
        &remote,
        &job,
        args.detach,
        &args.reach,
        &args.follow,
        &signals,
    )
}
