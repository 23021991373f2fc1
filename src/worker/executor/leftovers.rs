//! Containers and pods that a former life of this worker left running: the supervisor died as well, or docker was away.

use std::time::Duration;

use super::tool::{ask, words};
use super::{Offer, Tools, contained, pod};

const LIST_PATIENCE: Duration = Duration::from_secs(15);
const REMOVE_PATIENCE: Duration = Duration::from_secs(60);
/// A command line has a limit, and so has our patience.
const REMOVED_AT_ONCE: usize = 50;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub removed: usize,
    /// What could not be removed, and why.
    pub remarks: Vec<String>,
}

type Remove = fn(&Tools) -> Result<usize, String>;

/// Removes whatever bears this worker's mark; `wanted_tags` says where to look. Only before the worker runs anything.
///
/// Where the offer has just found that nobody answers, nobody is asked again. That is told only if `has_attempts`: a former life of
/// the worker left attempts that had not ended.
pub fn remove_leftovers(
    wanted_tags: &[String],
    offer: &Offer,
    has_attempts: bool,
    tools: &Tools,
) -> Leftovers {
    let mut leftovers = Leftovers::default();
    let places: [(&str, &str, Remove); 2] = [
        ("docker", "containers", remove_containers),
        ("kubernetes", "pods", remove_pods),
    ];
    for (tag, what, remove) in places {
        if !wanted_tags.iter().any(|wanted| wanted == tag) {
            continue;
        }
        let is_offered = offer.tags.iter().any(|offered| offered == tag);
        let why = match is_offered {
            true => match remove(tools) {
                Ok(removed) => {
                    leftovers.removed += removed;
                    continue;
                }
                Err(why) => why,
            },
            false if has_attempts => {
                format!("tag {tag} is not offered now; start the worker again once it is")
            }
            false => continue,
        };
        let remark = format!("{what} of a former life of this worker may still run: {why}");
        leftovers.remarks.push(remark);
    }
    leftovers
}

fn remove_containers(tools: &Tools) -> Result<usize, String> {
    let label = format!("label={}={}", contained::LABEL_INSTANCE, tools.instance_key);
    let list = words([
        &tools.docker,
        "ps",
        "--all",
        "--quiet",
        "--no-trunc",
        "--filter",
        &label,
    ]);
    let listed = ask(&list, b"", LIST_PATIENCE)?;
    let ids: Vec<&str> = listed.split_whitespace().collect();
    for some in ids.chunks(REMOVED_AT_ONCE) {
        let mut remove = words([&tools.docker, "rm", "--force", "--volumes", "--"]);
        remove.extend(some.iter().map(|id| id.to_string()));
        ask(&remove, b"", REMOVE_PATIENCE)?;
    }
    Ok(ids.len())
}

fn remove_pods(tools: &Tools) -> Result<usize, String> {
    let mark = contained::mark(&tools.instance_key);
    let mut remove = pod::kubectl(&tools.kubectl, tools.namespace.as_deref());
    remove.extend(words([
        "delete",
        "pod",
        "--now",
        "--wait=false",
        "--ignore-not-found",
        "--request-timeout=10s",
    ]));
    remove.push(format!("--selector={}={mark}", contained::LABEL_INSTANCE));
    remove.push("--output=name".to_string());
    let removed = ask(&remove, b"", REMOVE_PATIENCE)?;
    Ok(removed
        .lines()
        .filter(|line| line.starts_with("pod/"))
        .count())
}
