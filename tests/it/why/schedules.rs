//! Schedules, however they stand.

use stepward::cli::why_text;
use stepward::domain::ScheduleId;
use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft, ScheduleStanding};
use stepward::server::api::show;

use super::{golden, look};
use crate::scheduler::{HOUR, MINUTE, Timetable, schedule};

fn check(standing: ScheduleStanding, name: &str, timetable: &Timetable) {
    let house = &timetable.house;
    let explained = house
        .engine
        .why_schedule(ScheduleId(1), house.now())
        .unwrap();
    let shown = show::schedule_why(&explained);
    assert_eq!(shown.why.code, standing.as_str());
    let shown = format!(
        "$ stepward why main.often\n{}\n$ stepward why main.often  # 40 columns\n{}",
        why_text::schedule(&shown, &look(80)),
        why_text::schedule(&shown, &look(40)),
    );
    golden(name, &shown);
}

fn hourly() -> ScheduleDraft {
    schedule("0 * * * *")
}

#[test]
fn scheduled() {
    let timetable = Timetable::with(hourly());
    check(
        ScheduleStanding::Scheduled,
        "schedule_is_scheduled-new",
        &timetable,
    );
    timetable.advance(31 * MINUTE);
    timetable.look();
    check(
        ScheduleStanding::Scheduled,
        "schedule_is_scheduled",
        &timetable,
    );
}

#[test]
fn missed() {
    let timetable = Timetable::with(ScheduleDraft {
        catch_up: CatchUp::None,
        ..hourly()
    });
    timetable.advance(31 * MINUTE);
    timetable.look();
    check(
        ScheduleStanding::Scheduled,
        "schedule_is_scheduled-missed",
        &timetable,
    );
}

#[test]
fn skipped() {
    let timetable = Timetable::with(ScheduleDraft {
        overlap: Overlap::Skip,
        ..hourly()
    });
    timetable.run(10 * MINUTE, 2 * HOUR);
    check(
        ScheduleStanding::Scheduled,
        "schedule_is_scheduled-skipped",
        &timetable,
    );
}

#[test]
fn refused() {
    let mut timetable = Timetable::with(hourly());
    timetable.tasks.clear();
    timetable.run(10 * MINUTE, HOUR);
    check(
        ScheduleStanding::Scheduled,
        "schedule_is_scheduled-refused",
        &timetable,
    );
}

#[test]
fn overlap() {
    let timetable = Timetable::with(ScheduleDraft {
        overlap: Overlap::Queue,
        ..hourly()
    });
    timetable.run(10 * MINUTE, 2 * HOUR);
    check(ScheduleStanding::Overlap, "schedule_is_overlap", &timetable);
}

#[test]
fn paused() {
    let timetable = Timetable::with(hourly());
    timetable.run(10 * MINUTE, HOUR);
    let now = timetable.house.now();
    let engine = &timetable.house.engine;
    engine.pause_schedule(ScheduleId(1), "ann", now).unwrap();
    timetable.run(10 * MINUTE, HOUR);
    check(ScheduleStanding::Paused, "schedule_is_paused", &timetable);
}

#[test]
fn disabled() {
    let timetable = Timetable::with(ScheduleDraft {
        enabled: false,
        ..hourly()
    });
    timetable.run(10 * MINUTE, HOUR);
    check(
        ScheduleStanding::Disabled,
        "schedule_is_disabled",
        &timetable,
    );
}

#[test]
fn not_loaded() {
    let timetable = Timetable::with(hourly());
    timetable.run(10 * MINUTE, HOUR);
    timetable.load_in_part(&[]);
    check(
        ScheduleStanding::NotLoaded,
        "schedule_is_not_loaded",
        &timetable,
    );
}

#[test]
fn removed() {
    let timetable = Timetable::with(hourly());
    timetable.run(10 * MINUTE, HOUR);
    timetable.load(&[]);
    timetable.advance(5 * MINUTE);
    check(ScheduleStanding::Removed, "schedule_is_removed", &timetable);
}

#[test]
fn never_due() {
    let timetable = Timetable::new();
    // The last evening that the calendar has.
    let last = 253_402_300_799_000 - timetable.house.now().wall.0;
    timetable.house.clock.step_wall_ms(last - 2 * 24 * HOUR);
    timetable.load(&[schedule("0 0 1 1 *")]);
    check(
        ScheduleStanding::NeverDue,
        "schedule_is_never_due",
        &timetable,
    );
}
