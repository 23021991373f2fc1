//! A process that is killed between any two statements leaves all of an event or nothing of it.
//!
//! This program is both sides: with `child` as its first argument it plays a script of verbs and kills itself before the
//! given statement; without, it is an ordinary test that plays the script once undisturbed, remembers the database after
//! every verb, and then holds each killed child against that. A second child ends itself while it answers.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use stepward::clock::ManualClock;
use stepward::domain::event::{EventKind, NewEvent};
use stepward::domain::outbox::Target;
use stepward::domain::protocol::Registration;
use stepward::domain::retry::{OnWorkerLoss, RetryPolicy};
use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft};
use stepward::domain::task::{Definition, ForEach, Hook, HookDoes, HookOn, StepDraft, TaskDraft};
use stepward::domain::{AttemptRef, EventSeq, JobId, Json, ScheduleId, StepId, Uptime, WorkerId};
use stepward::engine::{
    Beat, Decision, Engine, Finished, News, Poll, Reports, Retry, RetryScope, Settings, Spooled,
    Submission, Suspect, Verdict,
};
use stepward::store::{Frozen, Store, StoreError, StoreOptions};

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("child") {
        let folder = words.next().expect("a folder");
        let folder = Path::new(&folder);
        return match words.next().expect("a statement, or what to do").as_str() {
            "answer" => answer_and_panic(folder),
            "upgrade" => {
                let statement = words.next().expect("a statement");
                upgrade_and_die(folder, statement.parse().expect("a number"))
            }
            statement => play_and_die(folder, statement.parse().expect("a number")),
        };
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test(
            "a_kill_between_any_two_statements_leaves_all_or_nothing",
            kill_everywhere,
        ),
        Trial::test(
            "a_panic_while_answering_ends_the_process_and_nobody_is_told_a_lie",
            panic_while_answering,
        ),
        Trial::test(
            "a_kill_in_the_middle_of_an_upgrade_leaves_the_former_version_or_a_later_one_as_a_whole",
            kill_upgrades,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

const SIGABRT: i32 = 6;
const ANSWERED_TOGETHER: usize = 8;

/// The child: calls that share a commit, one of which owns something that panics when it is dropped.
fn answer_and_panic(folder: &Path) {
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "dropped");
        }
    }
    let store = Store::open(folder, StoreOptions::default()).expect("a store");
    let (inside_tx, inside_rx) = std::sync::mpsc::channel();
    let (go_on_tx, go_on_rx) = std::sync::mpsc::channel::<()>();
    let go_on_rx = std::sync::Mutex::new(go_on_rx);
    std::thread::scope(|scope| {
        let occupied = store.clone();
        scope.spawn(move || {
            occupied.write(move |_| {
                inside_tx.send(()).expect("the test waits");
                // An error says that the other end is gone: that is the word.
                let _ = go_on_rx.lock().expect("nobody else").recv();
                Ok::<_, StoreError>(())
            })
        });
        inside_rx.recv().expect("the writer is inside");
        for n in 0..ANSWERED_TOGETHER {
            let store = store.clone();
            let bomb = Bomb(n == 0);
            scope.spawn(move || {
                let written = store.write(move |tx| {
                    let _ = &bomb;
                    let event = NewEvent::new(EventKind::WorkerActive, n.to_string());
                    tx.record(&event, ManualClock::default().now())
                });
                if let Err(error) = written {
                    println!("{error}");
                }
            });
        }
        while store.queued() < ANSWERED_TOGETHER {
            std::thread::yield_now();
        }
        drop(go_on_tx);
    });
}

fn panic_while_answering() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let child = Command::new(std::env::current_exe()?)
        .args(["child", &folder.path().to_string_lossy(), "answer"])
        .output()?;
    assert_eq!(child.status.signal(), Some(SIGABRT), "{child:?}");
    let said = String::from_utf8(child.stderr)?;
    assert!(said.contains("thread answers panicked"), "{said}");
    assert_eq!(String::from_utf8(child.stdout)?, "");
    let store = Store::open(folder.path(), StoreOptions::default())?;
    let kept = store.read(|tx| tx.events_after(EventSeq(0), 100))?;
    assert_eq!(kept.len(), ANSWERED_TOGETHER);
    Ok(())
}

/// The oldest database that was ever released, as its server left it.
const OLDEST: &str = include_str!("it/store/released/version-1.sql");

fn upgrade_and_die(folder: &Path, statement: u64) {
    Store::open(folder, dying_at(statement)).unwrap();
}

/// Of a process that ends before this statement.
fn dying_at(statement: u64) -> StoreOptions {
    let observer = move |number: u64, _: &'static str| {
        if number == statement {
            let myself = rustix::process::getpid();
            rustix::process::kill_process(myself, rustix::process::Signal::KILL).unwrap();
        }
    };
    StoreOptions {
        on_statement: Some(Arc::new(observer)),
        ..StoreOptions::default()
    }
}

/// Before each statement of all upgrades: whoever starts the former program then finds what it left, and this one goes on.
fn kill_upgrades() -> Result<(), Failed> {
    let mut kills_at = std::collections::BTreeMap::new();
    for statement in 1.. {
        let folder = folder_with_key();
        let file = folder.path().join("stepward.db");
        rusqlite::Connection::open(&file)?.execute_batch(OLDEST)?;
        let before = (version(&file)?, schema(&file)?, dump(folder.path()));
        let child = Command::new(std::env::current_exe()?)
            .args([
                "child",
                &folder.path().to_string_lossy(),
                "upgrade",
                &statement.to_string(),
            ])
            .output()?;
        if child.status.success() {
            break;
        }
        assert_eq!(child.status.signal(), Some(9), "{child:?}");
        let found = version(&file)?;
        *kills_at.entry(found).or_insert(0) += 1;
        if found == before.0 {
            assert_eq!(schema(&file)?, before.1, "statement {statement}");
            assert_eq!(dump(folder.path()), before.2, "statement {statement}");
        }
        drop(Store::open(folder.path(), StoreOptions::default())?);
        assert_eq!(version(&file)?, stepward::store::SCHEMA_VERSION);
        let copy = folder.path().join(format!("stepward.db.version-{found}"));
        assert_eq!(version(&copy)?, found, "statement {statement}");
    }
    // One before the copy, one before each index, two before the end.
    assert!(
        kills_at.get(&1).is_some_and(|kills| *kills >= 6),
        "{kills_at:?}"
    );
    let last = stepward::store::SCHEMA_VERSION - 1;
    assert_eq!(
        kills_at.keys().copied().collect::<Vec<i64>>(),
        (1..=last).collect::<Vec<i64>>()
    );
    Ok(())
}

fn version(file: &Path) -> rusqlite::Result<i64> {
    let sql = rusqlite::Connection::open(file)?;
    sql.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn schema(file: &Path) -> rusqlite::Result<Vec<String>> {
    let sql = rusqlite::Connection::open(file)?;
    let mut names = sql.prepare("SELECT name FROM sqlite_schema ORDER BY name")?;
    names.query_map([], |row| row.get(0))?.collect()
}

/// How many kills are spread over the script.
const KILLS: u64 = 150;

/// A data folder with the same key as all others: what is made with it can be compared.
fn folder_with_key() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600);
    let mut file = file.open(folder.path().join("secret.key")).unwrap();
    file.write_all(&[7; 32]).unwrap();
    folder
}

fn kill_everywhere() -> Result<(), Failed> {
    let (snapshots, statements) = play_undisturbed();
    let stride = (statements / KILLS).max(1);
    let mut kills = 0;
    for statement in (1..=statements).step_by(stride as usize) {
        let folder = folder_with_key();
        let child = Command::new(std::env::current_exe()?)
            .args([
                "child",
                &folder.path().to_string_lossy(),
                &statement.to_string(),
            ])
            .stdout(Stdio::piped())
            .output()?;
        if child.status.success() {
            return Err(format!("statement {statement} of {statements} was never reached").into());
        }
        let answered = String::from_utf8(child.stdout)?.lines().count();
        {
            let store = Store::open(folder.path(), StoreOptions::default())?;
            let breaches = store.read(|tx| tx.breaches())?;
            if !breaches.is_empty() {
                return Err(format!("killed at statement {statement}: {breaches:?}").into());
            }
        }
        let found = dump(folder.path());
        // Everything that was answered is there; the verb under way is there as a whole or not at all.
        if found != snapshots[answered] && Some(&found) != snapshots.get(answered + 1) {
            return Err(format!(
                "killed at statement {statement} after {answered} answers: a half-done verb\n{found}"
            )
            .into());
        }
        kills += 1;
    }
    assert!(kills >= KILLS.min(statements));
    Ok(())
}

/// The database after 0, 1, 2 … verbs, and the statements that all of them take.
fn play_undisturbed() -> (Vec<String>, u64) {
    let folder = folder_with_key();
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    let engine = Engine::new(store.clone(), Settings::default());
    engine.set_targets(vec![Target::of_hooks("tell")]);
    let clock = ManualClock::default();
    let mut snapshots = vec![dump(folder.path())];
    for verb in script() {
        clock.advance_ms(1_000);
        verb(&engine, &clock);
        snapshots.push(dump(folder.path()));
    }
    (snapshots, store.statements())
}

fn play_and_die(folder: &Path, statement: u64) {
    let store = Store::open(folder, dying_at(statement)).unwrap();
    let engine = Engine::new(store, Settings::default());
    engine.set_targets(vec![Target::of_hooks("tell")]);
    let clock = ManualClock::default();
    for verb in script() {
        clock.advance_ms(1_000);
        verb(&engine, &clock);
        println!("answered");
        std::io::stdout().flush().unwrap();
    }
}

type Verb = Box<dyn Fn(&Engine, &ManualClock)>;

/// A little of everything, with ids that are the same every time.
fn script() -> Vec<Verb> {
    fn verb(verb: impl Fn(&Engine, &ManualClock) + 'static) -> Verb {
        Box::new(verb)
    }
    fn attempt(step_id: i64, attempt: u32) -> AttemptRef {
        AttemptRef {
            step_id: StepId(step_id),
            attempt,
        }
    }
    let open = |key: &'static str, spooled: Vec<Spooled>| {
        verb(move |engine, clock| {
            engine
                .open_session(registration(key), spooled.clone(), clock.now())
                .unwrap();
        })
    };
    let poll = |key: &'static str| {
        verb(move |engine, clock| {
            let poll = Poll {
                session_key: key.to_string(),
                free_slots: 2,
                held: vec![],
            };
            engine.poll(poll, clock.now()).unwrap();
        })
    };
    let report = |key: &'static str, items: Vec<(AttemptRef, News)>| {
        verb(move |engine, clock| {
            let reports = Reports {
                session_key: key.to_string(),
                items: items.clone(),
                poll: Some((2, Vec::new())),
            };
            engine.report(reports, clock.now()).unwrap();
        })
    };
    let finished = |finished: Finished| News::Finished(finished);
    vec![
        verb(|engine, clock| {
            let mut submission = Submission::of(&everything());
            submission.idempotency_key = Some("once".to_string());
            engine.submit(submission, clock.now()).unwrap();
        }),
        open("life-1", vec![]),
        poll("life-1"),
        // Steps 1 and 2 are `build` and `flaky`.
        report(
            "life-1",
            vec![
                (attempt(1, 1), News::Started),
                (attempt(2, 1), News::Started),
            ],
        ),
        report(
            "life-1",
            vec![
                (attempt(1, 1), finished(Finished::completed())),
                (attempt(2, 1), finished(Finished::exited(1))),
            ],
        ),
        verb(|engine, clock| {
            let beat = Beat {
                session_key: "life-1".to_string(),
                seq: 1,
                held: vec![],
            };
            engine.heartbeat(beat, clock.now()).unwrap();
        }),
        verb(|engine, clock| {
            clock.advance_ms(60_000);
            engine.release_due(clock.now()).unwrap();
        }),
        poll("life-1"),
        open(
            "life-2",
            vec![Spooled {
                attempt: attempt(1, 1),
                session_key: "life-1".to_string(),
                finished: Finished::completed(),
            }],
        ),
        poll("life-2"),
        // The second try of `flaky`, and the first instance of `each` once more.
        report(
            "life-2",
            vec![
                (attempt(2, 2), News::Started),
                (attempt(7, 2), News::Started),
            ],
        ),
        report(
            "life-2",
            vec![
                (attempt(2, 2), finished(Finished::completed())),
                (attempt(7, 2), finished(Finished::completed())),
            ],
        ),
        verb(|engine, clock| {
            let view = engine.job(JobId(1)).unwrap();
            let ask = view.step("ask").unwrap().step_id;
            engine
                .decide(ask, Decision::Approve { output: None }, "ann", clock.now())
                .unwrap();
        }),
        verb(|engine, clock| engine.cancel(JobId(1), "eve", clock.now()).unwrap()),
        verb(|engine, clock| {
            engine
                .retry(Retry::of(JobId(1), RetryScope::Failed), clock.now())
                .unwrap();
        }),
        poll("life-2"),
        verb(|engine, clock| {
            let held = engine
                .store
                .read(|tx| tx.unacknowledged_steps(Uptime(i64::MAX), 1));
            let step_id = held.unwrap()[0].0;
            let attempt = engine.store.read(|tx| tx.step(step_id)).unwrap().unwrap();
            let started = engine.start("life-2", attempt.attempt_ref(), clock.now());
            assert_eq!(started.unwrap(), Verdict::Accepted);
        }),
        // Recovery, one transaction after the other: the worker, what it ran, what it was about to run.
        verb(|engine, clock| {
            clock.advance_ms(200_000);
            recover(engine, clock, Suspect::Worker(WorkerId(1)));
        }),
        verb(recover_abandoned),
        verb(recover_abandoned),
        verb(|engine, clock| {
            let workers = engine.store.read(|tx| tx.workers()).unwrap();
            engine.pause(workers[0].worker_id, clock.now()).unwrap();
        }),
        verb(|engine, clock| {
            let workers = engine.store.read(|tx| tx.workers()).unwrap();
            engine
                .delete_worker(workers[0].worker_id, true, clock.now())
                .unwrap();
        }),
        // Schedules: on time, late, refused, superseding, by hand, paused. Each is one transaction.
        verb(|engine, clock| {
            engine
                .set_schedules(&[frequent("often")], true, clock.now())
                .unwrap();
        }),
        verb(|engine, clock| fire(engine, clock, 1, Some(everything()))),
        verb(|engine, clock| fire(engine, clock, 1, Some(everything()))),
        verb(|engine, clock| fire(engine, clock, 10, Some(everything()))),
        verb(|engine, clock| fire(engine, clock, 1, None)),
        verb(|engine, clock| {
            let task = |_: &str| Some(everything());
            let key = Some("by hand".to_string());
            engine
                .fire_schedule(ScheduleId(1), key, clock.now(), &task)
                .unwrap();
        }),
        verb(|engine, clock| {
            engine
                .pause_schedule(ScheduleId(1), "ann", clock.now())
                .unwrap();
        }),
        verb(|engine, clock| fire(engine, clock, 10, None)),
        verb(|engine, clock| {
            engine
                .set_schedules(&[frequent("other")], true, clock.now())
                .unwrap();
        }),
    ]
}

/// Each fire takes the place of the one before.
fn frequent(name: &str) -> ScheduleDraft {
    ScheduleDraft {
        task: "main".to_string(),
        name: name.to_string(),
        cron: "*/5 * * * *".to_string(),
        timezone: "UTC".to_string(),
        input: Json::empty_object(),
        overlap: Overlap::CancelPrevious,
        catch_up: CatchUp::None,
        enabled: true,
    }
}

/// So many due times later, of which the last is on time.
fn fire(engine: &Engine, clock: &ManualClock, times: i64, task: Option<Frozen>) {
    const EVERY_MS: i64 = 300_000;
    let since_ms = clock.now().wall.0 % EVERY_MS;
    clock.advance_ms(times * EVERY_MS - since_ms);
    engine.fire_due(clock.now(), &|_| task.clone()).unwrap();
}

fn recover_abandoned(engine: &Engine, clock: &ManualClock) {
    let steps = engine.store.read(|tx| tx.abandoned_steps(1)).unwrap();
    recover(engine, clock, Suspect::HeldStep(steps[0]));
}

fn recover(engine: &Engine, clock: &ManualClock, suspect: Suspect) {
    let outcome = engine.recover(&[suspect], clock.now()).remove(0);
    assert!(outcome.unwrap().is_some(), "{suspect:?}");
}

fn everything() -> Frozen {
    let items = (0..3).map(|n| Json(n.to_string())).collect();
    let hook = |on| Hook {
        on,
        does: HookDoes::Notify {
            target: "tell".to_string(),
        },
    };
    let retry = RetryPolicy {
        delay_ms: 30_000,
        ..RetryPolicy::times(2)
    };
    let script = |name| StepDraft::script(name, "true");
    let main = TaskDraft {
        hooks: vec![
            hook(HookOn::Cancel),
            hook(HookOn::Suspended),
            hook(HookOn::Error),
        ],
        ..TaskDraft::new(
            "main",
            vec![
                script("build"),
                StepDraft {
                    retry,
                    ..script("flaky")
                },
                StepDraft {
                    for_each: Some(ForEach {
                        items,
                        max_parallel: Some(2),
                    }),
                    on_worker_loss: OnWorkerLoss::Retry,
                    ..script("each").after(&["build"])
                },
                StepDraft::approval("ask", "go?").after(&["build"]),
                StepDraft::task("child", "child").after(&["ask"]),
                script("end").after(&["child", "each", "flaky"]),
            ],
        )
    };
    let child = TaskDraft::new("child", vec![script("a"), script("b").after(&["a"])]);
    Frozen::new(Arc::new(
        Definition::check("main", vec![main, child]).unwrap(),
    ))
}

fn registration(key: &str) -> Registration {
    Registration {
        instance_key: "ann".to_string(),
        session_key: key.to_string(),
        name: "ann".to_string(),
        tags: vec!["script".to_string()],
        slots: 2,
        version: String::new(),
        platform: String::new(),
        features: stepward::domain::peer::Features::NONE,
    }
}

/// Every row of every table, as text. What differs between two runs by nature is left out.
fn dump(folder: &Path) -> String {
    let sql = rusqlite::Connection::open(folder.join("stepward.db")).unwrap();
    let mut tables = sql
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('server', 'lineage') ORDER BY name")
        .unwrap();
    let tables: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut text = String::new();
    for table in tables {
        let mut rows = sql
            .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
            .unwrap();
        // `job.seal_id` is random.
        let names: Vec<String> = rows
            .column_names()
            .iter()
            .map(|name| name.to_string())
            .collect();
        let columns: Vec<usize> = (0..names.len())
            .filter(|at| names[*at] != "seal_id")
            .collect();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<String> = (columns.iter())
                .map(|&at| format!("{:?}", row.get::<_, rusqlite::types::Value>(at).unwrap()))
                .collect();
            text.push_str(&format!("{table}: {}\n", values.join(", ")));
        }
    }
    text
}
