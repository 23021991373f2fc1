//! A schedule is due while a job of an earlier time is still there.

use stepward::domain::ScheduleId;
use stepward::domain::job::JobState;
use stepward::domain::reason::Reason;
use stepward::domain::schedule::{Overlap, ScheduleDraft};
use stepward::domain::task::{Concurrency, TaskDraft, WhenFull};

use stepward::engine::{Retry, RetryScope};

use super::{MINUTE, SECOND, Timetable, schedule};
use crate::house::{frozen, script};

fn overlapping(overlap: Overlap) -> Timetable {
    Timetable::with(ScheduleDraft {
        overlap,
        ..schedule("* * * * *")
    })
}

#[test]
fn by_default_a_time_that_finds_a_job_is_skipped() {
    let timetable = overlapping(Overlap::Skip);
    assert_eq!(timetable.run(MINUTE, 3 * MINUTE), 1);
    assert_eq!(
        timetable.ledger(),
        ["21:31 fired", "21:32 skipped", "21:33 skipped"]
    );
    assert_eq!(
        timetable.fires()[1].message,
        "job 1 of an earlier fire had not ended; overlap is skip"
    );
    assert_eq!(
        timetable.told(),
        [
            "schedule often of task main was skipped at 2023-11-14T21:32:00.000Z: job 1 of an earlier fire had not ended; overlap is skip"
        ],
        "one that hangs is told once"
    );
    timetable.house.run_all(&[]);
    assert_eq!(timetable.run(MINUTE, 2 * MINUTE), 1);
    assert_eq!(timetable.told().len(), 2, "and again when it hangs again");
}

#[test]
fn what_a_person_fired_is_in_the_way_as_well() {
    let timetable = overlapping(Overlap::Skip);
    let task = |name: &str| timetable.tasks.get(name).cloned();
    let now = timetable.house.now();
    timetable
        .house
        .engine
        .fire_schedule(ScheduleId(1), None, now, &task)
        .unwrap();
    assert_eq!(timetable.run(MINUTE, MINUTE), 0);
}

#[test]
fn of_two_hundred_times_that_find_a_hung_job_one_waits() {
    let timetable = overlapping(Overlap::Queue);
    assert_eq!(timetable.run(MINUTE, 201 * MINUTE), 1);
    let fires = timetable.fires();
    let count = |word: &str| {
        fires
            .iter()
            .filter(|fire| fire.outcome.as_str() == word)
            .count()
    };
    assert_eq!(
        (count("fired"), count("queued"), count("skipped")),
        (1, 1, 199)
    );
    assert_eq!(fires[1].outcome.as_str(), "queued");
    assert_eq!(
        fires[2].message,
        "the fire of 2023-11-14T21:32:00.000Z waits already; overlap is queue"
    );

    // The hung job ends: the one that waited goes ahead, with its own time, and one may wait again.
    timetable.house.run_all(&[]);
    timetable.advance(SECOND);
    assert_eq!(timetable.look(), 1);
    let second = &timetable.jobs()[1];
    assert_eq!(second.scheduled_for, Some(fires[1].due_at));
    let fire = &timetable.fires()[1];
    assert_eq!(fire.outcome.as_str(), "fired");
    assert_eq!(fire.message, "waited for job 1 of an earlier fire");
    timetable.run(MINUTE, MINUTE);
    assert_eq!(timetable.fires().last().unwrap().outcome.as_str(), "queued");
}

#[test]
fn what_waits_goes_with_a_pause_and_with_its_file() {
    let timetable = overlapping(Overlap::Queue);
    timetable.run(MINUTE, 2 * MINUTE);
    let now = timetable.house.now();
    timetable
        .house
        .engine
        .pause_schedule(ScheduleId(1), "ann", now)
        .unwrap();
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 paused"]);

    let timetable = overlapping(Overlap::Queue);
    timetable.run(MINUTE, 2 * MINUTE);
    timetable.load(&[]);
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 missed"]);
}

#[test]
fn what_waits_stays_while_its_file_does_not_load() {
    let timetable = overlapping(Overlap::Queue);
    timetable.run(MINUTE, 2 * MINUTE);
    timetable.load_in_part(&[]);
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 queued"]);
    timetable.load(&[ScheduleDraft {
        overlap: Overlap::Queue,
        ..schedule("* * * * *")
    }]);
    assert_eq!(timetable.look(), 1);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 fired"]);
}

#[test]
fn what_waits_goes_when_nothing_waits_any_more() {
    let timetable = overlapping(Overlap::Queue);
    timetable.run(MINUTE, 2 * MINUTE);
    timetable.load(&[ScheduleDraft {
        overlap: Overlap::CancelPrevious,
        ..schedule("* * * * *")
    }]);
    assert_eq!(
        timetable.run(MINUTE, MINUTE),
        1,
        "the hung job is not in the way of it"
    );
    assert_eq!(
        timetable.ledger(),
        ["21:31 fired", "21:32 skipped", "21:33 fired"]
    );
    assert_eq!(timetable.jobs()[0].state, JobState::Cancelled);
}

#[test]
fn a_retry_is_in_the_way_as_the_job_was() {
    let timetable = overlapping(Overlap::Skip);
    timetable.run(MINUTE, MINUTE);
    timetable.house.run_all(&["a"]);
    let failed = timetable.jobs()[0].job_id;
    let retry = Retry::of(failed, RetryScope::Failed);
    let now = timetable.house.now();
    timetable.house.engine.retry(retry, now).unwrap();
    assert_eq!(timetable.run(MINUTE, MINUTE), 0);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 skipped"]);
}

#[test]
fn what_waited_may_be_refused_in_the_end() {
    let mut timetable = overlapping(Overlap::Queue);
    timetable.run(MINUTE, 2 * MINUTE);
    timetable.tasks.clear();
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 0);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 refused"]);
    assert_eq!(timetable.told().len(), 1);
    assert_eq!(timetable.run(MINUTE, MINUTE), 0);
}

#[test]
fn jobs_may_be_allowed_beside_each_other() {
    let timetable = overlapping(Overlap::Allow);
    assert_eq!(timetable.run(MINUTE, 3 * MINUTE), 3);
}

#[test]
fn a_new_job_may_take_the_place_of_the_old_one() {
    let timetable = overlapping(Overlap::CancelPrevious);
    assert_eq!(timetable.run(MINUTE, 3 * MINUTE), 3);
    let jobs = timetable.jobs();
    let states: Vec<JobState> = jobs.iter().map(|job| job.state).collect();
    assert_eq!(
        states,
        [JobState::Cancelled, JobState::Cancelled, JobState::Pending]
    );
    assert_eq!(jobs[0].reason, Some(Reason::Superseded));
    assert_eq!(
        jobs[0].message.as_deref(),
        Some("superseded by the fire of 2023-11-14T21:32:00.000Z of schedule often")
    );
}

#[test]
fn one_that_is_refused_takes_no_place() {
    let mut timetable = overlapping(Overlap::CancelPrevious);
    timetable.run(MINUTE, MINUTE);
    timetable.tasks.clear();
    timetable.run(MINUTE, MINUTE);
    assert_eq!(timetable.ledger(), ["21:31 fired", "21:32 refused"]);
    assert_eq!(timetable.jobs()[0].state, JobState::Pending);
}

#[test]
fn a_task_may_have_a_group_of_its_own_beside() {
    let mut timetable = overlapping(Overlap::Queue);
    let concurrency = Some(Concurrency {
        group: "deploy".to_string(),
        limit: 1,
        when_full: WhenFull::Queue,
    });
    let grouped = TaskDraft {
        concurrency,
        ..TaskDraft::new("main", vec![script("a")])
    };
    let grouped = frozen(vec![grouped]);
    timetable.tasks.insert("main".to_string(), grouped.clone());
    // Somebody else is in the group: the schedule's job is made and waits there, the next one waits for that.
    let other = stepward::engine::Submission::of(&grouped);
    timetable.house.submission(other).unwrap();
    timetable.run(MINUTE, 3 * MINUTE);
    assert_eq!(
        timetable.ledger(),
        ["21:31 fired", "21:32 queued", "21:33 skipped"]
    );
    timetable.house.run_all(&[]);
    assert_eq!(timetable.look(), 1);
    timetable.house.run_all(&[]);
    assert!(
        timetable
            .jobs()
            .iter()
            .all(|job| job.state == JobState::Completed)
    );
}
