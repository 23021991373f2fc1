//! Nobody was there when a schedule was due: what is made up for, and what the ledger says of the rest.

use stepward::domain::ScheduleId;
use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft};

use super::{HOUR, MINUTE, SECOND, Timetable, schedule};

fn after_an_absence(cron: &str, catch_up: CatchUp, absence_ms: i64) -> Timetable {
    let timetable = Timetable::with(ScheduleDraft {
        catch_up,
        ..schedule(cron)
    });
    timetable.advance(absence_ms);
    timetable.look();
    timetable
}

const LATEST: CatchUp = CatchUp::Latest { within_ms: HOUR };

#[test]
fn off_across_three_times_by_each_policy() {
    // 21:30 to 00:10.
    let absence = 2 * HOUR + 40 * MINUTE;
    let off = |catch_up| after_an_absence("0 * * * *", catch_up, absence);

    let none = off(CatchUp::None);
    assert_eq!(
        none.ledger(),
        ["22:00 missed", "23:00 missed", "00:00 missed"]
    );
    assert_eq!(
        none.told(),
        [
            "schedule often of task main missed 3 times, from 2023-11-14T22:00:00.000Z to 2023-11-15T00:00:00.000Z"
        ]
    );
    assert_eq!(
        none.fires()[0].message,
        "found 7800 s late; catch_up is none"
    );

    let latest = off(LATEST);
    assert_eq!(
        latest.ledger(),
        ["22:00 missed", "23:00 missed", "00:00 caught_up"]
    );
    assert_eq!(latest.fires()[2].message, "caught up 600 s late");

    let all = off(CatchUp::All { max: 2 });
    assert_eq!(
        all.ledger(),
        ["22:00 missed", "23:00 caught_up", "00:00 caught_up"]
    );
    assert_eq!(
        all.told(),
        ["schedule often of task main missed 2023-11-14T22:00:00.000Z"]
    );

    for timetable in [none, latest, all] {
        assert_eq!(timetable.next_at().as_deref(), Some("01:00"));
        assert_eq!(timetable.run(MINUTE, HOUR), 1, "and then as ever");
    }
}

#[test]
fn the_latest_is_made_up_for_unless_it_is_too_old_or_another_is_on_time() {
    let old = after_an_absence("0 22 * * *", LATEST, 90 * MINUTE);
    assert_eq!(old.ledger(), ["22:00 caught_up"]);
    let too_old = after_an_absence("0 22 * * *", LATEST, 90 * MINUTE + 1);
    assert_eq!(too_old.ledger(), ["22:00 missed"]);
    let on_time = after_an_absence("0 * * * *", LATEST, 90 * MINUTE + SECOND);
    assert_eq!(on_time.ledger(), ["22:00 missed", "23:00 fired"]);
}

#[test]
fn ten_seconds_are_no_absence() {
    let in_time = 30 * MINUTE + 10 * SECOND;
    for catch_up in [CatchUp::None, LATEST, CatchUp::All { max: 0 }] {
        let met = after_an_absence("0 22 * * *", catch_up, in_time);
        assert_eq!(met.ledger(), ["22:00 fired"]);
    }
    let late = after_an_absence("0 22 * * *", CatchUp::None, in_time + 1);
    assert_eq!(late.ledger(), ["22:00 missed"]);
}

#[test]
fn a_short_absence_is_one_for_a_schedule_of_seconds_too() {
    let fired_after = |catch_up| {
        let timetable = after_an_absence("*/2 * * * * *", catch_up, 105 * SECOND);
        let fires = timetable.fires();
        assert_eq!(fires.len(), 52, "a row each");
        timetable.jobs().len()
    };
    assert_eq!(
        fired_after(CatchUp::None),
        5,
        "those of the last ten seconds"
    );
    assert_eq!(fired_after(LATEST), 5);
    assert_eq!(fired_after(CatchUp::All { max: 100 }), 52);
}

#[test]
fn what_a_short_correction_jumps_over_is_found_a_little_late() {
    let timetable = Timetable::with(schedule("0 22 * * *"));
    timetable.advance(29 * MINUTE + 55 * SECOND);
    timetable.look();
    timetable.house.clock.step_wall_ms(2 * MINUTE);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger(), ["22:00 caught_up"]);
}

#[test]
fn a_step_forward_is_no_absence() {
    for catch_up in [CatchUp::None, LATEST, CatchUp::All { max: 100 }] {
        let timetable = Timetable::with(ScheduleDraft {
            catch_up,
            ..schedule("0 * * * *")
        });
        timetable.house.clock.step_wall_ms(3 * HOUR);
        assert_eq!(timetable.look(), 0);
        assert_eq!(timetable.ledger(), ["22:00 missed"], "it stands for all");
        let row = &timetable.fires()[0];
        assert_eq!(row.until_at.map(super::clock_of).as_deref(), Some("01:00"));
        assert_eq!(row.message, "the clock was set forward over this time");
        assert_eq!(
            timetable.told(),
            [
                "schedule often of task main missed 2023-11-14T22:00:00.000Z: the clock was set forward over it"
            ]
        );
        assert_eq!(timetable.next_at().as_deref(), Some("01:00"));
        assert_eq!(timetable.run(MINUTE, 2 * HOUR), 2, "and then as ever");
    }
}

#[test]
fn a_year_of_seconds_is_a_thousand_rows_and_one() {
    let year = 365 * 24 * HOUR;
    let timetable = after_an_absence("* * * * * *", CatchUp::All { max: 50 }, year);
    let fires = timetable.fires();
    assert_eq!(fires.len(), 1_001);
    let (rest, rows) = fires.split_first().unwrap();
    assert_eq!(rest.outcome.as_str(), "missed");
    assert_eq!(rest.until_at, Some(rows[0].due_at));
    assert_eq!(
        rest.message,
        "the server was not running; this row covers all times before 2024-11-13T21:13:21.000Z"
    );
    let end = timetable.house.now().wall.0;
    for (index, row) in rows.iter().enumerate() {
        let age = 999 - index as i64;
        assert_eq!(row.due_at.0, end - age * SECOND);
        let expected = match age {
            0..=10 => "fired",
            11..=60 => "caught_up",
            _ => "missed",
        };
        assert_eq!(row.outcome.as_str(), expected, "{age} s ago");
    }
    assert_eq!(
        timetable.told(),
        [
            "schedule often of task main missed all from 2023-11-14T21:30:01.000Z to 2024-11-13T21:28:59.000Z"
        ]
    );
    timetable.advance(SECOND);
    assert_eq!(timetable.look(), 1);
}

#[test]
fn seconds_of_one_month_are_found_again_after_years() {
    let three_years = 3 * 365 * 24 * HOUR;
    let timetable = after_an_absence("* * * * 1 *", CatchUp::None, three_years);
    let fires = timetable.fires();
    assert_eq!(fires.len(), 1_001);
    assert_eq!(super::clock_of(fires[1_000].due_at), "23:59:59");
}

#[test]
fn nothing_is_made_up_for_a_pause() {
    let timetable = Timetable::with(ScheduleDraft {
        catch_up: CatchUp::All { max: 100 },
        ..schedule("0 * * * *")
    });
    let engine = &timetable.house.engine;
    let often = ScheduleId(1);
    engine
        .pause_schedule(often, "ann", timetable.house.now())
        .unwrap();
    engine
        .pause_schedule(often, "bob", timetable.house.now())
        .unwrap();
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 0);
    // It stays so through reloads, and the server may be off meanwhile.
    timetable.load(&[schedule("0 * * * *")]);
    timetable.advance(2 * HOUR);
    engine
        .resume_schedule(often, "ann", timetable.house.now())
        .unwrap();
    engine
        .resume_schedule(often, "bob", timetable.house.now())
        .unwrap();
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 1);
    assert_eq!(
        timetable.ledger(),
        [
            "22:00 paused",
            "23:00 paused",
            "00:00 paused",
            "01:00 fired"
        ]
    );
    assert_eq!(
        timetable.told(),
        [
            "schedule often of task main paused by ann",
            "schedule often of task main resumed by ann"
        ]
    );
}

#[test]
fn a_schedule_that_its_file_turns_off_makes_no_jobs() {
    let off = ScheduleDraft {
        enabled: false,
        ..schedule("0 * * * *")
    };
    let timetable = Timetable::with(off.clone());
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 0);
    assert_eq!(
        timetable.fires()[0].message,
        "the schedule is not enabled in its file"
    );
    // Turned on while the server was off: what was due before belongs to the time when it was not.
    timetable.advance(HOUR);
    timetable.load(&[schedule("0 * * * *")]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.run(10 * MINUTE, HOUR), 1);
    assert_eq!(timetable.ledger(), ["22:00 paused", "00:00 fired"]);
}

/// Off from 21:30 to 02:10, and jobs must not be beside each other.
fn five_missed(overlap: Overlap, max: u32) -> Timetable {
    let timetable = Timetable::with(ScheduleDraft {
        overlap,
        catch_up: CatchUp::All { max },
        ..schedule("0 * * * *")
    });
    timetable.advance(4 * HOUR + 40 * MINUTE);
    assert_eq!(timetable.look(), 1, "the first that is wanted");
    timetable
}

#[test]
fn all_that_is_made_up_for_comes_one_after_another() {
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let timetable = five_missed(overlap, 3);
        let begun = ["22:00 missed", "23:00 missed", "00:00 caught_up"];
        assert_eq!(timetable.ledger(), begun);
        assert_eq!(timetable.run(SECOND, MINUTE), 0, "its job has not ended");
        assert_eq!(timetable.ledger(), begun, "the next one simply waits");
        assert_eq!(timetable.next_at().as_deref(), Some("01:00"));
        assert_eq!(
            timetable.looks_again_at().as_deref(),
            Some("03:00"),
            "nobody looks at it without a pause meanwhile"
        );
        for _ in 0..2 {
            timetable.house.run_all(&[]);
            assert_eq!(timetable.look(), 1);
        }
        timetable.house.run_all(&[]);
        assert_eq!(timetable.look(), 0);
        assert_eq!(
            timetable.ledger()[3..],
            ["01:00 caught_up", "02:00 caught_up"]
        );
        assert_eq!(timetable.next_at().as_deref(), Some("03:00"));
        timetable.advance(HOUR - 11 * MINUTE);
        assert_eq!(timetable.look(), 1, "and then as ever");
        assert_eq!(timetable.ledger()[5..], ["03:00 fired"]);
    }
}

#[test]
fn what_comes_on_time_while_others_wait_has_its_turn_by_overlap() {
    for (overlap, third, fourth) in [
        (Overlap::Skip, "skipped", "skipped"),
        (Overlap::Queue, "queued", "skipped"),
    ] {
        let timetable = five_missed(overlap, 2);
        assert_eq!(timetable.run(10 * MINUTE, 2 * HOUR), 0);
        let on_time = [format!("03:00 {third}"), format!("04:00 {fourth}")];
        assert_eq!(timetable.ledger()[4..], on_time);
        assert_eq!(
            timetable.next_at().as_deref(),
            Some("02:00"),
            "it waits still"
        );

        timetable.house.run_all(&[]);
        assert_eq!(timetable.look(), 1);
        assert_eq!(
            timetable.jobs()[1].scheduled_for,
            Some(timetable.fires()[4].due_at)
        );
        assert_eq!(
            timetable.ledger()[4],
            "02:00 caught_up",
            "before what is queued"
        );
        assert_eq!(timetable.next_at().as_deref(), Some("05:00"));
        timetable.house.run_all(&[]);
        let queued = usize::from(overlap == Overlap::Queue);
        assert_eq!(timetable.look(), queued, "and then what is queued");
    }
}

#[test]
fn what_waits_to_be_made_up_for_is_not_pushed_out_by_what_comes() {
    let timetable = Timetable::with(ScheduleDraft {
        overlap: Overlap::Skip,
        catch_up: CatchUp::All { max: 2 },
        ..schedule("* * * * *")
    });
    timetable.advance(3 * MINUTE + 30 * SECOND);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.run(10 * SECOND, 20 * MINUTE), 0);
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 1);
    assert_eq!(
        timetable.ledger()[..4],
        [
            "21:31 missed",
            "21:32 caught_up",
            "21:33 caught_up",
            "21:34 skipped"
        ]
    );
}

#[test]
fn what_waits_to_be_made_up_for_goes_with_a_pause_and_with_its_policy() {
    let timetable = five_missed(Overlap::Skip, 3);
    let engine = &timetable.house.engine;
    let now = timetable.house.now();
    engine.pause_schedule(ScheduleId(1), "ann", now).unwrap();
    engine.resume_schedule(ScheduleId(1), "ann", now).unwrap();
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger()[3..], ["01:00 paused", "02:00 paused"]);

    let timetable = five_missed(Overlap::Queue, 3);
    timetable.load(&[ScheduleDraft {
        overlap: Overlap::Queue,
        catch_up: CatchUp::None,
        ..schedule("0 * * * *")
    }]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger()[3..], ["01:00 missed", "02:00 missed"]);

    let timetable = five_missed(Overlap::Queue, 3);
    timetable.load(&[ScheduleDraft {
        catch_up: CatchUp::All { max: 3 },
        ..schedule("0 * * * *")
    }]);
    assert_eq!(timetable.look(), 2, "they may be beside each other now");
}

#[test]
fn what_waits_to_be_made_up_for_waits_through_a_restart() {
    let timetable = five_missed(Overlap::Skip, 3);
    timetable.load(&[ScheduleDraft {
        overlap: Overlap::Skip,
        catch_up: CatchUp::All { max: 3 },
        ..schedule("0 * * * *")
    }]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.looks_again_at().as_deref(), Some("03:00"));
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger()[3..], ["01:00 caught_up"]);
}
