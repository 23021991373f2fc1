//! `stepward doctor`: what is wrong with an installation, and how to mend it. One file per group of checks.
//!
//! A check looks and says; it changes nothing, and what it finds keeps no other from looking. What is asked more than once, such
//! as the server, is asked by the `case` once.

mod backup;
mod case;
mod configuration;
mod database;
mod disk;
mod schedules;
mod server;
mod tools;
mod workers;
mod workflows;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::exit::Exit;
use super::look::{Ink, Look, Show};
use super::reach::Reach;
use super::say::{answer_json, print};
use super::words::{count, printable, wrap};
use case::Case;

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward doctor
  stepward doctor database disk --data-dir /var/lib/stepward
  stepward doctor --json --server https://jobs.example.org --token-file token")]
pub struct DoctorArgs {
    /// What to look at; everything if none is named.
    #[arg(value_enum, value_name = "GROUP")]
    groups: Vec<Group>,
    /// The settings file of the server; else that of this folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data folder; else that of its settings.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Settings files, token file, variables.
    Configuration,
    /// Sound, its rules, its size, its backup.
    Database,
    /// Free, and for how long.
    Disk,
    /// Whether the server answers, and can work.
    Server,
    /// Whether recovery is awake.
    Sweeper,
    /// Whether the clocks agree.
    Clock,
    /// Who is silent, inactive, paused, of another version.
    Workers,
    /// What steps need and nobody offers.
    Tags,
    /// What does not fire.
    Schedules,
    /// Files that do not load.
    Workflows,
    /// Secrets that cannot be found.
    Secrets,
    /// Whether docker and kubectl answer.
    Tools,
}

/// A check, or why it cannot look.
type Looked = Result<Vec<Finding>, Finding>;
type Check = fn(&Case) -> Looked;

/// (group, its word, its check)
#[rustfmt::skip]
const GROUPS: [(Group, &str, Check); 12] = [
    (Group::Configuration, "configuration", configuration::look),
    (Group::Database,      "database",      database::look),
    (Group::Disk,          "disk",          disk::look),
    (Group::Server,        "server",        server::look),
    (Group::Sweeper,       "sweeper",       server::sweeper),
    (Group::Clock,         "clock",         server::clock),
    (Group::Workers,       "workers",       workers::look),
    (Group::Tags,          "tags",          workers::tags),
    (Group::Schedules,     "schedules",     schedules::look),
    (Group::Workflows,     "workflows",     workflows::look),
    (Group::Secrets,       "secrets",       workflows::secrets),
    (Group::Tools,         "tools",         tools::look),
];

/// Nobody reads more of one kind; how many there are is said.
const FINDINGS_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warning,
    Problem,
    Skipped,
}

/// One line of what was found, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    status: Status,
    message: String,
    fix: Vec<String>,
}

#[derive(Serialize)]
struct CheckJson {
    name: &'static str,
    status: Status,
    message: String,
    fix: Vec<String>,
}

#[derive(Serialize)]
struct DoctorJson {
    checks: Vec<CheckJson>,
    problems: usize,
    warnings: usize,
}

pub fn run(args: DoctorArgs) -> anyhow::Result<Exit> {
    let case = Case::new(args.config, args.data_dir, args.reach);
    let is_asked = |group| args.groups.is_empty() || args.groups.contains(&group);
    let asked = GROUPS.iter().filter(|(group, ..)| is_asked(*group));
    let look = args.show.look();
    let mut checks = Vec::new();
    let (mut problems, mut warnings) = (0, 0);
    for (_, name, check) in asked {
        let found = check(&case).unwrap_or_else(|reason| vec![reason]);
        let of = |status| found.iter().filter(|one| one.status == status).count();
        problems += of(Status::Problem);
        warnings += of(Status::Warning);
        for finding in at_most(found) {
            let check = CheckJson {
                name,
                status: finding.status,
                message: printable(&finding.message),
                fix: finding.fix.iter().map(|fix| printable(fix)).collect(),
            };
            // Some take a while: each is said when it is known.
            if !args.show.json {
                let former = checks.last().map(|check: &CheckJson| check.fix.as_slice());
                print(&in_words(&check, former.unwrap_or_default(), &look));
            }
            checks.push(check);
        }
    }
    let exit = match problems {
        0 => Exit::Success,
        _ => Exit::Error,
    };
    match args.show.json {
        true => answer_json(&DoctorJson {
            checks,
            problems,
            warnings,
        }),
        false => {
            let (problems, warnings) = (count(problems, "problem"), count(warnings, "warning"));
            print(&format!("{problems}, {warnings}\n"))
        }
    };
    Ok(exit)
}

fn at_most(mut found: Vec<Finding>) -> Vec<Finding> {
    // The worst come first, if not all of them come.
    if found.len() > FINDINGS_MAX {
        found.sort_by_key(|finding| finding.status != Status::Problem);
        let more = found.len() - FINDINGS_MAX;
        let rest = found.split_off(FINDINGS_MAX);
        let first = &rest[0];
        let same_fix = rest.iter().all(|finding| finding.fix == first.fix);
        found.push(Finding {
            status: first.status,
            message: format!("and {more} more of this kind that are not shown"),
            fix: match same_fix {
                true => first.fix.clone(),
                false => vec!["mend these first, and ask again".to_string()],
            },
        });
    }
    found
}

/// What is mended in the same way as the former one is not told twice.
fn in_words(check: &CheckJson, former_fix: &[String], look: &Look) -> String {
    let (unicode, ascii, word, ink) = match check.status {
        Status::Ok => ("✔", "+", "ok", Ink::Good),
        Status::Warning => ("▲", "!", "warning", Ink::Busy),
        Status::Problem => ("✘", "x", "PROBLEM", Ink::Bad),
        Status::Skipped => ("○", "-", "skipped", Ink::Faint),
    };
    let sign = if look.unicode { unicode } else { ascii };
    let head = look.paint(ink, &format!("{sign} {word:<8}"));
    let mut text = format!("{head} {:<14}", check.name);
    // Where there is little room, what is said begins below.
    let indent = if look.is_narrow() { 4 } else { 26 };
    if look.is_narrow() {
        text = format!("{}\n{:indent$}", text.trim_end(), "");
    } else {
        text.push(' ');
    }
    let room = look.width.unwrap_or(usize::MAX).saturating_sub(indent);
    let hanging = |said: &str, by: usize| {
        let lines = wrap(said, room.saturating_sub(by));
        lines.join(&format!("\n{:1$}", "", indent + by))
    };
    text.push_str(&format!("{}\n", hanging(&check.message, 0)));
    let is_new = check.fix != former_fix;
    for fix in check.fix.iter().filter(|_| is_new) {
        let fix = hanging(fix, "fix: ".len());
        text.push_str(&format!("{:indent$}fix: {fix}\n", ""));
    }
    text
}

impl Finding {
    fn new(status: Status, message: impl Into<String>) -> Finding {
        Finding {
            status,
            message: message.into(),
            fix: Vec::new(),
        }
    }

    fn ok(message: impl Into<String>) -> Finding {
        Finding::new(Status::Ok, message)
    }

    fn warning(message: impl Into<String>) -> Finding {
        Finding::new(Status::Warning, message)
    }

    fn problem(message: impl Into<String>) -> Finding {
        Finding::new(Status::Problem, message)
    }

    fn skipped(message: impl Into<String>) -> Finding {
        Finding::new(Status::Skipped, message)
    }

    fn fix(mut self, line: impl Into<String>) -> Finding {
        self.fix.push(line.into());
        self
    }
}

/// All is well, unless something was found.
fn or_well(found: Vec<Finding>, well: impl FnOnce() -> String) -> Vec<Finding> {
    match found.is_empty() {
        true => vec![Finding::ok(well())],
        false => found,
    }
}
