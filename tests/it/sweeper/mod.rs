//! One file per phase, and what must hold for all of them: order, forecast, the server's own absences, the thread.

mod absence;
mod forecast;
mod order;
mod phase1;
mod phase2;
mod phase3;
mod phase4;
mod thread;

use stepward::domain::JobId;

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
