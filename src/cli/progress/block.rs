//! A job and its steps in a few lines, as wide as there is room: from what was seen to text, nothing else.

use super::looker::Seen;
use crate::cli::log_line::harmless;
use crate::cli::look::{Ink, Look};
use crate::cli::words::{duration, fit, printable, width};
use crate::wire::api::{JobJson, StepJson};

/// Rows of steps while it goes on.
pub const ROWS_LIVE: usize = 12;
/// Rows of steps that stay.
pub const ROWS_LAST: usize = 60;
/// A name takes no more than this of a line.
const NAME_SHARE: usize = 3;
const STATUS_WIDTH: usize = 9;
const DURATION_WIDTH: usize = 6;

/// A line in parts, each in its own ink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(Vec<(String, Option<Ink>)>);

impl Line {
    fn put(&mut self, text: impl Into<String>, ink: Option<Ink>) {
        self.0.push((text.into(), ink));
    }

    /// Cut to the room there is, in colour if there is any.
    pub fn text(&self, look: &Look, room: usize) -> String {
        let mut left = room;
        let mut text = String::new();
        let mut rest: usize = self.0.iter().map(|(part, _)| width(part)).sum();
        for (part, ink) in &self.0 {
            // Where more follows than there is room for, the ellipsis has to fit as well.
            let room = match rest > left {
                true => left.saturating_sub(width(look.ellipsis())),
                false => left,
            };
            let is_last = width(part) > room;
            let shown = match is_last {
                true => fit(
                    &format!("{part}{}", " ".repeat(left)),
                    left,
                    look.ellipsis(),
                ),
                false => part.clone(),
            };
            text.push_str(&match ink {
                Some(ink) => look.paint(*ink, &shown),
                None => shown,
            });
            if is_last {
                break;
            }
            left -= width(part);
            rest -= width(part);
        }
        text
    }
}

struct Row<'a> {
    step: &'a StepJson,
    /// Of a loop: how its instances are.
    instances: Vec<&'a str>,
}

/// `test[2]` is an instance of a loop, not a step that somebody wrote.
pub fn is_instance(name: &str) -> bool {
    base(name).is_some()
}

fn base(name: &str) -> Option<&str> {
    let (base, item) = name.strip_suffix(']')?.rsplit_once('[')?;
    let is_number = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(base)
}

fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "skipped" | "cancelled")
}

fn rows(job: &JobJson) -> Vec<Row<'_>> {
    let mut rows: Vec<Row> = Vec::new();
    for step in job.steps.as_deref().unwrap_or_default() {
        let of_loop = base(&step.name)
            .and_then(|base| rows.iter_mut().rev().find(|row| row.step.name == base));
        match of_loop {
            Some(row) => row.instances.push(&step.status),
            None => rows.push(Row {
                step,
                instances: Vec::new(),
            }),
        }
    }
    rows
}

/// The steps, `rows_max` of them at most: those that run, failed or wait before those that are over or yet to come.
pub fn steps(seen: &Seen, look: &Look, room: usize, rows_max: usize, now_ms: i64) -> Vec<Line> {
    let all = rows(&seen.job);
    let rank = |row: &Row| match row.step.status.as_str() {
        "running" | "assigned" => 0,
        "failed" => 1,
        "ready" | "suspended" => 2,
        "pending" => 3,
        _ => 4,
    };
    let mut chosen: Vec<usize> = (0..all.len()).collect();
    chosen.sort_by_key(|&at| rank(&all[at]));
    chosen.truncate(rows_max);
    chosen.sort();
    let widest = chosen
        .iter()
        .map(|&at| width(&printable(&all[at].step.name)));
    let names = widest.max().unwrap_or(0).min((room / NAME_SHARE).max(8));
    let mut lines: Vec<Line> = (chosen.iter())
        .map(|&at| line(&all[at], seen, look, names, now_ms))
        .collect();
    let hidden = all.len() - chosen.len();
    if hidden > 0 {
        let others = (0..all.len()).filter(|at| !chosen.contains(at));
        let statuses: Vec<&str> = others.map(|at| all[at].step.status.as_str()).collect();
        let (ellipsis, counted) = (look.ellipsis(), counted(&statuses));
        let mut line = Line::default();
        let text = format!("  {ellipsis} and {hidden} more: {counted}");
        line.put(text, Some(Ink::Faint));
        lines.push(line);
    }
    lines
}

/// `3 completed, 1 running`
fn counted(statuses: &[&str]) -> String {
    const ORDER: [&str; 9] = [
        "failed",
        "cancelled",
        "running",
        "assigned",
        "ready",
        "suspended",
        "completed",
        "skipped",
        "pending",
    ];
    let counted = ORDER.iter().filter_map(|status| {
        let count = statuses.iter().filter(|one| *one == status).count();
        (count > 0).then(|| format!("{count} {status}"))
    });
    counted.collect::<Vec<_>>().join(", ")
}

fn line(row: &Row, seen: &Seen, look: &Look, names: usize, now_ms: i64) -> Line {
    let step = row.step;
    let status = step.status.as_str();
    let name = fit_both_ends(&shown(&step.name, look), names, look.ellipsis());
    let pad = " ".repeat(names - width(&name));
    let ink = Look::ink(status);
    let mut line = Line::default();
    line.put("  ", None);
    line.put(look.sign(status), Some(ink));
    line.put(format!(" {name}{pad}  "), None);
    line.put(format!("{status:STATUS_WIDTH$}"), Some(ink));
    let took = lasted(step, now_ms).map(duration).unwrap_or_default();
    line.put(format!(" {took:>DURATION_WIDTH$}"), None);
    let text = told(row, seen);
    if !text.is_empty() {
        let ink = match status {
            "failed" => Some(Ink::Bad),
            _ => Some(Ink::Faint),
        };
        line.put("  ", None);
        line.put(shown(&text, look), ink);
    }
    line
}

/// What others wrote, without its colours, in the letters that there are.
fn shown(text: &str, look: &Look) -> String {
    printable(&harmless(text, false, look.unicode))
}

/// As much of the beginning and of the end as fits: names that begin alike are told apart by their ends.
fn fit_both_ends(text: &str, columns: usize, ellipsis: &str) -> String {
    let room = columns.saturating_sub(width(ellipsis));
    if width(text) <= columns || room < 4 {
        return fit(text, columns, ellipsis);
    }
    let begin = fit(text, room - room / 2, "");
    let mut end = text;
    while width(end) > room / 2 {
        let mut chars = end.chars();
        chars.next();
        end = chars.as_str();
    }
    format!("{begin}{ellipsis}{end}")
}

pub fn lasted(step: &StepJson, now_ms: i64) -> Option<i64> {
    let begun = step.started_at?;
    let ended = match (step.ended_at, step.status.as_str()) {
        (Some(ended), _) => ended.0.0,
        (None, "ready" | "pending") => return None,
        (None, _) => now_ms,
    };
    Some(ended - begun.0.0)
}

/// What is worth knowing of a step besides its state.
fn told(row: &Row, seen: &Seen) -> String {
    let step = row.step;
    let message = || step.message.clone().unwrap_or_default();
    let tail = || seen.tails.get(&step.name).cloned();
    let tries = match step.attempt > 1 && step.status == "running" {
        true => format!("try {} of {}: ", step.attempt, step.max_attempts),
        false => String::new(),
    };
    let text = match step.status.as_str() {
        _ if !row.instances.is_empty() => {
            let over = row.instances.iter().filter(|one| is_over(one)).count();
            let all = row.instances.len();
            let bad: Vec<&str> = (row.instances.iter().copied())
                .filter(|one| !matches!(*one, "completed" | "pending"))
                .collect();
            let bad = counted(&bad);
            let joint = if bad.is_empty() { "" } else { ", " };
            format!("{over} of {all} done{joint}{bad}")
        }
        "pending" => waits_for(step, &seen.job),
        "ready" | "suspended" => match seen.whys.get(&step.name) {
            Some(why) => why.sentence.clone(),
            None => message(),
        },
        "running" | "completed" => match (tail(), step.child_job_id) {
            (Some(tail), _) => tail,
            (None, Some(child)) => format!("as job {child}"),
            (None, None) => String::new(),
        },
        _ => message(),
    };
    tries + &text
}

fn waits_for(step: &StepJson, job: &JobJson) -> String {
    let open = |name: &str| {
        let steps = job.steps.as_deref().unwrap_or_default();
        let found = steps.iter().find(|step| step.name == name);
        found.is_none_or(|found| !is_over(&found.status))
    };
    let names: Vec<&str> = (step.depends_on.iter())
        .map(String::as_str)
        .filter(|name| open(name))
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("waits for {}", names.join(", ")),
    }
}

/// `2 of 5 done · 1 running · 3.4s · Ctrl-C cancels`
pub fn footer(job: &JobJson, look: &Look, now_ms: i64, hint: &str) -> Line {
    let rows = rows(job);
    let statuses: Vec<&str> = rows.iter().map(|row| row.step.status.as_str()).collect();
    let over = statuses.iter().filter(|status| is_over(status)).count();
    let mut parts = vec![format!("{over} of {} done", statuses.len())];
    for shown in ["running", "failed", "suspended"] {
        let count = statuses.iter().filter(|status| **status == shown).count();
        if count > 0 {
            parts.push(format!("{count} {shown}"));
        }
    }
    parts.push(duration(now_ms - job.created_at.0.0));
    parts.push(hint.to_string());
    let joint = format!(" {} ", look.dot());
    let mut line = Line::default();
    line.put("  ", None);
    line.put(parts.join(&joint), Some(Ink::Faint));
    line
}

/// `hello · job 1 · ✔ completed in 2.1s`
pub fn last(job: &JobJson, look: &Look) -> Line {
    let status = job.status.as_str();
    let mut line = Line::default();
    let (task, dot) = (printable(&job.task), look.dot());
    line.put(format!("{task} {dot} job {} {dot} ", job.id), None);
    line.put(
        format!("{} {status}", look.sign(status)),
        Some(Look::ink(status)),
    );
    if let Some(ended) = job.ended_at {
        let took = duration(ended.0.0 - job.created_at.0.0);
        line.put(format!(" in {took}"), None);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        colour: false,
        unicode: true,
        is_terminal: true,
        width: Some(40),
    };

    #[test]
    fn a_line_is_cut_where_the_room_ends() {
        let mut line = Line::default();
        line.put("  ", None);
        line.put("日本語", Some(Ink::Good));
        line.put(" and more", None);
        assert_eq!(line.text(&LOOK, 40), "  日本語 and more");
        assert_eq!(line.text(&LOOK, 12), "  日本語 an…");
        // Where a part ends is no reason to stop without a sign.
        assert_eq!(line.text(&LOOK, 9), "  日本語…");
        assert_eq!(line.text(&LOOK, 8), "  日本…");
        for room in 0..20 {
            assert!(width(&line.text(&LOOK, room)) <= room, "{room}");
        }
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(
            fit_both_ends("build-linux-arm64", 17, "…"),
            "build-linux-arm64"
        );
        assert_eq!(fit_both_ends("build-linux-arm64", 11, "…"), "build…arm64");
        assert_eq!(fit_both_ends("build-linux-arm64", 4, "…"), "bui…");
        for columns in 0..20 {
            assert!(width(&fit_both_ends("日本語の名前 and more", columns, "…")) <= columns);
        }
    }

    #[test]
    fn what_a_step_printed_is_shown_without_its_colours() {
        assert_eq!(shown("\x1b[32mgreen\x1b[0m\x07", &LOOK), "green\u{fffd}");
        let plain = Look {
            unicode: false,
            ..LOOK
        };
        assert_eq!(shown("bell\x07", &plain), "bell?");
    }

    #[test]
    fn instances_belong_to_their_loop() {
        assert_eq!(base("test[12]"), Some("test"));
        for name in ["test", "test[]", "test[x]", "[", "]"] {
            assert!(!is_instance(name), "{name}");
        }
    }
}
