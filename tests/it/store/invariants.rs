//! The invariant checker finds what it is there for: each rule is broken by hand, past all guards.

use rusqlite::Connection;
use stepward::clock::ManualClock;
use stepward::domain::Json;
use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft};
use stepward::domain::task::{ForEach, StepDraft, TaskDraft};
use stepward::engine::{Engine, Finished, Poll, Settings, Submission};
use stepward::store::Store;

use crate::house::{frozen, registration, script};

/// A folder with a job in the middle of its life: `a` completed, `b` running, `c` pending, `go` with a child job, `each` expanded.
fn some_life(folder: &std::path::Path) {
    let clock = ManualClock::default();
    let engine = Engine::new(
        Store::open(folder, Default::default()).unwrap(),
        Settings::default(),
    );
    let items = vec![Json("1".to_string()), Json("2".to_string())];
    let for_each = Some(ForEach {
        items: stepward::domain::task::Items::List(items),
        max_parallel: None,
    });
    let task = frozen(vec![
        TaskDraft::new(
            "main",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").after(&["b"]),
                StepDraft::task("go", "child"),
                StepDraft {
                    for_each,
                    ..script("each")
                },
            ],
        ),
        TaskDraft::new("child", vec![script("x")]),
    ]);
    engine.submit(Submission::of(&task), clock.now()).unwrap();
    engine
        .open_session(registration("ann", "ann-1", &[], 2), vec![], clock.now())
        .unwrap();
    let poll = || Poll {
        session_key: "ann-1".to_string(),
        free_slots: 1,
        held: vec![],
    };
    let claimed = engine
        .poll(poll(), clock.now())
        .unwrap()
        .assignments
        .remove(0);
    engine.start("ann-1", claimed.attempt, clock.now()).unwrap();
    engine
        .finish("ann-1", claimed.attempt, Finished::completed(), clock.now())
        .unwrap();
    let claimed = engine
        .poll(poll(), clock.now())
        .unwrap()
        .assignments
        .remove(0);
    engine.start("ann-1", claimed.attempt, clock.now()).unwrap();
    // A schedule that has fired once, as job 3, and whose second fire waits.
    let draft = ScheduleDraft {
        task: "child".to_string(),
        name: "often".to_string(),
        // The clock of this life reads twenty seconds past.
        cron: "20 * * * * *".to_string(),
        timezone: "UTC".to_string(),
        input: Json::empty_object(),
        overlap: Overlap::Queue,
        catch_up: CatchUp::None,
        enabled: true,
    };
    engine.set_schedules(&[draft], true, clock.now()).unwrap();
    let child = frozen(vec![TaskDraft::new("child", vec![script("x")])]);
    for _ in 0..2 {
        clock.step_wall_ms(60_000);
        let task = |_: &str| Some(child.clone());
        engine.fire_due(clock.now(), &task).unwrap();
    }
    assert_eq!(engine.breaches().unwrap(), []);
}

#[test]
fn each_rule_is_caught_when_it_is_broken() {
    let cases = [
        (
            "a terminal job has only terminal steps",
            "UPDATE job SET state = 'completed', ended_at = 1, steps_open = 0, due_up = NULL WHERE job_id = 1",
        ),
        (
            "a job whose steps have all ended has ended",
            "UPDATE step SET state = 'completed', ended_at = 1, due_up = NULL, waiting_on = 0",
        ),
        (
            "a job counts its steps",
            "UPDATE job SET steps_open = 7 WHERE job_id = 1",
        ),
        (
            "a pending step waits for exactly its open dependencies",
            "UPDATE step SET waiting_on = 2 WHERE job_id = 1 AND position = 2",
        ),
        (
            "a step is decided after all that it depends on",
            "UPDATE step SET state = 'ready', waiting_on = 0, queued_up = 1, ready_at = 1
              WHERE job_id = 1 AND position = 2",
        ),
        (
            "every dependent of an ended step is decided",
            "UPDATE step SET state = 'completed', ended_at = 1, due_up = NULL WHERE job_id = 1 AND position = 1",
        ),
        (
            "a step runs if and only if its dependencies are accepted",
            "UPDATE step SET state = 'failed', reason = 'exit_code', message = 'm' WHERE job_id = 1 AND position = 0",
        ),
        (
            "an attempt number is issued once",
            "UPDATE step SET attempt = 5 WHERE job_id = 1 AND position = 1",
        ),
        (
            "every started attempt of a step is listed with its outcome",
            "UPDATE step SET tries = 2 WHERE job_id = 1 AND position = 1",
        ),
        (
            "every started attempt of a step is listed with its outcome",
            "UPDATE step SET session_id = NULL WHERE state = 'completed'",
        ),
        (
            "a session holds no more than its worker has slots",
            "UPDATE worker SET slots = 0",
        ),
        (
            "what a session holds is its worker's, and the session is current",
            "UPDATE worker SET session_id = NULL, state = 'inactive', deleted_at = 1",
        ),
        (
            "what a session holds is its worker's, and the session is current",
            "UPDATE step SET session_id = 999 WHERE session_id IS NOT NULL",
        ),
        ("a worker holds only what its tags allow", "DELETE FROM capability"),
        (
            "nothing has happened after the service clock",
            "UPDATE worker SET seen_up = 1",
        ),
        (
            "nothing has happened after the service clock",
            "UPDATE step SET since_up = 1 WHERE step_id = 1",
        ),
        (
            "what recovery did is told as its doing",
            "UPDATE event SET phase = 2 WHERE seq = 1",
        ),
        (
            "a parent step runs for as long as its child job does",
            "UPDATE step SET state = 'completed', ended_at = 1 WHERE job_id = 1 AND position = 3",
        ),
        (
            "a running task step has its child job",
            "UPDATE job SET parent_step_id = 1 WHERE job_id = 2",
        ),
        (
            "every failed step was told once",
            "UPDATE step SET state = 'failed', reason = 'exit_code', message = 'm', ended_at = 1, due_up = NULL
              WHERE job_id = 1 AND position = 1",
        ),
        (
            "every ended job was told once",
            "UPDATE job SET state = 'completed', ended_at = 1, steps_open = 0, due_up = NULL WHERE job_id = 2",
        ),
        (
            "only a step in the queue or just assigned is kept from workers that gave it back",
            "INSERT INTO avoidance (step_id, worker_id, until_up) VALUES (1, 1, 1)",
        ),
        (
            "what a row refers to exists",
            "UPDATE step SET job_id = 999 WHERE job_id = 2",
        ),
        (
            "what a row refers to exists",
            "UPDATE step SET requirement_id = 77 WHERE requirement_id = 1",
        ),
        (
            "what a row refers to exists",
            "UPDATE job SET definition_id = 77 WHERE job_id = 1",
        ),
        (
            "every job, its steps and its definition can be read",
            "UPDATE definition SET body = 'rubbish'",
        ),
        (
            "every job, its steps and its definition can be read",
            "UPDATE step SET reason = 'rubbish' WHERE job_id = 1 AND position = 2",
        ),
        (
            "a job is made from a task of its definition",
            "UPDATE job SET task_index = 7 WHERE job_id = 1",
        ),
        (
            "a job has the steps of its definition, each in its place",
            "UPDATE step SET position = 99 WHERE job_id = 1 AND position = 2",
        ),
        (
            "a job has the steps of its definition, each in its place",
            "DELETE FROM step WHERE job_id = 1 AND position = 2",
        ),
        (
            "a worker has a session of its own until it is deleted",
            "UPDATE worker SET session_id = NULL",
        ),
        (
            "whoever had a step is known",
            "UPDATE step SET worker_id = 999 WHERE state = 'completed'",
        ),
        (
            "whoever had a step is known",
            "UPDATE step SET worker_id = NULL, session_id = 999 WHERE state = 'completed'",
        ),
        (
            "a job blames a step of its own that failed",
            "UPDATE job SET failed_step_id = 1 WHERE job_id = 1",
        ),
        (
            "a deleted worker can do nothing",
            "UPDATE worker SET state = 'inactive', deleted_at = 1",
        ),
        (
            "a running loop waits for exactly its open instances",
            "UPDATE step SET waiting_on = 9 WHERE kind = 'loop'",
        ),
        (
            "an ended loop has only ended instances",
            "UPDATE step SET state = 'completed', ended_at = 1, waiting_on = 0 WHERE kind = 'loop'",
        ),
        (
            "a step is what its definition says",
            "UPDATE step SET kind = 'approval', requirement_id = NULL WHERE job_id = 1 AND position = 2",
        ),
        (
            "a pending job has nothing running",
            "UPDATE job SET state = 'pending', started_at = NULL WHERE job_id = 1",
        ),
        (
            "a held job has not begun",
            "UPDATE job SET state = 'pending', started_at = NULL, hold = 'concurrency' WHERE job_id = 1",
        ),
        (
            "nobody waits for an empty group",
            "UPDATE job SET hold = 'concurrency', concurrency_group = 'g' WHERE job_id = 2",
        ),
        (
            "a fire has its job, and the job its fire",
            "UPDATE job SET scheduled_for = 7 WHERE source = 'schedule'",
        ),
        (
            "a fire has its job, and the job its fire",
            "UPDATE job SET source = 'submit' WHERE source = 'schedule'",
        ),
        (
            "a fire has its job, and the job its fire",
            "DELETE FROM schedule_fire WHERE job_id IS NOT NULL",
        ),
        (
            "no fire of a schedule that makes no jobs waits to be one",
            "UPDATE schedule SET paused = 1",
        ),
        (
            "what a row refers to exists",
            "UPDATE schedule_fire SET schedule_id = 9 WHERE outcome = 'queued'",
        ),
        (
            "a job that is not held can go on",
            "UPDATE step SET state = 'pending', ready_at = NULL, queued_up = NULL WHERE job_id = 2",
        ),
    ];
    for (rule, breakage) in cases {
        let folder = tempfile::tempdir().unwrap();
        some_life(folder.path());
        let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
        sql.pragma_update(None, "foreign_keys", false).unwrap();
        assert!(
            sql.execute(breakage, [])
                .unwrap_or_else(|error| panic!("{rule}: {error}"))
                > 0,
            "{rule}"
        );
        drop(sql);
        let store = Store::open(folder.path(), Default::default()).unwrap();
        let found = store.read(|tx| tx.breaches()).unwrap();
        assert!(
            found.iter().any(|breach| breach.rule == rule),
            "{rule}: {found:?}"
        );
    }
}

#[test]
fn the_schema_itself_refuses_states_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    some_life(folder.path());
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    for breakage in [
        "UPDATE step SET state = 'sleeping' WHERE position = 0",
        "UPDATE step SET state = 'running' WHERE position = 2",
        "UPDATE step SET ended_at = NULL WHERE position = 0",
        "UPDATE step SET state = 'failed' WHERE position = 0",
        "UPDATE step SET session_id = NULL WHERE position = 1",
        "UPDATE step SET waiting_on = -1 WHERE position = 2",
        "UPDATE step SET state = 'skipped', reason = 'when_false', message = '', ended_at = 1 WHERE position = 2",
        "UPDATE step SET child_job_id = NULL WHERE kind = 'task'",
        "UPDATE step SET state = 'assigned' WHERE position = 2",
        "UPDATE job SET state = 'completed' WHERE job_id = 1",
        "UPDATE job SET state = 'failed', ended_at = 1, steps_open = 0, due_up = NULL WHERE job_id = 1",
        "UPDATE job SET hold = 'concurrency' WHERE job_id = 1",
        "UPDATE job SET depth = 11",
        "UPDATE worker SET state = 'asleep'",
        "UPDATE worker SET slots = 'many'",
        "UPDATE schedule SET overlap = 'maybe'",
        "UPDATE schedule SET catch_up = 'latest'",
        "UPDATE schedule SET removed_at = 1",
        "UPDATE schedule SET look_at = next_at - 1",
        "UPDATE schedule SET next_at = NULL",
        "UPDATE schedule_fire SET outcome = 'fired' WHERE outcome = 'queued'",
        "UPDATE schedule_fire SET outcome = 'missed' WHERE outcome = 'fired'",
        "UPDATE schedule_fire SET outcome = 'queued', job_id = NULL WHERE outcome = 'fired'",
        "UPDATE schedule_fire SET due_at = (SELECT max(due_at) FROM schedule_fire)",
        "UPDATE schedule_fire SET manual = 1 WHERE outcome = 'queued'",
    ] {
        let refused = sql.execute(breakage, []);
        assert!(refused.is_err(), "{breakage}: {refused:?}");
    }
}
