//! What is said when workflow files change: each in a line, with the time and what is served now.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cli::say::tell;
use crate::cli::words::{count, printable, shell_path, time_of_day};
use crate::clock::wall_time;
use crate::language::Reloaded;
use crate::server::OnReload;
use crate::wire::Time;

/// Of one look. A branch that was checked out may change them all.
const LINES_MAX: usize = 10;

#[derive(Default)]
pub struct Reloads {
    /// Files that are served as they were, or not at all.
    broken: BTreeSet<PathBuf>,
    looks: u64,
}

impl Reloads {
    pub fn telling() -> OnReload {
        let mut reloads = Reloads::default();
        Box::new(move |reloaded| {
            for line in reloads.lines(reloaded) {
                let now = time_of_day(Time::from(wall_time()));
                tell(format!("{} {line}", &now[..8]));
            }
        })
    }

    fn lines(&mut self, reloaded: &Reloaded) -> Vec<String> {
        let broken: BTreeSet<PathBuf> = reloaded
            .stale
            .iter()
            .chain(&reloaded.left_out)
            .cloned()
            .collect();
        let mut concerned: BTreeSet<PathBuf> = reloaded.touched.iter().cloned().collect();
        concerned.extend(self.broken.symmetric_difference(&broken).cloned());
        self.looks += 1;
        // The first look is told by the banner.
        let is_first = self.looks == 1;
        let all = concerned.iter().filter(|_| !is_first);
        let mut lines: Vec<String> = all.map(|path| self.line(path, &broken, reloaded)).collect();
        self.broken = broken;
        if lines.len() > LINES_MAX {
            let more = lines.split_off(LINES_MAX).len();
            lines.push(format!("and {} more", count(more, "file")));
        }
        lines
    }

    fn line(&self, path: &Path, broken: &BTreeSet<PathBuf>, reloaded: &Reloaded) -> String {
        let name = path.display().to_string();
        let own = |found: &&crate::language::Diagnostic| found.is_error() && found.at.file == name;
        let mut errors = reloaded.diagnostics.iter().filter(own);
        let first = errors.next();
        let more = errors.count();
        let name = printable(&name);
        let served = match () {
            () if reloaded.stale.iter().any(|stale| stale == path) => {
                "the last good version is served"
            }
            () if reloaded.left_out.iter().any(|left| left == path) => "it is not served",
            () => "what was good is served",
        };
        let tasks = count(reloaded.workflows.tasks().count(), "task");
        match first {
            Some(first) => {
                let (line, what) = (first.at.line, printable(&first.message));
                let more = match more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let validate = format!("stepward validate {}", shell_path(path));
                format!("{name} line {line}: {what}{more}; {served}; {validate} shows it")
            }
            None if broken.contains(path) => {
                format!("{name} does not fit what is served, {served}")
            }
            None if !path.exists() => format!("{name} removed, {tasks}"),
            None if self.broken.contains(path) => format!("{name} mended, {tasks}"),
            None => format!("{name} reloaded, {tasks}"),
        }
    }
}
