//! Explanations as they are read on a terminal, however narrow; pure, from what the server told.

use super::look::{Ink, Look};
use super::page::Page;
use super::words::{count, fit, printable, secs, width};
use crate::wire::api::{
    JobWhyJson, OneStepWhyJson, RootCauseJson, ScheduleWhyJson, StepWhyJson, WhyFactJson, WhyJson,
    WhyOutcomeJson, WhyWorkerJson, WorkerWhyJson,
};

/// What recovery will do after so long is no answer to a question that is asked now.
const FAR_SECS: f64 = 12.0 * 3_600.0;
/// Where a step begins, and the widest that the column of their names becomes.
const INDENT: usize = 2;
const NAME_MAX: usize = 24;
/// A worker whose name is longer has it in a line of its own.
const LABEL_MAX: usize = 14;
const LABEL_MIN: usize = "outcome".len();

pub fn job(job: &JobWhyJson, look: &Look) -> String {
    let mut page = Page::new(look);
    page.head(&job_head(job, look));
    let speaks_for_itself = job.why.root_cause.is_none() && is_ended(&job.status);
    if speaks_for_itself && job.why.code != "completed" {
        let why = &job.why;
        let text = format!("{}: {}", why.code, cut(&why.sentence, look));
        page.text(INDENT, &text, None);
    }
    if job.why.code == "completed" && job.steps.is_empty() {
        page.text(INDENT, "all its steps completed", None);
    }
    steps(&mut page, job, look);
    if job.more {
        let more = match job.more_steps {
            0 => "and more steps".to_string(),
            n => format!("and {}", count(n, "more step")),
        };
        page.text(INDENT, &more, Some(Ink::Faint));
    }
    let is_said = |fix: &&String| job.steps.iter().any(|step| step.why.fix.contains(fix));
    let fix: Vec<&String> = job.why.fix.iter().filter(|fix| !is_said(fix)).collect();
    if !fix.is_empty() {
        page.gap();
        let is_first = job.steps.iter().all(|step| step.why.fix.is_empty());
        let label = if is_first { "fix" } else { "then" };
        let mut block = Block::new(look, 0);
        block.indent = INDENT;
        block.label = label.len();
        block.fix_as(&mut page, label, fix);
    }
    page.finish()
}

fn steps(page: &mut Page, job: &JobWhyJson, look: &Look) {
    let Some(first) = job.steps.first() else {
        return;
    };
    page.gap();
    let is_queued = job.status == "pending";
    let is_like_first =
        |step: &StepWhyJson| step.status == "pending" && step.why.sentence == first.why.sentence;
    if job.steps.len() > 1 && job.steps.iter().all(is_like_first) {
        let name = format!("all {} steps", job.steps.len());
        let mut block = Block::new(look, width(&name));
        block.is_queued = is_queued;
        return block.step_called(page, &name, first, job.job_id, Some(job));
    }
    let groups: Vec<(String, &StepWhyJson)> = groups(job);
    let names = groups.iter().map(|(name, _)| width(name));
    let column = names.filter(|name| *name <= NAME_MAX).max().unwrap_or(0);
    let mut was_brief = true;
    for (name, step) in &groups {
        // Those of which there is more to say than a line stand apart.
        let is_brief = is_brief(step, job);
        let stands_apart = !was_brief || !is_brief;
        if stands_apart && !std::ptr::eq(*step, first) {
            page.gap();
        }
        was_brief = is_brief;
        let mut block = Block::new(look, column);
        block.is_queued = is_queued;
        block.step_called(page, name, step, job.job_id, Some(job));
    }
}

/// Steps of which the same is to say are told as one, where the first of them stands. A few that a line says have their lines.
fn groups(job: &JobWhyJson) -> Vec<(String, &StepWhyJson)> {
    const LINES_MAX: usize = 3;
    let mut groups: Vec<(String, Vec<&StepWhyJson>)> = Vec::new();
    for step in &job.steps {
        let said = said_of_any(step);
        match groups.iter_mut().find(|(known, _)| *known == said) {
            Some((_, steps)) => steps.push(step),
            None => groups.push((said, vec![step])),
        }
    }
    let told = groups.into_iter().flat_map(|(_, steps)| {
        let first = steps[0];
        if is_brief(first, job) && steps.len() <= LINES_MAX {
            let alone = steps.into_iter().map(|step| (step.step.clone(), step));
            return alone.collect();
        }
        let names: Vec<&str> = steps.iter().map(|step| step.step.as_str()).collect();
        vec![(all_of(&names), first)]
    });
    told.collect()
}

/// What is said of a step whatever it is called, and for however long it is so.
fn said_of_any(step: &StepWhyJson) -> String {
    let mut any = StepWhyJson {
        since_secs: 0.0,
        ..step.clone()
    };
    if let Some(outcome) = &mut any.why.outcome {
        outcome.in_secs = outcome.in_secs.round();
    }
    let said = serde_json::to_string(&any).unwrap_or_default();
    // Its brackets keep an instance from being a part of any other word.
    match step.step.contains('[') {
        true => said.replace(&step.step, "[]"),
        false => said.replacen(&format!("\"step\":\"{}\"", step.step), "", 1),
    }
}

/// `a`, `a and b`, `a, b and c`, `a, b and 7 more`.
fn all_of(names: &[&str]) -> String {
    match names {
        [a, b, _, _, ..] => format!("{a}, {b} and {} more", names.len() - 2),
        [a, b, c] => format!("{a}, {b} and {c}"),
        names => names.join(" and "),
    }
}

/// Nobody reads more than a few lines of it here; all of it is in the JSON.
fn cut(text: &str, look: &Look) -> String {
    const COLUMNS_MAX: usize = 400;
    fit(&printable(text), COLUMNS_MAX, look.ellipsis())
}

pub fn step(one: &OneStepWhyJson, look: &Look) -> String {
    let mut page = Page::new(look);
    let job = format!("job {} {}", one.job_id, one.task);
    page.head(&[job, one.job_status.clone()].join(&between(look)));
    page.gap();
    let column = width(&one.step.step).min(NAME_MAX);
    let mut block = Block::new(look, column);
    block.is_queued = one.job_status == "pending";
    block.step_called(&mut page, &one.step.step, &one.step, one.job_id, None);
    page.finish()
}

pub fn worker(explained: &WorkerWhyJson, look: &Look) -> String {
    let (worker, why) = (&explained.worker, &explained.why);
    let mut page = Page::new(look);
    let seen = format!("heard {} ago", secs(worker.heartbeat_age_secs));
    let slots = format!("{} of {} busy", worker.slots_used, slots(worker.slots));
    let head = [
        format!("worker {}", worker.name),
        why.code.clone(),
        seen,
        slots,
    ];
    page.head(&head.join(&between(look)));
    page.text(INDENT, &why.sentence, None);
    for fact in why.details.iter().filter(|_| why.outcome.is_none()) {
        page.text(INDENT, &fact.text, None);
    }
    page.gap();
    let mut block = Block::new(look, 0);
    block.indent = INDENT;
    block.label = "could take".len();
    if let Some(outcome) = &why.outcome {
        let text = outcome_text(outcome, "it is heard again", &[]);
        block.row(&mut page, "outcome", &text);
        for fact in &why.details {
            let label = if fact.kind == "then" { "then" } else { "" };
            block.row(&mut page, label, &fact.text);
        }
    }
    block.row(&mut page, "offers", &worker.tags.join(", "));
    let held = worker.running.iter().map(|held| {
        let (job_id, step) = (held.job_id, &held.step);
        format!(
            "{job_id}/{step} ({}, attempt {})",
            held.status, held.attempt
        )
    });
    block.listed(&mut page, "runs", held.collect());
    let waiting = explained.could_take.iter();
    let waiting = waiting.map(|queued| format!("{}/{}", queued.job_id, queued.step));
    block.listed(&mut page, "could take", waiting.collect());
    block.fix(&mut page, why.fix.iter().collect());
    page.finish()
}

pub fn schedule(explained: &ScheduleWhyJson, look: &Look) -> String {
    let (schedule, why) = (&explained.schedule, &explained.why);
    let mut page = Page::new(look);
    let mut head = vec![
        format!("schedule {}.{}", schedule.task, schedule.name),
        why.code.replace('_', " "),
    ];
    head.extend(
        explained
            .next_in_secs
            .map(|next| format!("next in {}", secs(next))),
    );
    page.head(&head.join(&between(look)));
    page.text(INDENT, &why.sentence, None);
    page.gap();
    let mut block = Block::new(look, 0);
    block.indent = INDENT;
    block.label = "last job".len();
    block.row(
        &mut page,
        "cron",
        &format!("{} {}", schedule.cron, schedule.timezone),
    );
    for fact in &why.details {
        let label = match fact.kind.as_str() {
            "last" => "last",
            "last_job" => "last job",
            _ => "",
        };
        block.row(&mut page, label, &fact.text);
    }
    block.fix(&mut page, why.fix.iter().collect());
    page.finish()
}

fn between(look: &Look) -> String {
    format!(" {} ", look.dot())
}

fn is_ended(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "skipped" | "cancelled")
}

fn slots(slots: u32) -> String {
    count(slots as usize, "slot")
}

/// `job 43 train · running 22s · 1 of 3 steps waits`
fn job_head(job: &JobWhyJson, look: &Look) -> String {
    let since = secs(job.since_secs);
    let state = match (is_ended(&job.status), job.ran_secs) {
        (true, Some(ran)) => format!("{} {since} ago, it ran {}", job.status, secs(ran)),
        (true, None) => format!("{} {since} ago", job.status),
        (false, _) => format!("{} {since}", job.status),
    };
    let mut head = vec![format!("job {} {}", job.job_id, job.task), state];
    match (&job.why.root_cause, is_ended(&job.status)) {
        (Some(root), true) => head.push(format!("root cause: {}", root_text(root, job.job_id))),
        (Some(root), false) => {
            head.extend(steps_text(job));
            head.push(format!("step {} has failed", root.step));
        }
        (None, false) => head.extend(steps_text(job)),
        (None, true) => {}
    }
    head.join(&between(look))
}

fn root_text(root: &RootCauseJson, job_id: i64) -> String {
    let of = match root.job_id == job_id {
        true => String::new(),
        false => format!(" of job {}", root.job_id),
    };
    let code = root.code.as_deref().unwrap_or(&root.status);
    format!("step {}{of}, {code}", root.step)
}

/// How many wait, how many run, of how many.
fn steps_text(job: &JobWhyJson) -> Option<String> {
    let of = |states: &[&str]| -> usize {
        states
            .iter()
            .filter_map(|state| job.counts.get(*state))
            .sum()
    };
    let total: usize = job.counts.values().sum();
    let (mut wait, run) = (of(&["ready", "suspended"]), of(&["assigned", "running"]));
    if wait + run == 0 {
        wait = of(&["pending"]);
    }
    let noun = if total == 1 { "step" } else { "steps" };
    match (wait, run) {
        (0, 0) => None,
        (1, 0) => Some(format!("1 of {total} {noun} waits")),
        (wait, 0) => Some(format!("{wait} of {total} {noun} wait")),
        (0, 1) => Some(format!("1 of {total} {noun} runs")),
        (0, run) => Some(format!("{run} of {total} {noun} run")),
        (1, run) => Some(format!("1 of {total} {noun} waits, {run} run")),
        (wait, run) => Some(format!("{wait} of {total} {noun} wait, {run} run")),
    }
}

/// A line says it, or its job does.
fn is_brief(step: &StepWhyJson, job: &JobWhyJson) -> bool {
    match step.status.as_str() {
        "skipped" => true,
        "cancelled" => is_with_job(step, job),
        _ => false,
    }
}

fn is_with_job(step: &StepWhyJson, job: &JobWhyJson) -> bool {
    step.status == "cancelled" && step.why.sentence == job.why.sentence
}

/// `recovery phase 2 fails this step in 18s, unless it has ended by then; evaluate and publish will be skipped`
fn outcome_text(outcome: &WhyOutcomeJson, unless: &str, skips: &[String]) -> String {
    let (deed, so) = match outcome.code.as_str() {
        "fail" => ("fails this step", ""),
        "requeue" => ("puts this step back into the queue", ""),
        "retry" => ("has this step tried again", ""),
        "hold" => ("holds this step", ", and a person decides then"),
        "cancel_job" => ("cancels its job", ""),
        "mark_inactive" => ("marks it inactive", ""),
        // A newer server knows more.
        _ => (outcome.action.as_str(), ""),
    };
    let when = match outcome.in_secs > 0.0 {
        true => format!("in {}", secs(outcome.in_secs)),
        false => "with its next sweep".to_string(),
    };
    let then = match skips {
        [] => String::new(),
        skips => format!("; {} will be skipped", in_a_row(skips)),
    };
    format!(
        "recovery phase {} {deed} {when}, unless {unless}{so}{then}",
        outcome.phase
    )
}

/// `a`, `a and b`, `a, b and c`, `a, b and 7 others`.
fn in_a_row(words: &[String]) -> String {
    const NAMED_MAX: usize = 4;
    let mut named: Vec<String> = words.iter().take(NAMED_MAX).cloned().collect();
    if words.len() > NAMED_MAX {
        named.push(format!("{} others", words.len() - NAMED_MAX));
    }
    match named.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// What is said of one thing: a first line, and rows with a label each.
struct Block<'a> {
    look: &'a Look,
    /// Where its rows begin, and how wide their labels are.
    indent: usize,
    label: usize,
    name: usize,
    /// Its job has not started.
    is_queued: bool,
}

impl<'a> Block<'a> {
    fn new(look: &'a Look, name: usize) -> Block<'a> {
        let indent = match Page::is_narrow(look) {
            true => 2 * INDENT,
            false => INDENT + name + 2,
        };
        Block {
            look,
            indent,
            label: LABEL_MIN,
            name,
            is_queued: false,
        }
    }

    fn step_called(
        &mut self,
        page: &mut Page,
        name: &str,
        step: &StepWhyJson,
        job_id: i64,
        job: Option<&JobWhyJson>,
    ) {
        let why = &step.why;
        let (line, ink) = first_line(self.look, step, job_id, job);
        let line = cut(&line, self.look);
        page.named(INDENT, self.name, self.indent, name, &line, ink);
        if is_ended(&step.status) {
            self.ended(page, step, job_id, job);
        } else {
            self.open(page, why, &step.status);
        }
        self.fix(page, why.fix.iter().collect());
    }

    fn open(&mut self, page: &mut Page, why: &WhyJson, status: &str) {
        let names = why.workers.iter().map(|worker| width(&worker.name));
        self.label = names.max().unwrap_or(0).clamp(LABEL_MIN, LABEL_MAX);
        // The table of workers repeats every fact except why an earlier assignment came back.
        let has_table = !why.workers.is_empty();
        let is_shown = |fact: &&WhyFactJson| !has_table || fact.kind == "returned";
        for fact in why.details.iter().filter(is_shown) {
            page.text(self.indent, &cut(&fact.text, self.look), None);
        }
        // Where somebody has it, what it needed is past.
        if !why.needs.is_empty() {
            self.row(page, "needs", &why.needs.join(" + "));
        }
        self.workers(page, &why.workers);
        let others = why.details.iter().find(|fact| fact.kind == "others");
        if let Some(others) = others.filter(|_| !why.workers.is_empty()) {
            self.row(page, "", &others.text);
        }
        let outcome = why.outcome.as_ref();
        if let Some(outcome) = outcome.filter(|outcome| outcome.in_secs < FAR_SECS) {
            let unless = match (outcome.phase, outcome.code.as_str()) {
                (1, "requeue") => "it has started by then",
                (1, _) => "its worker is heard again",
                (2, _) if status == "suspended" => "somebody decides",
                (3, _) if self.is_queued => "it has started by then",
                (4, _) => "a worker comes that can take it",
                _ => "it has ended by then",
            };
            self.row(page, "outcome", &outcome_text(outcome, unless, &why.skips));
        }
    }

    fn ended(
        &mut self,
        page: &mut Page,
        step: &StepWhyJson,
        job_id: i64,
        job: Option<&JobWhyJson>,
    ) {
        let why = &step.why;
        let is_said = match step.status.as_str() {
            "completed" => true,
            "skipped" => true,
            _ => job.is_some_and(|job| is_with_job(step, job)),
        };
        if !is_said {
            page.text(self.indent, &cut(&why.sentence, self.look), None);
        }
        if let Some(root) = &why.root_cause {
            let sentence = cut(&root.sentence, self.look);
            let text = format!("{}: {sentence}", root_text(root, job_id));
            let head = job.and_then(|job| job.why.root_cause.as_ref());
            let is_in_head =
                |head: &RootCauseJson| (head.job_id, &head.step) == (root.job_id, &root.step);
            let is_plain = step.status == "skipped" && job.is_some();
            if !is_plain && !head.is_some_and(is_in_head) {
                self.label = self.label.max("root cause".len());
                self.row(page, "root cause", &text);
            }
        }
        if !why.needs.is_empty() {
            self.row(page, "needed", &why.needs.join(" + "));
        }
        let is_told = |kind: &str| matches!(kind, "root_cause" | "child_job");
        for fact in why.details.iter().filter(|fact| !is_told(&fact.kind)) {
            page.text(self.indent, &cut(&fact.text, self.look), None);
        }
        // In a job, they have lines of their own.
        if job.is_none() && !why.skips.is_empty() {
            self.row(page, "skipped", &in_a_row(&why.skips));
        }
    }

    fn workers(&self, page: &mut Page, workers: &[WhyWorkerJson]) {
        let cells: Vec<[String; 3]> = workers.iter().map(worker_cells).collect();
        let column = |at: usize| cells.iter().map(|row| width(&printable(&row[at]))).max();
        let (first, second) = (column(0).unwrap_or(0), column(1).unwrap_or(0));
        let third = column(2).unwrap_or(0);
        let fits = page.has_room(self.indent + self.label + first + second + third + 9);
        for (worker, [offers, lacks, seen]) in workers.iter().zip(&cells) {
            let text = match fits {
                true => {
                    let pad = |text: &str, columns: usize| {
                        let text = printable(text);
                        let room = columns.saturating_sub(width(&text));
                        text + &" ".repeat(room + 3)
                    };
                    format!("{}{}{seen}", pad(offers, first), pad(lacks, second))
                }
                false => format!("{offers}; {lacks}; {seen}"),
            };
            self.row(page, &worker.name, &text);
        }
    }

    fn listed(&self, page: &mut Page, label: &str, items: Vec<String>) {
        if !items.is_empty() {
            self.row(page, label, &items.join(", "));
        }
    }

    fn fix(&self, page: &mut Page, fix: Vec<&String>) {
        self.fix_as(page, "fix", fix);
    }

    fn fix_as(&self, page: &mut Page, label: &str, fix: Vec<&String>) {
        for (at, line) in fix.iter().enumerate() {
            let label = if at == 0 { label } else { "or" };
            self.row(page, label, line);
        }
    }

    fn row(&self, page: &mut Page, label: &str, text: &str) {
        page.row(self.indent, self.label, label, text);
    }
}

fn worker_cells(worker: &WhyWorkerJson) -> [String; 3] {
    let missing = worker.missing();
    let lacks = match missing.is_empty() {
        true => "matches".to_string(),
        false => format!("lacks {}", missing.join(", ")),
    };
    let seen = secs(worker.seen_secs_ago);
    let busy = worker.slots_used >= worker.slots && missing.is_empty();
    let seen = match worker.state.as_str() {
        "active" if busy => format!("{} busy, seen {seen} ago", slots(worker.slots)),
        "active" => format!("seen {seen} ago"),
        "inactive" => format!("inactive, last seen {seen} ago"),
        state => format!("{state}, seen {seen} ago"),
    };
    [worker.offers.join(", "), lacks, seen]
}

/// What a step is, in a line: what it waits for, or how it ended.
fn first_line(
    look: &Look,
    step: &StepWhyJson,
    job_id: i64,
    job: Option<&JobWhyJson>,
) -> (String, Option<Ink>) {
    let why = &step.why;
    let status = step.status.as_str();
    let since = secs(step.since_secs);
    let signed = |text: String| {
        let sign = look.sign(status);
        (format!("{sign} {text}"), Some(Look::ink(status)))
    };
    match (status, &why.root_cause) {
        ("pending" | "ready" | "suspended", _) => {
            (format!("{status} for {since}: {}", why.sentence), None)
        }
        ("assigned" | "running", _) => (why.sentence.clone(), None),
        ("completed", _) => signed("completed".to_string()),
        ("skipped", Some(root)) => signed(format!("skipped because {}", refused(root, job_id))),
        ("skipped", None) if !why.sentence.is_empty() => {
            signed(format!("skipped, {}: {}", why.code, why.sentence))
        }
        _ if job.is_some_and(|job| is_with_job(step, job)) => {
            signed("cancelled with its job".to_string())
        }
        _ => {
            let tries = match step.max_attempts > 1 && step.attempt > 0 {
                true => format!(", attempt {}", step.attempt),
                false => String::new(),
            };
            let ran = !matches!(
                why.code.as_str(),
                "template_error" | "payload_error" | "assignment_exhausted"
            );
            let worker = match &step.worker {
                Some(worker) if ran && step.attempt > 0 => format!(", on {worker}"),
                _ => String::new(),
            };
            signed(format!("{status}, {}{tries}{worker}", why.code))
        }
    }
}

/// `lint of job 2 failed`
fn refused(root: &RootCauseJson, job_id: i64) -> String {
    let of = match root.job_id == job_id {
        true => String::new(),
        false => format!(" of job {}", root.job_id),
    };
    let was = match root.status.as_str() {
        "cancelled" | "skipped" => "was ",
        _ => "",
    };
    format!("{}{of} {was}{}", root.step, root.status)
}
