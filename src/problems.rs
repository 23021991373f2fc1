//! What is wrong at a server, the worst first: from what it tells of itself. The prompt and the pages say the same.
//!
//! Deliberately not here: how it is found out, how it looks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::Timestamp;
use crate::language::rules;
use crate::wire::api::{
    BackupsJson, Health, JobJson, QueuedJson, RecoveryJson, ServedProblem, ServedWorkflows,
    Severity, WorkerJson,
};
use crate::words::{count, duration, secs, shell_word};

/// How long a failed job is a problem.
pub const RECENT_MS: i64 = 24 * 3_600_000;

/// Jobs among which those are that failed by nobody's wish: one that ran out of time is cancelled.
pub const FAILED_QUERIES: [&str; 3] = [
    "status:failed",
    "status:cancelled reason:job_timeout",
    "status:cancelled reason:queue_timeout",
];

/// With less room than this a server warns: when there is none it takes nothing more.
pub const DISK_BYTES_LOW: u64 = 100 << 20;
/// How it says so.
pub const DISK_NEARLY_FULL: &str = "the disk of the data folder is nearly full";

/// Whoever renews by a timer does it sooner.
const CERTIFICATE_LEFT_MS: i64 = 7 * 86_400_000;
/// How what a server says of its certificate begins.
const CERTIFICATE: &str = "the certificate";
const CERTIFICATE_REFUSED: &str = "the new certificate is refused and the former one stays";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub code: String,
    pub message: String,
    /// What to type, or to do.
    pub fix: String,
    /// Where the pages of the server show it.
    pub page: String,
}

/// What a server tells.
pub struct Told<'a> {
    pub health: &'a Health,
    pub workflows: &'a ServedWorkflows,
    pub recovery: &'a RecoveryJson,
    pub workers: &'a [WorkerJson],
    pub queued: &'a [QueuedJson],
    /// There are more than these.
    pub queued_more: bool,
    /// Within a day, newest first; those that are nobody's child.
    pub failed: &'a [JobJson],
    pub failed_more: bool,
    /// `None`: it does not tell.
    pub backups: Option<&'a BackupsJson>,
    /// What to type for one more worker.
    pub start_worker: &'a str,
    pub now: Timestamp,
}

/// What starts a worker of the server at `url`. The file is for whoever types it to name: nobody else knows where a worker's token is.
pub fn start_worker(url: &str, needs_token_file: bool) -> String {
    let token = match needs_token_file {
        true => " --token-file FILE",
        false => "",
    };
    format!("stepward worker --server {}{token}", shell_word(url))
}

pub fn problems(told: &Told) -> Vec<Problem> {
    let not_ready = told.health.problems.iter().map(|problem| Problem {
        code: "not_ready".to_string(),
        message: format!("the server is not ready: {problem}"),
        fix: "stepward doctor".to_string(),
        page: "/recovery".to_string(),
    });
    let mut problems: Vec<Problem> = not_ready.collect();
    problems.extend(rolled_back(told.health));
    problems.extend(notices(told.health));
    problems.extend(warned(told.health));
    problems.extend(broken_files(told.workflows));
    problems.extend(tolerated_files(told.workflows));
    problems.extend(nobody_works(
        told.workers,
        told.workflows,
        told.start_worker,
    ));
    problems.extend(lost_workers(told.workers, told.recovery));
    problems.extend(steps_without_worker(told.queued, told.queued_more));
    problems.extend(told.backups.and_then(|it| failed_backup(it, told.now)));
    problems.extend(told.backups.and_then(|it| backup_ahead(it, told.now)));
    problems.extend(failures(told.failed, told.failed_more, told.now));
    problems
}

/// What a server says of the certificate that it shows, before clients do.
pub fn certificate_ends(ends: Timestamp, now: Timestamp) -> Option<String> {
    let left_ms = ends.0 - now.0;
    match left_ms {
        ..=0 => Some(format!(
            "{CERTIFICATE} has expired {} ago, clients refuse it",
            duration(-left_ms)
        )),
        1..CERTIFICATE_LEFT_MS => Some(format!(
            "{CERTIFICATE} ends in {}, from then on clients refuse it",
            duration(left_ms)
        )),
        _ => None,
    }
}

/// What is said of files that do not make sense, in the place of those that a server still shows.
pub fn certificate_refused(fault: &str) -> String {
    format!("{CERTIFICATE_REFUSED}: {fault}")
}

/// Of jobs that failed, newest first: those of the last day that are nobody's child.
pub fn recent(jobs: &mut Vec<JobJson>, now: Timestamp) {
    jobs.retain(|job| job.parent.is_none() && is_recent(job, now));
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
}

pub fn is_recent(job: &JobJson, now: Timestamp) -> bool {
    let ended = job.ended_at.map_or(0, |at| at.0.0);
    now.0 - ended < RECENT_MS
}

/// How to name one of these workers in a command, so that nobody else is meant: by its name if only it can be called so, else by
/// its number.
pub fn address(worker: &WorkerJson, all: &[WorkerJson]) -> String {
    let name = &worker.name;
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let namesakes = all.iter().filter(|other| other.name == *name).count();
    match is_number || name.starts_with('-') || namesakes > 1 {
        true => worker.id.to_string(),
        false => shell_word(name),
    }
}

/// `the step fails in 18s (phase 4)`.
pub fn outcome(step: &QueuedJson) -> Option<String> {
    let outcome = step.why.outcome.as_ref()?;
    let (action, phase) = (&outcome.action, outcome.phase);
    Some(format!(
        "{action} in {} (phase {phase})",
        secs(outcome.in_secs)
    ))
}

fn broken_files(workflows: &ServedWorkflows) -> Vec<Problem> {
    let mut files: BTreeMap<&str, Vec<&ServedProblem>> = BTreeMap::new();
    for error in workflows.errors() {
        files.entry(&error.file).or_default().push(error);
    }
    let broken = files.into_iter().map(|(file, errors)| {
        let first = errors[0];
        let is_stale = workflows.stale.iter().any(|stale| stale == file);
        let is_left_out = workflows.left_out.iter().any(|left| left == file);
        let so = match (is_stale, is_left_out) {
            (true, _) => ", it is served as it was when it was last good",
            (false, true) => ", it is not served",
            (false, false) => "",
        };
        let more = match errors.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let (code, line, message) = (&first.code, first.line, &first.message);
        Problem {
            code: "workflows_broken".to_string(),
            message: format!("{file} line {line}: {message} [{code}]{more}{so}"),
            fix: match is_about_secrets(first) {
                true => SEE_SECRETS.to_string(),
                // Only a check of the whole folder finds that a file is not in the folder.
                false if first.code == "E007" => {
                    "stepward validate FOLDER, with the whole workflows folder".to_string()
                }
                false => format!("stepward validate {file}"),
            },
            page: "/tasks".to_string(),
        }
    });
    broken.collect()
}

/// What to do about secrets that the server refuses. `stepward validate` does not know the server's settings.
pub const SEE_SECRETS: &str = "correct the secret as the message says; to check it on the server's machine: stepward doctor secrets --config FILE";

fn is_about_secrets(found: &ServedProblem) -> bool {
    rules::CHECKED_BY_SERVER.contains(&found.code.as_str())
}

/// Files that load only because version 0.1 had accepted them: the next change of such a file has to correct it.
fn tolerated_files(workflows: &ServedWorkflows) -> Vec<Problem> {
    let mut files: BTreeMap<&str, Vec<&ServedProblem>> = BTreeMap::new();
    for found in workflows.tolerated() {
        files.entry(&found.file).or_default().push(found);
    }
    let tolerated = files.into_iter().map(|(file, found)| {
        let first = found[0];
        let more = match found.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let (code, line, message) = (&first.code, first.line, &first.message);
        Problem {
            code: "workflows_former_rules".to_string(),
            message: format!(
                "{file} line {line}: {message} [{code}]{more}; the file still loads because version 0.1 had accepted it, and \
                 stops loading when its text changes"
            ),
            fix: match is_about_secrets(first) {
                true => SEE_SECRETS.to_string(),
                false => format!("correct the file: stepward validate {}", shell_word(file)),
            },
            page: "/tasks".to_string(),
        }
    });
    tolerated.collect()
}

/// Problems that the server reports with a code.
fn notices(health: &Health) -> impl Iterator<Item = Problem> {
    let notices = health.notices.iter();
    let problems = notices.filter(|notice| notice.severity == Severity::Problem);
    problems.map(|notice| Problem {
        code: notice.code.clone(),
        message: notice.message.clone(),
        fix: notice.fix.clone(),
        page: notice.page.clone(),
    })
}

/// What a server warns of, by how that begins: nothing stops because of it yet.
fn warned(health: &Health) -> impl Iterator<Item = Problem> {
    const WARNINGS: [(&str, &str, &str); 3] = [
        (
            DISK_NEARLY_FULL,
            "disk_nearly_full",
            "make room, or keep less: stepward prune --jobs-older 30d --dry-run",
        ),
        (
            CERTIFICATE,
            "certificate_ends",
            "renew it, the server takes the new one without a restart",
        ),
        (
            CERTIFICATE_REFUSED,
            "certificate_refused",
            "put two files there that belong together, the server takes them without a restart",
        ),
    ];
    WARNINGS.into_iter().filter_map(|(begins, code, fix)| {
        let mut warnings = health.warnings.iter();
        let told = warnings.find(|told| told.starts_with(begins))?;
        Some(Problem {
            code: code.to_string(),
            message: told.clone(),
            fix: fix.to_string(),
            page: "/settings".to_string(),
        })
    })
}

/// Workers wait with their results until a person decides which state of the database counts.
pub fn rolled_back(health: &Health) -> Option<Problem> {
    let rollback = health.rollback.as_ref()?;
    let who = match &rollback.workers[..] {
        [] => "a worker has".to_string(),
        [only] => format!("{only} has"),
        [first, others @ ..] => format!("{first} and {} have", count(others.len(), "other")),
    };
    Some(Problem {
        code: "database_rolled_back".to_string(),
        message: format!(
            "the database was rolled back: {who} worked for a later state of it and can report nothing"
        ),
        fix: "put the later data folder back, or stop the server and go on with this one, with one start: stepward server \
              --data-dir FOLDER --accept-older-database"
            .to_string(),
        page: "/events".to_string(),
    })
}

fn nobody_works(
    workers: &[WorkerJson],
    workflows: &ServedWorkflows,
    start_worker: &str,
) -> Option<Problem> {
    let is_idle = !workers.iter().any(WorkerJson::takes_steps) && workflows.tasks > 0;
    let tasks = count(workflows.tasks, "task");
    let message = match workers.len() {
        0 => format!("there is no worker to run any of {tasks}"),
        n => format!(
            "none of {} takes steps now: nothing new runs",
            count(n, "worker")
        ),
    };
    is_idle.then(|| Problem {
        code: "no_worker".to_string(),
        message,
        fix: start_worker.to_string(),
        page: "/workers".to_string(),
    })
}

/// Whoever was told to go is no problem.
fn lost_workers(workers: &[WorkerJson], recovery: &RecoveryJson) -> Vec<Problem> {
    let late_secs = 2.0 * recovery.settings.heartbeat_interval_secs as f64;
    let of = |worker: &WorkerJson| {
        let name = &worker.name;
        let age = secs(worker.heartbeat_age_secs);
        if worker.draining {
            return None;
        }
        if worker.status == "inactive" {
            return Some(Problem {
                code: "worker_inactive".to_string(),
                message: format!("worker {name} is inactive, it was last heard {age} ago"),
                fix: format!(
                    "start it again, or forget it: stepward worker rm {}",
                    address(worker, workers)
                ),
                page: format!("/workers#worker-{}", worker.id),
            });
        }
        if worker.heartbeat_age_secs <= late_secs {
            return None;
        }
        let then = worker.inactive_in_secs.map(secs);
        let then = then.map_or_else(String::new, |then| format!(", it is given up in {then}"));
        Some(Problem {
            code: "worker_silent".to_string(),
            message: format!("worker {name} is silent for {age}{then}"),
            fix: "stepward recovery forecast".to_string(),
            page: "/recovery".to_string(),
        })
    };
    workers.iter().filter_map(of).collect()
}

/// Those that wait for the same are one problem.
fn steps_without_worker(queued: &[QueuedJson], more: bool) -> Vec<Problem> {
    let mut groups: BTreeMap<(&str, &str), Vec<&QueuedJson>> = BTreeMap::new();
    for step in queued {
        let code = step.why.code.as_str();
        if matches!(code, "no_matching_worker" | "matching_workers_silent") {
            groups
                .entry((code, &step.why.sentence))
                .or_default()
                .push(step);
        }
    }
    let problem = |((code, sentence), steps): ((&str, &str), Vec<&QueuedJson>)| {
        let due = |step: &&&QueuedJson| {
            let outcome = step.why.outcome.as_ref();
            outcome.map_or(i64::MAX, |outcome| (outcome.in_secs * 1_000.0) as i64)
        };
        let first = steps.iter().min_by_key(due).expect("no group is empty");
        let which = match steps.len() {
            1 => format!("job {} step {}", first.job_id, first.step),
            n => format!(
                "{}, the first is job {} step {}",
                at_least(n, "step", more),
                first.job_id,
                first.step
            ),
        };
        let then = outcome(first).map_or_else(String::new, |outcome| format!("; {outcome}"));
        Problem {
            code: code.to_string(),
            message: format!("{sentence}: {which}{then}"),
            fix: match first.why.fix.last() {
                Some(fix) => fix.clone(),
                None => format!("stepward why {}/{}", first.job_id, first.step),
            },
            page: match steps.len() {
                1 => format!("/jobs/{}", first.job_id),
                _ => "/queue".to_string(),
            },
        }
    };
    groups.into_iter().map(problem).collect()
}

/// What happens from now on would be lost with the disk.
fn failed_backup(backups: &BackupsJson, now: Timestamp) -> Option<Problem> {
    let failed = backups.failed.as_ref()?;
    let since = duration(now.0 - failed.since.0.0);
    let last = match &backups.last {
        Some(last) => format!("the last is of {} ago", duration(now.0 - last.made_at.0.0)),
        None => "there is none".to_string(),
    };
    Some(Problem {
        code: "backup_failed".to_string(),
        message: format!(
            "no backup could be made for {since}: {} ({last})",
            failed.message
        ),
        fix: match backups.pipe {
            None => "correct what the message says: the server tries again every ten minutes. Or make one by hand: stepward backup FILE",
            Some(_) => {
                "correct what the message says: the server tries again every ten minutes. Or make one by hand, encrypted as in \
                 backup.pipe: stepward backup FILE --pipe COMMAND"
            }
        }
        .to_string(),
        page: "/events".to_string(),
    })
}

/// Schedules and what goes by itself follow that clock as well.
fn backup_ahead(backups: &BackupsJson, now: Timestamp) -> Option<Problem> {
    let ahead = backups.ahead.as_ref()?;
    Some(Problem {
        code: "backup_ahead".to_string(),
        message: format!(
            "backup {} bears a time that is {} ahead: the server's clock was wrong then, or is now",
            ahead.file,
            duration(ahead.made_at.0.0 - now.0)
        ),
        fix: "set the clock right; if it is, move that file away".to_string(),
        page: "/settings".to_string(),
    })
}

/// By reason, the one that happened last first.
fn failures(failed: &[JobJson], more: bool, now: Timestamp) -> Vec<Problem> {
    let mut groups: Vec<(&str, Vec<&JobJson>)> = Vec::new();
    for job in failed {
        let reason = job.reason.as_deref().unwrap_or("unknown");
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, jobs)) => jobs.push(job),
            None => groups.push((reason, vec![job])),
        }
    }
    let problem = |(reason, jobs): (&str, Vec<&JobJson>)| {
        let last = jobs[0];
        let (id, task) = (last.id, &last.task);
        let what = match last.status.as_str() {
            "cancelled" => "ran out of time",
            _ => "failed",
        };
        let which = match jobs.len() {
            1 => format!("job {id} {task} {what}"),
            n => format!(
                "{} {what} within a day, the last is {id} {task}",
                at_least(n, "job", more)
            ),
        };
        let at = last.ended_at.map_or_else(String::new, |at| {
            format!(" {} ago", duration(now.0 - at.0.0))
        });
        let message = last.message.as_deref().unwrap_or(reason);
        Problem {
            code: reason.to_string(),
            message: format!("{which}{at}: {message}"),
            fix: match reason {
                "exit_code" | "signal" => format!("stepward logs {id} --failed"),
                _ => format!("stepward why {id}"),
            },
            page: match jobs.len() {
                1 => format!("/jobs/{id}"),
                // Words of ours, of letters and lines alone.
                _ => format!("/jobs?q=status:{}+reason:{reason}", last.status),
            },
        }
    };
    groups.into_iter().map(problem).collect()
}

/// What is counted, where some of it may not have been.
fn at_least(n: usize, noun: &str, more: bool) -> String {
    match more {
        true => format!("at least {}", count(n, noun)),
        false => count(n, noun),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_a_problem_in_its_last_week_and_from_then_on() {
        const DAY_MS: i64 = 86_400_000;
        let ends = Timestamp(100 * DAY_MS);
        let at = |day: i64| certificate_ends(ends, Timestamp(day * DAY_MS));
        assert_eq!(at(93), None);
        let told = at(94).unwrap();
        assert!(told.starts_with("the certificate ends in 6d"), "{told}");
        assert!(at(100).unwrap().contains("has expired"));
    }
}
