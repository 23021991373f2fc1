//! `stepward logs`: what steps printed, all of it or as it comes. Never more than a page of it is in memory.

use std::collections::VecDeque;
use std::io::Read;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::exit::{Exit, Fault};
use super::log_follow::{self, Company};
use super::log_line::{Form, LineStyle, Origin};
use super::look::Show;
use super::reach::{Reach, Remote, in_url, name};
use super::say::{print, print_bytes, say};
use super::words::{duration, printable, shell_word, width};
use crate::domain::log::LogFault;
use crate::language::words::did_you_mean;
use crate::problems::DISK_NEARLY_FULL;
use crate::wire::api::{JobJson, List, LogLineJson, LogsJson, StepJson, StepLogsJson};

/// The virtual step whose log is what the server did about the job.
pub const SERVER: &str = "_server";

/// As many as one answer may hold.
const PAGE: usize = 1_000;

/// An answer that takes longer to begin does not come.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Args)]
#[command(before_help = "Examples:\n  \
    stepward logs latest                      all that the latest job printed\n  \
    stepward logs -f release@latest           from its first line on, until it ends\n  \
    stepward logs 42/unit --grep error -i     the lines of one step that hold a text\n  \
    stepward logs 42 --failed -n 20           the end of each step that failed")]
pub struct LogsArgs {
    /// Which job: 42, latest, release@latest, release@failed; with one of its steps as 42/unit.
    #[arg(value_name = "JOB[/STEP]", value_parser = name)]
    job: String,
    /// Which step; `_server` for what the server did about the job. Without it, all that ran.
    step: Option<String>,
    /// Goes on as more is printed, over retries, until the job ends.
    #[arg(short, long)]
    follow: bool,
    /// With --follow: exit as the job does.
    #[arg(long, requires = "follow")]
    exit_status: bool,
    /// So many lines of each step: the last ones, or those after --from.
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<u64>,
    /// From this line on; the first is 1.
    #[arg(long, value_name = "LINE", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// Only lines that hold this text.
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// --grep takes capital and small letters for the same.
    #[arg(short, long, requires = "grep")]
    ignore_case: bool,
    /// Only what was printed there.
    #[arg(short, long, value_enum)]
    stream: Option<Printed>,
    /// Another attempt than the last.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Every byte as it was printed, also to a terminal, and nothing before it.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// The time of each line, in UTC.
    #[arg(long)]
    timestamps: bool,
    /// Only steps that failed.
    #[arg(long, conflicts_with = "follow")]
    failed: bool,
    /// Also what the server did about the job, as step `_server`.
    #[arg(long)]
    server_log: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Printed {
    Stdout,
    Stderr,
    /// What the worker itself says, such as how it ended.
    Worker,
}

/// What of each log is wanted.
#[derive(Debug)]
pub struct Wanted {
    /// `None`: every step.
    pub step: Option<String>,
    pub server_log: bool,
    pub attempt: Option<u32>,
    pub from: Option<u64>,
    pub lines: Option<u64>,
    pub grep: Option<String>,
    pub ignore_case: bool,
    stream: Option<Printed>,
    /// Only what steps themselves printed.
    only_printed: bool,
}

pub fn run(args: LogsArgs) -> anyhow::Result<Exit> {
    let (job, step) = job_and_step(&args.job, args.step.as_deref())?;
    let remote = args.reach.server()?;
    let look = args.show.look();
    let style = LineStyle {
        form: match () {
            () if args.show.json => Form::Json,
            () if args.raw => Form::Plain,
            () => Form::for_people(&look),
        },
        look,
        timestamps: args.timestamps,
        raw: args.raw,
    };
    let wanted = Wanted {
        step,
        server_log: args.server_log,
        attempt: args.attempt,
        from: args.from,
        lines: args.lines,
        grep: args.grep.filter(|text| !text.is_empty()),
        ignore_case: args.ignore_case,
        stream: args.stream,
        only_printed: style.form == Form::Plain && args.stream.is_none(),
    };
    let found: JobJson = remote.get(&format!("/api/jobs/{}", in_url(&job)))?;
    wanted.check(&found)?;
    if args.follow {
        let ended = log_follow::follow(&remote, found, &wanted, style, Company::Alone)?;
        if let Some(job) = &ended {
            say(ending(job));
        }
        let exit = ended.filter(|_| args.exit_status);
        let exit = exit.and_then(|job| Exit::of_job(&job));
        return Ok(exit.unwrap_or(Exit::Success));
    }
    let logs = Logs {
        remote: &remote,
        job: &found,
        wanted: &wanted,
        style,
    };
    logs.show(args.failed)?;
    Ok(Exit::Success)
}

/// `job 3 failed in 2.1s: step unit failed`.
fn ending(job: &JobJson) -> String {
    let begun = job.started_at.unwrap_or(job.created_at);
    let ended = job.ended_at.unwrap_or(begun);
    let message = job.message.as_deref().map(printable);
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    let took = duration(ended.0.0 - begun.0.0);
    format!("job {} {} in {took}{message}", job.id, job.status)
}

/// `42/unit`, or the step as a word of its own.
fn job_and_step(job: &str, step: Option<&str>) -> anyhow::Result<(String, Option<String>)> {
    let (job, with_job) = match job.split_once('/') {
        Some((job, step)) => (job, Some(step)),
        None => (job, None),
    };
    match (with_job, step) {
        (Some(one), Some(other)) => Err(Fault::usage(format!(
            "two steps are named, {one} and {other}: name one"
        ))),
        (one, other) => {
            let step = one.or(other).filter(|step| !step.is_empty());
            for word in step.into_iter().chain([job]) {
                name(word).map_err(|fault| Fault::usage(format!("{word:?}: {fault}")))?;
            }
            Ok((job.to_string(), step.map(str::to_string)))
        }
    }
}

impl Wanted {
    /// Every line of every step.
    pub fn all_of(form: Form) -> Wanted {
        Wanted {
            step: None,
            server_log: false,
            attempt: None,
            from: None,
            lines: None,
            grep: None,
            ignore_case: false,
            stream: None,
            only_printed: form == Form::Plain,
        }
    }

    /// The step that was named is one of the job's.
    fn check(&self, job: &JobJson) -> anyhow::Result<()> {
        let Some(step) = self.step.as_deref().filter(|step| *step != SERVER) else {
            return Ok(());
        };
        let names = steps(job).map(|step| step.name.as_str());
        let names: Vec<&str> = names.chain([SERVER]).collect();
        if names.contains(&step) || step.ends_with(']') {
            return Ok(());
        }
        Err(Fault::not_found(format!(
            "job {} has no step {}{}",
            job.id,
            printable(step),
            did_you_mean(step, names)
        )))
    }

    pub fn wants(&self, step: &str) -> bool {
        match &self.step {
            Some(wanted) => wanted == step,
            None => step != SERVER || self.server_log,
        }
    }

    /// Whether it was printed where it should be.
    fn wants_stream(&self, line: &LogLineJson) -> bool {
        let is_worker = line.stream == "worker" && line.at.is_some();
        self.stream
            .map_or(!(is_worker && self.only_printed), |stream| match stream {
                Printed::Stdout => line.stream == "stdout",
                Printed::Stderr => line.stream == "stderr",
                Printed::Worker => is_worker,
            })
    }

    /// Where the last lines begin, of which there are as many as wanted. What the worker says at the end is none of them where it
    /// is not shown.
    pub fn begin_of_last(&self, lines: u64, end: &LogsJson) -> u64 {
        if lines == 0 {
            return end.total_lines + 1;
        }
        let hidden =
            |line: &&LogLineJson| self.only_printed && line.stream == "worker" && line.at.is_some();
        let shown = end.lines.iter().rev().filter(|line| !hidden(line));
        let first = usize::try_from(lines - 1)
            .ok()
            .and_then(|n| shown.clone().nth(n));
        first.map_or_else(
            || {
                let hidden = end.lines.iter().filter(hidden).count() as u64;
                end.total_lines.saturating_sub(lines.saturating_add(hidden)) + 1
            },
            |first| first.n,
        )
    }

    /// Of a line of which the server was asked nothing.
    pub fn wants_line(&self, line: &LogLineJson) -> bool {
        self.wants_stream(line)
            && self.grep.as_ref().is_none_or(|text| {
                let is_same = |part: &[u8]| part.eq_ignore_ascii_case(text.as_bytes());
                match self.ignore_case {
                    true => line.text.as_bytes().windows(text.len()).any(is_same),
                    false => line.text.contains(text),
                }
            })
    }

    fn has_filter(&self) -> bool {
        self.grep.is_some() || self.stream.is_some()
    }
}

pub fn steps(job: &JobJson) -> impl Iterator<Item = &StepJson> {
    job.steps.iter().flatten()
}

/// The address of a log.
pub fn address(job_id: i64, step: &str, attempt: Option<u32>) -> String {
    let attempt = attempt.map_or_else(String::new, |attempt| format!("attempt={attempt}&"));
    format!("/api/jobs/{job_id}/steps/{}/logs?{attempt}", in_url(step))
}

/// The end of a log, with room for what the worker itself says there.
pub fn end_of(address: &str, lines: u64) -> String {
    const WORKER_LINES: u64 = 4;
    let n = lines.saturating_add(WORKER_LINES).min(PAGE as u64);
    format!("{address}tail={n}")
}

/// The next lines of a log, from one on.
pub fn page_from(address: &str, from: u64) -> String {
    format!("{address}from={from}&n={PAGE}")
}

/// The columns that names of steps need, if there are several.
pub fn columns(names: &[&str]) -> Option<usize> {
    /// A long name does not push all lines aside.
    const COLUMNS_MAX: usize = 24;
    let widest = names.iter().map(|name| width(name)).max();
    widest
        .filter(|_| names.len() > 1)
        .map(|widest| widest.min(COLUMNS_MAX))
}

/// Whoever reads has had enough.
struct Enough;

/// All that a job has printed so far.
struct Logs<'a> {
    remote: &'a Remote,
    job: &'a JobJson,
    wanted: &'a Wanted,
    style: LineStyle,
}

impl Logs<'_> {
    fn show(&self, only_failed: bool) -> anyhow::Result<()> {
        let is_shown = |step: &&StepJson| {
            self.wanted.wants(&step.name) && (!only_failed || step.status == "failed")
        };
        let shown: Vec<&StepJson> = steps(self.job).filter(is_shown).collect();
        self.say_what_is_elsewhere(&shown, only_failed);
        let least = self.wanted.attempt.unwrap_or(1);
        let mut logs: Vec<(&str, Option<u32>)> = shown
            .iter()
            .filter(|step| self.wanted.step.is_some() || step.attempt >= least)
            .filter(|step| step.attempt > 0)
            .map(|step| (step.name.as_str(), Some(step.attempt)))
            .collect();
        if let (true, Some(attempt)) = (logs.is_empty(), self.wanted.attempt) {
            let message = format!("no step of job {} has an attempt {attempt}", self.job.id);
            return Err(Fault::not_found(message));
        }
        if self.wanted.wants(SERVER) {
            logs.push((SERVER, None));
        }
        // Whether lines say whose they are does not depend on which of the steps have printed, or failed.
        let wanted = steps(self.job).filter(|step| self.wanted.wants(&step.name));
        let server = self.wanted.wants(SERVER).then_some(SERVER);
        let names = wanted.map(|step| step.name.as_str()).chain(server);
        let several = columns(&names.collect::<Vec<_>>());
        let mut is_empty = true;
        for (step, attempt) in logs {
            let origin = Origin {
                step,
                attempt: attempt.map(|last| self.wanted.attempt.unwrap_or(last)),
                columns: several,
            };
            match self.show_one(origin)? {
                Ok(printed) => is_empty &= !printed,
                Err(Enough) => return Ok(()),
            }
        }
        if is_empty {
            say(self.why_empty(only_failed, &shown));
        }
        self.say_what_may_be_missing();
        self.say_faults()
    }

    /// Logs that are not what their workers wrote.
    fn say_faults(&self) -> anyhow::Result<()> {
        let faults: Vec<(String, LogsJson)> = match (&self.wanted.step, self.wanted.attempt) {
            (Some(step), Some(attempt)) if step != SERVER => {
                let address = address(self.job.id, step, Some(attempt));
                vec![(step.clone(), self.remote.get(&end_of(&address, 1))?)]
            }
            _ => {
                let path = format!("/api/jobs/{}/logs?tail=1", self.job.id);
                let list: List<StepLogsJson> = self.remote.get(&path)?;
                let logs = list.items.into_iter();
                let wanted = logs.filter(|logs| self.wanted.wants(&logs.step));
                wanted.map(|logs| (logs.step, logs.logs)).collect()
            }
        };
        for (step, logs) in faults {
            let Some(fault) = logs.fault else { continue };
            let (step, kept, written) = (printable(&step), fault.kept_bytes, fault.written_bytes);
            say(match LogFault::from_word(&fault.kind) {
                Some(LogFault::Missing) => format!(
                    "the log of step {step} is not complete: {kept} of {written} bytes have come from its worker"
                ),
                Some(LogFault::Differs) => format!(
                    "the log of step {step} is not what its worker wrote ({kept} bytes here, {written} bytes there): it may be damaged"
                ),
                None => format!(
                    "the log of step {step} is not what its worker wrote: {}",
                    fault.kind
                ),
            });
        }
        Ok(())
    }

    /// On a disk that is nearly full logs are not taken any more: their workers keep them.
    fn say_what_may_be_missing(&self) {
        let health = self.remote.client.ready(PATIENCE);
        if health.is_ok_and(|health| health.warnings.iter().any(|it| it == DISK_NEARLY_FULL)) {
            say(format!(
                "{DISK_NEARLY_FULL}, so what was printed last may still wait at its worker: make room, and it comes"
            ));
        }
    }

    fn why_empty(&self, only_failed: bool, shown: &[&StepJson]) -> String {
        let job_id = self.job.id;
        if let Some(at) = self.job.logs_removed_at {
            return format!(
                "what job {job_id} printed was removed {}: retention.log_days says how long logs are kept",
                super::words::moment(at)
            );
        }
        match &self.wanted.step {
            _ if only_failed && shown.is_empty() => format!("no step of job {job_id} has failed"),
            _ if self.wanted.has_filter() || self.wanted.from.is_some() => {
                "no line is as asked for".to_string()
            }
            Some(step) => format!(
                "step {} of job {job_id} has printed nothing",
                printable(step)
            ),
            None if self.job.ended_at.is_none() => {
                format!("job {job_id} has printed nothing yet, wait for it with -f")
            }
            None => format!(
                "job {job_id} has no lines that its steps printed; `stepward why {job_id}` tells how they ended"
            ),
        }
    }

    /// A step that is a job of its own prints there.
    fn say_what_is_elsewhere(&self, shown: &[&StepJson], only_failed: bool) {
        // Whoever reads the lines of others does not need it.
        let is_alone = shown.iter().all(|step| step.child_job_id.is_some());
        let is_asked_for = only_failed || self.wanted.step.is_some() || is_alone;
        for step in shown.iter().filter(|_| is_asked_for) {
            if let Some(child) = step.child_job_id {
                say_child(&step.name, child);
            }
            self.say_instances(step);
        }
    }

    /// A loop prints nothing: its instances do.
    fn say_instances(&self, step: &StepJson) {
        const NAMED_MAX: usize = 5;
        let of_loop = format!("{}[", step.name);
        let instances = steps(self.job).filter(|one| one.name.starts_with(&of_loop));
        let names: Vec<String> = instances.map(|one| printable(&one.name)).collect();
        let (Some(first), Some(_)) = (names.first(), &self.wanted.step) else {
            return;
        };
        let dots = if names.len() > NAMED_MAX {
            ", and so on"
        } else {
            ""
        };
        say(format!(
            "step {} is a loop, its instances print: {}{dots}; stepward logs {} {}",
            printable(&step.name),
            names[..names.len().min(NAMED_MAX)].join(", "),
            self.job.id,
            shell_word(first)
        ));
    }

    /// Whether there was anything.
    fn show_one(&self, origin: Origin<'_>) -> anyhow::Result<Result<bool, Enough>> {
        let address = address(self.job.id, origin.step, origin.attempt);
        let is_text =
            self.style.form == Form::Plain && !self.style.timestamps && !self.wanted.has_filter();
        match is_text {
            true => self.copy(&address, origin),
            false if self.wanted.has_filter() && self.is_tail() => {
                self.last_found(&address, origin)
            }
            false => self.pages(&address, origin),
        }
    }

    fn is_tail(&self) -> bool {
        self.wanted.from.is_none() && self.wanted.lines.is_some()
    }

    /// Every byte as it is.
    fn copy(&self, address: &str, origin: Origin<'_>) -> anyhow::Result<Result<bool, Enough>> {
        let mut path = format!("{address}raw=1&printed=true");
        match (self.wanted.from, self.wanted.lines) {
            (None, Some(0)) => return Ok(Ok(true)),
            (None, Some(lines)) => {
                let end: LogsJson = self.remote.get(&end_of(address, lines))?;
                let from = self.wanted.begin_of_last(lines, &end);
                path.push_str(&format!("&from={from}"));
            }
            (Some(from), Some(lines)) => path.push_str(&format!("&from={from}&n={lines}")),
            (Some(from), None) => path.push_str(&format!("&from={from}")),
            (None, None) => {}
        }
        let opened = self.remote.client.text(&path, PATIENCE);
        let mut text = self.remote.heard(opened)?;
        let prefix = self.style.prefix(origin);
        let mut block = vec![0; 64 << 10];
        let (mut at_begin, mut printed) = (true, false);
        loop {
            let read = text.read(&mut block).map_err(|error| {
                let message = format!("the log broke off, ask again: {error}");
                Fault::new(Exit::Unreachable, message)
            })?;
            if read == 0 {
                return Ok(Ok(printed));
            }
            printed = true;
            let is_written = match prefix.is_empty() {
                true => print_bytes(&block[..read]),
                false => print_bytes(&prefixed(&block[..read], &prefix, &mut at_begin)),
            };
            if !is_written {
                return Ok(Err(Enough));
            }
        }
    }

    fn pages(&self, address: &str, origin: Origin<'_>) -> anyhow::Result<Result<bool, Enough>> {
        let mut from = self.wanted.from.unwrap_or(1);
        let mut left = self.wanted.lines.unwrap_or(u64::MAX);
        if self.is_tail() {
            let end: LogsJson = self.remote.get(&end_of(address, left))?;
            from = self.wanted.begin_of_last(left, &end);
        }
        let mut printed = false;
        while left > 0 {
            let page = self.page(address, from)?;
            let Some(last) = page.lines.last().map(|line| line.n) else {
                break;
            };
            let mut text = String::new();
            for line in &page.lines {
                if left > 0 && self.wanted.wants_stream(line) {
                    self.style.write(&mut text, origin, line);
                    left -= 1;
                }
            }
            printed |= !text.is_empty();
            if !print(&text) {
                return Ok(Err(Enough));
            }
            if last >= page.total_lines {
                break;
            }
            from = last + 1;
        }
        Ok(Ok(printed))
    }

    /// The last of what is found: it is looked for from the beginning, and as much as is wanted is kept.
    fn last_found(
        &self,
        address: &str,
        origin: Origin<'_>,
    ) -> anyhow::Result<Result<bool, Enough>> {
        let lines = self.wanted.lines.unwrap_or_default();
        let keep = usize::try_from(lines).unwrap_or(usize::MAX);
        let mut kept: VecDeque<LogLineJson> = VecDeque::new();
        let mut from = 1;
        loop {
            let page = self.page(address, from)?;
            let Some(last) = page.lines.last().map(|line| line.n) else {
                break;
            };
            for line in page.lines {
                if self.wanted.wants_stream(&line) {
                    kept.push_back(line);
                }
                if kept.len() > keep {
                    kept.pop_front();
                }
            }
            if last >= page.total_lines {
                break;
            }
            from = last + 1;
        }
        for line in &kept {
            let mut text = String::new();
            self.style.write(&mut text, origin, line);
            if !print(&text) {
                return Ok(Err(Enough));
            }
        }
        Ok(Ok(!kept.is_empty()))
    }

    /// The server looks for text itself, also in lines that are too long to be shown.
    fn page(&self, address: &str, from: u64) -> anyhow::Result<LogsJson> {
        let mut path = page_from(address, from);
        if let Some(grep) = &self.wanted.grep {
            path.push_str(&format!("&grep={}", in_url(grep)));
            path.push_str(if self.wanted.ignore_case {
                "&ignore_case=true"
            } else {
                ""
            });
        }
        self.remote.get(&path)
    }
}

/// Where a step that is a job of its own prints.
pub fn say_child(step: &str, child: i64) {
    let step = printable(step);
    say(format!("step {step} is job {child}: stepward logs {child}"));
}

/// With what each line begins with put before it, wherever the pieces of a text end.
fn prefixed(block: &[u8], prefix: &str, at_begin: &mut bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(block.len() + prefix.len());
    for line in block.split_inclusive(|byte| *byte == b'\n') {
        if *at_begin {
            text.extend_from_slice(prefix.as_bytes());
        }
        text.extend_from_slice(line);
        *at_begin = line.ends_with(b"\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_prefix_once_however_it_comes() {
        let mut at_begin = true;
        let mut text = Vec::new();
        for block in ["on", "e\ntwo\n", "", "three\n"] {
            text.extend(prefixed(block.as_bytes(), "a | ", &mut at_begin));
        }
        assert_eq!(text, b"a | one\na | two\na | three\n");
    }

    #[test]
    fn a_step_is_named_once() {
        let (job, step) = job_and_step("release@latest/unit", None).unwrap();
        assert_eq!(
            (job.as_str(), step.as_deref()),
            ("release@latest", Some("unit"))
        );
        assert!(job_and_step("1/a", Some("b")).is_err());
    }
}
