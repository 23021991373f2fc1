//! A schedule fires: on time, once per time, with what it says.

use stepward::domain::event::EventKind;
use stepward::domain::job::Source;
use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft};
use stepward::domain::task::{Action, StepDraft, TaskDraft};
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::domain::{Json, ScheduleId, Timestamp};
use stepward::engine::{EngineError, Retry, RetryScope};

use stepward::store::Frozen;

use super::{HOUR, MINUTE, SECOND, Timetable, schedule};
use crate::house::frozen;

#[test]
fn a_job_is_made_at_each_time_and_knows_which_was_meant() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    assert_eq!(timetable.look(), 0, "nothing is due yet");
    timetable.advance(30 * MINUTE - 1);
    assert_eq!(timetable.look(), 0, "a millisecond is missing");
    timetable.advance(1);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.look(), 0, "a time comes once");
    timetable.advance(HOUR + 7 * SECOND);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger(), ["22:00 fired", "23:00 fired"]);

    let job = &timetable.jobs()[1];
    assert_eq!(job.source, Source::Schedule);
    assert_eq!(job.schedule_id, Some(ScheduleId(1)));
    let meant = Timestamp(timetable.house.now().wall.0 - 7 * SECOND);
    assert_eq!(job.scheduled_for, Some(meant));
    let told = timetable.house.engine.events_of_job(job.job_id).unwrap();
    assert_eq!(told[0].fact.kind, EventKind::JobSubmitted);
    let data = told[0].fact.data.as_ref().unwrap();
    assert!(data.0.contains(r#""schedule_id":1"#), "{data:?}");
    assert!(
        data.0
            .contains(r#""scheduled_for":"2023-11-14T23:00:00.000Z""#),
        "{data:?}"
    );
    let worker = timetable.house.worker("ann", &[], 2);
    let given = worker.poll(2, &[]).assignments;
    assert_eq!(given[1].scheduled_at, Some(meant), "its steps know it too");
}

#[test]
fn a_retry_keeps_the_time_that_was_meant() {
    let timetable = Timetable::with(schedule("0 22 * * *"));
    timetable.advance(HOUR);
    timetable.look();
    let fired = timetable.jobs().remove(0);
    timetable.house.run_all(&["a"]);
    let retry = Retry::of(fired.job_id, RetryScope::Failed);
    let retried = timetable.house.engine.retry(retry, timetable.house.now());
    let job = timetable.house.job(retried.unwrap().job_id).job;
    assert_eq!(job.source, Source::Retry);
    assert_eq!(job.scheduled_for, fired.scheduled_for);
}

#[test]
fn a_day_of_minutes_is_1440_jobs_however_the_clock_wobbles() {
    // A clock that wobbles by more than what is on time makes fires late; none is lost of those who want all.
    let timetable = Timetable::with(ScheduleDraft {
        catch_up: CatchUp::All { max: 100 },
        ..schedule("* * * * *")
    });
    let clock = &timetable.house.clock;
    let mut wobble_ms = 0;
    let mut made = 0;
    // 21:30 to 21:30; the last of them is looked at with a clock that is right.
    for look in 1..=24 * 180 {
        timetable.advance(20 * SECOND);
        let wanted_ms = match look % 180 {
            0 => 0,
            look => (look * 7_919 % 80 - 40) * SECOND,
        };
        clock.step_wall_ms(wanted_ms - wobble_ms);
        wobble_ms = wanted_ms;
        made += timetable.look();
    }
    assert_eq!(made, 1_440);
    let fires = timetable.fires();
    let begin = timetable.house.now().wall.0 - 24 * HOUR;
    let meant: Vec<i64> = (1..=1_440).map(|minute| begin + minute * MINUTE).collect();
    let ledger: Vec<i64> = fires.iter().map(|fire| fire.due_at.0).collect();
    assert_eq!(ledger, meant);
    assert!(fires.iter().all(|fire| fire.job_id.is_some()));
}

#[test]
fn two_who_look_at_once_make_one_job() {
    let timetable = Timetable::with(schedule("* * * * * *"));
    let engine = &timetable.house.engine;
    for _ in 0..50 {
        timetable.advance(SECOND);
        let now = timetable.house.now();
        let tasks = &timetable.tasks;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    let task = |name: &str| tasks.get(name).cloned();
                    engine.fire_due(now, &task).unwrap();
                });
            }
        });
    }
    let fires = timetable.fires();
    assert_eq!(fires.len(), 50);
    assert!(fires.iter().all(|fire| fire.outcome.as_str() == "fired"));
    let jobs = engine
        .store
        .read(|tx| Ok::<_, EngineError>(tx.latest_job()?));
    assert_eq!(jobs.unwrap().unwrap().0, 50, "no job without its time");
}

#[test]
fn the_clock_is_set_back_and_no_time_comes_twice_or_never() {
    let timetable = Timetable::with(schedule("*/15 * * * *"));
    assert_eq!(timetable.run(MINUTE, HOUR), 4, "21:45 to 22:30");
    timetable.house.clock.step_wall_ms(-HOUR);
    assert_eq!(timetable.run(MINUTE, HOUR), 0, "all that had its turn");
    assert_eq!(timetable.run(MINUTE, 15 * MINUTE), 1);
    assert_eq!(
        timetable.ledger(),
        [
            "21:45 fired",
            "22:00 fired",
            "22:15 fired",
            "22:30 fired",
            "22:45 fired"
        ]
    );
    assert_eq!(timetable.told(), Vec::<String>::new());
}

#[test]
fn a_clock_that_was_years_ahead_does_not_silence_a_schedule_for_years() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    let years = 50 * 365 * 24 * HOUR;
    timetable.house.clock.step_wall_ms(years);
    timetable.look();
    assert!(
        timetable.fires().is_empty(),
        "it is wrong, no time was missed"
    );
    timetable.house.clock.step_wall_ms(-years);
    timetable.look();
    assert_eq!(timetable.next_at().as_deref(), Some("22:00"));
    assert_eq!(timetable.run(10 * MINUTE, 2 * HOUR), 2);
    assert_eq!(timetable.ledger()[..2], ["22:00 fired", "23:00 fired"]);
}

#[test]
fn what_a_clock_that_was_ahead_called_missed_fires_when_it_comes() {
    let two_days = 48 * HOUR;
    let a_day = 24 * HOUR;
    let ahead_for_seconds = || {
        let timetable = Timetable::with(schedule("0 * * * *"));
        timetable.house.clock.step_wall_ms(a_day);
        assert_eq!(timetable.run(SECOND, 3 * SECOND), 0, "nobody was away");
        assert_eq!(timetable.ledger(), ["22:00 missed"], "and all after it");
        timetable.house.clock.step_wall_ms(-a_day);
        timetable
    };
    let complete = |timetable: &Timetable| {
        assert_eq!(timetable.run(10 * SECOND, two_days), 48, "every hour");
        let fires = timetable.fires();
        assert_eq!(fires.len(), 48);
        assert!(fires.iter().all(|fire| fire.job_id.is_some()), "{fires:?}");
    };
    let running = ahead_for_seconds();
    running.look();
    complete(&running);
    // It was set right while the server was off.
    let restarted = ahead_for_seconds();
    restarted.restart(&[schedule("0 * * * *")]);
    complete(&restarted);
}

#[test]
fn a_time_that_comes_while_the_clock_is_ahead_is_not_lost() {
    let day = 24 * HOUR;
    let timetable = Timetable::with(ScheduleDraft {
        catch_up: CatchUp::None,
        ..schedule("0 22 * * *")
    });
    timetable.advance(30 * MINUTE - SECOND);
    timetable.house.clock.step_wall_ms(day);
    assert_eq!(
        timetable.run(SECOND, 3 * SECOND),
        1,
        "that of tomorrow, on time"
    );
    timetable.house.clock.step_wall_ms(-day);
    assert_eq!(timetable.look(), 1, "two seconds after ten");
    assert_eq!(timetable.ledger(), ["22:00 fired", "22:00 fired"]);
}

#[test]
fn what_was_skipped_by_a_clock_that_was_ahead_has_its_turn_again() {
    let timetable = Timetable::with(ScheduleDraft {
        overlap: Overlap::Skip,
        ..schedule("*/15 * * * *")
    });
    assert_eq!(timetable.run(MINUTE, 15 * MINUTE), 1);
    timetable
        .house
        .clock
        .step_wall_ms(14 * MINUTE + 59 * SECOND);
    assert_eq!(timetable.run(SECOND, SECOND), 0);
    assert_eq!(timetable.ledger(), ["21:45 fired", "22:00 skipped"]);
    timetable
        .house
        .clock
        .step_wall_ms(-(14 * MINUTE + 59 * SECOND));
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.run(SECOND, 15 * MINUTE), 1);
    assert_eq!(timetable.ledger(), ["21:45 fired", "22:00 fired"]);
}

#[test]
fn a_time_that_daylight_saving_skips_or_repeats_fires_once() {
    let oslo = |timezone: &str, begin: &str| {
        let timetable = Timetable::new();
        let begin: jiff::Timestamp = begin.parse().unwrap();
        let now = timetable.house.now().wall.0;
        let clock = &timetable.house.clock;
        clock.step_wall_ms(begin.as_millisecond() - now);
        timetable.load(&[ScheduleDraft {
            timezone: timezone.to_string(),
            ..schedule("30 2 * * *")
        }]);
        timetable.run(5 * MINUTE, 24 * HOUR);
        timetable.ledger()
    };
    assert_eq!(oslo("Europe/Oslo", "2024-03-30T12:00:00Z"), ["01:00 fired"]);
    assert_eq!(oslo("Europe/Oslo", "2024-10-26T12:00:00Z"), ["00:30 fired"]);
    assert_eq!(
        oslo("America/New_York", "2024-03-09T12:00:00Z"),
        ["07:00 fired"]
    );
    assert_eq!(
        oslo("Australia/Lord_Howe", "2024-10-05T06:00:00Z"),
        ["15:30 fired"]
    );
}

/// Asks for a day, and may be told by whom and how often.
fn asking() -> Frozen {
    let day = ValueSpec {
        required: true,
        ..ValueSpec::new("day", ValueType::String)
    };
    frozen(vec![TaskDraft {
        inputs: vec![
            day,
            ValueSpec::new("by", ValueType::String),
            ValueSpec::new("n", ValueType::Integer),
        ],
        ..TaskDraft::new(
            "main",
            vec![StepDraft::script("a", "echo {{ job.scheduled_at | sh }}")],
        )
    }])
}

#[test]
fn the_input_is_rendered_with_the_time_that_was_meant() {
    let input = r#"{"day": "{{ schedule.at }}", "by": "{{ schedule.name }} fire", "n": 3}"#;
    let mut timetable = Timetable::with(ScheduleDraft {
        input: Json(input.to_string()),
        ..schedule("0 22 * * *")
    });
    timetable.tasks.insert("main".to_string(), asking());
    timetable.advance(31 * MINUTE);
    timetable.look();
    let given: serde_json::Value = serde_json::from_str(&timetable.jobs()[0].input.0).unwrap();
    let expected =
        serde_json::json!({"day": "2023-11-14T22:00:00.000Z", "by": "often fire", "n": 3});
    assert_eq!(given, expected);
    let worker = timetable.house.worker("ann", &[], 1);
    let Action::Script { script, .. } = worker.claim().action else {
        panic!("it is a script");
    };
    assert_eq!(script, "echo '2023-11-14T22:00:00.000Z'");
}

#[test]
fn an_input_that_does_not_fit_is_refused_with_all_that_is_wrong() {
    let mut timetable = Timetable::with(ScheduleDraft {
        input: Json(r#"{"n": "many", "who": "?"}"#.to_string()),
        overlap: Overlap::CancelPrevious,
        ..schedule("*/10 * * * *")
    });
    timetable.tasks.insert("main".to_string(), asking());
    assert_eq!(timetable.run(MINUTE, 30 * MINUTE), 0);
    assert_eq!(
        timetable.ledger(),
        ["21:40 refused", "21:50 refused", "22:00 refused"]
    );
    let why = &timetable.fires()[0].message;
    for name in ["day", "n", "who"] {
        assert!(why.contains(&format!("{name} ")), "{name}: {why}");
    }
    assert_eq!(timetable.told().len(), 1, "the first of several in a row");
    let task = |name: &str| timetable.tasks.get(name).cloned();
    let now = timetable.house.now();
    let engine = &timetable.house.engine;
    let by_hand = engine.fire_schedule(ScheduleId(1), None, now, &task);
    assert!(matches!(by_hand, Err(EngineError::InputInvalid { .. })));
    assert_eq!(timetable.fires().len(), 3, "whoever fires by hand is told");
}

#[test]
fn a_refusal_that_speaks_of_its_time_is_told_once_in_a_row() {
    let mut timetable = Timetable::with(ScheduleDraft {
        input: Json(r#"{"day": "today", "n": "{{ schedule.at }}"}"#.to_string()),
        ..schedule("*/10 * * * *")
    });
    timetable.tasks.insert("main".to_string(), asking());
    assert_eq!(timetable.run(MINUTE, 30 * MINUTE), 0);
    let fires = timetable.fires();
    assert_eq!(fires.len(), 3);
    assert_ne!(fires[0].message, fires[1].message);
    assert_eq!(timetable.told().len(), 1, "{:?}", timetable.told());
}

#[test]
fn what_its_task_does_not_take_is_refused_and_the_schedule_goes_on() {
    let broken = ScheduleDraft {
        input: Json(r#"{"x": "{{ nobody.knows }}"}"#.to_string()),
        ..schedule("*/10 * * * *")
    };
    let timetable = Timetable::with(broken);
    assert_eq!(timetable.run(MINUTE, 20 * MINUTE), 0);
    timetable.load(&[schedule("*/10 * * * *")]);
    assert_eq!(timetable.run(MINUTE, 10 * MINUTE), 1);
    timetable.load(&[ScheduleDraft {
        task: "gone".to_string(),
        ..schedule("*/10 * * * *")
    }]);
    assert_eq!(timetable.run(MINUTE, 20 * MINUTE), 0);
    assert_eq!(
        timetable.ledger(),
        ["21:40 refused", "21:50 refused", "22:00 fired"]
    );
    let told = timetable.told();
    assert_eq!(told.len(), 2, "the first of several in a row: {told:?}");
    assert!(told[0].starts_with("schedule often of task main was refused at 2023-11-14T21:40:00.000Z: input of schedule often cannot be rendered: "), "{}", told[0]);
    assert_eq!(
        told[1],
        "schedule often of task gone was refused at 2023-11-14T22:10:00.000Z: schedule often names task gone, which is not there"
    );
}

#[test]
fn a_person_fires_it_now() {
    let timetable = Timetable::with(schedule("0 * * * *"));
    let engine = &timetable.house.engine;
    let task = |name: &str| timetable.tasks.get(name).cloned();
    let fire = |key: Option<&str>| {
        let key = key.map(str::to_string);
        engine.fire_schedule(ScheduleId(1), key, timetable.house.now(), &task)
    };
    let first = fire(Some("once")).unwrap();
    let again = fire(Some("once")).unwrap();
    assert_eq!((first.job_id, again.repeated), (again.job_id, true));
    assert_ne!(fire(None).unwrap().job_id, first.job_id);
    let job = timetable.house.job(first.job_id).job;
    assert_eq!(job.source, Source::Schedule);
    assert_eq!(timetable.next_at().as_deref(), Some("22:00"), "as before");

    // Also in the very moment in which it is due.
    timetable.advance(30 * MINUTE);
    fire(None).unwrap();
    assert_eq!(timetable.look(), 1);
    let manual: Vec<bool> = timetable.fires().iter().map(|fire| fire.manual).collect();
    assert_eq!(manual, [true, true, false, true]);

    let unknown = engine.fire_schedule(ScheduleId(7), None, timetable.house.now(), &task);
    assert_eq!(unknown.unwrap_err().to_string(), "there is no schedule 7");
    let no_task = engine.fire_schedule(ScheduleId(1), None, timetable.house.now(), &|_| None);
    assert_eq!(
        no_task.unwrap_err().to_string(),
        "schedule often names task main, which is not there"
    );
}

#[test]
fn a_schedule_is_found_by_its_number_and_by_its_name() {
    let timetable = Timetable::new();
    timetable.load(&[
        ScheduleDraft {
            task: "a.b".to_string(),
            name: "c".to_string(),
            ..schedule("@daily")
        },
        schedule("@daily"),
    ]);
    let select = |selector: &str| timetable.house.engine.select_schedule(selector);
    assert_eq!(select("2").unwrap(), ScheduleId(2));
    assert_eq!(select("a.b.c").unwrap(), ScheduleId(1));
    assert_eq!(select("main.often").unwrap(), ScheduleId(2));
    for nobody in ["main", "main.", ".", "", "a.b", "99999999999999999999"] {
        assert!(select(nobody).is_err(), "{nobody:?}");
    }
}
