//! Explanations as they are read on a terminal, however narrow; pure, from what the server told.

use super::look::{Ink, Look};
use super::page::Page;
use super::words::{count, printable, secs, width};
use crate::wire::api::{
    JobWhyJson, OneStepWhyJson, RootCauseJson, ScheduleWhyJson, StepWhyJson, WhyJson,
    WhyOutcomeJson, WhyWorkerJson, WorkerWhyJson,
};

/// Where a step begins, and the widest that the column of their names becomes.
const INDENT: usize = 2;
const NAME_MAX: usize = 24;
/// Workers whose name is longer are cut in tables.
const LABEL_MAX: usize = 20;
const LABEL_MIN: usize = "outcome".len();

pub fn job(job: &JobWhyJson, look: &Look) -> String {
    let mut page = Page::new(look);
    page.head(&job_head(job, look));
    let speaks_for_itself = job.why.root_cause.is_none() && is_ended(&job.status);
    if speaks_for_itself && job.why.code != "completed" {
        let why = &job.why;
        page.text(INDENT, &format!("{}: {}", why.code, why.sentence), None);
    }
    if job.why.code == "completed" && job.steps.is_empty() {
        page.text(INDENT, "all its steps completed", None);
    }
    let names = job.steps.iter().map(|step| width(&step.step));
    let column = names.filter(|name| *name <= NAME_MAX).max().unwrap_or(0);
    let mut is_brief = true;
    for step in &job.steps {
        // Those that say more than a line stand apart.
        let stands_apart = !is_brief || !fits_a_line(step, job);
        is_brief = fits_a_line(step, job);
        if stands_apart || std::ptr::eq(step, &job.steps[0]) {
            page.gap();
        }
        Block::new(look, column).step(&mut page, step, job.job_id, Some(job));
    }
    if job.more {
        page.text(INDENT, "and more steps", Some(Ink::Faint));
    }
    let is_said = |fix: &&String| job.steps.iter().any(|step| step.why.fix.contains(fix));
    let fix: Vec<&String> = job.why.fix.iter().filter(|fix| !is_said(fix)).collect();
    if !fix.is_empty() {
        page.gap();
        let mut block = Block::new(look, 0);
        block.indent = INDENT;
        block.label = LABEL_MIN.min(3);
        block.fix(&mut page, fix);
    }
    page.finish()
}

pub fn step(one: &OneStepWhyJson, look: &Look) -> String {
    let mut page = Page::new(look);
    let job = format!("job {} {}", one.job_id, one.task);
    page.head(&[job, one.job_status.clone()].join(&between(look)));
    page.gap();
    let column = width(&one.step.step).min(NAME_MAX);
    Block::new(look, column).step(&mut page, &one.step, one.job_id, None);
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
    page.gap();
    let mut block = Block::new(look, 0);
    block.indent = INDENT;
    block.label = "could take".len();
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
    if let Some(outcome) = &why.outcome {
        block.row(&mut page, "outcome", &outcome_text(outcome, &[]));
    }
    for fact in &why.facts {
        block.row(&mut page, "", fact);
    }
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
    for fact in &why.facts {
        match fact.split_once(": ") {
            Some((label @ ("last" | "last job"), rest)) => block.row(&mut page, label, rest),
            _ => block.row(&mut page, "", fact),
        }
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
        (Some(root), _) => head.push(format!("root cause: {}", root_text(root, job.job_id))),
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

/// All there is to say of it, or it is said by the job.
fn fits_a_line(step: &StepWhyJson, job: &JobWhyJson) -> bool {
    match step.status.as_str() {
        "skipped" => true,
        "cancelled" => step.why.code == job.why.code,
        _ => false,
    }
}

/// `recovery phase 4 fails this step in 18s; evaluate and publish will be skipped`
fn outcome_text(outcome: &WhyOutcomeJson, skips: &[String]) -> String {
    let deed = match outcome.action.as_str() {
        "the step fails" => "fails this step",
        "the step goes back to the queue" => "puts this step back into the queue",
        "the step is tried again" => "has this step tried again",
        "the step is held" => "holds this step until a person decides",
        "its job is cancelled" => "cancels its job",
        "the worker becomes inactive" => "marks it inactive",
        other => other,
    };
    let when = match outcome.in_secs > 0.0 {
        true => format!("in {}", secs(outcome.in_secs)),
        false => "with its next sweep".to_string(),
    };
    let then = match skips {
        [] => String::new(),
        skips => format!("; {} will be skipped", in_a_row(skips)),
    };
    format!("recovery phase {} {deed} {when}{then}", outcome.phase)
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
        }
    }

    fn step(&mut self, page: &mut Page, step: &StepWhyJson, job_id: i64, job: Option<&JobWhyJson>) {
        let why = &step.why;
        let (line, ink) = first_line(self.look, step);
        page.named(INDENT, self.name, self.indent, &step.step, &line, ink);
        if is_ended(&step.status) {
            self.ended(page, step, job_id, job);
        } else {
            self.open(page, why);
        }
        self.fix(page, why.fix.iter().collect());
    }

    fn open(&mut self, page: &mut Page, why: &WhyJson) {
        let names = why.workers.iter().map(|worker| width(&worker.name));
        self.label = names.max().unwrap_or(0).clamp(LABEL_MIN, LABEL_MAX);
        if why.workers.is_empty() {
            for fact in &why.facts {
                page.text(self.indent, fact, None);
            }
        }
        // Where somebody has it, what it needed is past.
        if !why.needs.is_empty() {
            self.row(page, "needs", &why.needs.join(" + "));
        }
        self.workers(page, &why.workers);
        if let Some(others) = why.facts.last().filter(|fact| *fact == "and others") {
            self.row(page, "", others);
        }
        if let Some(outcome) = &why.outcome {
            self.row(page, "outcome", &outcome_text(outcome, &why.skips));
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
            "skipped" => why.root_cause.is_some() || why.code == "when_false",
            _ => job.is_some_and(|job| fits_a_line(step, job)),
        };
        if !is_said {
            page.text(self.indent, &why.sentence, None);
        }
        if let Some(root) = &why.root_cause {
            let text = format!("{}: {}", root_text(root, job_id), root.sentence);
            let is_in_head = job.is_some() && step.status == "skipped";
            if !is_in_head {
                self.label = self.label.max("root cause".len());
                self.row(page, "root cause", &text);
            }
        }
        if !why.needs.is_empty() {
            self.row(page, "needed", &why.needs.join(" + "));
        }
        let is_told =
            |fact: &&String| fact.starts_with("root cause: ") || fact.starts_with("child job ");
        for fact in why.facts.iter().filter(|fact| !is_told(fact)) {
            page.text(self.indent, fact, None);
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
        for (at, line) in fix.iter().enumerate() {
            let label = if at == 0 { "fix" } else { "or" };
            self.row(page, label, line);
        }
    }

    fn row(&self, page: &mut Page, label: &str, text: &str) {
        page.row(self.indent, self.label, label, text);
    }
}

fn worker_cells(worker: &WhyWorkerJson) -> [String; 3] {
    let lacks = match worker.lacks.is_empty() {
        true => "matches".to_string(),
        false => format!("lacks {}", worker.lacks.join(", ")),
    };
    let seen = secs(worker.seen_secs_ago);
    let busy = worker.slots_used >= worker.slots && worker.lacks.is_empty();
    let seen = match worker.state.as_str() {
        "active" if busy => format!("{} busy, seen {seen} ago", slots(worker.slots)),
        "active" => format!("seen {seen} ago"),
        "inactive" => format!("inactive, last seen {seen} ago"),
        state => format!("{state}, seen {seen} ago"),
    };
    [worker.offers.join(", "), lacks, seen]
}

/// What a step is, in a line: what it waits for, or how it ended.
fn first_line(look: &Look, step: &StepWhyJson) -> (String, Option<Ink>) {
    let why = &step.why;
    let status = step.status.as_str();
    let since = secs(step.since_secs);
    let signed = |text: String| {
        (
            format!("{} {text}", look.sign(status)),
            Some(Look::ink(status)),
        )
    };
    match (status, &why.root_cause) {
        ("pending" | "ready" | "suspended", _) => {
            (format!("{status} for {since}: {}", why.sentence), None)
        }
        ("assigned" | "running", _) => (why.sentence.clone(), None),
        ("completed", _) => signed("completed".to_string()),
        ("skipped", Some(root)) => signed(format!("skipped because {} {}", root.step, root.status)),
        ("skipped", None) if why.code == "when_false" => {
            signed(format!("skipped, {}: {}", why.code, why.sentence))
        }
        _ => {
            let tries = match step.max_attempts > 1 && step.attempt > 0 {
                true => format!(", attempt {}", step.attempt),
                false => String::new(),
            };
            let worker = match &step.worker {
                Some(worker) if step.attempt > 0 => format!(", on {worker}"),
                _ => String::new(),
            };
            signed(format!("{status}, {}{tries}{worker}", why.code))
        }
    }
}
