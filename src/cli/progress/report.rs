//! What to know when a job did not complete: the cause in words, the last lines of what failed, what to type next.

use super::Place;
use crate::cli::log_line::harmless;
use crate::cli::logs::{address, end_of};
use crate::cli::look::{Ink, Look};
use crate::cli::reach::Remote;
use crate::cli::words::{printable, shell_path, shell_word};
use crate::config::ServerConfig;
use crate::wire::api::{JobJson, JobWhyJson, LogsJson, StepJson, WhyJson};

/// Of what the failed step printed.
const LINES: usize = 10;
/// Jobs within jobs.
const DEPTH_MAX: usize = 8;

pub fn report(remote: &Remote, job: &JobJson, place: &Place, look: &Look) -> Vec<String> {
    let mut lines = Vec::new();
    let why = remote.get::<JobWhyJson>(&format!("/api/jobs/{}/why", job.id));
    let why = why.ok().map(|why| why.why);
    let failed = failed(remote, job, why.as_ref());
    if let Some((job_id, step)) = &failed {
        lines.extend(last_lines(remote, *job_id, step, job.id, look));
    }
    let mut next = vec![("because", printable(&cause(job, why)))];
    let command = |words: String| format!("stepward {words}{}", place.suffix);
    match &place.here {
        None => {
            next.push(("why", command(format!("why {}", job.id))));
            if let Some((job_id, step)) = failed.as_ref().filter(|(_, step)| step.attempt > 0) {
                let step = shell_word(&step.name);
                next.push(("logs", command(format!("logs {job_id} {step}"))));
            }
            next.push(("retry", command(format!("retry {}", job.id))));
        }
        Some(here) => {
            if job.reason.as_deref() == Some("unmatched") || is_unmatched(&failed) {
                let tags = failed.iter().flat_map(|(_, step)| &step.required_tags);
                let tags: Vec<&str> = tags.map(String::as_str).collect();
                // What a machine has or has not is not a matter of words.
                let is_machinery = |tag: &&&str| matches!(**tag, "docker" | "kubernetes");
                let needs = tags.join(" + ");
                let text = match tags.iter().find(is_machinery) {
                    Some(tag) => {
                        let why = here.remarks.iter().find(|remark| remark.contains(tag));
                        let why = why.map_or("cannot be used here", String::as_str);
                        format!("it needs {needs}: {why}")
                    }
                    None => format!(
                        "it needs {needs}; --tags {} lets this machine offer what it does not offer by itself",
                        tags.join(",")
                    ),
                };
                next.push(("tags", printable(&text)));
            }
            next.push(match &here.data {
                Some(data) => {
                    // No file says there which server it is: it has to be named.
                    let (data, listen) = (shell_path(data), ServerConfig::default().listen);
                    let text = format!(
                        "stepward server --data-dir {data}, and meanwhile stepward logs {} --server http://{listen}",
                        job.id,
                    );
                    ("kept", text)
                }
                None => {
                    let text =
                        "nothing of this run stays; --data DIR keeps it, `stepward dev` keeps all";
                    ("kept", text.to_string())
                }
            });
        }
    }
    lines.extend(next.into_iter().map(|(word, text)| {
        let word = look.paint(Ink::Faint, &format!("{word:7}"));
        format!("  {word}  {text}")
    }));
    lines
}

fn is_unmatched(failed: &Option<(i64, StepJson)>) -> bool {
    let reason = failed.as_ref().and_then(|(_, step)| step.reason.as_deref());
    reason == Some("unmatched")
}

fn cause(job: &JobJson, why: Option<WhyJson>) -> String {
    match why {
        Some(why) => why.sentence,
        // What the job itself says is nearly as good.
        None => job.message.clone().unwrap_or_else(|| job.status.clone()),
    }
}

/// The step that failed by itself, in this job or in one that it called: of several, the one that the job failed for.
fn failed(remote: &Remote, job: &JobJson, why: Option<&WhyJson>) -> Option<(i64, StepJson)> {
    if let Some(root) = why.and_then(|why| why.root_cause.as_ref()) {
        let seen: JobJson = remote.get(&format!("/api/jobs/{}", root.job_id)).ok()?;
        let step = seen
            .steps?
            .into_iter()
            .find(|step| step.name == root.step)?;
        return Some((root.job_id, step));
    }
    let is_cause = |step: &StepJson| {
        step.status == "failed" && step.reason.as_deref() != Some("instance_failed")
    };
    let mut job_id = job.id;
    for _ in 0..DEPTH_MAX {
        let seen: JobJson = remote.get(&format!("/api/jobs/{job_id}")).ok()?;
        let cause = seen.steps?.into_iter().find(is_cause)?;
        match cause.child_job_id {
            Some(child) => job_id = child,
            None => return Some((job_id, cause)),
        }
    }
    None
}

fn last_lines(
    remote: &Remote,
    job_id: i64,
    step: &StepJson,
    of_job: i64,
    look: &Look,
) -> Vec<String> {
    if step.attempt == 0 {
        return Vec::new();
    }
    let path = end_of(&address(job_id, &step.name, None), LINES as u64);
    let Ok(mut logs) = remote.get::<LogsJson>(&path) else {
        return Vec::new();
    };
    // What the worker itself says at the end is said in other words below.
    let all = logs.lines.len();
    logs.lines.retain(|line| line.stream != "worker");
    let total = logs.total_lines - (all - logs.lines.len()) as u64;
    logs.lines.drain(..logs.lines.len().saturating_sub(LINES));
    if logs.lines.is_empty() {
        return Vec::new();
    }
    let name = match job_id == of_job {
        true => step.name.clone(),
        false => format!("job {job_id} {}", step.name),
    };
    let shown = logs.lines.len() as u64;
    let lines = match shown == total {
        true => match total {
            1 => "1 line".to_string(),
            _ => format!("all {total} lines"),
        },
        false => format!("last {shown} of {total} lines"),
    };
    let has_stderr = logs.lines.iter().any(|line| line.stream == "stderr");
    let marked = if has_stderr { ", ! is stderr" } else { "" };
    let dot = look.dot();
    let heading = format!("  {} {dot} {lines}{marked}", printable(&name));
    let digits = total.to_string().len();
    let mut told = vec![String::new(), look.paint(Ink::Bold, &heading)];
    told.extend(logs.lines.iter().map(|line| {
        let mark = if line.stream == "stderr" { "!" } else { " " };
        let n = look.paint(Ink::Faint, &format!("{:>digits$}", line.n));
        format!(
            "    {n} {mark} {}",
            harmless(&line.text, look.colour, look.unicode)
        )
    }));
    told.push(String::new());
    told
}
