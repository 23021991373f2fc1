//! Whether the server answers and can work, whether its recovery is awake, whether its clock is ours.

use super::case::{Answering, Case, Found};
use super::{Finding, Looked, Status, or_well};
use crate::cli::reach::NamedBy;
use crate::cli::words::{duration, moment};
use crate::problems::rolled_back;
use crate::wire::api::Severity;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A sweep is due after the interval at the latest; one that is this late does not come.
const SWEEP_LATE_MS: i64 = 30_000;
/// Clocks that are set over a network are nearer than this.
const SKEW_MS_MAX: i64 = 5_000;
/// With this schedules fire at times that nobody means.
const SKEW_MS_BAD: i64 = 60_000;

pub fn look(case: &Case) -> Looked {
    match case.found() {
        // A folder with jobs and schedules in it wants somebody who looks after them.
        Found::Nobody => Err(match case.has_database() {
            true => Finding {
                status: Status::Warning,
                ..case.nobody()
            },
            false => case.nobody(),
        }),
        Found::Ended(why) => {
            Err(Finding::problem(why.clone())
                .fix("start it again: stepward server, or stepward dev"))
        }
        Found::Misnamed(fault) => Err(Finding::problem(fault.clone())
            .fix("look at --server and STEPWARD_SERVER_URL, at --token-file, STEPWARD_TOKEN_FILE and STEPWARD_TOKEN")),
        Found::Silent(remote, why) => {
            let problem = Finding::problem(why.clone());
            Err(match remote.named_by {
                NamedBy::Folder(_, pid) => problem
                    .fix(format!("if it was stopped, let it go on: kill -CONT {pid}"))
                    .fix("else look into its log, and at what its machine is busy with"),
                _ => problem.fix(format!(
                    "look whether it runs and listens at {}, and whether a firewall is between",
                    remote.url
                )),
            })
        }
        Found::Answering(server) => Ok(answers(server)),
    }
}

fn answers(server: &Answering) -> Vec<Finding> {
    let mut found = Vec::new();
    let url = &server.remote.url;
    for problem in &server.health.problems {
        found.push(
            Finding::problem(format!("the server at {url} is not ready: {problem}"))
                .fix("look into its log, and at the disk of its data folder: stepward doctor disk"),
        );
    }
    if let Some(problem) = rolled_back(&server.health) {
        found.push(Finding::problem(problem.message).fix(problem.fix));
    }
    for notice in &server.health.notices {
        let message = notice.message.clone();
        let finding = match notice.severity {
            Severity::Problem => Finding::problem(message),
            Severity::Warning => Finding::warning(message),
        };
        found.push(finding.fix(notice.fix.clone()));
    }
    if let Some(refusal) = &server.refusal {
        found.push(Finding::problem(refusal.clone()).fix("try the token: stepward token check"));
    }
    match server.health.version.as_deref() {
        Some(VERSION) => {}
        Some(version) => found.push(
            Finding::warning(format!(
                "the server at {url} is version {version}, this program is {VERSION}"
            ))
            .fix("use the same version on both sides, the server's first"),
        ),
        // Whoever is not let in is not told either.
        None if server.refusal.is_some() => {}
        None => found.push(
            Finding::warning(format!(
                "the server at {url} does not tell its version, it is older than {VERSION}"
            ))
            .fix("use the same version on both sides, the server's first"),
        ),
    }
    or_well(found, || {
        format!(
            "{url} answers in {} ms, ready, version {VERSION}",
            server.ms
        )
    })
}

pub fn sweeper(case: &Case) -> Looked {
    let server = case.answering()?;
    let recovery = server.recovery()?;
    let interval_ms = recovery.settings.sweep_interval_secs * 1_000;
    let log = "look into the log of the server, and restart it";
    let Some(last) = recovery.last_sweep else {
        return Err(Finding::problem("recovery has not looked even once").fix(log));
    };
    let age_ms = server.now().0 - last.at.0.0;
    let (age, interval) = (duration(age_ms), duration(interval_ms));
    let mut found = Vec::new();
    if age_ms > interval_ms + SWEEP_LATE_MS {
        let message = format!("the last sweep was {age} ago, one is due every {interval}");
        found.push(Finding::problem(message).fix(log));
    }
    if last.failures > 0 {
        let message = format!("the last sweep failed {} times", last.failures);
        found.push(
            Finding::warning(message).fix("see what: stepward recovery, and the log of the server"),
        );
    }
    Ok(or_well(found, || {
        format!("the last sweep was {age} ago, one is due every {interval}")
    }))
}

pub fn clock(case: &Case) -> Looked {
    let server = case.answering()?;
    let set = "let both machines set their clocks: timedatectl set-ntp true";
    let Some(now) = server.health.now else {
        return Err(Finding::skipped("the server does not tell its time"));
    };
    let mut found = Vec::new();
    let skew_ms = now.0.0 - server.asked_at.0;
    // The answer was on its way for a part of the time that it took.
    let apart_ms = skew_ms.abs().saturating_sub(server.ms / 2 + 1);
    if apart_ms > SKEW_MS_MAX {
        let side = if skew_ms > 0 { "ahead of" } else { "behind" };
        let apart = duration(apart_ms);
        let message = format!("the server's clock is {apart} {side} this machine's");
        found.push(match apart_ms > SKEW_MS_BAD {
            true => Finding::problem(message).fix(set),
            false => Finding::warning(message).fix(set),
        });
    }
    for worker in server.workers()? {
        let ahead_ms = worker.last_heartbeat_at.0.0 - server.now().0;
        if ahead_ms > SKEW_MS_MAX {
            let at = moment(worker.last_heartbeat_at);
            let message = format!(
                "worker {} was last heard of in the future, at {at}: the server's clock was set back",
                worker.name
            );
            found.push(Finding::warning(message).fix(set));
        }
    }
    Ok(or_well(found, || {
        format!(
            "the server's clock is ours, within {} ms",
            skew_ms.abs().max(1)
        )
    }))
}
