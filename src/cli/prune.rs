//! `stepward prune`: makes room before the time that the settings say.

use std::path::PathBuf;

use clap::Args;

use super::exit::{Exit, Fault};
use super::files::{refuse_no_database, server_config};
use super::look::Show;
use super::reach::{Reach, Remote};
use super::say::{answer, answer_json};
use super::words::count;
use crate::backup::LOGS_FOLDER;
use crate::clock::wall_time;
use crate::domain::token::CONSOLE;
use crate::domain::{EventSeq, JobId, Now, Timestamp};
use crate::engine::Engine;
use crate::language::duration;
use crate::logs::{LogLimits, Logs};
use crate::reaper::{prune_events, prune_jobs};
use crate::store::{Store, StoreOptions};
use crate::wire::api::{PruneRequest, PrunedJson};
use crate::words::bytes;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward prune --jobs-older 30d --dry-run
  stepward prune --jobs-older 30d
  stepward prune --jobs-older 30d --events                        and the events of jobs that are gone
  stepward prune --jobs-older 30d --data-dir /var/lib/stepward    the server is stopped")]
pub struct PruneArgs {
    /// Jobs that ended so long ago, such as 30d; as retention.job_days says if left out.
    #[arg(long, value_name = "AGE")]
    jobs_older: Option<String>,
    /// Also removes the events of jobs that are gone, however young the events are.
    #[arg(long)]
    events: bool,
    /// Says what would go, and removes nothing. Counts only events of jobs that are gone already.
    #[arg(long)]
    dry_run: bool,
    /// Of a server that is stopped.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(args: PruneArgs) -> anyhow::Result<Exit> {
    let older_ms = match &args.jobs_older {
        None => None,
        Some(text) => match duration::parse(text) {
            Ok(ms) if ms >= 1_000 => Some(ms),
            Ok(_) => return Err(Fault::usage("--jobs-older is 0, it must be at least 1s")),
            Err(fault) => return Err(Fault::usage(format!("--jobs-older: {fault}"))),
        },
    };
    let mut all = PrunedJson {
        dry_run: args.dry_run,
        ..PrunedJson::default()
    };
    let mut prune = match &args.data_dir {
        Some(folder) => {
            args.reach.or_folder(folder)?;
            offline(folder.clone(), older_ms, args.dry_run)?
        }
        None => online(args.reach.server()?, older_ms, args.dry_run),
    };
    // What was retried stays until its retry is gone: once more through all, as long as that lets any go.
    loop {
        let (before, mut after) = (all.jobs, 0);
        all.needed = 0;
        loop {
            let some = prune(Piece::Jobs { after })?;
            all.jobs += some.jobs;
            all.log_bytes += some.log_bytes;
            all.needed += some.needed;
            match some.next {
                Some(next) => after = next,
                None => break,
            }
        }
        if args.dry_run || all.needed == 0 || all.jobs == before {
            break;
        }
    }
    let mut after = args.events.then_some(0);
    while let Some(event) = after {
        let some = prune(Piece::Events { after: event })?;
        all.events += some.events;
        after = some.next;
    }
    if args.show.json {
        answer_json(&all);
        return Ok(Exit::Success);
    }
    let (jobs, logs) = (count(all.jobs as usize, "job"), bytes(all.log_bytes));
    let said = match args.dry_run {
        true => format!("{jobs} would go, with {logs} of logs; nothing was removed"),
        false => format!("{jobs} removed, with {logs} of logs"),
    };
    answer(said);
    if args.events {
        let events = count(all.events as usize, "event");
        answer(match args.dry_run {
            true => format!("{events} of jobs that are gone would go"),
            false => format!("{events} of jobs that are gone removed"),
        });
    }
    if all.needed > 0 {
        let stay = if all.needed == 1 { "stays" } else { "stay" };
        let needed = count(all.needed as usize, "job");
        answer(format!(
            "{needed} {stay}: kept by somebody, or retried or hooked by a job that stays"
        ));
    }
    Ok(Exit::Success)
}

/// The part of a prune that one request carries out.
enum Piece {
    /// Jobs after this job.
    Jobs { after: i64 },
    /// Events of jobs that are gone, after this event.
    Events { after: i64 },
}

type Prune = Box<dyn FnMut(Piece) -> anyhow::Result<PrunedJson>>;

fn online(remote: Remote, older_ms: Option<i64>, dry_run: bool) -> Prune {
    Box::new(move |piece| match piece {
        Piece::Jobs { after } => {
            let request = PruneRequest {
                jobs_older_secs: older_ms.map(|ms| ms / 1_000),
                after: Some(after),
                dry_run,
                events: false,
            };
            remote.post("/api/prune", &request)
        }
        Piece::Events { after } => {
            let request = PruneRequest {
                jobs_older_secs: None,
                after: Some(after),
                dry_run,
                events: true,
            };
            remote.post_newer_field("/api/prune", &request)
        }
    })
}

/// On the folder of a server that is stopped.
fn offline(folder: PathBuf, older_ms: Option<i64>, dry_run: bool) -> anyhow::Result<Prune> {
    refuse_no_database(&folder)?;
    let config = server_config(None)?;
    let bounds = config.retention.bounds();
    let options = match dry_run {
        true => StoreOptions::looking(),
        false => StoreOptions::default(),
    };
    let store = Store::open(&folder, options)?;
    let logs = Logs::open(&folder.join(LOGS_FOLDER), LogLimits::default())?;
    let now = Now {
        wall: wall_time(),
        up: store.begun_up(),
    };
    let until = Timestamp(now.wall.0.saturating_sub(older_ms.unwrap_or(bounds.job_ms)));
    let engine = Engine::new(store, config.settings()).by(CONSOLE);
    Ok(Box::new(move |piece| match piece {
        Piece::Jobs { after } => {
            let pruned = prune_jobs(&engine, &logs, bounds, until, JobId(after), dry_run, now)?;
            Ok(PrunedJson {
                dry_run,
                jobs: pruned.jobs,
                log_bytes: pruned.log_bytes,
                events: 0,
                needed: pruned.needed,
                next: pruned.next,
            })
        }
        Piece::Events { after } => {
            let pruned = prune_events(&engine, &logs, bounds, EventSeq(after), dry_run, now)?;
            Ok(PrunedJson {
                dry_run,
                events: pruned.events,
                next: pruned.next.map(|next| next.0),
                ..PrunedJson::default()
            })
        }
    }))
}
