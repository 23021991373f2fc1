//! The wall clock is set to any time: no step is taken for an absence, and no absence is lost by a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft};
use stepward::domain::{ScheduleId, Timestamp};
use stepward::engine::FactKind;
use stepward::metrics::PanicPlace;
use stepward::store::StoreOptions;

use super::{HOUR, MINUTE, SECOND, Timetable, clock_of, schedule};
use crate::house::TestHouse;

const YEAR: i64 = 365 * 24 * HOUR;

fn hourly(overlap: Overlap) -> ScheduleDraft {
    ScheduleDraft {
        overlap,
        catch_up: CatchUp::All { max: 100 },
        ..schedule("0 * * * *")
    }
}

fn wall_ms(timetable: &Timetable) -> i64 {
    timetable.house.now().wall.0
}

/// Off from 21:30 to 00:30, then on with a clock that starts in 1970 and is set right four seconds later.
fn starts_in_1970_after_three_hours(draft: &ScheduleDraft) -> Timetable {
    let timetable = Timetable::with(draft.clone());
    timetable.look();
    timetable.advance(3 * HOUR);
    let right_ms = wall_ms(&timetable);
    timetable.reboot(Timestamp(10 * SECOND), std::slice::from_ref(draft));
    assert_eq!(timetable.run(SECOND, 4 * SECOND), 0);
    assert_eq!(timetable.next_at().as_deref(), Some("01:00"), "in 1970");
    let step_ms = right_ms + 4 * SECOND - wall_ms(&timetable);
    timetable.house.clock.step_wall_ms(step_ms);
    timetable
}

#[test]
fn a_machine_that_starts_in_1970_makes_up_for_the_time_that_it_was_off() {
    let timetable = starts_in_1970_after_three_hours(&hourly(Overlap::Allow));
    assert_eq!(timetable.look(), 3);
    let made_up = ["22:00 caught_up", "23:00 caught_up", "00:00 caught_up"];
    assert_eq!(timetable.ledger(), made_up);
    assert_eq!(timetable.next_at().as_deref(), Some("01:00"));
    assert_eq!(timetable.run(MINUTE, HOUR), 1, "and then as ever");

    let none = starts_in_1970_after_three_hours(&ScheduleDraft {
        catch_up: CatchUp::None,
        ..hourly(Overlap::Allow)
    });
    assert_eq!(none.look(), 0, "its policy decides");
    let missed = ["22:00 missed", "23:00 missed", "00:00 missed"];
    assert_eq!(none.ledger(), missed);
}

#[test]
fn what_it_was_off_for_comes_one_after_another_whatever_the_clock_does_then() {
    let timetable = starts_in_1970_after_three_hours(&hourly(Overlap::Skip));
    assert_eq!(timetable.look(), 1);
    assert_eq!(
        timetable.run(SECOND, 10 * SECOND),
        0,
        "its job has not ended"
    );
    timetable.house.run_all(&[]);
    timetable.house.clock.step_wall_ms(10 * YEAR);
    assert_eq!(timetable.look(), 1);
    timetable.house.run_all(&[]);
    timetable.house.clock.step_wall_ms(-10 * YEAR);
    assert_eq!(timetable.look(), 1);
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    let made_up = ["22:00 caught_up", "23:00 caught_up", "00:00 caught_up"];
    assert_eq!(timetable.ledger(), made_up);
    assert_eq!(timetable.next_at().as_deref(), Some("01:00"));
}

#[test]
fn a_new_server_that_starts_in_1970_has_nothing_to_make_up_for() {
    let timetable = Timetable::new();
    let right_ms = wall_ms(&timetable);
    timetable.reboot(Timestamp(0), &[schedule("*/10 * * * * *")]);
    assert_eq!(timetable.run(SECOND, 4 * SECOND), 0);
    timetable
        .house
        .clock
        .step_wall_ms(right_ms - wall_ms(&timetable));
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger(), Vec::<String>::new());
    assert_eq!(timetable.told(), Vec::<String>::new());
    assert_eq!(timetable.run(SECOND, 60 * SECOND), 6);
}

#[test]
fn a_clock_that_jumps_by_years_makes_no_jobs_and_is_followed_at_once() {
    let draft = hourly(Overlap::Allow);
    for years in [10, -10, 50, -53] {
        let timetable = Timetable::with(draft.clone());
        timetable.look();
        for step_ms in [years * YEAR, -years * YEAR] {
            timetable.house.clock.step_wall_ms(step_ms);
            assert_eq!(timetable.look(), 0, "{years}");
            assert_eq!(timetable.next_at().as_deref(), Some("22:00"), "{years}");
        }
        assert_eq!(timetable.run(MINUTE, 2 * HOUR), 2);
        assert_eq!(timetable.ledger(), ["22:00 fired", "23:00 fired"]);
    }
}

#[test]
fn a_server_that_was_off_while_its_clock_was_set_makes_up_for_the_time_that_it_was_off() {
    let draft = hourly(Overlap::Allow);
    for step_ms in [10 * YEAR, -10 * YEAR] {
        let timetable = Timetable::with(draft.clone());
        timetable.look();
        timetable.advance(2 * HOUR);
        timetable.house.clock.step_wall_ms(step_ms);
        timetable.restart(std::slice::from_ref(&draft));
        assert_eq!(timetable.look(), 2, "two hours in one boot of the machine");
        assert_eq!(timetable.ledger(), ["22:00 caught_up", "23:00 caught_up"]);
    }
}

#[test]
fn after_the_year_6000_and_after_the_year_10000_a_schedule_has_a_next_time_again() {
    for years in [4_000, 7_970] {
        let timetable = Timetable::with(schedule("0 * * * *"));
        timetable.look();
        timetable.house.clock.step_wall_ms(years * YEAR);
        assert_eq!(timetable.run(SECOND, 5 * SECOND), 0);
        assert_eq!(timetable.next_at(), None, "no cron counts so far");
        timetable.house.clock.step_wall_ms(-years * YEAR);
        assert_eq!(timetable.look(), 0);
        assert_eq!(timetable.next_at().as_deref(), Some("22:00"));
    }
}

#[test]
fn a_clock_that_stands_at_the_end_of_all_calendars_costs_no_writes() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    let end = Timestamp::LAST_PRINTABLE;
    timetable
        .house
        .clock
        .step_wall_ms(end.0 - wall_ms(&timetable));
    timetable.look();
    let (commits, _) = timetable.house.engine.store.groups();
    for _ in 0..30 {
        timetable.advance(SECOND);
        timetable.house.clock.step_wall_ms(-SECOND);
        timetable.look();
    }
    assert_eq!(timetable.house.engine.store.groups().0, commits);
}

#[test]
fn a_fire_that_is_queued_outlives_a_start_in_1970() {
    let draft = ScheduleDraft {
        overlap: Overlap::Queue,
        ..schedule("0 * * * *")
    };
    let timetable = Timetable::with(draft.clone());
    assert_eq!(timetable.run(10 * MINUTE, 100 * MINUTE), 1);
    assert_eq!(timetable.ledger(), ["22:00 fired", "23:00 queued"]);
    let right_ms = wall_ms(&timetable);
    timetable.reboot(Timestamp(0), &[draft]);
    timetable.look();
    timetable.house.clock.step_wall_ms(right_ms);
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger(), ["22:00 fired", "23:00 fired"]);
    let view = timetable.house.engine.schedule(ScheduleId(1)).unwrap();
    assert_eq!(view.schedule.backlog(), None);
}

fn every_two_seconds(catch_up: CatchUp) -> ScheduleDraft {
    ScheduleDraft {
        catch_up,
        ..schedule("*/2 * * * * *")
    }
}

#[test]
fn a_server_that_is_killed_while_its_clock_is_set_repeats_nothing_that_it_has_served() {
    let latest = CatchUp::Latest { within_ms: HOUR };
    for catch_up in [CatchUp::None, latest, CatchUp::All { max: 100 }] {
        for step_ms in [10 * YEAR, -10 * YEAR] {
            let draft = every_two_seconds(catch_up);
            let timetable = Timetable::with(draft.clone());
            assert_eq!(timetable.run(SECOND, 45 * SECOND), 22);
            // The last reading of the clocks was saved 45 seconds ago.
            timetable.house.clock.step_wall_ms(step_ms);
            timetable.restart(std::slice::from_ref(&draft));
            assert_eq!(timetable.look(), 0, "nobody was away");
            assert_eq!(timetable.run(SECOND, 40 * SECOND), 20);
            timetable.house.clock.step_wall_ms(-step_ms);
            timetable.advance(20 * SECOND);
            timetable.restart(&[draft]);
            let made = match catch_up {
                CatchUp::All { .. } => 10,
                // The last of those 20 seconds is on time.
                _ => 5,
            };
            assert!(timetable.look() <= made, "20 seconds away");
        }
    }
}

#[test]
fn a_stall_before_a_kill_does_not_repeat_what_was_caught_up_after_it() {
    let draft = every_two_seconds(CatchUp::All { max: 100 });
    let timetable = Timetable::with(draft.clone());
    timetable.run(SECOND, 5 * SECOND);
    timetable.stall(30 * SECOND);
    assert_eq!(timetable.look(), 15);
    timetable.run(SECOND, 5 * SECOND);
    timetable.house.clock.step_wall_ms(10 * YEAR);
    timetable.restart(&[draft]);
    assert_eq!(timetable.look(), 0);
}

#[test]
fn after_a_small_correction_that_sets_the_clock_right_a_jump_is_no_absence() {
    let draft = every_two_seconds(CatchUp::All { max: 100 });
    for correction_ms in [115 * SECOND, 2 * MINUTE] {
        let timetable = Timetable::with(draft.clone());
        timetable.run(SECOND, 10 * SECOND);
        let behind = Timestamp(wall_ms(&timetable) - 2 * MINUTE);
        timetable.reboot(behind, std::slice::from_ref(&draft));
        assert!(timetable.run(SECOND, 3 * SECOND) <= 2, "it is followed");
        timetable.house.clock.step_wall_ms(correction_ms);
        assert!(timetable.run(SECOND, 4 * SECOND) <= 3);
        timetable.house.clock.step_wall_ms(10 * YEAR);
        assert_eq!(timetable.look(), 0);
        assert_eq!(timetable.run(SECOND, 10 * SECOND), 5);
    }
}

#[test]
fn a_correction_of_two_minutes_makes_one_job_and_no_flood() {
    for catch_up in [CatchUp::None, CatchUp::All { max: 100 }] {
        let timetable = Timetable::with(every_two_seconds(catch_up));
        timetable.run(SECOND, 10 * SECOND);
        timetable.house.clock.step_wall_ms(110 * SECOND + 1);
        assert_eq!(timetable.look(), 1, "the last one, which is on time");
        assert_eq!(timetable.run(SECOND, 10 * SECOND), 5, "and then as ever");
    }
}

#[test]
fn a_step_back_fires_nothing_that_the_clock_shows_for_the_first_time() {
    let timetable = Timetable::with(ScheduleDraft {
        catch_up: CatchUp::None,
        ..schedule("0 0 * * *")
    });
    timetable.look();
    let midnight_ms = wall_ms(&timetable) + 2 * HOUR + 30 * MINUTE;
    let five_past = midnight_ms - 3 * YEAR + 5 * SECOND;
    timetable
        .house
        .clock
        .step_wall_ms(five_past - wall_ms(&timetable));
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.run(MINUTE, 24 * HOUR), 1, "the next midnight");
}

#[test]
fn a_schedule_that_panics_keeps_no_other_from_following_the_clock() {
    let panics = Arc::new(AtomicBool::new(false));
    let armed = panics.clone();
    let on_statement = move |_: u64, text: &'static str| {
        let is_follow = text.contains("DELETE FROM schedule_fire");
        assert!(
            !(is_follow && armed.swap(false, Ordering::Relaxed)),
            "a bug over the first schedule"
        );
    };
    let house = TestHouse::with_options(StoreOptions {
        on_statement: Some(Arc::new(on_statement)),
        ..StoreOptions::default()
    });
    let timetable = Timetable::in_house(house);
    let other = ScheduleDraft {
        name: "other".to_string(),
        ..schedule("0 * * * *")
    };
    let drafts = [schedule("0 * * * *"), other];
    timetable.load(&drafts);
    timetable.look();
    panics.store(true, Ordering::Relaxed);
    timetable.house.clock.step_wall_ms(-10 * YEAR);
    assert_eq!(timetable.look(), 0);
    let engine = &timetable.house.engine;
    let next_at = |id| {
        let view = engine.schedule(ScheduleId(id)).unwrap();
        view.schedule.next_at
    };
    assert_eq!(next_at(1), None, "it is skipped");
    let followed = next_at(2).unwrap();
    assert_eq!(clock_of(followed), "22:00");
    assert!(followed.0 < wall_ms(&timetable) + HOUR);
    let panics = &engine.store.metrics().panics;
    assert_eq!(panics.count(PanicPlace::Scheduler), 1);
    timetable.load(&drafts);
    assert_eq!(next_at(1), Some(followed), "it is there again with a load");
}

#[test]
fn why_says_so_if_the_last_time_is_later_than_the_clock() {
    let timetable = Timetable::with(schedule("*/2 * * * * *"));
    timetable.house.clock.step_wall_ms(10 * YEAR);
    timetable.run(SECOND, 4 * SECOND);
    timetable.house.clock.step_wall_ms(-10 * YEAR);
    timetable.look();
    let (engine, now) = (&timetable.house.engine, timetable.house.now());
    let why = engine.why_schedule(ScheduleId(1), now).unwrap().why;
    let mut facts = why.facts.iter();
    let last = facts.find(|fact| fact.kind == FactKind::Last).unwrap();
    assert_eq!(
        last.text,
        "2033-11-11T21:30:04Z (later than the current clock), fired, job 2"
    );
}
