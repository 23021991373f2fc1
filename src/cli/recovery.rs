//! `stepward recovery`: what recovery does, did and will do.

use clap::{Args, Subcommand};

use super::events;
use super::exit::Exit;
use super::look::{Ink, Look, Show};
use super::reach::{Reach, Remote};
use super::say::{answer_json, answer_json_list, print, say};
use super::table::{Cell, Table};
use super::words::{ago, count, printable, secs, wrap};
use crate::wire::api::{EventJson, ForecastJson, RecoveryJson, SweepJson};

/// Of what recovery did last, where it is not asked for by itself.
const LAST: usize = 5;

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    before_help = "Examples:\n  \
        stepward recovery                  its settings, its last sweep, what it did last\n  \
        stepward recovery forecast         what it will do, and in how many seconds\n  \
        stepward recovery history -n 100   what it did\n  \
        stepward recovery sweep            one sweep now"
)]
pub struct RecoveryArgs {
    #[command(subcommand)]
    verb: Option<RecoveryVerb>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Subcommand)]
enum RecoveryVerb {
    /// What recovery will do within ten minutes if nothing happens, the soonest first.
    Forecast(ForecastArgs),
    /// What recovery did, oldest first.
    History(HistoryArgs),
    /// Runs one sweep of recovery now and prints what it did (admin).
    Sweep(SweepArgs),
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  \
    stepward recovery forecast\n  \
    stepward recovery forecast --json | jq '.items[0].in_secs'",
    after_help = "Columns: in, phase, action, what, reason"
)]
struct ForecastArgs {
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  \
    stepward recovery history\n  \
    stepward recovery history -n 500 --json",
    after_help = "Columns: time, kind, phase, subject, message, by"
)]
struct HistoryArgs {
    /// So many, the newest.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    lines: usize,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  \
    stepward recovery sweep\n  \
    stepward recovery sweep --json | jq '.actions | length'",
    after_help = "Columns: phase, action, what, reason\n\n\
    The server sweeps by itself whenever something is due. A sweep that you ask for does the same, at once, and is recorded as an \
    event with your name."
)]
struct SweepArgs {
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(args: RecoveryArgs) -> anyhow::Result<Exit> {
    match args.verb {
        None => overview(&args.reach.server()?, args.show)?,
        Some(RecoveryVerb::Forecast(args)) => forecast(&args.reach.server()?, args.show)?,
        Some(RecoveryVerb::History(args)) => history(&args.reach.server()?, args.show, args.lines)?,
        Some(RecoveryVerb::Sweep(args)) => sweep(&args.reach.server()?, args.show)?,
    }
    Ok(Exit::Success)
}

fn overview(remote: &Remote, show: Show) -> anyhow::Result<()> {
    let recovery: RecoveryJson = remote.get("/api/recovery")?;
    if show.json {
        answer_json(&recovery);
        return Ok(());
    }
    let look = show.look();
    let of = &recovery.settings;
    let rows = [
        (
            "a worker is marked inactive after",
            of.heartbeat_timeout_secs,
            "phase 1",
        ),
        (
            "workers say that they live every",
            of.heartbeat_interval_secs,
            "",
        ),
        (
            "a step that nobody can run fails after",
            of.unmatched_step_timeout_secs,
            "phase 4",
        ),
        ("recovery looks every", of.sweep_interval_secs, ""),
        ("a worker must take a step within", of.ack_timeout_secs, ""),
        (
            "a worker must prepare a step within",
            of.prepare_timeout_secs,
            "",
        ),
        ("a result may be late by", of.report_grace_secs, ""),
        ("what is cancelled may take", of.cancel_grace_secs, ""),
    ];
    let mut settings = Table::new(&["SETTING", "VALUE", ""]);
    for (what, value, phase) in rows {
        settings.row(vec![
            Cell::new(what),
            Cell::number(format!("{value}s")),
            Cell::new(phase),
        ]);
    }
    let mut text = settings.text(&look);
    let gap = if look.is_terminal { "\n" } else { "" };
    let swept = match &recovery.last_sweep {
        None => "it has not looked yet".to_string(),
        Some(sweep) => {
            let failures = match sweep.failures {
                0 => String::new(),
                failures => format!(", could not deal with {failures}"),
            };
            let did = match sweep.recoveries {
                0 => "nothing was stuck".to_string(),
                recoveries => format!("dealt with {}", count(recoveries, "thing")),
            };
            format!("last looked {}: {did}{failures}", ago(sweep.at))
        }
    };
    let more = if recovery.forecast_more {
        " or more"
    } else {
        ""
    };
    let foreseen = match recovery.forecast.len() {
        0 => "nothing is foreseen".to_string(),
        n => format!(
            "{}{more} foreseen: stepward recovery forecast",
            count(n, "thing")
        ),
    };
    text.push_str(gap);
    for sentence in [swept, foreseen] {
        let lines = wrap(&sentence, look.width.unwrap_or(usize::MAX));
        text.push_str(&format!("{}\n", lines.join("\n")));
    }
    let mut last: Vec<EventJson> = recovery.history.into_iter().take(LAST).collect();
    last.reverse();
    match last.is_empty() {
        true => text.push_str("it never had to do anything\n"),
        false => text.push_str(&format!("{gap}{}", events::table(&last, &look).text(&look))),
    }
    print(&text);
    Ok(())
}

fn forecast(remote: &Remote, show: Show) -> anyhow::Result<()> {
    let recovery: RecoveryJson = remote.get("/api/recovery")?;
    if show.json {
        answer_json_list(recovery.forecast);
        return Ok(());
    }
    if recovery.forecast.is_empty() {
        say("nothing is foreseen for the next ten minutes");
        return Ok(());
    }
    let look = show.look();
    print(&forecast_table(&recovery.forecast, &look).text(&look));
    if recovery.forecast_more {
        say("there is more than is told");
    }
    Ok(())
}

pub fn forecast_table(foreseen: &[ForecastJson], look: &Look) -> Table {
    let heading: &[&'static str] = match look.is_narrow() {
        true => &["IN", "ACTION", "WHAT"],
        false => &["IN", "PHASE", "ACTION", "WHAT", "REASON"],
    };
    let mut table = Table::new(heading);
    for it in foreseen {
        let within = Cell::number(secs(it.in_secs)).ink(Ink::Bold);
        let (action, what) = (Cell::new(&it.action), Cell::new(what(it)));
        let reason = it.reason.as_deref().unwrap_or("-");
        table.row(match look.is_narrow() {
            true => vec![within, action, what],
            false => vec![
                within,
                Cell::number(it.phase),
                action,
                what,
                Cell::new(reason),
            ],
        });
    }
    table
}

/// The names in a row about recovery, as far as there are any.
struct Subject<'a> {
    job_id: Option<i64>,
    task: Option<&'a str>,
    step_id: Option<i64>,
    step: Option<&'a str>,
    worker_id: Option<i64>,
    worker: Option<&'a str>,
}

impl Subject<'_> {
    /// `job 3 release, step unit, worker edge-1`.
    fn text(&self) -> String {
        let named = |name: Option<&str>, id: Option<i64>, noun: &str| match (name, id) {
            (Some(name), _) => Some(format!("{noun} {name}")),
            (None, Some(id)) => Some(format!("{noun} {id}")),
            (None, None) => None,
        };
        let job = self.job_id.map(|job_id| match self.task {
            Some(task) => format!("job {job_id} {task}"),
            None => format!("job {job_id}"),
        });
        let step = named(self.step, self.step_id, "step");
        let worker = named(self.worker, self.worker_id, "worker");
        let parts: Vec<String> = [job, step, worker].into_iter().flatten().collect();
        if parts.is_empty() {
            // So many fell silent together that the fault is probably not theirs.
            return "all silent workers".to_string();
        }
        printable(&parts.join(", "))
    }
}

fn what(it: &ForecastJson) -> String {
    let subject = Subject {
        job_id: it.job_id,
        task: it.task.as_deref(),
        step_id: it.step_id,
        step: it.step.as_deref(),
        worker_id: it.worker_id,
        worker: it.worker.as_deref(),
    };
    subject.text()
}

fn sweep(remote: &Remote, show: Show) -> anyhow::Result<()> {
    let swept: SweepJson = remote.post_to_newer("/api/recovery/sweep", &serde_json::json!({}))?;
    if show.json {
        answer_json(&swept);
        return Ok(());
    }
    if swept.actions.is_empty() {
        say("the sweep found nothing to do");
    } else {
        let look = show.look();
        let mut table = Table::new(&["PHASE", "ACTION", "WHAT", "REASON"]);
        for it in &swept.actions {
            let subject = Subject {
                job_id: it.job_id,
                task: it.task.as_deref(),
                step_id: it.step_id,
                step: it.step.as_deref(),
                worker_id: it.worker_id,
                worker: it.worker.as_deref(),
            };
            table.row(vec![
                Cell::number(it.phase),
                Cell::new(&it.action),
                Cell::new(subject.text()),
                Cell::new(it.reason.as_deref().unwrap_or("-")),
            ]);
        }
        print(&table.text(&look));
    }
    if swept.failures > 0 {
        say(format!(
            "{} could not be recovered; the log of the server says why",
            count(swept.failures, "thing")
        ));
    }
    if swept.more {
        say("there is more to do; the server goes on by itself");
    }
    Ok(())
}

fn history(remote: &Remote, show: Show, n: usize) -> anyhow::Result<()> {
    let path = "/api/events?recovery=true&limit=500";
    let mut did: Vec<EventJson> = remote.all(path, "before", n)?;
    did.reverse();
    if show.json {
        answer_json_list(did);
        return Ok(());
    }
    if did.is_empty() {
        say("recovery never had to do anything");
        return Ok(());
    }
    let look = show.look();
    print(&events::table(&did, &look).text(&look));
    if look.is_terminal && did.len() == n {
        say(format!("these are the newest {n}, -n shows more"));
    }
    Ok(())
}
