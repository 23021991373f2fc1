//! Schedules that do not fire, or did not.

use super::case::Case;
use super::{Finding, Looked, or_well};
use crate::cli::words::{count, duration, moment};
use crate::wire::api::ScheduleJson;

pub fn look(case: &Case) -> Looked {
    let server = case.answering()?;
    let all: Vec<ScheduleJson> = server.all("/api/schedules?limit=500")?;
    // What no file has any more is history.
    let kept: Vec<ScheduleJson> = all
        .into_iter()
        .filter(|schedule| schedule.removed_at.is_none())
        .collect();
    let found: Vec<Finding> = kept.iter().flat_map(of_schedule).collect();
    Ok(or_well(found, || summary(&kept, server.now().0)))
}

fn of_schedule(schedule: &ScheduleJson) -> Vec<Finding> {
    let name = format!("{}.{}", schedule.task, schedule.name);
    let mut found = Vec::new();
    if !schedule.loaded {
        let message = format!("schedule {name} makes no jobs: its file does not load");
        found.push(Finding::problem(message).fix("see why: stepward doctor workflows"));
    }
    if schedule.paused {
        let message = format!("schedule {name} is paused");
        let fix = format!("let it go on: stepward schedule resume {}", schedule.id);
        found.push(Finding::warning(message).fix(fix));
    }
    let fires = schedule.loaded && schedule.enabled && !schedule.paused;
    if fires && schedule.next_at.is_none() {
        let message = format!("schedule {name} will never fire: {}", schedule.cron);
        found.push(Finding::warning(message).fix("write another time in its file"));
    }
    if let Some(last) = &schedule.last {
        let (due, why) = (moment(last.due_at), &last.message);
        let now = format!("make up for it: stepward schedule fire {}", schedule.id);
        match last.outcome.as_str() {
            "missed" => {
                let message = format!("schedule {name} missed {due}: {why}");
                found.push(Finding::warning(message).fix(now));
            }
            "refused" => {
                let message = format!("schedule {name} was refused at {due}: {why}");
                let fix = "mend its input or its task in its file";
                found.push(Finding::problem(message).fix(fix).fix(now));
            }
            _ => {}
        }
    }
    found
}

fn summary(kept: &[ScheduleJson], now: i64) -> String {
    let disabled = kept.iter().filter(|schedule| !schedule.enabled).count();
    let disabled = match disabled {
        0 => String::new(),
        some => format!(", {some} of them disabled by their file"),
    };
    let all = count(kept.len(), "schedule");
    let next = kept.iter().filter(|schedule| schedule.enabled);
    let next = next.filter_map(|schedule| schedule.next_at.map(|at| (at.0.0, schedule)));
    match next.min_by_key(|(at, _)| *at) {
        None => format!("{all}{disabled}, none is going to fire"),
        Some((at, next)) => format!(
            "{all}{disabled}; next is {}.{} in {}",
            next.task,
            next.name,
            duration(at - now)
        ),
    }
}
