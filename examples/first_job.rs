//! One job from submission to end, through the library: three steps, of which the second fails.
//!
//! `cargo run --example first_job`. A worker is played by hand here; real ones come with the server.

use std::error::Error;
use std::sync::Arc;

use stepward::clock::SystemClock;
use stepward::domain::protocol::Registration;
use stepward::domain::task::{Definition, StepDraft, TaskDraft};
use stepward::engine::{Engine, Finished, Poll, Settings, Submission};
use stepward::store::{Frozen, Store, StoreOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), StoreOptions::default())?;
    let clock = SystemClock::continuing(store.begun_up(), &Settings::default());
    let engine = Engine::new(store, Settings::default());

    let task = TaskDraft::new(
        "release",
        vec![
            StepDraft::script("build", "make build"),
            StepDraft::script("test", "make test").after(&["build"]),
            StepDraft::script("publish", "make publish").after(&["test"]),
        ],
    );
    let definition = Definition::check("release", vec![task])?;
    let submission = Submission::of(&Frozen::new(Arc::new(definition)));
    let job_id = engine.submit(submission, clock.now())?.job_id;

    let session_key = "the first life of this worker".to_string();
    let registration = Registration {
        instance_key: "this machine".to_string(),
        session_key: session_key.clone(),
        name: "laptop".to_string(),
        tags: vec!["script".to_string()],
        slots: 1,
        version: env!("CARGO_PKG_VERSION").to_string(),
        platform: std::env::consts::OS.to_string(),
    };
    engine.open_session(registration, Vec::new(), clock.now())?;
    loop {
        let poll = Poll {
            session_key: session_key.clone(),
            free_slots: 1,
            held: Vec::new(),
        };
        let answer = engine.poll(poll, clock.now())?;
        let Some(assignment) = answer.assignments.first() else {
            break;
        };
        engine.start(&session_key, assignment.attempt, clock.now())?;
        let finished = match assignment.step.as_str() {
            "test" => Finished::exited(2),
            _ => Finished::completed(),
        };
        engine.finish(&session_key, assignment.attempt, finished, clock.now())?;
    }

    let view = engine.job(job_id)?;
    println!("job {job_id} {} {}", view.job.task, view.job.state);
    for (name, step) in &view.steps {
        let why = engine.why(step.step_id, clock.now())?;
        println!("  {name:8} {:10} {}", step.state.as_str(), why.sentence);
        for fact in why.facts {
            println!("  {:19} {fact}", "");
        }
    }
    println!("events");
    for event in engine.events_of_job(job_id)? {
        println!("  {}", event.fact.message);
    }
    Ok(())
}
