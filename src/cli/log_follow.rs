//! `stepward logs -f` and `run --logs`: every line of every attempt once, in order, whatever becomes of the server meanwhile.
//!
//! What happens to the job is told by the event stream; how far a log has got is asked. A job is looked at before its logs are: what
//! was printed before it ended is there by then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use crate::clock::{monotonic_ms, wall_time};
use crate::wire::api::{JobJson, JobWhyJson, LogsJson, StepJson};

/// How often the logs of what runs are asked for more.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the job is looked at though nothing was told of it.
const LOOK_MS: i64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(30);
/// The same of jobs within, of which nobody tells.
const CHILD_LOOK_MS: i64 = 500;
/// Jobs within that are followed at a time: each of them is asked for again and again.
const CHILDREN_MAX: usize = 32;
/// What a worker is given to end a step, and a moment more.
const ENDING_MS: i64 = 15_000;
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
    /// The attempt was ended by others: until then its worker may still send what it printed meanwhile.
    ends_until_ms: Option<i64>,
    /// Its worker has said how it ended, and says no more.
    is_closed: bool,
    /// It was said which attempt this is.
    is_told: bool,
}

impl Place {
    fn is_done(&self) -> bool {
        let is_awaited = |until_ms: i64| monotonic_ms() < until_ms;
        let may_grow = !self.is_closed && self.left > 0;
        self.over && !(may_grow && self.ends_until_ms.is_some_and(is_awaited))
    }
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
    places: Vec<Place>,
    /// Which steps are shown already, up to which attempt.
    begun: BTreeMap<String, u32>,
    /// Those of jobs within this one.
    within: Vec<Follower<'a>>,
    /// Jobs within this one that were seen.
    children: BTreeSet<i64>,
    /// Those of which nothing was told yet, and their steps.
    waiting: VecDeque<(i64, String)>,
    columns: Option<usize>,
    outage: Outage,
    begun_ms: i64,
    looked_ms: i64,
    /// The job was looked at, and its logs were not yet.
    is_fresh: bool,
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
    let mut follower = Follower::new(remote, job, wanted, style, company);
    let outcome = follower.run()?;
    Ok(outcome.ok().map(|()| follower.job))
}

impl<'a> Follower<'a> {
    fn new(
        remote: &'a Remote,
        job: JobJson,
        wanted: &'a Wanted,
        style: LineStyle,
        company: Company,
    ) -> Follower<'a> {
        let now_ms = monotonic_ms();
        Follower {
            remote,
            job,
            wanted,
            style,
            company,
            places: Vec::new(),
            begun: BTreeMap::new(),
            within: Vec::new(),
            children: BTreeSet::new(),
            waiting: VecDeque::new(),
            columns: None,
            outage: Outage::default(),
            begun_ms: now_ms,
            looked_ms: now_ms,
            is_fresh: true,
            told_why: None,
        }
    }

    fn run(&mut self) -> anyhow::Result<Result<(), Enough>> {
        let news = match self.job.ended_at {
            Some(_) => crossbeam_channel::never(),
            None => follow_events(self.remote, Some(self.job.id), None),
        };
        let mut is_told = false;
        loop {
            match self.turn(is_told, LOOK_MS)? {
                Err(Enough) => return Ok(Err(Enough)),
                Ok(true) => return Ok(Ok(())),
                Ok(false) => {}
            }
            if nobody_reads() {
                return Ok(Err(Enough));
            }
            is_told = false;
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
        }
    }

    /// Shows all that there is by now. Whether it was all that there will be.
    fn turn(&mut self, is_told: bool, look_ms: i64) -> anyhow::Result<Result<bool, Enough>> {
        let is_due = is_told || monotonic_ms() - self.looked_ms >= look_ms;
        if is_due && self.job.ended_at.is_none() {
            let path = format!("/api/jobs/{}", self.job.id);
            if let Some(job) = self.ask(&path)? {
                self.job = job;
                self.is_fresh = true;
                self.looked_ms = monotonic_ms();
            }
            self.tell_why()?;
        }
        if std::mem::take(&mut self.is_fresh) {
            self.begin_logs();
        }
        if let Err(Enough) = self.show_more()? {
            return Ok(Err(Enough));
        }
        self.begin_children()?;
        for mut child in std::mem::take(&mut self.within) {
            match child.turn(false, CHILD_LOOK_MS)? {
                Err(Enough) => return Ok(Err(Enough)),
                Ok(true) => {}
                Ok(false) => self.within.push(child),
            }
        }
        let now_ms = monotonic_ms();
        let is_late = self.outage.since_ms.is_some()
            || (self.outage.late_until_ms).is_some_and(|until_ms| now_ms < until_ms);
        if is_late {
            return Ok(Ok(false));
        }
        self.places.retain(|place| !place.is_done());
        let nothing_comes =
            self.places.is_empty() && self.within.is_empty() && self.waiting.is_empty();
        Ok(Ok(self.job.ended_at.is_some() && nothing_comes))
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
    fn tell_why(&mut self) -> anyhow::Result<()> {
        let runs = |step: &StepJson| matches!(step.status.as_str(), "running" | "assigned");
        let is_quiet = self.job.ended_at.is_none() && !steps(&self.job).any(runs);
        let is_new = monotonic_ms() - self.begun_ms < WAITS_MS;
        if self.company != Company::Alone || !is_quiet || is_new {
            return Ok(());
        }
        let path = format!("/api/jobs/{}/why", self.job.id);
        let Some(why) = self.ask::<JobWhyJson>(&path)? else {
            return Ok(());
        };
        // It may have gone on, or ended, meanwhile.
        let waits = |status: &str| matches!(status, "pending" | "ready" | "suspended");
        let (what, why) = match why.steps.first() {
            Some(step) if waits(&step.status) => {
                (format!("step {}", printable(&step.step)), &step.why)
            }
            None if waits(&why.status) => (format!("job {}", self.job.id), &why.why),
            _ => return Ok(()),
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
    fn begin_logs(&mut self) {
        let mut new = Vec::new();
        let mut last = BTreeMap::new();
        for step in steps(&self.job).filter(|step| self.wanted.wants(&step.name)) {
            let shown = self.begun.insert(step.name.clone(), step.attempt);
            last.insert(step.name.clone(), step);
            // It prints nothing itself.
            if let Some(child) = step.child_job_id {
                if self.children.insert(child) {
                    self.waiting.push_back((child, step.name.clone()));
                }
                continue;
            }
            let more = shown.unwrap_or(0) + 1..=step.attempt;
            let more = more.filter(|it| self.wanted.attempt.is_none_or(|wanted| wanted == *it));
            new.extend(more.map(|attempt| (step.name.clone(), Some(attempt))));
        }
        let server = SERVER.to_string();
        if self.wanted.wants(SERVER) && self.begun.insert(server.clone(), 1).is_none() {
            new.push((server, None));
        }
        let new = new
            .into_iter()
            .map(|(step, attempt)| self.place(step, attempt));
        let new: Vec<Place> = new.collect();
        let is_ended = self.job.ended_at.is_some();
        self.places.extend(new);
        for place in &mut self.places {
            let of_step = last.get(&place.step).zip(place.attempt);
            let is_former = |(step, attempt): &(&&StepJson, u32)| *attempt < step.attempt;
            let has_ended = |(step, _): &(&&StepJson, u32)| step.ended_at.is_some();
            place.over = is_ended || of_step.is_some_and(|of| is_former(&of) || has_ended(&of));
            let last = of_step.filter(|of| !is_former(of));
            place.ends_until_ms = last.and_then(|(step, _)| ends_until_ms(step));
        }
        let of = self.company.prefix();
        let names = self.begun.keys().map(|name| format!("{of}{name}"));
        let names: Vec<String> = names.collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.columns = match of {
            "" => columns(&names),
            // It may be the only one there: there are others around it.
            _ => columns(&[names.as_slice(), &[""]].concat()),
        };
    }

    /// After what was printed before them; of very many, one after another.
    fn begin_children(&mut self) -> anyhow::Result<()> {
        while self.within.len() < CHILDREN_MAX
            && let Some((child, step)) = self.waiting.pop_front()
        {
            let company = match &self.company {
                Company::Alone => {
                    say_child(&step, child);
                    continue;
                }
                Company::Beside(of) => Company::Beside(format!("{of}{step}/")),
            };
            let Some(job) = self.ask(&format!("/api/jobs/{child}"))? else {
                // The server is not there now.
                self.waiting.push_front((child, step));
                break;
            };
            let (remote, wanted) = (self.remote, self.wanted);
            let child = Follower::new(remote, job, wanted, self.style, company);
            self.within.push(child);
        }
        Ok(())
    }

    fn place(&self, step: String, attempt: Option<u32>) -> Place {
        let (from, lines) = (self.wanted.from, self.wanted.lines);
        Place {
            step,
            attempt,
            next_line: from.unwrap_or(1),
            left: lines.filter(|_| from.is_some()).unwrap_or(u64::MAX),
            last: lines.filter(|_| from.is_none()),
            over: false,
            ends_until_ms: None,
            is_closed: false,
            is_told: false,
        }
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
            if page.partial && !place.is_done() {
                page.lines.pop();
            }
            let Some(last) = page.lines.last() else {
                break;
            };
            place.is_closed = last.stream == "worker";
            let last = last.n;
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

/// Until when the worker may send what a step printed while it was ended, counted by our own clock. `None`: it has sent all that it
/// will, or it ended by itself and was reported after its log.
fn ends_until_ms(step: &StepJson) -> Option<i64> {
    let is_cut = step.status == "cancelled" || step.reason.as_deref() == Some("step_timeout");
    let ended_at = step
        .ended_at
        .filter(|_| is_cut && step.started_at.is_some())?;
    let left_ms = ended_at.0.0 + ENDING_MS - wall_time().0;
    (left_ms > 0).then(|| monotonic_ms() + left_ms.min(ENDING_MS))
}

/// Prints what the steps of a job print, and those of jobs within it, while somebody else says how it goes. Closed when all of it is
/// printed, or nobody reads it any more.
pub fn beside(
    remote: Remote,
    job_id: i64,
    style: LineStyle,
) -> std::io::Result<Receiver<Infallible>> {
    let (end, ended) = bounded(0);
    let follow = move || {
        let _open = end;
        let wanted = Wanted::all_of(style.form);
        let company = Company::Beside(String::new());
        let followed =
            found(&remote, job_id).and_then(|job| follow(&remote, job, &wanted, style, company));
        if let Err(error) = followed {
            say(printable(&in_words(&error)));
        }
    };
    Builder::new().name("logs".to_string()).spawn(follow)?;
    Ok(ended)
}

/// A job that is there, whether the server is or not.
fn found(remote: &Remote, job_id: i64) -> anyhow::Result<JobJson> {
    let path = format!("/api/jobs/{job_id}");
    loop {
        match remote.client.get(&path, PATIENCE) {
            Err(error) if error.passes() => std::thread::sleep(PAUSE),
            answer => return remote.heard(answer),
        }
    }
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
