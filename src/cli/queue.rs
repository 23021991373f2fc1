//! `stepward queue`: what waits, for what, and until when.

use clap::Args;

use super::exit::Exit;
use super::look::{Look, Show};
use super::reach::Reach;
use super::say::{answer_json_list, print, say};
use super::table::{Cell, Table};
use super::words::{count, secs};
use crate::problems::outcome;
use crate::wire::api::QueuedJson;

#[derive(Args)]
#[command(
    before_help = "Examples:\n  \
    stepward queue\n  \
    stepward queue --json | jq -r '.items[] | [.job_id, .step, .why.code] | @tsv'",
    after_help = "Columns: job, task, step, reason, age, needs, then, why"
)]
pub struct QueueArgs {
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(args: QueueArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let waiting: Vec<QueuedJson> = remote.all("/api/queue?limit=500", "after", usize::MAX)?;
    if args.show.json {
        answer_json_list(waiting);
        return Ok(Exit::Success);
    }
    if waiting.is_empty() {
        say("nothing waits");
        return Ok(Exit::Success);
    }
    let look = args.show.look();
    print(&table(&waiting, &look).text(&look));
    if look.is_terminal {
        let waits = count(waiting.len(), "step");
        say(format!(
            "{waits} waiting; `stepward why JOB/STEP` says more"
        ));
    }
    Ok(Exit::Success)
}

pub fn table(waiting: &[QueuedJson], look: &Look) -> Table {
    match (look.is_terminal, look.is_narrow()) {
        (false, _) => whole(waiting),
        (true, true) => narrow(waiting),
        (true, false) => wide(waiting),
    }
}

/// For programs.
fn whole(waiting: &[QueuedJson]) -> Table {
    let heading = [
        "JOB", "TASK", "STEP", "REASON", "AGE", "NEEDS", "THEN", "WHY",
    ];
    let mut table = Table::new(&heading);
    for step in waiting {
        table.row(vec![
            Cell::number(step.job_id),
            Cell::new(&step.task),
            Cell::new(&step.step),
            Cell::new(&step.why.code),
            Cell::new(secs(step.age_secs)),
            Cell::new(needs(step)),
            Cell::new(outcome(step).unwrap_or_default()),
            Cell::new(&step.why.sentence),
        ]);
    }
    table
}

fn wide(waiting: &[QueuedJson]) -> Table {
    let mut table = Table::new(&["JOB", "TASK", "STEP", "REASON", "AGE", "NEEDS"]);
    for step in waiting {
        table.row(vec![
            Cell::number(step.job_id),
            Cell::new(&step.task),
            Cell::new(&step.step),
            Cell::new(&step.why.code),
            Cell::new(secs(step.age_secs)),
            Cell::new(needs(step)),
        ]);
        table.note(&sentence(step));
    }
    table
}

fn narrow(waiting: &[QueuedJson]) -> Table {
    let mut table = Table::new(&["JOB", "STEP", "AGE"]);
    for step in waiting {
        table.row(vec![
            Cell::number(step.job_id),
            Cell::new(&step.step),
            Cell::new(secs(step.age_secs)),
        ]);
        table.note(&format!("{}: {}", step.why.code, sentence(step)));
    }
    table
}

fn needs(step: &QueuedJson) -> String {
    step.required_tags.join(",")
}

/// Why it waits, and what becomes of it.
fn sentence(step: &QueuedJson) -> String {
    match outcome(step) {
        Some(outcome) => format!("{}; {outcome}", step.why.sentence),
        None => step.why.sentence.clone(),
    }
}
