//! `stepward schedule`: the schedules of a server, and what becomes of their times.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::columns::Columns;
use super::columns::Room::{Any, Wide};
use super::exit::Exit;
use super::look::{Ink, Look, Show};
use super::reach::{Reach, in_url, name};
use super::say::{answer, answer_json, answer_json_list, print, say};
use super::sheet::{NOTHING, Sheet};
use super::table::{Cell, Table};
use super::words::{ago, moment, printable, secs, until};
use crate::cron::Cron;
use crate::domain::Json;
use crate::wire::Time;
use crate::wire::api::{FireJson, JobJson, List, ScheduleJson};
use crate::words::calendar_time;

/// How many of its last times are shown with a schedule.
const LAST: usize = 10;

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward schedule ls\n  stepward schedule next -n 20\n  stepward schedule fire release.nightly"
)]
pub struct ScheduleArgs {
    #[command(subcommand)]
    verb: ScheduleVerb,
}

#[derive(Subcommand)]
enum ScheduleVerb {
    /// Lists the schedules of a server.
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Shows a schedule, its next times, and what became of the last ones.
    #[command(
        before_help = "Examples:\n  stepward schedule show release.nightly\n  stepward schedule show 3 --json"
    )]
    Show(OneArgs),
    /// Makes no jobs until it is resumed.
    #[command(
        before_help = "Examples:\n  stepward schedule pause release.nightly\n  stepward schedule pause 3 --json"
    )]
    Pause(OneArgs),
    /// Makes jobs again, from its next time on.
    #[command(
        before_help = "Examples:\n  stepward schedule resume release.nightly\n  stepward schedule resume 3 --json"
    )]
    Resume(OneArgs),
    /// Makes a job now, and prints its number.
    #[command(
        before_help = "Examples:\n  stepward schedule fire release.nightly\n  stepward schedule fire 3 --json"
    )]
    Fire(OneArgs),
    /// Lists the next times of all schedules.
    Next(NextArgs),
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward schedule ls\n  stepward schedule ls --json",
    after_help = "Columns: name, cron, zone, next, last, state"
)]
struct LsArgs {
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
struct OneArgs {
    /// Its number, or TASK.NAME.
    #[arg(value_parser = name)]
    schedule: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward schedule next\n  stepward schedule next -n 20 --json",
    after_help = "Columns: at, in, name"
)]
struct NextArgs {
    /// How many.
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

/// A time at which a schedule will make a job.
#[derive(Debug, Serialize)]
struct NextFire {
    at: Time,
    schedule_id: i64,
    task: String,
    name: String,
    timezone: String,
}

pub fn run(args: ScheduleArgs) -> anyhow::Result<Exit> {
    match args.verb {
        ScheduleVerb::Ls(args) => list(args),
        ScheduleVerb::Show(args) => show(args),
        ScheduleVerb::Pause(args) => change(args, "pause"),
        ScheduleVerb::Resume(args) => change(args, "resume"),
        ScheduleVerb::Fire(args) => fire(args),
        ScheduleVerb::Next(args) => next(args),
    }
}

fn all(reach: &Reach) -> anyhow::Result<Vec<ScheduleJson>> {
    let remote = reach.server()?;
    remote.all("/api/schedules?limit=500", "after", usize::MAX)
}

fn list(args: LsArgs) -> anyhow::Result<Exit> {
    let schedules = all(&args.reach)?;
    if args.show.json {
        answer_json_list(schedules);
        return Ok(Exit::Success);
    }
    if schedules.is_empty() {
        say("there are no schedules; a task has them under `schedules:` in its file");
        return Ok(Exit::Success);
    }
    let look = &args.show.look();
    let mut table = Columns::new(
        look,
        &[
            ("NAME", Any),
            ("CRON", Wide),
            ("ZONE", Wide),
            ("NEXT", Any),
            ("LAST", Wide),
            ("STATE", Any),
        ],
    );
    for schedule in &schedules {
        let state = state(schedule);
        let next = schedule.next_at.filter(|_| state == "on");
        let next = match (next, look.is_terminal) {
            (None, _) => NOTHING.to_string(),
            (Some(at), true) => until(at),
            (Some(at), false) => moment(at),
        };
        let last = schedule.last.as_ref();
        let last = last.map_or_else(
            || Cell::new(NOTHING),
            |fire| Cell::new(outcome(fire)).ink(ink(fire)),
        );
        table.row(vec![
            Cell::new(full_name(schedule)),
            Cell::new(&schedule.cron),
            Cell::new(&schedule.timezone),
            Cell::new(next),
            last,
            Cell::new(state).ink(if state == "on" { Ink::Good } else { Ink::Faint }),
        ]);
    }
    print(&table.text(look));
    Ok(Exit::Success)
}

fn full_name(schedule: &ScheduleJson) -> String {
    format!("{}.{}", schedule.task, schedule.name)
}

/// Whether it makes jobs, and if not, why.
fn state(schedule: &ScheduleJson) -> &'static str {
    match schedule {
        schedule if schedule.removed_at.is_some() => "removed",
        schedule if !schedule.loaded => "not loaded",
        schedule if !schedule.enabled => "disabled",
        schedule if schedule.paused => "paused",
        _ => "on",
    }
}

/// `fired: job 12`, `skipped`, `fired by hand: job 13`.
fn outcome(fire: &FireJson) -> String {
    let by_hand = if fire.manual { " by hand" } else { "" };
    let job = fire.job_id.map(|job_id| format!(": job {job_id}"));
    let outcome = fire.outcome.replace('_', " ");
    format!("{outcome}{by_hand}{}", job.unwrap_or_default())
}

fn ink(fire: &FireJson) -> Ink {
    match fire.outcome.as_str() {
        "fired" | "caught_up" => Ink::Good,
        "refused" | "missed" => Ink::Bad,
        _ => Ink::Faint,
    }
}

/// As the clocks of its zone show it.
fn in_zone(at: Time, zone: &str) -> String {
    let zoned = calendar_time(at.0).in_tz(zone);
    zoned.map_or_else(
        |_| moment(at),
        |zoned| zoned.strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
    )
}

fn path(word: &str) -> String {
    format!("/api/schedules/{}", in_url(word))
}

fn show(args: OneArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let path = path(&args.schedule);
    let schedule: ScheduleJson = remote.get(&path)?;
    if args.show.json {
        answer_json(&schedule);
        return Ok(Exit::Success);
    }
    let fires: List<FireJson> = remote.get(&format!("{path}/fires?limit={LAST}"))?;
    let look = args.show.look();
    let mut text = head(&schedule).text(&look);
    if !fires.items.is_empty() {
        text.push('\n');
        let fires = fires_table(&fires.items, &schedule.timezone, &look);
        text.push_str(&fires.text(&look));
    }
    print(&text);
    let name = printable(&full_name(&schedule));
    match state(&schedule) {
        "on" => say(format!(
            "next: stepward schedule fire {name}, stepward schedule pause {name}"
        )),
        "paused" => say(format!("next: stepward schedule resume {name}")),
        "disabled" => say("its file says `enabled: false`"),
        "not loaded" => say("its file does not load: `stepward validate` tells why"),
        _ => say("no file has it any more"),
    }
    Ok(Exit::Success)
}

fn head(schedule: &ScheduleJson) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.line("schedule", schedule.id.to_string());
    sheet.line("name", full_name(schedule));
    sheet.line("state", state(schedule));
    sheet.line("cron", &schedule.cron);
    sheet.line("zone", &schedule.timezone);
    let input = Json::from(schedule.input.clone()).0;
    sheet.line_of("input", Some(input).filter(|input| input != "{}"));
    sheet.line("overlap", &schedule.overlap);
    let catch_up = &schedule.catch_up;
    let bound = match (catch_up.within_secs, catch_up.max) {
        (Some(within), _) => format!(", no older than {}", secs(within as f64)),
        (None, Some(max)) => format!(", {max} at most"),
        (None, None) => String::new(),
    };
    sheet.line("catch up", format!("{}{bound}", catch_up.policy));
    let name = match state(schedule) {
        "on" => "next",
        // It has its times; nothing comes of them.
        _ => "would be next",
    };
    for at in &schedule.following {
        let absolute = in_zone(*at, &schedule.timezone);
        sheet.line(name, format!("{absolute}, {}", until(*at)));
    }
    sheet.line_of("removed", schedule.removed_at.map(moment));
    sheet
}

fn fires_table(fires: &[FireJson], zone: &str, look: &Look) -> Table {
    let mut table = Table::new(&["DUE", "OUTCOME", "WHY"]);
    for fire in fires {
        let due = match look.is_terminal {
            true if look.is_narrow() => ago(fire.due_at),
            true => format!("{}, {}", in_zone(fire.due_at, zone), ago(fire.due_at)),
            false => moment(fire.due_at),
        };
        table.row(vec![
            Cell::new(due),
            Cell::new(outcome(fire)).ink(ink(fire)),
            Cell::new(&fire.message),
        ]);
    }
    table
}

fn change(args: OneArgs, verb: &str) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let path = format!("{}/{verb}", path(&args.schedule));
    let schedule: ScheduleJson = remote.post(&path, &serde_json::json!({}))?;
    if args.show.json {
        answer_json(&schedule);
        return Ok(Exit::Success);
    }
    let next = schedule.next_at.filter(|_| state(&schedule) == "on");
    let next = next.map(|at| format!(", next {}", until(at)));
    answer(format!(
        "schedule {} is {}{}",
        printable(&full_name(&schedule)),
        state(&schedule),
        next.unwrap_or_default()
    ));
    Ok(Exit::Success)
}

fn fire(args: OneArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.server()?;
    let path = format!("{}/fire", path(&args.schedule));
    let job: JobJson = remote.post(&path, &serde_json::json!({}))?;
    match args.show.json {
        true => answer_json(&job),
        false => answer(job.id),
    };
    if !args.show.json {
        say(format!("next: stepward watch {}", job.id));
    }
    Ok(Exit::Success)
}

fn next(args: NextArgs) -> anyhow::Result<Exit> {
    let limit = args.limit as usize;
    let schedules = all(&args.reach)?;
    let on = schedules.iter().filter(|schedule| state(schedule) == "on");
    let mut fires: Vec<NextFire> = on.flat_map(|schedule| times(schedule, limit)).collect();
    fires.sort_by_key(|fire| fire.at.0);
    fires.truncate(limit);
    if args.show.json {
        answer_json_list(fires);
        return Ok(Exit::Success);
    }
    if fires.is_empty() {
        say("no schedule is due; `stepward schedule ls` shows them all");
        return Ok(Exit::Success);
    }
    let look = args.show.look();
    let mut table = Columns::new(&look, &[("AT", Wide), ("IN", Any), ("NAME", Any)]);
    for fire in &fires {
        let at = match look.is_terminal {
            true => in_zone(fire.at, &fire.timezone),
            false => moment(fire.at),
        };
        table.row(vec![
            Cell::new(at),
            Cell::new(until(fire.at)),
            Cell::new(format!("{}.{}", fire.task, fire.name)),
        ]);
    }
    print(&table.text(&look));
    Ok(Exit::Success)
}

/// The server tells a few of its times; the others follow from its cron.
fn times(schedule: &ScheduleJson, limit: usize) -> impl Iterator<Item = NextFire> {
    let cron = Cron::parse(&schedule.cron, &schedule.timezone).ok();
    let first = schedule.next_at.map(|at| at.0);
    let times = std::iter::successors(first, move |at| cron.as_ref()?.next_after(*at));
    times.take(limit).map(|at| NextFire {
        at: Time(at),
        schedule_id: schedule.id,
        task: schedule.task.clone(),
        name: schedule.name.clone(),
        timezone: schedule.timezone.clone(),
    })
}
