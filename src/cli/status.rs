//! `stepward status`: what is wrong, what runs, what waits, who is there, what comes next. One screen.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use crossbeam_channel::RecvTimeoutError;
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exit::{Exit, Fault};
use super::look::{Ink, Look, Show};
use super::process::signals;
use super::reach::{Reach, Remote, in_url};
use super::say::{answer_json, print};
use super::table::{Cell, Table};
use super::words::{count, duration, printable, secs, until, width, wrap};
use crate::client::CallError;
use crate::clock::wall_time;
use crate::problems::{FAILED_QUERIES, Problem, Told, is_recent, problems, recent};
use crate::wire::api::{
    BackupsJson, JobJson, List, RecoveryJson, ScheduleJson, ServedWorkflows, WorkerJson,
};

/// Somebody reads it: of more than this, the first.
const JOBS_MAX: usize = 500;
const WAITING_MAX: usize = 1_000;
const SCHEDULES_MAX: usize = 1_000;
/// On the screen.
const ROWS: usize = 10;
const NEXT: usize = 5;

const PATIENCE: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(before_help = "Examples:\n  \
    stepward status\n  \
    stepward status --watch               again every second, until Ctrl-C\n  \
    stepward status --json | jq -e '.problems == []'")]
pub struct StatusArgs {
    /// Looks again every second, until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Serialize)]
pub struct StatusJson {
    server: String,
    /// What starts a worker here.
    #[serde(skip)]
    start_worker: String,
    ready: bool,
    /// The worst first. None: all is well.
    problems: Vec<Problem>,
    jobs: StatusJobsJson,
    waiting: WaitingJson,
    /// All of them.
    workers: Vec<WorkerJson>,
    /// Always false. Up to version 0.1 the list ended after 1,000 workers.
    workers_more: bool,
    /// The soonest first.
    schedules_next: Vec<ScheduleJson>,
}

#[derive(Debug, Serialize)]
struct StatusJobsJson {
    running: Vec<JobJson>,
    /// There are more than these.
    running_more: bool,
    /// Within a day, newest first; those that are nobody's child.
    failed_recently: Vec<JobJson>,
    /// There are more than these.
    failed_more: bool,
}

#[derive(Debug, Serialize)]
struct WaitingJson {
    steps: usize,
    /// There are more than were counted.
    more: bool,
    by_reason: BTreeMap<String, usize>,
}

pub fn run(args: StatusArgs) -> anyhow::Result<Exit> {
    let look = args.show.look();
    if args.watch && !look.is_terminal {
        let message = "--watch needs a terminal; elsewhere, ask again and again, or follow `stepward events -f`";
        return Err(Fault::usage(message));
    }
    let remote = args.reach.server()?;
    let status = look_at(&remote)?;
    if args.watch {
        return watch(&remote, &status, args.show);
    }
    match args.show.json {
        true => answer_json(&status),
        false => print(&text(&status, &look)),
    };
    Ok(Exit::Success)
}

/// Redraws its own lines only: what was on the screen before stays above.
fn watch(remote: &Remote, first: &StatusJson, show: Show) -> anyhow::Result<Exit> {
    let signals = signals()?;
    let mut shown = text(first, &show.look());
    let mut up = 0;
    loop {
        let look = show.look();
        let rows = tcgetwinsize(std::io::stdout()).map_or(24, |size| usize::from(size.ws_row));
        let mut lines: Vec<&str> = shown.lines().collect();
        // What does not fit would scroll away, and could not be drawn over.
        let room = rows.saturating_sub(1).max(1);
        let cut;
        if lines.len() > room {
            cut = format!("{} more lines: stepward status", lines.len() + 1 - room);
            lines.truncate(room - 1);
            lines.push(&cut);
        }
        let back = match up {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        };
        if !print(&format!("{back}{}\n", lines.join("\n"))) {
            return Ok(Exit::Success);
        }
        up = lines.len();
        match signals.recv_timeout(EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(Exit::Success),
        }
        shown = match look_at(remote) {
            Ok(status) => text(&status, &look),
            Err(error) => {
                let room = look.width.unwrap_or(80);
                wrap(&printable(&format!("{error:#}")), room).join("\n")
            }
        };
    }
}

pub fn look_at(remote: &Remote) -> anyhow::Result<StatusJson> {
    let health = remote.heard(remote.client.ready(PATIENCE))?;
    let workflows: ServedWorkflows = remote.get("/api/workflows")?;
    let recovery: RecoveryJson = remote.get("/api/recovery")?;
    let workers: Vec<WorkerJson> = remote.all("/api/workers?limit=500", "after", usize::MAX)?;
    let (queued, queued_more) = first(remote, "/api/queue?limit=500", WAITING_MAX)?;
    let (running, running_more) = jobs(remote, "status:running")?;
    let (failed, failed_more) = failed_recently(remote)?;
    // A server of a former version has none, and some may not look at them.
    let backups: Option<BackupsJson> = remote.get("/api/backups").ok();
    let start_worker = remote.start_worker();
    let told = Told {
        backups: backups.as_ref(),
        health: &health,
        workflows: &workflows,
        recovery: &recovery,
        workers: &workers,
        queued: &queued,
        queued_more,
        failed: &failed,
        failed_more,
        start_worker: &start_worker,
        now: wall_time(),
    };
    let problems = problems(&told);
    let mut by_reason = BTreeMap::new();
    for step in &queued {
        *by_reason.entry(step.why.code.clone()).or_insert(0) += 1;
    }
    Ok(StatusJson {
        server: remote.url.clone(),
        start_worker,
        ready: health.problems.is_empty(),
        problems,
        jobs: StatusJobsJson {
            running,
            running_more,
            failed_recently: failed,
            failed_more,
        },
        waiting: WaitingJson {
            steps: queued.len(),
            more: queued_more,
            by_reason,
        },
        workers,
        workers_more: false,
        schedules_next: schedules_next(remote)?,
    })
}

/// So many of a list, and whether there are more.
fn first<A: DeserializeOwned>(
    remote: &Remote,
    path: &str,
    max: usize,
) -> anyhow::Result<(Vec<A>, bool)> {
    let mut items = remote.all(path, "after", max + 1)?;
    let more = items.len() > max;
    items.truncate(max);
    Ok((items, more))
}

fn jobs(remote: &Remote, query: &str) -> anyhow::Result<(Vec<JobJson>, bool)> {
    let path = format!("/api/jobs?limit=500&q={}", in_url(query));
    first(remote, &path, JOBS_MAX)
}

/// The jobs that failed within a day, and whether there are more.
fn failed_recently(remote: &Remote) -> anyhow::Result<(Vec<JobJson>, bool)> {
    let path = format!("/api/failures?limit={JOBS_MAX}");
    let answer: Result<List<JobJson>, CallError> = remote.client.get(&path, PATIENCE);
    if let Err(CallError::Refused { status: 404, .. }) = answer {
        return failed_recently_by_query(remote);
    }
    let mut failed = remote.heard(answer)?.items;
    let more = failed.len() >= JOBS_MAX;
    failed.sort_by_key(|job| std::cmp::Reverse(job.id));
    Ok((failed, more))
}

/// Lists the recent failures of a server of version 0.1, which has no route for them.
fn failed_recently_by_query(remote: &Remote) -> anyhow::Result<(Vec<JobJson>, bool)> {
    let now = wall_time();
    let (mut all, mut more) = (Vec::new(), false);
    for query in FAILED_QUERIES {
        let (found, is_cut) = jobs(remote, query)?;
        // Those that are left out are older still.
        more |= is_cut && found.last().is_some_and(|last| is_recent(last, now));
        all.extend(found);
    }
    recent(&mut all, now);
    Ok((all, more))
}

fn schedules_next(remote: &Remote) -> anyhow::Result<Vec<ScheduleJson>> {
    let path = "/api/schedules?limit=500";
    let schedules: Vec<ScheduleJson> = remote.all(path, "after", SCHEDULES_MAX)?;
    let mut next: Vec<ScheduleJson> = schedules.into_iter().filter(ScheduleJson::is_due).collect();
    next.sort_by_key(|schedule| schedule.next_at.map(|at| at.0.0));
    next.truncate(NEXT);
    Ok(next)
}

pub fn text(status: &StatusJson, look: &Look) -> String {
    let mut text = String::new();
    let columns = look.width.unwrap_or(usize::MAX);
    match status.problems.len() {
        0 => {
            let well = format!(
                "{} all is well at {}",
                look.sign("completed"),
                printable(&status.server)
            );
            text.push_str(&look.paint(Ink::Good, &well));
        }
        n => {
            let many = format!(
                "{} {} at {}",
                look.sign("failed"),
                count(n, "problem"),
                printable(&status.server)
            );
            text.push_str(&look.paint(Ink::Bad, &many));
        }
    }
    text.push('\n');
    for problem in &status.problems {
        let said = format!("{}: {}", problem.code, problem.message);
        for (row, line) in wrap(&printable(&said), columns.saturating_sub(4))
            .iter()
            .enumerate()
        {
            let indent = if row == 0 { "  " } else { "    " };
            text.push_str(&format!("{indent}{line}\n"));
        }
        for line in wrap(&printable(&problem.fix), columns.saturating_sub(6)) {
            text.push_str(&format!("      {}\n", look.paint(Ink::Bold, &line)));
        }
    }
    text.push_str(&running(status, look));
    text.push_str(&waiting(status, look));
    text.push_str(&workers(status, look));
    text.push_str(&next(status, look));
    text
}

/// `Running: 3`, `Running: 500+`, or the word for none.
fn heading(look: &Look, name: &str, n: usize, more: bool) -> String {
    let n = match (n, more) {
        (0, _) => "none".to_string(),
        (n, true) => format!("{n}+"),
        (n, false) => n.to_string(),
    };
    format!("\n{} {n}\n", look.paint(Ink::Bold, &format!("{name}:")))
}

fn section(look: &Look, name: &str, n: usize, more: bool, table: &Table) -> String {
    let mut text = heading(look, name, n, more);
    if !table.is_empty() {
        let room = look.width.map(|width| width.saturating_sub(2));
        let inner = Look {
            width: room,
            ..*look
        };
        for line in table.text(&inner).lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    if n > ROWS && name != "Next" {
        let least = if more { "at least " } else { "" };
        text.push_str(&format!("  and {least}{} more\n", n - ROWS));
    }
    text
}

fn running(status: &StatusJson, look: &Look) -> String {
    let jobs = &status.jobs.running;
    let mut table = Table::new(&["JOB", "TASK", "FOR"]);
    for job in jobs.iter().take(ROWS) {
        let since = job.started_at.unwrap_or(job.created_at);
        table.row(vec![
            Cell::number(job.id),
            Cell::new(&job.task),
            Cell::new(duration(wall_time().0 - since.0.0)),
        ]);
    }
    let more = status.jobs.running_more;
    section(look, "Running", jobs.len(), more, &table)
}

fn waiting(status: &StatusJson, look: &Look) -> String {
    let waiting = &status.waiting;
    let mut text = heading(look, "Waiting", waiting.steps, waiting.more);
    let reasons = waiting.by_reason.iter();
    let reasons: Vec<String> = reasons.map(|(code, n)| format!("{n} {code}")).collect();
    if !reasons.is_empty() {
        let more = if waiting.more { " and more" } else { "" };
        let all = format!("{}{more} {} stepward queue", reasons.join(", "), look.dot());
        for line in wrap(&all, look.width.unwrap_or(usize::MAX).saturating_sub(2)) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

fn workers(status: &StatusJson, look: &Look) -> String {
    let mut all: Vec<&WorkerJson> = status.workers.iter().collect();
    all.sort_by_key(|worker| worker.status != "inactive");
    let heading: &[&'static str] = match look.is_narrow() {
        true => &["WORKER", "STATUS", "SLOTS"],
        false => &["WORKER", "STATUS", "SLOTS", "HEARD", "TAGS"],
    };
    let mut table = Table::new(heading);
    for worker in all.iter().take(ROWS) {
        let mut cells = vec![
            Cell::new(&worker.name),
            Cell::status(look, worker.standing()),
            Cell::new(format!("{}/{}", worker.slots_used, worker.slots)),
        ];
        if !look.is_narrow() {
            cells.push(Cell::new(format!(
                "{} ago",
                secs(worker.heartbeat_age_secs)
            )));
            cells.push(Cell::new(worker.tags.join(",")));
        }
        table.row(cells);
    }
    let mut text = section(look, "Workers", all.len(), false, &table);
    if all.is_empty() {
        let how = format!("  start one: {}", printable(&status.start_worker));
        // A command that is cut off is of no use.
        if width(&how) <= look.width.unwrap_or(usize::MAX) {
            text.push_str(&format!("{how}\n"));
        }
    }
    text
}

fn next(status: &StatusJson, look: &Look) -> String {
    if status.schedules_next.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["SCHEDULE", "NEXT"]);
    for schedule in &status.schedules_next {
        let at = schedule.next_at.map_or_else(String::new, until);
        let name = format!("{}.{}", schedule.task, schedule.name);
        table.row(vec![Cell::new(name), Cell::new(at)]);
    }
    section(look, "Next", status.schedules_next.len(), false, &table)
}
