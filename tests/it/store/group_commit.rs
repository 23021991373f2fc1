//! One writer, many callers: shared commits, failures that stay alone, a queue that says when it is full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use stepward::domain::event::{EventKind, NewEvent};
use stepward::domain::task::TaskDraft;
use stepward::domain::{EventSeq, Now, Timestamp, Uptime};
use stepward::engine::{Engine, Settings, Submission};
use stepward::store::{Joiner, Store, StoreError, StoreOptions, Tx};

use crate::house::{frozen, script};

const NOW: Now = Now {
    wall: Timestamp(0),
    up: Uptime(0),
};

fn open(options: StoreOptions) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options).unwrap();
    (folder, store)
}

fn record(tx: &Tx, text: &str) -> Result<(), StoreError> {
    tx.record(&NewEvent::new(EventKind::WorkerActive, text), NOW)
}

fn recorded(store: &Store) -> Vec<String> {
    let events = store
        .read(|tx| tx.events_after(EventSeq(0), 10_000))
        .unwrap();
    events.into_iter().map(|event| event.fact.message).collect()
}

fn submit(store: &Store) {
    let engine = Engine::new(store.clone(), Settings::default());
    let task = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
    engine.submit(Submission::of(&task), NOW).unwrap();
}

/// Keeps the writer inside one call until the sender is dropped, so that what comes next is queued together.
fn occupy(store: &Store) -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (release_tx, release_rx) = mpsc::channel::<()>();
    let (inside_tx, inside_rx) = mpsc::channel();
    let store = store.clone();
    let release_rx = std::sync::Mutex::new(release_rx);
    let thread = std::thread::spawn(move || {
        store
            .write(move |_| {
                inside_tx.send(()).unwrap();
                // Ends when the test lets go of its end.
                let _ = release_rx.lock().unwrap().recv();
                Ok::<_, StoreError>(())
            })
            .unwrap();
    });
    inside_rx.recv().unwrap();
    (release_tx, thread)
}

/// Waits until so many calls stand in the queue.
fn await_queue(store: &Store, length: usize) {
    while store.queued() < length {
        std::thread::yield_now();
    }
}

#[test]
fn an_answered_write_is_there_for_every_reader() {
    let (_folder, store) = open(StoreOptions::default());
    for n in 0..20 {
        store.write(move |tx| record(tx, &n.to_string())).unwrap();
        assert_eq!(recorded(&store).len(), n + 1);
    }
}

#[test]
fn what_is_queued_together_shares_one_commit() {
    let (_folder, store) = open(StoreOptions::default());
    let (release, occupier) = occupy(&store);
    let (groups_before, _) = store.groups();
    let callers: Vec<_> = (0..40)
        .map(|n| {
            let store = store.clone();
            std::thread::spawn(move || store.write(move |tx| record(tx, &n.to_string())).unwrap())
        })
        .collect();
    await_queue(&store, 40);
    drop(release);
    callers
        .into_iter()
        .for_each(|caller| caller.join().unwrap());
    occupier.join().unwrap();
    let (groups, calls) = store.groups();
    assert_eq!((groups - groups_before, calls), (2, 41));
    assert_eq!(recorded(&store).len(), 40);
}

#[test]
fn a_call_that_fails_or_panics_is_undone_alone() {
    let (_folder, store) = open(StoreOptions::default());
    let (release, occupier) = occupy(&store);
    let call = |n: u32| {
        let store = store.clone();
        std::thread::spawn(move || {
            store.write(move |tx| {
                record(tx, &n.to_string())?;
                match n % 3 {
                    1 => Err(StoreError::Stopped),
                    2 => panic!("call {n} meets a bug"),
                    _ => Ok(n),
                }
            })
        })
    };
    let callers: Vec<_> = (0..30).map(call).collect();
    await_queue(&store, 30);
    drop(release);
    occupier.join().unwrap();
    for (n, caller) in callers.into_iter().enumerate() {
        let result = caller.join().unwrap();
        match n % 3 {
            0 => assert_eq!(result.unwrap(), n as u32),
            1 => assert!(matches!(result, Err(StoreError::Stopped))),
            _ => assert_eq!(
                result.unwrap_err().to_string(),
                format!("a bug was met and its change undone: call {n} meets a bug")
            ),
        }
    }
    let mut kept: Vec<u32> = recorded(&store)
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, (0..30).filter(|n| n % 3 == 0).collect::<Vec<_>>());
}

/// Runs a good call and a bad one in one group; how often the good one ran.
fn runs_beside(bad: fn(&Tx) -> Result<(), StoreError>) -> usize {
    let (_folder, store) = open(StoreOptions::default());
    let (release, occupier) = occupy(&store);
    let runs = Arc::new(AtomicUsize::new(0));
    let (good_store, good_runs) = (store.clone(), runs.clone());
    let good = std::thread::spawn(move || {
        good_store.write(move |tx| {
            good_runs.fetch_add(1, Ordering::SeqCst);
            record(tx, "good")
        })
    });
    await_queue(&store, 1);
    let bad_store = store.clone();
    let bad = std::thread::spawn(move || bad_store.write(bad));
    await_queue(&store, 2);
    drop(release);
    occupier.join().unwrap();
    good.join().unwrap().unwrap();
    assert!(matches!(bad.join().unwrap(), Err(StoreError::Stopped)));
    assert_eq!(recorded(&store), ["good"]);
    runs.load(Ordering::SeqCst)
}

#[test]
fn a_refusal_costs_its_group_nothing_and_a_failure_after_a_write_makes_it_run_again() {
    let refuse = |_: &Tx| Err(StoreError::Stopped);
    assert_eq!(runs_beside(refuse), 1);
    let fail_late = |tx: &Tx| {
        record(tx, "bad")?;
        Err(StoreError::Stopped)
    };
    assert_eq!(runs_beside(fail_late), 2);
}

/// A store that gives its transaction up when "poison" is recorded, as SQLite does when memory or the disk fail.
fn poisoned() -> (tempfile::TempDir, Store) {
    let (folder, store) = open(StoreOptions::default());
    Connection::open(folder.path().join("stepward.db"))
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER poison BEFORE INSERT ON event WHEN new.message = 'poison'
             BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END",
        )
        .unwrap();
    (folder, store)
}

#[test]
fn a_call_whose_error_takes_the_whole_transaction_back_is_left_out() {
    let (_folder, store) = poisoned();
    let (release, occupier) = occupy(&store);
    let call = |text: &'static str| {
        let store = store.clone();
        std::thread::spawn(move || store.write(move |tx| record(tx, text)))
    };
    let callers: Vec<_> = ["a", "poison", "b", "poison", "c"].map(call).into();
    await_queue(&store, 5);
    drop(release);
    occupier.join().unwrap();
    let results = callers.into_iter().map(|caller| caller.join().unwrap());
    let done: Vec<bool> = results.map(|result| result.is_ok()).collect();
    assert_eq!(done, [true, false, true, false, true]);
    let mut kept = recorded(&store);
    kept.sort();
    assert_eq!(kept, ["a", "b", "c"]);
}

#[test]
fn a_call_that_hides_the_loss_of_its_transaction_is_told_and_writes_nothing() {
    let (_folder, store) = poisoned();
    let hidden = store.write(|tx| {
        record(tx, "before")?;
        let lost = record(tx, "poison");
        assert!(lost.is_err());
        assert!(matches!(record(tx, "after"), Err(StoreError::Lost)));
        Ok::<(), StoreError>(())
    });
    assert!(matches!(hidden, Err(StoreError::Lost)));
    assert_eq!(recorded(&store), Vec::<String>::new());
    store.write(|tx| record(tx, "next")).unwrap();
    assert_eq!(recorded(&store), ["next"]);
}

/// A handle of the store that is let go only when the test says so.
struct LateHandle {
    store: Option<Store>,
    let_go: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Drop for LateHandle {
    fn drop(&mut self) {
        // An error says that the test has dropped its end: that is the word.
        let _ = self.let_go.lock().unwrap().recv();
        drop(self.store.take());
    }
}

#[test]
fn a_call_may_own_the_last_handle_of_the_store() {
    let (folder, store) = open(StoreOptions {
        write_deadline: Duration::from_millis(50),
        ..StoreOptions::default()
    });
    let (word, let_go) = mpsc::channel();
    let late = LateHandle {
        store: Some(store.clone()),
        let_go: std::sync::Mutex::new(let_go),
    };
    // The writer waits in the handle's drop, so the caller gives up.
    let unanswered = store.write(move |tx| {
        let _ = &late;
        record(tx, "last")
    });
    assert!(matches!(unanswered, Err(StoreError::OutcomeUnknown)));
    drop(store);
    drop(word);
    // Now the writer's own thread closes the store.
    let store = loop {
        match Store::open(folder.path(), StoreOptions::default()) {
            Ok(store) => break store,
            Err(stepward::store::OpenError::InUse { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(recorded(&store), ["last"]);
}

#[test]
fn a_job_beside_a_failure_is_told_to_streams_as_well() {
    let (_folder, store) = open(StoreOptions::default());
    let (release, occupier) = occupy(&store);
    let engine = Engine::new(store.clone(), Settings::default());
    let submitter = std::thread::spawn(move || {
        let task = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
        let submitted = engine.submit(Submission::of(&task), NOW).unwrap();
        engine.job(submitted.job_id).unwrap().job.change_seq
    });
    await_queue(&store, 1);
    let bad_store = store.clone();
    let bad = std::thread::spawn(move || {
        bad_store.write(|tx| {
            record(tx, "bad")?;
            Err::<(), _>(StoreError::Stopped)
        })
    });
    await_queue(&store, 2);
    drop(release);
    occupier.join().unwrap();
    assert!(bad.join().unwrap().is_err());
    assert!(submitter.join().unwrap() > 0);
}

#[test]
fn nobody_is_answered_before_the_commit() {
    let (_folder, store) = open(StoreOptions::default());
    let (release, occupier) = occupy(&store);
    let other = store.clone();
    let caller = std::thread::spawn(move || {
        other.write(|tx| record(tx, "late")).unwrap();
        // The group has committed, so a snapshot taken now must have it.
        recorded(&other).len()
    });
    await_queue(&store, 1);
    assert_eq!(recorded(&store).len(), 0);
    drop(release);
    assert_eq!(caller.join().unwrap(), 1);
    occupier.join().unwrap();
}

#[test]
fn a_call_that_waited_too_long_is_busy_and_never_runs() {
    let options = StoreOptions {
        write_deadline: Duration::from_millis(50),
        ..Default::default()
    };
    let (_folder, store) = open(options);
    let occupied = store.clone();
    let barrier = std::sync::Arc::new(Barrier::new(2));
    let inside = barrier.clone();
    let (release_tx, release_rx) = mpsc::channel::<()>();
    let release_rx = std::sync::Mutex::new(release_rx);
    let occupier = std::thread::spawn(move || {
        occupied.write(move |tx| {
            record(tx, "slow")?;
            inside.wait();
            // Ends when the test lets go of its end.
            let _ = release_rx.lock().unwrap().recv();
            Ok::<_, StoreError>(())
        })
    });
    barrier.wait();
    let refused = store.write(|tx| record(tx, "never")).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("the store is busy: nothing was written after ")
    );
    // The one that is being carried out is not called busy: nobody knows yet how it ends.
    let unknown = occupier.join().unwrap().unwrap_err();
    assert!(matches!(unknown, StoreError::OutcomeUnknown), "{unknown}");
    drop(release_tx);
    while recorded(&store) != ["slow"] {
        std::thread::yield_now();
    }
    // The same thread serves the next call: what was abandoned has been passed over.
    retry_while_busy(&store, "next");
    assert_eq!(recorded(&store), ["slow", "next"]);
}

fn retry_while_busy(store: &Store, text: &'static str) {
    while matches!(
        store.write(move |tx| record(tx, text)),
        Err(StoreError::Busy { .. })
    ) {}
}

#[test]
fn a_full_queue_is_busy() {
    let options = StoreOptions {
        queue_max: 2,
        write_deadline: Duration::from_millis(50),
        ..Default::default()
    };
    let (_folder, store) = open(options);
    let occupied = store.clone();
    let (release_tx, release_rx) = mpsc::channel::<()>();
    let (inside_tx, inside_rx) = mpsc::channel();
    let release_rx = std::sync::Mutex::new(release_rx);
    let occupier = std::thread::spawn(move || {
        let _ = occupied.write(move |_| {
            inside_tx.send(()).unwrap();
            // Ends when the test lets go of its end.
            let _ = release_rx.lock().unwrap().recv();
            Ok::<_, StoreError>(())
        });
    });
    inside_rx.recv().unwrap();
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let store = store.clone();
            std::thread::spawn(move || store.write(|tx| record(tx, "x")).unwrap_err().to_string())
        })
        .collect();
    for caller in callers {
        assert!(caller.join().unwrap().starts_with("the store is busy"));
    }
    drop(release_tx);
    occupier.join().unwrap();
    assert_eq!(recorded(&store), Vec::<String>::new());
}

#[test]
fn a_reader_cannot_write() {
    let (_folder, store) = open(StoreOptions::default());
    let refused = store.read(|tx| record(tx, "x")).unwrap_err();
    assert!(refused.to_string().contains("readonly"), "{refused}");
}

#[test]
fn the_change_sequence_grows_with_every_commit_that_touches_a_job() {
    let house = crate::house::TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let seq = || house.job(job).job.change_seq;
    let worker = house.worker("ann", &[], 1);
    let mut last = seq();
    let mut has_grown = || seq() > std::mem::replace(&mut last, seq());
    // The second step's start does not move the job, but streams must tell of it all the same.
    for _ in ["a", "b"] {
        let claimed = worker.claim();
        assert!(has_grown(), "assigned");
        worker.start(claimed.attempt);
        assert!(has_grown(), "started");
        worker.complete(claimed.attempt);
        assert!(has_grown(), "completed");
    }
    let completed = seq();
    let other = house.submit(vec![crate::house::script("a")]);
    let before = house.job(other).job.change_seq;
    house.engine.cancel(other, "eve", house.now()).unwrap();
    assert!(house.job(other).job.change_seq > before);
    assert_eq!(seq(), completed);
}

#[test]
fn who_joins_a_commit_is_undone_alone_and_told_how_it_ended() {
    let (folder, store) = open(StoreOptions::default());
    let (told_tx, told_rx) = mpsc::channel();
    let joiner = move |n: u32| {
        let told_tx = told_tx.clone();
        let work = move |tx: &Tx| {
            record(tx, &format!("joiner {n}"))?;
            match n {
                0 => Ok(()),
                1 => Err(StoreError::Lost),
                _ => panic!("joiner {n} meets a bug"),
            }
        };
        Joiner::new(work, move |end: Result<(), StoreError>| {
            told_tx
                .send((n, end.map_err(|error| error.to_string())))
                .unwrap();
        })
    };
    store.let_join(Arc::new(move |_| (0..3).map(&joiner).collect()));
    store.write(|tx| record(tx, "nothing to claim")).unwrap();
    let (groups, _) = store.groups();
    submit(&store);
    assert_eq!(store.groups().0, groups + 1);
    let told: Vec<_> = told_rx.try_iter().collect();
    let lost = StoreError::Lost.to_string();
    let bug = "a bug was met and its change undone: joiner 2 meets a bug".to_string();
    assert_eq!(told, [(0, Ok(())), (1, Err(lost)), (2, Err(bug))]);
    let joined: Vec<_> = recorded(&store)
        .into_iter()
        .filter(|text| text.starts_with("joiner"))
        .collect();
    assert_eq!(joined, ["joiner 0"]);
    // Who may join does not keep the store open.
    drop(store);
    Store::open(folder.path(), StoreOptions::default()).unwrap();
}

#[test]
fn a_bug_while_looking_who_joins_costs_nobody_a_commit() {
    let (_folder, store) = open(StoreOptions::default());
    store.let_join(Arc::new(|_| panic!("nobody can be chosen")));
    submit(&store);
    assert_eq!(recorded(&store).len(), 1);
}
