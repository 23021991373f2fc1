//! `stepward wait`: silence until jobs have ended, for scripts.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use crossbeam_channel::{Receiver, after, bounded, never, select};

use super::exit::Exit;
use super::follow::{News, follow};
use super::look::Show;
use super::process;
use super::progress::waiting_time;
use super::reach::{Reach, Remote, job_in_url, name};
use super::say::{answer_json_list, say};
use crate::client::CallError;
use crate::wire::api::{JobChange, JobJson};

/// Between two looks while nothing is told.
const REST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(before_help = "Examples:
  stepward wait 42                         exits with the job's outcome
  stepward wait 42 43 44 --timeout 10m     124 if they take longer
  stepward wait 42 43 --any --json         prints the one that ended first")]
pub struct WaitArgs {
    /// Numbers, latest, TASK@latest or TASK@failed.
    #[arg(value_name = "JOB", required = true, value_parser = name)]
    jobs: Vec<String>,
    /// The first one that ends is enough.
    #[arg(long)]
    any: bool,
    /// Waits no longer than this, such as 90, 5m or 1h30m, and exits with 124.
    #[arg(long, value_name = "DURATION", value_parser = waiting_time)]
    timeout: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    show: Show,
}

pub fn run(args: WaitArgs) -> anyhow::Result<Exit> {
    let jobs = args.jobs.iter().map(|job| job_in_url(job));
    let jobs: Vec<String> = jobs.collect::<Result<_, _>>()?;
    let remote = args.reach.server()?;
    let deadline = args.timeout.map_or_else(never, after);
    let mut ids = Vec::new();
    for job in &jobs {
        let path = format!("/api/jobs/{job}");
        let job: JobJson = remote.get_within(&path, args.timeout)?;
        ids.push(job.id);
    }
    let signals = process::signals()?;
    let ends = await_ends(&remote, ids.clone())?;
    let mut ended: Vec<JobJson> = Vec::new();
    let is_enough = |ended: &[JobJson]| {
        let has_ended = |id: &i64| ended.iter().any(|job| job.id == *id);
        match args.any {
            true => !ended.is_empty(),
            false => ids.iter().all(has_ended),
        }
    };
    let early = loop {
        if is_enough(&ended) {
            break None;
        }
        select! {
            recv(ends) -> end => match end {
                Ok(Ok(job)) => ended.push(job),
                Ok(Err(refused)) => return Err(remote.heard::<()>(Err(refused)).unwrap_err()),
                Err(_) => anyhow::bail!("whoever looks at the jobs met a bug"),
            },
            recv(deadline) -> _ => break Some(Exit::WaitedTooLong),
            recv(signals) -> _ => break Some(Exit::Interrupted),
        }
    };
    let exit = early.unwrap_or_else(|| outcome(&ids, &ended));
    if args.show.json {
        // Whoever does not read it has the exit code.
        let _ = answer_json_list(ended);
    }
    Ok(exit)
}

/// Of the first that did not complete, in the order in which they were named.
fn outcome(ids: &[i64], ended: &[JobJson]) -> Exit {
    let of = |id: &i64| ended.iter().find(|job| job.id == *id);
    let outcomes = ids.iter().filter_map(of).filter_map(Exit::of_job);
    let mut bad = outcomes.filter(|exit| *exit != Exit::Success);
    bad.next().unwrap_or(Exit::Success)
}

type End = Result<JobJson, CallError>;

/// Each of them as it ends.
fn await_ends(remote: &Remote, ids: Vec<i64>) -> anyhow::Result<Receiver<End>> {
    let (ends, heard) = bounded(ids.len());
    let only = if ids.len() == 1 {
        ids.first().copied()
    } else {
        None
    };
    let news = follow(remote, only, None);
    let remote = remote.clone();
    let look = move || {
        // Whether it has to be looked at.
        let mut open: BTreeMap<i64, bool> = ids.into_iter().map(|id| (id, true)).collect();
        let mut is_lost = false;
        while !open.is_empty() {
            for id in open
                .iter()
                .filter(|(_, due)| **due)
                .map(|(id, _)| *id)
                .collect::<Vec<_>>()
            {
                let path = format!("/api/jobs/{id}");
                let end = match remote.client.get::<JobJson>(&path, PATIENCE) {
                    Ok(job) => {
                        if std::mem::take(&mut is_lost) {
                            say("the server is back");
                        }
                        if job.ended_at.is_none() {
                            open.insert(id, false);
                            continue;
                        }
                        Ok(job)
                    }
                    Err(error) if error.passes() => {
                        if !std::mem::replace(&mut is_lost, true) {
                            say("the server does not answer, trying again");
                        }
                        break;
                    }
                    Err(refused) => Err(refused),
                };
                open.remove(&id);
                if ends.send(end).is_err() {
                    return;
                }
            }
            match news.recv_timeout(REST) {
                Ok(first) => {
                    for news in std::iter::once(first).chain(news.try_iter()) {
                        note(&news, &mut open);
                    }
                }
                // Nothing was told: that may be because nobody tells.
                Err(_) => open.values_mut().for_each(|due| *due = true),
            }
        }
    };
    let thread = std::thread::Builder::new().name("look".to_string());
    thread.spawn(look)?;
    Ok(heard)
}

fn note(news: &News, open: &mut BTreeMap<i64, bool>) {
    match news {
        News::Told(told) if told.kind == "job" => {
            let change = serde_json::from_str::<JobChange>(&told.data);
            if let Some(due) = change.ok().and_then(|change| open.get_mut(&change.job_id)) {
                *due = true;
            }
        }
        News::Told(_) => {}
        _ => open.values_mut().for_each(|due| *due = true),
    }
}
