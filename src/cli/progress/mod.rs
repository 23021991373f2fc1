//! Shows how a job goes until it ends, and says how it ended: a block at the bottom of a terminal (`live`), lines elsewhere
//! (`lines`), JSON for programs.
//!
//! `looker` looks, `block` and `lines` make text of what was seen, `report` says what to know of a job that did not complete.
//! Progress goes to stderr; stdout is for what was asked for.

mod block;
mod lines;
mod live;
mod looker;
mod report;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use crossbeam_channel::{Receiver, after, never, select};

use super::exit::Exit;
use super::log_follow::beside;
use super::log_line::{Form, LineStyle};
use super::look::{Look, Show};
use super::reach::{Reach, Remote};
use super::say::{answer_json, say};
use super::words::{duration, printable, shell_word};
use crate::clock::{monotonic_ms, wall_time};
use crate::disk::free_bytes;
use crate::language;
use crate::wire::api::{CancelRequest, JobJson};
use crate::worker::marked::marked;
use block::{ROWS_LAST, ROWS_LIVE};
use lines::Changes;
use live::Live;
use looker::{Seen, Sight, Wants, look_at};

/// Between two drawings of the block.
const FRAME: Duration = Duration::from_millis(100);
/// For a server in this process to record that its job is cancelled.
const CANCEL_PATIENCE: Duration = Duration::from_secs(3);
const CANCEL_PAUSE: Duration = Duration::from_millis(500);
/// Until somebody makes room. Where nobody looks, nobody does.
const UNWELL_MS_MAX: i64 = 30_000;
/// A disk with less room takes no page of a database and no piece of a log.
const FULL_BYTES: u64 = 64 << 10;

#[derive(Args, Clone)]
#[command(next_help_heading = "How it is followed")]
pub struct FollowArgs {
    /// How it goes is told on stderr: `live` on a terminal, `lines` elsewhere, `none` with --json.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Progress::Auto)]
    pub progress: Progress,
    /// Waits no longer than this, such as 90, 5m or 1h30m, and exits with 124.
    #[arg(long, value_name = "DURATION", value_parser = waiting_time)]
    pub timeout: Option<Duration>,
    /// Prints on stdout what the steps print, while they do; how it goes is told in lines then.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    pub logs: bool,
    /// Prints what the job gave back on stdout, as JSON.
    #[arg(long)]
    pub output: bool,
    #[command(flatten)]
    pub show: Show,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    Auto,
    /// One block that is drawn again and again; needs a terminal.
    Live,
    /// One line for each change.
    Lines,
    /// Nothing, unless it fails.
    None,
}

pub fn waiting_time(text: &str) -> Result<Duration, String> {
    let ms = language::duration::parse(text)?;
    Ok(Duration::from_millis(ms.unsigned_abs()))
}

/// Where the job runs, and how the commands that come next reach it.
pub struct Place {
    /// What they need besides their own words.
    pub suffix: String,
    /// In this very process.
    pub here: Option<Here>,
}

pub struct Here {
    /// Where it is kept, if it is.
    pub data: Option<PathBuf>,
    /// Where everything is written.
    pub folder: PathBuf,
    pub worker_dir: PathBuf,
    /// What this machine could not offer, in sentences.
    pub remarks: Vec<String>,
}

impl Here {
    /// Whether a process of a step lives.
    fn is_working(&self) -> bool {
        let key = std::fs::read_to_string(self.worker_dir.join("instance"));
        key.is_ok_and(|key| !marked(key.trim()).is_empty())
    }
}

impl Place {
    /// Whoever said in a flag which server it is has to say so again.
    pub fn at_server(reach: &Reach) -> Place {
        let mut suffix = String::new();
        if let Some(url) = &reach.server
            && reach.server_is_typed()
        {
            suffix.push_str(&format!(" --server {}", shell_word(url)));
        }
        if let Some(file) = reach.token_file.as_ref().and_then(|file| file.to_str())
            && reach.token_file_is_typed()
        {
            suffix.push_str(&format!(" --token-file {}", shell_word(file)));
        }
        Place { suffix, here: None }
    }
}

pub struct Watched {
    pub exit: Exit,
    /// Nobody wants to wait for anything.
    pub at_once: bool,
}

/// Follows the job to its end, or to that of somebody's patience.
pub fn watch(
    remote: &Remote,
    job: &JobJson,
    place: &Place,
    args: &FollowArgs,
    signals: &Receiver<()>,
) -> anyhow::Result<Watched> {
    let mut teller = Teller::new(remote, job.id, place, args);
    let wants = Wants {
        details: teller.live.is_some(),
        whys: teller.live.is_some() || teller.lines,
        events: args.show.json,
        health: place.here.is_some(),
    };
    teller.begin(job);
    let sights = look_at(remote, job.id, wants)?;
    let logs = args.logs.then(|| logs_of(remote, job.id, args));
    let logs = logs.transpose()?;
    let mut deadline = args.timeout.map_or_else(never, after);
    // Whether it is recorded.
    let cancel = |teller: &mut Teller, why: &str| {
        let path = format!("/api/jobs/{}/cancel", job.id);
        let why = Some(why.to_string());
        let answer =
            remote
                .client
                .post::<_, JobJson>(&path, &CancelRequest { why }, CANCEL_PATIENCE);
        match remote.heard(answer) {
            Ok(_) => true,
            // It has ended: the next look tells how.
            Err(error) if Exit::of(&error) == Exit::Conflict => true,
            Err(error) => {
                teller.cannot_cancel(&format!("{error:#}"));
                false
            }
        }
    };
    // What it was told to end with.
    let mut ordered: Option<Exit> = None;
    let mut because = String::new();
    // A server that cannot write that down has its chances, but nobody waits for it for ever.
    let (mut cancel_again, mut give_up) = (never(), never());
    loop {
        let frame = teller.live.as_ref().map_or_else(never, |_| after(FRAME));
        select! {
            recv(sights) -> sight => match sight {
                Ok(Sight::Seen(seen)) => {
                    let is_over = seen.job.ended_at.is_some();
                    teller.see(*seen);
                    if !is_over && teller.is_beyond_help() {
                        teller.leave();
                        teller.note("it was waited for long enough; stopped at once");
                        return Ok(teller.stop(Exit::Error));
                    }
                    if is_over {
                        let mut at_once = false;
                        if let Some(printed) = &logs {
                            select! {
                                recv(printed) -> _ => {}
                                // Whoever does not want to wait for the rest of it knows by now how it ended.
                                recv(signals) -> _ => at_once = true,
                            }
                        }
                        let exit = teller.end(ordered);
                        return Ok(Watched { exit, at_once });
                    }
                }
                Ok(Sight::Lost) => teller.lost(),
                Ok(Sight::Refused(refused)) => {
                    teller.leave();
                    return Err(remote.heard::<()>(Err(refused)).unwrap_err());
                }
                Err(_) => anyhow::bail!("whoever looks at the job met a bug"),
            },
            recv(signals) -> _ => match (&place.here, ordered) {
                (None, _) => {
                    teller.detach("detached");
                    return Ok(teller.stop(Exit::Interrupted));
                }
                (Some(_), Some(Exit::Interrupted)) => {
                    teller.leave();
                    return Ok(teller.stop(Exit::Interrupted));
                }
                (Some(_), _) => {
                    teller.note("cancelling; once more to stop at once");
                    ordered = Some(Exit::Interrupted);
                    because = "Ctrl-C, or another signal to end".to_string();
                    cancel_again = after(Duration::ZERO);
                    give_up = after(CANCEL_PATIENCE);
                }
            },
            recv(cancel_again) -> _ => match cancel(&mut teller, &because) {
                true => (cancel_again, give_up) = (never(), never()),
                false => cancel_again = after(CANCEL_PAUSE),
            },
            recv(give_up) -> _ => {
                teller.leave();
                teller.note("that it is cancelled cannot be recorded; stopped at once");
                return Ok(teller.stop(ordered.unwrap_or(Exit::Interrupted)));
            },
            recv(deadline) -> _ => {
                deadline = never();
                let waited = duration(args.timeout.unwrap_or_default().as_millis() as i64);
                if place.here.is_none() {
                    teller.detach(&format!("waited for {waited}"));
                    return Ok(teller.stop(Exit::WaitedTooLong));
                }
                if ordered.is_none() {
                    teller.note(&format!("waited for {waited}; the job runs in this process and is cancelled"));
                    ordered = Some(Exit::WaitedTooLong);
                    because = format!("it was waited for no longer than {waited}");
                    cancel_again = after(Duration::ZERO);
                    give_up = after(CANCEL_PATIENCE);
                }
            },
            recv(frame) -> _ => teller.draw(),
        }
    }
}

/// What the steps print, on stdout. Closed when all of it is there, or nobody reads it.
fn logs_of(
    remote: &Remote,
    job_id: i64,
    args: &FollowArgs,
) -> std::io::Result<Receiver<Infallible>> {
    let look = args.show.look();
    let style = LineStyle {
        form: Form::for_people(&look),
        look,
        timestamps: false,
        raw: false,
    };
    beside(remote.clone(), job_id, style)
}

/// Where nothing more can be written.
fn full(folder: &Path) -> Option<String> {
    let is_full = free_bytes(folder).ok()? < FULL_BYTES;
    is_full.then(|| "the disk is full".to_string())
}

/// Says what there is to say, in the way that was asked for.
struct Teller<'a> {
    remote: &'a Remote,
    place: &'a Place,
    args: &'a FollowArgs,
    job_id: i64,
    live: Option<Live>,
    lines: bool,
    changes: Changes,
    seen: Option<Seen>,
    drawn_at: Option<i64>,
    is_lost: bool,
    /// Since when the server in this process cannot go on.
    unwell_since_ms: Option<i64>,
    is_uncancellable: bool,
}

impl<'a> Teller<'a> {
    fn new(remote: &'a Remote, job_id: i64, place: &'a Place, args: &'a FollowArgs) -> Teller<'a> {
        let look = args.show.look.stderr();
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let progress = match args.progress {
            Progress::Auto if args.show.json => Progress::None,
            // Two that write to one terminal would write over each other.
            Progress::Auto | Progress::Live if args.logs => Progress::Lines,
            Progress::Auto | Progress::Live if look.is_terminal && !is_dumb => Progress::Live,
            Progress::Auto | Progress::Live => Progress::Lines,
            asked => asked,
        };
        Teller {
            remote,
            place,
            args,
            job_id,
            live: (progress == Progress::Live).then(|| Live::new(args.show.look)),
            lines: progress == Progress::Lines,
            changes: Changes::default(),
            seen: None,
            drawn_at: None,
            is_lost: false,
            unwell_since_ms: None,
            is_uncancellable: false,
        }
    }

    fn look(&self) -> Look {
        self.args.show.look.stderr()
    }

    fn begin(&mut self, job: &JobJson) {
        if self.live.is_none() && !self.lines {
            return;
        }
        let look = self.look();
        let place = match &self.place.here {
            Some(_) => "in this process".to_string(),
            None => format!("at {}", printable(&self.remote.url)),
        };
        let (task, dot) = (printable(&job.task), look.dot());
        self.put(&format!("{task} {dot} job {} {dot} {place}", job.id));
    }

    /// A line that stays, as it is.
    fn put(&mut self, line: &str) {
        match &mut self.live {
            Some(live) => live.put_above(line),
            None => lines::put(line),
        }
    }

    /// Something about ourselves.
    fn note(&mut self, line: &str) {
        match &self.live {
            Some(_) => {
                self.put(&format!("stepward: {line}"));
                self.drawn_at = None;
                self.draw();
            }
            None => say(line),
        }
    }

    fn lost(&mut self) {
        if !self.is_lost {
            self.is_lost = true;
            self.note("the server does not answer, trying again");
        }
    }

    /// Said once, however often it is tried.
    fn cannot_cancel(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_uncancellable, true) {
            self.note(why);
        }
    }

    fn see(&mut self, mut seen: Seen) {
        if let Some(here) = &self.place.here {
            let problem = seen.problem.take().or_else(|| full(&here.folder));
            let folder = here.folder.display().to_string();
            self.is_well_but_for(problem, &folder);
        }
        if std::mem::take(&mut self.is_lost) {
            self.note("the server is back");
        }
        let look = self.look();
        let (json, lines) = (self.args.show.json, self.lines);
        if json {
            lines::tell_events(seen.job.id, std::mem::take(&mut seen.events));
        }
        let changes = self.changes.since_last(&seen.job);
        for change in &changes {
            if json {
                change.tell_json(&seen.job);
            }
            if lines && change.is_worth_a_line(&seen.job) {
                lines::put(&change.line(&seen.job, &look));
            }
        }
        if lines {
            for line in self.changes.new_whys(&seen, &look) {
                lines::put(&line);
            }
        }
        let asked: Vec<String> = (changes.iter())
            .filter_map(|change| change.decision(&seen.job))
            .collect();
        self.seen = Some(seen);
        for words in asked {
            let suffix = &self.place.suffix;
            let (approve, reject) = (format!("approve {words}"), format!("reject {words}"));
            self.note(&format!(
                "somebody must decide: stepward {approve}{suffix}, or stepward {reject}{suffix}"
            ));
        }
        self.draw();
    }

    fn is_well_but_for(&mut self, problem: Option<String>, folder: &str) {
        let Some(problem) = problem else {
            self.unwell_since_ms = None;
            return;
        };
        if self.unwell_since_ms.is_none() {
            self.unwell_since_ms = Some(monotonic_ms());
            let problem = printable(&problem);
            self.note(&format!(
                "the server in this process cannot go on: {problem}; make room where {folder} is"
            ));
        }
    }

    /// Nobody made room, and nobody is going to.
    fn is_beyond_help(&self) -> bool {
        let is_long_ago = |since_ms: i64| monotonic_ms() - since_ms > UNWELL_MS_MAX;
        let Some(here) = self.place.here.as_ref() else {
            return false;
        };
        // What still runs may end well.
        self.unwell_since_ms.is_some_and(is_long_ago) && !here.is_working()
    }

    fn draw(&mut self) {
        let now = monotonic_ms();
        let frame = FRAME.as_millis() as i64;
        if self.drawn_at.is_some_and(|at| now - at < frame) {
            return;
        }
        let (Some(live), Some(seen)) = (&mut self.live, &self.seen) else {
            return;
        };
        let look = live.look();
        let hint = match self.place.here {
            Some(_) => "Ctrl-C cancels",
            None => "Ctrl-C detaches",
        };
        let now_ms = wall_time().0;
        let room = Live::room(&look);
        // The footer, the line of what is left out, and the one that the cursor is in.
        let rows = Live::height().saturating_sub(3).clamp(1, ROWS_LIVE);
        let mut lines = block::steps(seen, &look, room, rows, now_ms);
        lines.push(block::footer(&seen.job, &look, now_ms, hint));
        live.draw(&lines, &look);
        self.drawn_at = Some(now);
    }

    /// What is drawn stays, and nothing is drawn any more.
    fn leave(&mut self) {
        self.drawn_at = None;
        self.draw();
        if let Some(live) = &mut self.live {
            live.leave();
        }
    }

    fn detach(&mut self, why: &str) {
        self.leave();
        let (job_id, suffix) = (self.job_id, &self.place.suffix);
        say(format!(
            "{why}; the job goes on\n  watch   stepward watch {job_id}{suffix}\n  cancel  stepward cancel {job_id}{suffix}"
        ));
    }

    fn stop(&self, exit: Exit) -> Watched {
        if self.args.show.json {
            lines::tell_end(exit, self.job_id, self.seen.as_ref().map(|seen| &seen.job));
        }
        Watched {
            exit,
            at_once: true,
        }
    }

    /// The job is over.
    fn end(&mut self, ordered: Option<Exit>) -> Exit {
        let seen = self.seen.take().expect("it was seen to end");
        let job = &seen.job;
        let outcome = Exit::of_job(job).unwrap_or(Exit::Error);
        let look = self.look();
        if let Some(live) = &mut self.live {
            let room = Live::room(&look);
            let lines = block::steps(&seen, &look, room, ROWS_LAST, wall_time().0);
            live.draw(&lines, &look);
            live.leave();
        }
        let exit = ordered.unwrap_or(outcome);
        let is_told = self.live.is_some() || self.lines || !self.args.show.json;
        if exit != Exit::Success && is_told {
            // Whoever wanted its end needs no explanation of it.
            let report = match (ordered, outcome) {
                (None, outcome) if outcome != Exit::Success => {
                    report::report(self.remote, job, self.place, &look)
                }
                _ => Vec::new(),
            };
            // The heading belongs between what failed and what comes next.
            let blank = report.iter().rposition(|line| line.is_empty());
            let (before, next) = report.split_at(blank.map_or(0, |at| at + 1));
            before.iter().for_each(|line| lines::put(line));
            lines::put(&block::last(job, &look).text(&look, usize::MAX));
            next.iter().for_each(|line| lines::put(line));
        } else if self.live.is_some() || self.lines {
            lines::put(&block::last(job, &look).text(&look, usize::MAX));
        }
        if self.args.show.json {
            lines::tell_end(exit, job.id, Some(job));
        } else if self.args.output {
            // Nobody reads it.
            let _ = answer_json(&job.output);
        }
        exit
    }
}
