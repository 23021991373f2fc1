//! `stepward logs -f` and `run --logs`: every line of every attempt once, in order, whatever becomes of the server meanwhile.
//!
//! What happens to the job is told by the event stream; how far a log has got is asked. A job is looked at before its logs are: what
//! was printed before it ended is there by then.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::thread::Builder;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use super::follow::{News, follow as follow_events};
use super::log_line::{LineStyle, Origin};
use super::logs::{SERVER, Wanted, address, columns, end_of, page_from, say_child, steps};
use super::reach::Remote;
use super::say::{in_words, nobody_reads, print, say};
use super::words::printable;
use crate::clock::monotonic_ms;
use crate::wire::api::{JobJson, JobWhyJson, LogsJson, StepJson};

/// How often the logs of what runs are asked for more.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the job is looked at though nothing was told of it.
const LOOK_MS: i64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(30);
/// What waits for longer is worth a line.
const WAITS_MS: i64 = 1_500;
/// What takes a moment has come by then.
const MORE_MS: i64 = 1_000;

/// How far the log of an attempt was shown.
struct Place {
    step: String,
    /// `None`: of what the server did.
    attempt: Option<u32>,
    next_line: u64,
    /// So many more.
    left: u64,
    /// So many of the last, which are to be found yet.
    last: Option<u64>,
    over: bool,
    /// It was said which attempt this is.
    is_told: bool,
}

/// What is told of a job besides what its steps print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Company {
    /// Nobody else tells of it: here it is said when the server is away, and where a step prints that is a job of its own.
    Alone,
    /// Somebody else says how it goes. What jobs within it print is shown as well, with this in front of the names of their steps.
    Beside(String),
}

struct Follower<'a> {
    remote: &'a Remote,
    job: JobJson,
    wanted: &'a Wanted,
    style: LineStyle,
    company: Company,
    /// Whoever follows the jobs within this one.
    within: Vec<Receiver<Infallible>>,
    places: Vec<Place>,
    /// Which steps are shown already, up to which attempt.
    begun: BTreeMap<String, u32>,
    /// Jobs within this one.
    children: BTreeSet<i64>,
    /// Those of which nothing was told yet, and their steps.
    new_children: Vec<(i64, String)>,
    columns: Option<usize>,
    outage: Outage,
    /// Why the job was said to wait.
    told_why: Option<String>,
}

/// Times at which the server was not there.
#[derive(Default)]
struct Outage {
    since_ms: Option<i64>,
    /// What a worker could not send until then may come until then.
    late_until_ms: Option<i64>,
}

/// Whoever reads has had enough.
struct Enough;

/// The job as it ended; `None` if nobody reads any more.
pub fn follow(
    remote: &Remote,
    job: JobJson,
    wanted: &Wanted,
    style: LineStyle,
    company: Company,
) -> anyhow::Result<Option<JobJson>> {
    let mut follower = Follower {
        remote,
        job,
        wanted,
        style,
        company,
        within: Vec::new(),
        places: Vec::new(),
        begun: BTreeMap::new(),
        children: BTreeSet::new(),
        new_children: Vec::new(),
        columns: None,
        outage: Outage::default(),
        told_why: None,
    };
    let outcome = follower.run()?;
    for one in follower.within {
        // Nothing is ever sent: it is closed in the end.
        let _ = one.recv();
    }
    Ok(outcome.ok().map(|()| follower.job))
}

impl Follower<'_> {
    fn run(&mut self) -> anyhow::Result<Result<(), Enough>> {
        let news = match self.job.ended_at {
            Some(_) => crossbeam_channel::never(),
            None => follow_events(self.remote, Some(self.job.id), None),
        };
        let begun_ms = monotonic_ms();
        let mut looked_ms = begun_ms;
        let mut is_fresh = true;
        loop {
            if std::mem::take(&mut is_fresh) {
                self.begin_logs()?;
            }
            if let Err(Enough) = self.show_more()? {
                return Ok(Err(Enough));
            }
            self.begin_children()?;
            let is_late = self.outage.since_ms.is_some()
                || (self.outage.late_until_ms).is_some_and(|until_ms| monotonic_ms() < until_ms);
            if !is_late {
                self.places.retain(|place| !place.over);
                if self.job.ended_at.is_some() {
                    return Ok(Ok(()));
                }
            }
            if nobody_reads() {
                return Ok(Err(Enough));
            }
            let mut is_told = false;
            if let Ok(first) = news.recv_timeout(PAUSE) {
                for told in std::iter::once(first).chain(news.try_iter()) {
                    match told {
                        News::Refused(error) => {
                            return Err(self.remote.heard::<()>(Err(error)).unwrap_err());
                        }
                        News::Lost(_) => self.outage.blinked(),
                        News::Connected | News::Told(_) => is_told = true,
                    }
                }
            }
            let is_running = self.job.ended_at.is_none();
            if is_running && (is_told || monotonic_ms() - looked_ms >= LOOK_MS) {
                let path = format!("/api/jobs/{}", self.job.id);
                if let Some(job) = self.ask(&path)? {
                    self.job = job;
                    is_fresh = true;
                    looked_ms = monotonic_ms();
                }
                self.tell_why(begun_ms)?;
            }
        }
    }

    /// `None`: the server is not there now.
    fn ask<A: serde::de::DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<Option<A>> {
        match self.remote.client.get(path, PATIENCE) {
            Ok(answer) => {
                if self.outage.ended() {
                    self.tell("the server answers again");
                }
                Ok(Some(answer))
            }
            Err(error) if error.passes() => {
                self.is_away();
                Ok(None)
            }
            refused => self.remote.heard(refused).map(Some),
        }
    }

    /// Whoever follows what nobody runs would see nothing, and not know why.
    fn tell_why(&mut self, begun_ms: i64) -> anyhow::Result<()> {
        let runs = |step: &StepJson| matches!(step.status.as_str(), "running" | "assigned");
        let is_quiet = self.job.ended_at.is_none() && !steps(&self.job).any(runs);
        if self.company != Company::Alone || !is_quiet || monotonic_ms() - begun_ms < WAITS_MS {
            return Ok(());
        }
        let path = format!("/api/jobs/{}/why", self.job.id);
        let Some(why) = self.ask::<JobWhyJson>(&path)? else {
            return Ok(());
        };
        let waits = why.steps.first();
        let (what, why) = match waits {
            Some(step) => (format!("step {}", printable(&step.step)), &step.why),
            None => (format!("job {}", self.job.id), &why.why),
        };
        if self.told_why.replace(why.code.clone()).as_ref() != Some(&why.code) {
            self.tell(&format!("{what} waits: {}", printable(&why.sentence)));
        }
        Ok(())
    }

    fn is_away(&mut self) {
        if self.outage.begun() {
            let url = &self.remote.url;
            self.tell(&format!(
                "the server at {url} does not answer, it is asked again and again"
            ));
        }
    }

    /// Something besides the lines, if nobody else says it.
    fn tell(&self, line: &str) {
        if self.company == Company::Alone {
            say(line);
        }
    }

    /// Of each attempt that there is by now.
    fn begin_logs(&mut self) -> anyhow::Result<()> {
        let mut new = Vec::new();
        let mut last = BTreeMap::new();
        for step in steps(&self.job).filter(|step| self.wanted.wants(&step.name)) {
            if let Some(child) = step.child_job_id
                && self.children.insert(child)
            {
                self.new_children.push((child, step.name.clone()));
            }
            let shown = self.begun.insert(step.name.clone(), step.attempt);
            let more = shown.unwrap_or(0) + 1..=step.attempt;
            let more = more.filter(|it| self.wanted.attempt.is_none_or(|wanted| wanted == *it));
            new.extend(more.map(|attempt| (step.name.clone(), Some(attempt))));
            last.insert(step.name.clone(), (step.attempt, step.ended_at.is_some()));
        }
        let server = SERVER.to_string();
        if self.wanted.wants(SERVER) && self.begun.insert(server.clone(), 1).is_none() {
            new.push((server, None));
        }
        for (step, attempt) in new {
            self.begin_log(step, attempt);
        }
        let is_ended = self.job.ended_at.is_some();
        for place in &mut self.places {
            let newest = last.get(&place.step).zip(place.attempt);
            let is_former =
                newest.is_some_and(|((last, ended), attempt)| *ended || attempt < *last);
            place.over = is_ended || is_former;
        }
        let of = self.company.prefix();
        let names: Vec<String> = self
            .begun
            .keys()
            .map(|name| format!("{of}{name}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.columns = match of {
            "" => columns(&names),
            // It may be the only one there: there are others around it.
            _ => columns(&[names.as_slice(), &[""]].concat()),
        };
        Ok(())
    }

    /// After what was printed before them.
    fn begin_children(&mut self) -> anyhow::Result<()> {
        for (child, step) in std::mem::take(&mut self.new_children) {
            match &self.company {
                Company::Alone => say_child(&step, child),
                Company::Beside(of) => {
                    let within = Company::Beside(format!("{of}{step}/"));
                    let path = format!("/api/jobs/{child}");
                    match self.ask(&path)? {
                        Some(job) => {
                            let (remote, style) = (self.remote.clone(), self.style);
                            self.within.push(beside(remote, job, style, within)?);
                        }
                        // The server is not there now.
                        None => self.new_children.push((child, step)),
                    }
                }
            }
        }
        Ok(())
    }

    fn begin_log(&mut self, step: String, attempt: Option<u32>) {
        let (from, lines) = (self.wanted.from, self.wanted.lines);
        self.places.push(Place {
            step,
            attempt,
            next_line: from.unwrap_or(1),
            left: lines.filter(|_| from.is_some()).unwrap_or(u64::MAX),
            last: lines.filter(|_| from.is_none()),
            over: false,
            is_told: false,
        });
    }

    /// All that is there of the logs that may have grown.
    fn show_more(&mut self) -> anyhow::Result<Result<(), Enough>> {
        let mut places = std::mem::take(&mut self.places);
        let mut outcome = Ok(Ok(()));
        for place in &mut places {
            outcome = self.show_place(place);
            if !matches!(outcome, Ok(Ok(()))) {
                break;
            }
        }
        self.places = places;
        outcome
    }

    fn show_place(&mut self, place: &mut Place) -> anyhow::Result<Result<(), Enough>> {
        let address = address(self.job.id, &place.step, place.attempt);
        self.tell_which(place);
        if let Some(lines) = place.last {
            let end = self.ask::<LogsJson>(&end_of(&address, lines))?;
            let Some(end) = end else {
                return Ok(Ok(()));
            };
            place.next_line = self.wanted.begin_of_last(lines, &end);
            place.last = None;
        }
        while place.left > 0 {
            let page: Option<LogsJson> = self.ask(&page_from(&address, place.next_line))?;
            let Some(mut page) = page else {
                return Ok(Ok(()));
            };
            // Its end is still to come; or never, if nobody is left to print it.
            if page.partial && !place.over {
                page.lines.pop();
            }
            let Some(last) = page.lines.last().map(|line| line.n) else {
                break;
            };
            let name = format!("{}{}", self.company.prefix(), place.step);
            let origin = Origin {
                step: &name,
                attempt: place.attempt,
                columns: self.columns,
            };
            let mut text = String::new();
            for line in &page.lines {
                if place.left > 0 && self.wanted.wants_line(line) {
                    self.style.write(&mut text, origin, line);
                    place.left -= 1;
                }
            }
            if !print(&text) {
                return Ok(Err(Enough));
            }
            place.next_line = last + 1;
            if last >= page.total_lines {
                break;
            }
        }
        Ok(Ok(()))
    }

    /// Before the first line of an attempt that is not the first.
    fn tell_which(&self, place: &mut Place) {
        if std::mem::replace(&mut place.is_told, true) {
            return;
        }
        if let Some(attempt) = place.attempt.filter(|attempt| *attempt > 1) {
            let step = printable(&place.step);
            self.tell(&format!("step {step}: attempt {attempt} begins"));
        }
    }
}

impl Company {
    fn prefix(&self) -> &str {
        match self {
            Company::Alone => "",
            Company::Beside(prefix) => prefix,
        }
    }
}

/// Prints what the steps of a job print, and those of jobs within it, while somebody else says how it goes. Closed when all of it is
/// printed, or nobody reads it any more.
pub fn beside(
    remote: Remote,
    job: JobJson,
    style: LineStyle,
    company: Company,
) -> std::io::Result<Receiver<Infallible>> {
    let (end, ended) = bounded(0);
    let follow = move || {
        let _open = end;
        let wanted = Wanted::all_of(style.form);
        if let Err(error) = follow(&remote, job, &wanted, style, company) {
            say(printable(&in_words(&error)));
        }
    };
    Builder::new().name("logs".to_string()).spawn(follow)?;
    Ok(ended)
}

impl Outage {
    /// It may have been away for a moment.
    fn blinked(&mut self) {
        let until_ms = Some(monotonic_ms() + MORE_MS);
        self.late_until_ms = self.late_until_ms.max(until_ms);
    }

    /// Whether that is new.
    fn begun(&mut self) -> bool {
        let is_new = self.since_ms.is_none();
        self.since_ms.get_or_insert_with(monotonic_ms);
        is_new
    }

    /// Workers try again after pauses that double: what they have comes after as long again as the server was away, at most.
    /// Whether that is new.
    fn ended(&mut self) -> bool {
        const PAUSE_MAX_MS: i64 = 30_000;
        let Some(since_ms) = self.since_ms.take() else {
            return false;
        };
        let now_ms = monotonic_ms();
        let away_ms = (now_ms - since_ms).min(PAUSE_MAX_MS);
        self.late_until_ms = Some(now_ms + away_ms + MORE_MS);
        true
    }
}
