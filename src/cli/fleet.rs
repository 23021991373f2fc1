//! `stepward worker ls`, `show`, `drain`, `pause`, `resume`, `rm`: the workers of a server, from wherever one is.

use clap::{Args, Subcommand};

use super::columns::Columns;
use super::columns::Room::{Any, Wide};
use super::exit::{Exit, Fault};
use super::look::{Ink, Look, Show};
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer, answer_json, answer_json_list, print, say};
use super::sheet::{Sheet, joined};
use super::table::{Cell, Table};
use super::words::{count, moment, printable, secs};
use crate::problems::address;
use crate::wire::api::{HeldStepJson, WorkerJson};

#[derive(Subcommand)]
pub enum FleetVerb {
    /// Lists the workers of a server.
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Shows a worker, and what it runs.
    #[command(
        before_help = "Examples:\n  stepward worker show edge-1\n  stepward worker show 3 --json"
    )]
    Show(OneArgs),
    /// Lets a worker finish what it has, take nothing new, and leave.
    #[command(
        before_help = "Examples:\n  stepward worker drain edge-1\n  stepward worker drain 3 --json"
    )]
    Drain(OneArgs),
    /// Gives a worker nothing new until it is resumed, over its restarts.
    #[command(
        before_help = "Examples:\n  stepward worker pause edge-1\n  stepward worker pause 3 --json"
    )]
    Pause(OneArgs),
    /// Gives a paused worker steps again.
    #[command(
        before_help = "Examples:\n  stepward worker resume edge-1\n  stepward worker resume 3 --json"
    )]
    Resume(OneArgs),
    /// Forgets a worker.
    ///
    /// One that still runs something is kept, unless --force: then what it runs fails, and what it has not begun goes to others.
    Rm(RmArgs),
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward worker ls\n  stepward worker ls --json",
    after_help = "Columns: name, status, slots, tags, heartbeat, version, worker"
)]
pub struct LsArgs {
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
pub struct OneArgs {
    /// Its name or its number.
    #[arg(value_parser = name)]
    worker: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward worker rm edge-1\n  stepward worker rm edge-1 --force"
)]
pub struct RmArgs {
    /// Even if it holds steps.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    one: OneArgs,
}

pub fn run(verb: FleetVerb) -> anyhow::Result<Exit> {
    match verb {
        FleetVerb::Ls(args) => list(args),
        FleetVerb::Show(args) => show(args),
        FleetVerb::Drain(args) => change(args, "drain"),
        FleetVerb::Pause(args) => change(args, "pause"),
        FleetVerb::Resume(args) => change(args, "resume"),
        FleetVerb::Rm(args) => remove(args),
    }
}

fn list(args: LsArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let workers = all(&remote)?;
    if args.show.json {
        answer_json_list(workers);
        return Ok(Exit::Success);
    }
    if workers.is_empty() {
        say(format!(
            "there are no workers, start one with `{}`",
            remote.start_worker()
        ));
        return Ok(Exit::Success);
    }
    let look = &args.show.look();
    let mut table = Columns::new(
        look,
        &[
            ("NAME", Any),
            ("STATUS", Any),
            ("SLOTS", Any),
            ("TAGS", Any),
            ("HEARTBEAT", Wide),
            ("VERSION", Wide),
            ("WORKER", Wide),
        ],
    );
    for worker in &workers {
        table.row(vec![
            Cell::new(&worker.name),
            Cell::new(sign(worker, look) + &status(worker)).ink(ink(worker)),
            Cell::new(format!("{}/{}", worker.slots_used, worker.slots)),
            Cell::new(joined(&worker.tags)),
            Cell::new(heartbeat(worker)),
            Cell::new(&worker.version),
            Cell::number(worker.id),
        ]);
    }
    print(&table.text(look));
    Ok(Exit::Success)
}

fn sign(worker: &WorkerJson, look: &Look) -> String {
    match look.is_terminal {
        true => format!("{} ", look.sign(&worker.status)),
        false => String::new(),
    }
}

fn ink(worker: &WorkerJson) -> Ink {
    match worker.draining || worker.paused {
        true => Ink::Busy,
        false => Look::ink(&worker.status),
    }
}

/// `active`, `active, paused`, `inactive, drained`.
fn status(worker: &WorkerJson) -> String {
    let draining = match worker.status.as_str() {
        "active" => "draining",
        _ => "drained",
    };
    let flags = [(worker.draining, draining), (worker.paused, "paused")];
    let flags = flags.iter().filter(|(is_so, _)| *is_so);
    flags.fold(worker.status.clone(), |words, (_, flag)| {
        format!("{words}, {flag}")
    })
}

/// How old it is, and how long until the worker is given up for want of another.
fn heartbeat(worker: &WorkerJson) -> String {
    let age = worker.heartbeat_age_secs;
    match worker.inactive_in_secs {
        Some(left) => format!("{} ago, {} left", secs(age), secs(left)),
        None => format!("{} ago", secs(age)),
    }
}

fn path(word: &str) -> String {
    format!("/api/workers/{}", in_url(word))
}

fn all(remote: &Remote) -> anyhow::Result<Vec<WorkerJson>> {
    remote.all("/api/workers?limit=500", "after", usize::MAX)
}

fn find(remote: &Remote, args: &OneArgs) -> anyhow::Result<WorkerJson> {
    remote.get(&path(&args.worker))
}

fn show(args: OneArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let worker = find(&remote, &args)?;
    if args.show.json {
        answer_json(&worker);
        return Ok(Exit::Success);
    }
    let look = args.show.look();
    let mut sheet = Sheet::default();
    sheet.line("worker", worker.id.to_string());
    sheet.line("name", &worker.name);
    sheet.line("status", status(&worker));
    sheet.line("slots", format!("{}/{}", worker.slots_used, worker.slots));
    sheet.line("tags", joined(&worker.tags));
    sheet.line("heartbeat", heartbeat(&worker));
    sheet.line("last seen", moment(worker.last_heartbeat_at));
    sheet.line("version", &worker.version);
    sheet.line("platform", &worker.platform);
    let mut text = sheet.text(&look);
    if !worker.running.is_empty() {
        let mut table = Table::new(&["JOB", "STEP", "STATUS", "TRY"]);
        for held in &worker.running {
            table.row(vec![
                Cell::number(held.job_id),
                Cell::new(&held.step),
                Cell::status(&look, &held.status),
                Cell::number(held.attempt),
            ]);
        }
        text.push('\n');
        text.push_str(&table.text(&look));
    }
    print(&text);
    if let Some(next) = next(&worker, &address(&worker, &all(&remote)?)) {
        say(format!("next: {next}"));
    }
    Ok(Exit::Success)
}

fn next(worker: &WorkerJson, name: &str) -> Option<String> {
    match (worker.status.as_str(), worker.paused, worker.draining) {
        (_, true, _) => Some(format!("stepward worker resume {name}")),
        ("active", false, false) => Some(format!(
            "stepward worker pause {name}, stepward worker drain {name}"
        )),
        ("active", false, true) => None,
        _ => Some(format!("start it again, or: stepward worker rm {name}")),
    }
}

fn change(args: OneArgs, verb: &str) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let path = format!("{}/{verb}", path(&args.worker));
    let worker: WorkerJson = remote.post(&path, &serde_json::json!({}))?;
    if args.show.json {
        answer_json(&worker);
        return Ok(Exit::Success);
    }
    let runs = match worker.running.len() {
        0 => "it runs nothing".to_string(),
        held => format!("it still runs {}", count(held, "step")),
    };
    let name = printable(&worker.name);
    answer(match verb {
        "resume" => format!("worker {name} is {}", status(&worker)),
        _ => format!("worker {name} is {}: {runs}", status(&worker)),
    });
    Ok(Exit::Success)
}

fn remove(args: RmArgs) -> anyhow::Result<Exit> {
    let RmArgs { force, one } = args;
    let remote = one.reach.server()?;
    let worker = find(&remote, &one)?;
    let name = printable(&worker.name);
    let held: Vec<String> = worker.running.iter().map(in_words).collect();
    let (held, steps) = (held.join(", "), count(worker.running.len(), "step"));
    if !worker.running.is_empty() && !force {
        let address = address(&worker, &all(&remote)?);
        let message = format!(
            "worker {name} holds {steps}: {held}; let it finish them with `stepward worker drain {address}`, or lose them with --force"
        );
        return Err(Fault::new(Exit::Conflict, message).into());
    }
    // Its number: whoever comes with its name meanwhile is not meant.
    let path = format!("{}?force={force}", path(&worker.id.to_string()));
    let _: serde_json::Value = remote.delete(&path)?;
    if one.show.json {
        answer_json(&worker);
    } else if worker.running.is_empty() {
        answer(format!("worker {name}, number {}, is removed", worker.id));
    } else {
        let id = worker.id;
        answer(format!(
            "worker {name}, number {id}, is removed, and with it {held}"
        ));
    }
    Ok(Exit::Success)
}

fn in_words(held: &HeldStepJson) -> String {
    let step = printable(&held.step);
    format!("{}/{step} ({})", held.job_id, held.status)
}
