//! `stepward watch`: how a job goes, to its end.

use clap::Args;

use super::exit::Exit;
use super::process;
use super::progress::{FollowArgs, Place, watch};
use super::reach::{Reach, job_in_url, name};
use crate::wire::api::JobJson;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward watch 42
  stepward watch release@latest --timeout 10m
  stepward watch latest --json")]
pub struct WatchArgs {
    /// Its number, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB", value_parser = name)]
    job: String,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    follow: FollowArgs,
}

pub fn run(args: WatchArgs) -> anyhow::Result<Exit> {
    let path = format!("/api/jobs/{}", job_in_url(&args.job)?);
    let remote = args.reach.server()?;
    let job: JobJson = remote.get_within(&path, args.follow.timeout)?;
    let signals = process::signals()?;
    let place = Place::at_server(&args.reach);
    Ok(watch(&remote, &job, &place, &args.follow, &signals)?.exit)
}
