//! One file per phase, and what must hold for all of them: order, forecast, the server's own absences, the thread.

mod absence;
mod forecast;
mod order;
mod phase1;
mod phase2;
mod phase3;
mod phase4;
mod thread;

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use stepward::domain::JobId;
use stepward::engine::Engine;
use stepward::store::StoreError;

use crate::house::TestHouse;

/// What the `_server` log of a job says of recovery.
fn recovery_log(house: &TestHouse, job_id: JobId) -> Vec<String> {
    let after = stepward::domain::EventSeq(0);
    let lines = house.engine.server_log(job_id, after, 1_000).unwrap();
    let lines = lines.into_iter().map(|line| line.text);
    lines
        .filter(|line| line.starts_with("[recovery]"))
        .collect()
}

/// The events of recovery, of whatever job or worker.
fn recovery_events(house: &TestHouse) -> Vec<String> {
    let events = house.events().into_iter();
    events
        .filter_map(|event| {
            let phase = event.fact.phase?;
            Some(format!("{phase} {}", event.fact.kind))
        })
        .collect()
}

/// Keeps the writer of a store busy until it is dropped.
struct Stuck {
    go_on: Option<Sender<()>>,
    caller: Option<JoinHandle<()>>,
}

impl Stuck {
    fn new(engine: &Engine) -> Stuck {
        let (inside_tx, inside_rx) = channel();
        let (go_on_tx, go_on_rx) = channel::<()>();
        let go_on_rx = Mutex::new(go_on_rx);
        let store = engine.store.clone();
        let caller = std::thread::spawn(move || {
            let stuck = store.write(move |_| {
                inside_tx.send(()).unwrap();
                // An error says that the other end is gone: that is the word.
                let _ = go_on_rx.lock().unwrap().recv();
                Ok::<_, StoreError>(())
            });
            // It may have waited too long for the answer.
            drop(stuck);
        });
        inside_rx.recv().unwrap();
        Stuck {
            go_on: Some(go_on_tx),
            caller: Some(caller),
        }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.go_on = None;
        self.caller.take().unwrap().join().unwrap();
    }
}
