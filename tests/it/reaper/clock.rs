//! A clock that is wrong costs nobody a history.

use super::{Attic, DAY, HOUR};

const TEN_YEARS: i64 = 3_652 * DAY;

#[test]
fn a_clock_that_jumps_ten_years_removes_nothing() {
    for years in [TEN_YEARS, -TEN_YEARS] {
        let attic = Attic::new();
        let before = attic.done_job();
        attic.pass(DAY);
        attic.house.clock.step_wall_ms(years);
        attic.reap();
        attic.restart();
        attic.reap();
        let between = attic.done_job();
        attic.pass(DAY);
        attic.house.clock.step_wall_ms(-years);
        attic.reap();
        attic.pass(60 * DAY);
        assert!(attic.exists(before) && attic.exists(between), "{years}");
        // And what was made while it was wrong goes when its days are over, whatever is written beside it.
        attic.pass(29 * DAY);
        assert!(!attic.exists(before), "{years}");
        attic.pass(2 * DAY);
        assert!(!attic.exists(between), "{years}");
    }
}

#[test]
fn nights_in_which_the_server_was_off_count_as_days_do() {
    let attic = Attic::new();
    let job = attic.done_job();
    for day in 0..91 {
        assert!(attic.exists(job), "day {day}");
        attic.pass(8 * HOUR);
        // It is off: the wall clock alone goes on.
        attic.house.clock.step_wall_ms(16 * HOUR);
        attic.restart();
        attic.reap();
    }
    assert!(!attic.exists(job));
}
