//! Who could run steps and does not, and what steps need that nobody offers.

use std::collections::{BTreeMap, BTreeSet};

use super::case::Case;
use super::{Finding, Looked, or_well};
use crate::cli::words::{count, duration, secs};
use crate::domain::task::is_template;
use crate::problems::address;
use crate::wire::api::{TaskJson, WorkerJson};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Steps that are named for one tag.
const PLACES_MAX: usize = 5;

pub fn look(case: &Case) -> Looked {
    let server = case.answering()?;
    let workers = server.workers()?;
    let beat_secs = server.recovery()?.settings.heartbeat_interval_secs as f64;
    let version = server.health.version.as_deref().unwrap_or(VERSION);
    let mut found = Vec::new();
    let is_active = |worker: &WorkerJson| worker.status == "active";
    if !workers.iter().any(WorkerJson::takes_steps) {
        let message = match workers.len() {
            0 => "there is no worker: nothing runs".to_string(),
            all if workers.iter().any(is_active) => format!(
                "none of {} takes steps, those that are active are paused or draining: nothing new runs",
                count(all, "worker")
            ),
            all => format!("none of {} is active: nothing runs", count(all, "worker")),
        };
        found.push(
            Finding::problem(message).fix(format!("start one: {}", server.remote.start_worker())),
        );
    }
    for worker in &workers {
        let address = address(worker, &workers);
        found.extend(of_worker(
            worker,
            &address,
            beat_secs,
            version,
            server.now().0,
        ));
    }
    Ok(or_well(found, || {
        let slots: u32 = workers.iter().map(|worker| worker.slots).sum();
        let slots = count(slots as usize, "slot");
        format!("{} active, with {slots}", count(workers.len(), "worker"))
    }))
}

fn of_worker(
    worker: &WorkerJson,
    address: &str,
    beat_secs: f64,
    version: &str,
    now: i64,
) -> Vec<Finding> {
    let name = &worker.name;
    let mut found = Vec::new();
    if worker.status != "active" {
        let silent = duration(now - worker.last_heartbeat_at.0.0);
        let message = format!("worker {name} is inactive, it was last heard of {silent} ago");
        let again = "start it again on its machine, or forget it:";
        found.push(Finding::warning(message).fix(format!("{again} stepward worker rm {address}")));
        // The rest is of a life that is over.
        return found;
    }
    if worker.heartbeat_age_secs > 2.0 * beat_secs {
        let silent = secs(worker.heartbeat_age_secs);
        let until = match worker.inactive_in_secs {
            Some(left) => format!(", and is given up in {}", secs(left)),
            None => String::new(),
        };
        let message = format!("worker {name} is silent for {silent}{until}");
        let fix = "look whether its machine and the network between are there";
        found.push(Finding::warning(message).fix(fix));
    }
    if worker.paused {
        let message = format!("worker {name} is paused, it takes nothing new");
        let fix = format!("let it go on: stepward worker resume {address}");
        found.push(Finding::warning(message).fix(fix));
    }
    if worker.draining {
        let message = format!("worker {name} is draining, it leaves when what it runs has ended");
        let fix = "start it again when it has left, if that was not meant: stepward worker";
        found.push(Finding::warning(message).fix(fix));
    }
    if worker.version != version {
        let message = format!(
            "worker {name} is version {}, the server is {version}",
            worker.version
        );
        let fix = "install the server's version there, and restart it: it drains by itself";
        found.push(Finding::warning(message).fix(fix));
    }
    found
}

pub fn tags(case: &Case) -> Looked {
    let server = case.answering()?;
    let (workers, tasks) = (server.workers()?, server.tasks()?);
    let mut able = workers.iter().filter(|worker| worker.takes_steps());
    if able.clone().next().is_none() {
        return Err(Finding::skipped(
            "no worker takes steps, so nobody offers any",
        ));
    }
    let unmet = unmet(&tasks, |wanted| {
        able.clone().any(|worker| {
            let offers = |tag: &String| worker.tags.contains(tag);
            wanted.iter().all(offers)
        })
    });
    let told = |(tags, places): (Vec<String>, Vec<String>)| {
        let tags = tags.join(" + ");
        let more = places.len().saturating_sub(PLACES_MAX);
        let mut named = places[..places.len() - more].join(", ");
        if more > 0 {
            named.push_str(&format!(" and {more} more"));
        }
        let message =
            format!("no worker that takes steps offers {tags}, which is needed by {named}");
        let start = format!(
            "start one that does: {} --tags {}",
            server.remote.start_worker(),
            tags.replace(" + ", ",")
        );
        Finding::problem(message).fix(start)
    };
    let found: Vec<Finding> = unmet.into_iter().map(told).collect();
    let offered: BTreeSet<&String> = able.by_ref().flat_map(|worker| &worker.tags).collect();
    Ok(or_well(found, || {
        let offered: Vec<&str> = offered.into_iter().map(String::as_str).collect();
        let tasks = count(tasks.len(), "task");
        format!(
            "all steps of {tasks} find what they need: {}",
            offered.join(", ")
        )
    }))
}

/// What is wanted together and not offered together, and by whom: `task/step`.
fn unmet(
    tasks: &[TaskJson],
    is_met: impl Fn(&[String]) -> bool,
) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut unmet: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for task in tasks {
        for step in &task.steps {
            // What is known only when it runs, nobody can say now.
            let is_open = step.required_tags.iter().any(|tag| is_template(tag));
            if !is_open && !step.required_tags.is_empty() && !is_met(&step.required_tags) {
                let place = format!("{}/{}", task.name, step.name);
                unmet
                    .entry(step.required_tags.clone())
                    .or_default()
                    .push(place);
            }
        }
    }
    unmet
}
