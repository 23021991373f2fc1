//! `stepward events`: what happened, oldest first like a log, or as it happens.

use std::collections::VecDeque;

use clap::Args;
use crossbeam_channel::Receiver;

use super::exit::{Exit, Fault};
use super::follow::{News, follow};
use super::look::{Ink, Look, Show};
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer_json_line, answer_json_list, nobody_reads, print, say};
use super::table::{Cell, Table};
use super::words::{fit, moment, printable, time_of_day, width};
use crate::clock::wall_time;
use crate::domain::event::EventKind;
use crate::language::words::did_you_mean;
use crate::wire::Time;
use crate::wire::api::{EventJson, JobJson, List, WorkerJson};

/// Unless another number is asked for.
const NEWEST: usize = 50;
/// The same, before what happens from now on.
const NEWEST_BEFORE: usize = 10;
const PAGE: usize = 500;

#[derive(Args)]
#[command(
    before_help = "Examples:\n  \
    stepward events                      the newest fifty\n  \
    stepward events -f --job latest      of one job, as they happen\n  \
    stepward events --actor ada          what ada did, or had done\n  \
    stepward events --phase 4 -n 10      what recovery did about steps that nobody could run",
    after_help = "Columns: time, kind, phase, subject, message, by"
)]
pub struct EventsArgs {
    /// Goes on with what happens from now on.
    #[arg(short, long)]
    follow: bool,
    /// Only of this job: 42, latest, release@latest.
    #[arg(long, value_name = "JOB", value_parser = name)]
    job: Option<String>,
    /// Only of this worker, by its name or number.
    #[arg(long, value_name = "WORKER", value_parser = name)]
    worker: Option<String>,
    /// Only what this phase of recovery did, 1 to 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    phase: Option<u8>,
    /// Only what happened by a call of this one: a person by the name of the token, or local, settings, console.
    #[arg(long, value_name = "NAME", value_parser = name)]
    actor: Option<String>,
    /// Only this kind, such as job_failed.
    #[arg(long)]
    kind: Option<String>,
    /// So many: the newest, or the first after --after. 50, or 10 with --follow.
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Those after the event with this number, all of them unless -n says how many.
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

/// Which events are wanted.
struct Wanted {
    job_id: Option<i64>,
    worker: Option<String>,
    phase: Option<u8>,
    actor: Option<String>,
    kind: Option<String>,
}

pub fn run(args: EventsArgs) -> anyhow::Result<Exit> {
    if let Some(kind) = args
        .kind
        .as_deref()
        .filter(|kind| EventKind::from_word(kind).is_none())
    {
        let known = EventKind::ALL.iter().map(|kind| kind.as_str());
        let meant = did_you_mean(kind, known.clone());
        let known: Vec<&str> = known.collect();
        let message = match meant.is_empty() {
            true => format!(
                "{kind:?} is no kind of event, known are: {}",
                known.join(", ")
            ),
            false => format!("{kind:?} is no kind of event{meant}"),
        };
        return Err(Fault::usage(message));
    }
    let remote = args.reach.server()?;
    let job_id = match &args.job {
        Some(job) => {
            let job: JobJson = remote.get(&format!("/api/jobs/{}", in_url(job)))?;
            Some(job.id)
        }
        None => None,
    };
    let wanted = Wanted {
        job_id,
        worker: args.worker,
        phase: args.phase,
        actor: args.actor,
        kind: args.kind,
    };
    let default = if args.follow { NEWEST_BEFORE } else { NEWEST };
    let found = match args.after {
        Some(after) => wanted.after(&remote, after, args.lines.unwrap_or(usize::MAX))?,
        None => wanted.newest(&remote, args.lines.unwrap_or(default))?,
    };
    if let (true, Some(worker)) = (found.events.is_empty(), &wanted.worker) {
        // One that was removed has its past; one that never was has no future to wait for.
        let path = format!("/api/workers/{}", in_url(worker));
        let known = remote.get::<WorkerJson>(&path);
        known.map(|_| ()).or_else(|error| match Exit::of(&error) {
            Exit::NotFound => Err(error),
            _ => Ok(()),
        })?;
    }
    let look = args.show.look();
    if args.follow {
        return follow_on(&remote, &wanted, found, args.show.json, &look);
    }
    if args.show.json {
        answer_json_list(found.events);
    } else if found.events.is_empty() {
        say("nothing that was asked for has happened");
    } else {
        print(&table(&found.events, &look).text(&look));
    }
    Ok(Exit::Success)
}

/// Some events, oldest first.
struct Found {
    events: Vec<EventJson>,
    /// Everything up to this one was looked at.
    seen: i64,
}

impl Wanted {
    fn wants(&self, event: &EventJson) -> bool {
        let is_worker = |name: &String| {
            event.worker.as_ref() == Some(name)
                || event.worker_id.map(|id| id.to_string()).as_ref() == Some(name)
        };
        self.job_id
            .is_none_or(|job_id| event.job_id == Some(job_id))
            && self.worker.as_ref().is_none_or(is_worker)
            && self.phase.is_none_or(|phase| event.phase == Some(phase))
            && (self.actor.as_ref()).is_none_or(|actor| event.actor.as_ref() == Some(actor))
            && self.kind.as_ref().is_none_or(|kind| event.kind == *kind)
    }

    /// Those after one, page by page.
    fn after(&self, remote: &Remote, after: i64, n: usize) -> anyhow::Result<Found> {
        let path = match self.job_id {
            Some(job_id) => format!("/api/jobs/{job_id}/events"),
            None => "/api/events".to_string(),
        };
        let mut found = Found {
            events: Vec::new(),
            seen: after,
        };
        loop {
            let page: List<EventJson> =
                remote.get(&format!("{path}?limit={PAGE}&after={}", found.seen))?;
            for event in page.items {
                if found.events.len() == n {
                    return Ok(found);
                }
                found.seen = event.seq;
                if self.wants(&event) {
                    found.events.push(event);
                }
            }
            if page.next.is_none() {
                return Ok(found);
            }
        }
    }

    fn newest(&self, remote: &Remote, n: usize) -> anyhow::Result<Found> {
        if self.job_id.is_some() {
            // The story of a job is told from its beginning.
            let mut found = self.after(remote, 0, usize::MAX)?;
            let more = found.events.len().saturating_sub(n);
            found.events.drain(..more);
            return Ok(found);
        }
        let of_recovery = match self.phase {
            Some(_) => "&recovery=true",
            None => "",
        };
        let newest: List<EventJson> = remote.get("/api/events?limit=1")?;
        let seen = newest.items.first().map_or(0, |event| event.seq);
        let mut events = VecDeque::new();
        let mut before = seen.saturating_add(1).to_string();
        while events.len() < n {
            let page: List<EventJson> = remote.get(&format!(
                "/api/events?limit={PAGE}&before={before}{of_recovery}"
            ))?;
            let wanted = page.items.into_iter().filter(|event| self.wants(event));
            for event in wanted.take(n - events.len()) {
                events.push_front(event);
            }
            match page.next {
                Some(next) => before = next,
                None => break,
            }
        }
        Ok(Found {
            events: events.into(),
            seen,
        })
    }
}

fn follow_on(
    remote: &Remote,
    wanted: &Wanted,
    found: Found,
    json: bool,
    look: &Look,
) -> anyhow::Result<Exit> {
    let tell = |event: &EventJson| match json {
        true => answer_json_line(event),
        false => print(&line(event, look)),
    };
    if !found.events.iter().all(tell) {
        return Ok(Exit::Success);
    }
    let news = follow(remote, wanted.job_id, Some(found.seen.to_string()));
    let mut seen = found.seen;
    let mut is_lost = false;
    loop {
        match heard(&news) {
            Some(News::Told(told)) if told.kind == "event" => {
                let Ok(event) = serde_json::from_str::<EventJson>(&told.data) else {
                    continue;
                };
                // What was told before the connection broke off may be told again.
                let is_new = event.seq > seen;
                seen = seen.max(event.seq);
                if is_new && wanted.wants(&event) && !tell(&event) {
                    return Ok(Exit::Success);
                }
            }
            Some(News::Told(_)) => {}
            Some(News::Connected) if is_lost => {
                is_lost = false;
                say("the server answers again");
            }
            Some(News::Connected) => {}
            Some(News::Lost(why)) if !is_lost => {
                is_lost = true;
                say(format!(
                    "the server at {} is gone ({why}), it is asked again and again",
                    remote.url
                ));
            }
            Some(News::Lost(_)) => {}
            Some(News::Refused(error)) => return remote.heard(Err(error)),
            None if !nobody_reads() => {}
            None => return Ok(Exit::Success),
        }
    }
}

/// `None`: nothing for a while.
fn heard(news: &Receiver<News>) -> Option<News> {
    const WHILE: std::time::Duration = std::time::Duration::from_millis(500);
    news.recv_timeout(WHILE).ok()
}

pub fn table(events: &[EventJson], look: &Look) -> Table {
    if look.is_narrow() {
        let mut table = Table::new(&["TIME", "WHAT"]);
        for event in events {
            table.row(vec![
                Cell::new(when(event.at, look)).ink(Ink::Faint),
                Cell::new(kind(event)).ink(ink(event)),
            ]);
            table.note(&format!("{}{}", event.message, by(event)));
        }
        return table;
    }
    if !look.is_terminal {
        let mut table = Table::new(&COLUMNS);
        for event in events {
            table.row(whole(event));
        }
        return table;
    }
    let mut table = Table::new(&["TIME", "KIND", "SUBJECT", "BY", "MESSAGE"]);
    for event in events {
        table.row(vec![
            Cell::new(when(event.at, look)).ink(Ink::Faint),
            Cell::new(kind(event)).ink(ink(event)),
            Cell::new(subject(event)),
            Cell::new(event.actor.as_deref().unwrap_or("-")),
            Cell::new(&event.message),
        ]);
    }
    table
}

/// For programs: each value by itself.
const COLUMNS: [&str; 6] = ["TIME", "KIND", "PHASE", "SUBJECT", "MESSAGE", "BY"];

fn whole(event: &EventJson) -> Vec<Cell> {
    let phase = event.phase.map(|phase| phase.to_string());
    vec![
        Cell::new(moment(event.at)),
        Cell::new(&event.kind),
        Cell::new(phase.as_deref().unwrap_or("-")),
        Cell::new(subject(event)),
        Cell::new(&event.message),
        Cell::new(event.actor.as_deref().unwrap_or("-")),
    ]
}

/// One of many that come one by one: columns of the usual width.
fn line(event: &EventJson, look: &Look) -> String {
    const KIND: usize = 16;
    const SUBJECT: usize = 14;
    if !look.is_terminal {
        let mut alone = Table::new(&COLUMNS);
        alone.row(whole(event));
        return alone.text(look);
    }
    let at = time_of_day(event.at);
    let (at, kind, message) = (&at[..8], kind(event), printable(&event.message));
    let pad = |text: &str, columns: usize| " ".repeat(columns.saturating_sub(text.len()) + 2);
    let mut begin = format!(
        "{}  {}",
        look.paint(Ink::Faint, at),
        look.paint(ink(event), &kind)
    );
    let mut used = at.len() + 2 + kind.len();
    if !look.is_narrow() {
        let subject = printable(&subject(event));
        begin = format!(
            "{begin}{}{subject}{}",
            pad(&kind, KIND),
            pad(&subject, SUBJECT)
        );
        used = at.len() + 2 + kind.len().max(KIND) + 2 + subject.len().max(SUBJECT) + 2;
    } else {
        begin.push_str("\n  ");
        used = used.min(2);
    }
    let by = printable(&by(event));
    let room = look
        .width
        .unwrap_or(usize::MAX)
        .saturating_sub(used + width(&by))
        .max(20);
    format!("{begin}{}{by}\n", fit(&message, room, look.ellipsis()))
}

/// ` (by ada)`, behind what happened.
fn by(event: &EventJson) -> String {
    let actor = event.actor.as_ref();
    actor.map_or_else(String::new, |actor| format!(" (by {actor})"))
}

/// The time alone if it was today.
fn when(at: Time, look: &Look) -> String {
    const DAY_MS: i64 = 86_400_000;
    let whole = moment(at);
    let is_today = at.0.0.div_euclid(DAY_MS) == wall_time().0.div_euclid(DAY_MS);
    match (look.is_terminal, whole.len()) {
        (true, 20) if is_today => whole[11..19].to_string(),
        (true, 20) => format!("{} {}", &whole[5..10], &whole[11..16]),
        _ => whole,
    }
}

fn kind(event: &EventJson) -> String {
    match event.phase {
        Some(phase) => format!("{}({phase})", event.kind),
        None => event.kind.clone(),
    }
}

fn ink(event: &EventJson) -> Ink {
    match event.kind.as_str() {
        "job_completed" | "worker_active" | "workflows_loaded" => Ink::Good,
        _ if event.phase.is_some() => Ink::Bad,
        kind if kind.ends_with("_failed") || kind.ends_with("_broken") => Ink::Bad,
        _ => Ink::Busy,
    }
}

/// `3/unit`, `3`, `worker edge-1`.
pub fn subject(event: &EventJson) -> String {
    match (event.job_id, &event.step, &event.worker) {
        (Some(job_id), Some(step), _) => format!("{job_id}/{step}"),
        (Some(job_id), None, _) => job_id.to_string(),
        (None, _, Some(worker)) => format!("worker {worker}"),
        (None, _, None) => "-".to_string(),
    }
}
