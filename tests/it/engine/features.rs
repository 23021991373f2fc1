//! Workers of different versions: a step goes only to a worker that has the features it needs.

use stepward::domain::event::{Event, EventKind};
use stepward::domain::peer::{Feature, Features};
use stepward::domain::step::StepState;
use stepward::domain::task::StepDraft;

use crate::house::{TestHouse, script};

/// A step that reads the variable that only the answer to `started` can set.
fn timed(name: &str) -> StepDraft {
    StepDraft::script(name, "echo $STEPWARD_STARTED_AT")
}

#[test]
fn a_step_goes_only_to_a_worker_that_has_the_feature_it_needs() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![timed("timed"), script("plain")]);
    let old = house.worker("old", &[], 9);
    assert_eq!(old.claim_names(9), ["plain"]);

    let why = house.why(job_id, "timed");
    assert_eq!(why.code.to_string(), "no_matching_worker");
    assert_eq!(why.needs, ["script"], "features are not tags");
    assert_eq!(
        why.sentence,
        "no worker offers script and has the feature start_details"
    );
    let fact = why.facts[0].text.clone();
    assert!(
        fact.starts_with(
            "worker old has the tags, but its version 0.1.0 lacks the feature start_details; install version "
        ),
        "{fact}"
    );

    let features = Features::of(&[Feature::StartDetails]);
    assert_eq!(why.workers[0].lacks_features, features);
    let install = format!(
        "install version {} on worker old",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(why.fix, [install.as_str(), "stepward worker --tags script"]);
    let (new, _) = house.session_announcing("new", &[], 9, Vec::new(), features);
    assert_eq!(new.claim_names(9), ["timed"]);
}

#[test]
fn a_worker_that_is_upgraded_matches_with_its_next_session_and_one_that_is_downgraded_does_not() {
    let house = TestHouse::new();
    house.submit(vec![timed("a"), timed("b")]);
    let features = Features::of(&[Feature::StartDetails]);
    let old = house.worker("ann", &[], 1);
    assert!(old.claim_names(1).is_empty());
    let (new, _) = house.session_announcing("ann", &[], 1, Vec::new(), features);
    let given = new.begin();
    new.complete(given.attempt);
    let old = house.worker("ann", &[], 1);
    assert!(old.claim_names(1).is_empty());
}

#[test]
fn a_step_that_no_worker_has_the_feature_for_fails_and_says_so() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![timed("timed")]);
    let old = house.worker("old", &[], 1);
    let settings = house.engine.settings;
    for _ in 0..=settings.unmatched_step_timeout_ms / settings.heartbeat_interval_ms {
        house.clock.advance_ms(settings.heartbeat_interval_ms);
        assert!(old.claim_names(1).is_empty());
    }
    house.clock.advance_ms(1);
    house.sweep();
    assert_eq!(house.step_state(job_id, "timed"), StepState::Failed);
    let events = house.engine.events_of_job(job_id).unwrap();
    let failed = |event: &&Event| event.fact.kind == EventKind::StepFailed;
    let failed = events.iter().find(failed).expect("its failure is told");
    let told = failed.fact.data.clone().expect("with facts").0;
    assert!(
        told.contains(r#""lacks_features":["start_details"]"#),
        "{told}"
    );
    let step = house.step(job_id, "timed");
    assert_eq!(
        step.message.as_deref(),
        Some(
            "No active worker with required tags has every feature that this step needs (start_details)"
        )
    );
    let why = house.why(job_id, "timed");
    let facts: Vec<&str> = why.facts.iter().map(|fact| fact.text.as_str()).collect();
    assert_eq!(
        facts,
        ["worker old lacked the feature start_details (version 0.1.0) then"]
    );
    let install = format!(
        "install version {} on worker old",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(why.fix, [install.as_str(), "stepward worker --tags script"]);
}

#[test]
fn the_nearest_match_among_many_workers_is_named_first() {
    let house = TestHouse::new();
    let needs = |tag: &str| StepDraft {
        tags: vec![tag.to_string()],
        ..timed("timed")
    };
    let job_id = house.submit(vec![needs("gpu")]);
    for number in 0..30 {
        house.worker(&format!("far-{number}"), &[], 1);
    }
    house.worker("near", &["gpu"], 1);
    let why = house.why(job_id, "timed");
    assert!(
        why.facts[0].text.starts_with("worker near has the tags"),
        "{}",
        why.facts[0].text
    );
}
