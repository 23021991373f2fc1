//! What files say of schedules, and when they say something else.

use stepward::domain::schedule::{CatchUp, ScheduleDraft};
use stepward::domain::{ScheduleId, Timestamp};

use super::{HOUR, MINUTE, Timetable, clock_of, schedule};

#[test]
fn a_new_schedule_begins_now_and_not_before() {
    let timetable = Timetable::new();
    timetable.advance(5 * HOUR);
    timetable.load(&[schedule("0 * * * *")]);
    assert_eq!(timetable.look(), 0);
    let view = timetable.house.engine.schedule(ScheduleId(1)).unwrap();
    let following: Vec<String> = view.following.into_iter().map(clock_of).collect();
    assert_eq!(following, ["03:00", "04:00", "05:00", "06:00", "07:00"]);
    assert_eq!(view.last, None);
}

#[test]
fn a_reload_while_waiting_changes_what_was_changed_and_nothing_else() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    timetable.advance(20 * MINUTE);
    timetable.load(&[schedule("0 * * * *")]);
    assert_eq!(timetable.next_at().as_deref(), Some("22:00"));
    timetable.load(&[schedule("55 * * * *")]);
    assert_eq!(timetable.next_at().as_deref(), Some("21:55"), "from now on");
    timetable.load(&[ScheduleDraft {
        timezone: "Asia/Kathmandu".to_string(),
        ..schedule("0 * * * *")
    }]);
    assert_eq!(timetable.next_at().as_deref(), Some("22:15"));
}

#[test]
fn what_was_due_while_the_server_was_off_is_seen_after_a_reload() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    timetable.advance(HOUR);
    // Another input or policy is no other time.
    timetable.load(&[ScheduleDraft {
        catch_up: CatchUp::All { max: 5 },
        ..schedule("0 * * * *")
    }]);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger(), ["22:00 caught_up"]);
}

#[test]
fn a_changed_time_makes_up_for_nothing() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    timetable.advance(HOUR);
    timetable.load(&[schedule("5 * * * *")]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.next_at().as_deref(), Some("23:05"));
}

#[test]
fn a_schedule_that_is_gone_and_comes_back_goes_on() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    let engine = &timetable.house.engine;
    timetable.run(10 * MINUTE, HOUR);
    engine
        .pause_schedule(ScheduleId(1), "ann", timetable.house.now())
        .unwrap();
    timetable.load(&[]);
    assert_eq!(timetable.next_at(), None);
    assert_eq!(engine.schedules(ScheduleId(0), 10).unwrap(), []);
    assert_eq!(timetable.run(10 * MINUTE, 3 * HOUR), 0);
    let now = timetable.house.now();
    let gone = engine
        .resume_schedule(ScheduleId(1), "ann", now)
        .unwrap_err();
    assert_eq!(
        gone.to_string(),
        "schedule often of task main is in no file any more"
    );

    timetable.load(&[schedule("0 * * * *")]);
    let view = engine.schedule(ScheduleId(1)).unwrap();
    assert_eq!(view.schedule.removed_at, None);
    assert!(view.schedule.paused, "whoever paused it did not resume it");
    engine
        .resume_schedule(ScheduleId(1), "ann", timetable.house.now())
        .unwrap();
    assert_eq!(timetable.look(), 0, "nothing is made up for");
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 1);
    assert_eq!(timetable.ledger(), ["22:00 fired", "02:00 fired"]);
}

#[test]
fn a_schedule_whose_file_does_not_load_goes_on_where_it_was() {
    let hourly = ScheduleDraft {
        catch_up: CatchUp::All { max: 2 },
        ..schedule("0 * * * *")
    };
    let timetable = Timetable::with(hourly.clone());
    let engine = &timetable.house.engine;
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 1);
    timetable.load_in_part(&[]);
    assert_eq!(timetable.run(10 * MINUTE, 3 * HOUR), 0);
    timetable.load_in_part(&[]);
    let listed = engine.schedules(ScheduleId(0), 10).unwrap();
    assert!(!listed[0].schedule.loaded);
    assert_eq!(timetable.next_at().as_deref(), Some("23:00"));
    assert_eq!(timetable.looks_again_at(), None, "nobody waits for it");

    timetable.load(&[hourly]);
    assert_eq!(timetable.look(), 2);
    assert_eq!(
        timetable.ledger(),
        [
            "22:00 fired",
            "23:00 missed",
            "00:00 caught_up",
            "01:00 caught_up"
        ]
    );
    assert!(engine.schedule(ScheduleId(1)).unwrap().schedule.loaded);

    // Lost from sight, and then known to be gone.
    timetable.load_in_part(&[]);
    timetable.load(&[]);
    assert_eq!(engine.schedules(ScheduleId(0), 10).unwrap(), []);
    timetable.load_in_part(&[]);
    assert_eq!(engine.schedules(ScheduleId(0), 10).unwrap(), []);
}

#[test]
fn a_pause_is_over_for_a_schedule_whose_file_does_not_load_too() {
    let hourly = ScheduleDraft {
        catch_up: CatchUp::All { max: 5 },
        ..schedule("0 * * * *")
    };
    let timetable = Timetable::with(hourly.clone());
    let engine = &timetable.house.engine;
    let now = timetable.house.now();
    engine.pause_schedule(ScheduleId(1), "ann", now).unwrap();
    timetable.load_in_part(&[]);
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 0);
    let now = timetable.house.now();
    engine.resume_schedule(ScheduleId(1), "ann", now).unwrap();
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 0);
    timetable.load(&[hourly]);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger(), ["22:00 paused", "23:00 caught_up"]);
}

#[test]
fn a_schedule_that_cannot_be_is_turned_away_and_nothing_is_changed() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    let now = timetable.house.now();
    let engine = &timetable.house.engine;
    for (wrong, message) in [
        (schedule("0 25 * * *"), "hour: 25 is not within 0-23"),
        (
            ScheduleDraft {
                timezone: "Mars/Olympus".to_string(),
                ..schedule("@daily")
            },
            "timezone: \"Mars/Olympus\" is no time zone; give a name such as Europe/Oslo or UTC",
        ),
    ] {
        let error = engine.set_schedules(&[wrong], true, now).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("schedule often of task main: {message}")
        );
    }
    assert_eq!(timetable.next_at().as_deref(), Some("22:00"));
}

#[test]
fn the_ledger_is_read_page_by_page() {
    let timetable = Timetable::with(schedule("* * * * *"));
    timetable.run(MINUTE, 7 * MINUTE);
    let task = |name: &str| timetable.tasks.get(name).cloned();
    let engine = &timetable.house.engine;
    let now = timetable.house.now();
    engine
        .fire_schedule(ScheduleId(1), None, now, &task)
        .unwrap();
    let mut seen: Vec<(Timestamp, bool)> = Vec::new();
    loop {
        let page = engine
            .fires(ScheduleId(1), seen.last().copied(), 3)
            .unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|fire| (fire.due_at, fire.manual)));
    }
    assert_eq!(seen.len(), 8);
    assert!(seen.is_sorted_by(|a, b| a > b));
}
