//! A table of graphs, what fails in them, and how everything ends, written out.

use stepward::domain::depends::{Accept, DependsOn, Outcome};
use stepward::domain::reason::Reason;
use stepward::domain::task::StepDraft;

use crate::house::{TestHouse, script};

fn accepting(step: &str, outcomes: &[Outcome]) -> DependsOn<String> {
    DependsOn::accepting(step, Accept::of(outcomes))
}

fn terminal(step: &str) -> DependsOn<String> {
    DependsOn::accepting(step, Accept::TERMINAL)
}

fn on(step: &str) -> DependsOn<String> {
    DependsOn::on(step)
}

fn tolerated(name: &str) -> StepDraft {
    StepDraft {
        continue_on_failure: true,
        ..script(name)
    }
}

fn never(name: &str) -> StepDraft {
    StepDraft {
        when: Some(stepward::domain::Json("false".into())),
        ..script(name)
    }
}

/// (what it is about, the steps, those that fail, how it ends)
fn table() -> Vec<(
    &'static str,
    Vec<StepDraft>,
    &'static [&'static str],
    &'static str,
)> {
    vec![
        (
            "one step",
            vec![script("a")],
            &[],
            "a completed → completed",
        ),
        (
            "one step fails",
            vec![script("a")],
            &["a"],
            "a failed → failed",
        ),
        (
            "a chain completes",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").after(&["b"]),
            ],
            &[],
            "a completed, b completed, c completed → completed",
        ),
        (
            "a failure at the head of a chain skips all behind it",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").after(&["b"]),
            ],
            &["a"],
            "a failed, b skipped, c skipped → failed",
        ),
        (
            "a failure in the middle keeps what came before",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").after(&["b"]),
            ],
            &["b"],
            "a completed, b failed, c skipped → failed",
        ),
        (
            "steps may be listed before what they depend on",
            vec![
                script("c").after(&["b"]),
                script("b").after(&["a"]),
                script("a"),
            ],
            &[],
            "c completed, b completed, a completed → completed",
        ),
        (
            "a diamond joins when both sides have ended",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").after(&["a"]),
                script("d").after(&["b", "c"]),
            ],
            &[],
            "a completed, b completed, c completed, d completed → completed",
        ),
        (
            "one failed side of a diamond skips the join, not the other side",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").after(&["a"]),
                script("d").after(&["b", "c"]),
            ],
            &["b"],
            "a completed, b failed, c completed, d skipped → failed",
        ),
        (
            "independent branches go on after a failure",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("x"),
                script("y").after(&["x"]),
            ],
            &["a"],
            "a failed, b skipped, x completed, y completed → failed",
        ),
        (
            "a tolerated failure does not fail the job",
            vec![tolerated("a"), script("x")],
            &["a"],
            "a failed, x completed → completed",
        ),
        (
            "a tolerated failure still blocks a dependent that wants completion",
            vec![tolerated("a"), script("b").after(&["a"])],
            &["a"],
            "a failed, b skipped → completed",
        ),
        (
            "tolerated and accepted: the dependent runs and the job completes",
            vec![tolerated("a"), script("b").depending(terminal("a"))],
            &["a"],
            "a failed, b completed → completed",
        ),
        (
            "accepted but not tolerated: the dependent runs and the job fails",
            vec![script("a"), script("b").depending(terminal("a"))],
            &["a"],
            "a failed, b completed → failed",
        ),
        (
            "a clean-up that wants failure is skipped on success",
            vec![
                script("a"),
                script("undo").depending(accepting("a", &[Outcome::Failed])),
            ],
            &[],
            "a completed, undo skipped → completed",
        ),
        (
            "a clean-up that wants failure runs on failure",
            vec![
                script("a"),
                script("undo").depending(accepting("a", &[Outcome::Failed])),
            ],
            &["a"],
            "a failed, undo completed → failed",
        ),
        (
            "a false condition skips the step and blocks a bare dependent",
            vec![never("a"), script("b").after(&["a"])],
            &[],
            "a skipped, b skipped → completed",
        ),
        (
            "skipped by choice is accepted where it is named",
            vec![
                never("a"),
                script("b").depending(accepting("a", &[Outcome::Completed, Outcome::Skipped])),
            ],
            &[],
            "a skipped, b completed → completed",
        ),
        (
            "blocked is not skipped by choice",
            vec![
                script("a"),
                script("b").after(&["a"]),
                script("c").depending(accepting("b", &[Outcome::Skipped])),
                script("d").depending(accepting("b", &[Outcome::Omitted])),
            ],
            &["a"],
            "a failed, b skipped, c skipped, d completed → failed",
        ),
        (
            "any: one completed side is enough",
            vec![
                script("a"),
                script("b"),
                script("c").depending(DependsOn::Any(vec![on("a"), on("b")])),
            ],
            &["a"],
            "a failed, b completed, c completed → failed",
        ),
        (
            "any: no completed side is too few",
            vec![
                script("a"),
                script("b"),
                script("c").depending(DependsOn::Any(vec![on("a"), on("b")])),
            ],
            &["a", "b"],
            "a failed, b failed, c skipped → failed",
        ),
        (
            "groups nest: all of a and any of b, c",
            vec![
                script("a"),
                tolerated("b"),
                script("c"),
                script("d").depending(DependsOn::All(vec![
                    on("a"),
                    DependsOn::Any(vec![on("b"), on("c")]),
                ])),
            ],
            &["b"],
            "a completed, b failed, c completed, d completed → completed",
        ),
        (
            "groups nest: the all part fails",
            vec![
                tolerated("a"),
                script("b"),
                script("d").depending(DependsOn::All(vec![
                    on("a"),
                    DependsOn::Any(vec![on("b"), terminal("a")]),
                ])),
            ],
            &["a"],
            "a failed, b completed, d skipped → completed",
        ),
        (
            "the same step twice in a tree counts once",
            vec![
                script("a"),
                script("b").depending(DependsOn::All(vec![
                    on("a"),
                    DependsOn::Any(vec![on("a"), accepting("a", &[Outcome::Failed])]),
                ])),
            ],
            &[],
            "a completed, b completed → completed",
        ),
        (
            "everything skipped at submission: the job ends at once",
            vec![never("a"), never("b")],
            &[],
            "a skipped, b skipped → completed",
        ),
        (
            "a wide join over outcomes of every kind",
            vec![
                script("ok"),
                tolerated("bad"),
                never("off"),
                script("blocked").after(&["bad"]),
                script("join").depending(DependsOn::All(vec![
                    terminal("ok"),
                    terminal("bad"),
                    terminal("off"),
                    terminal("blocked"),
                ])),
            ],
            &["bad"],
            "ok completed, bad failed, off skipped, blocked skipped, join completed → completed",
        ),
    ]
}

#[test]
fn every_graph_ends_as_written() {
    for (about, steps, failing, expected) in table() {
        let house = TestHouse::new();
        let job = house.submit(steps);
        house.run_all(failing);
        assert_eq!(house.summary(job), expected, "{about}");
        assert_eq!(house.breaches(), Vec::<String>::new(), "{about}");
    }
}

#[test]
fn a_step_is_not_decided_before_everything_it_names_has_ended() {
    let house = TestHouse::new();
    let any = DependsOn::Any(vec![on("a"), on("b")]);
    let job = house.submit(vec![script("a"), script("b"), script("c").depending(any)]);
    let worker = house.worker("ann", &[], 2);
    let (a, b) = (worker.begin(), worker.begin());
    worker.complete(a.attempt);
    assert_eq!(
        house.summary(job),
        "a completed, b running, c pending → running"
    );
    worker.fail(b.attempt);
    assert_eq!(
        house.summary(job),
        "a completed, b failed, c ready → running"
    );
}

#[test]
fn what_did_not_complete_says_why() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        script("a"),
        script("b").after(&["a"]),
        never("c"),
        script("d").depending(DependsOn::Any(vec![on("a"), on("c")])),
    ]);
    house.run_all(&["a"]);
    let told = |name: &str| {
        let step = house.step(job, name);
        (step.reason.unwrap(), step.message.unwrap())
    };
    assert_eq!(told("a"), (Reason::ExitCode, "exit code 1".to_string()));
    assert_eq!(
        told("b"),
        (
            Reason::DependencyNotAccepted,
            "step a failed, which it does not accept".to_string()
        )
    );
    assert_eq!(
        told("c"),
        (Reason::WhenFalse, "its condition is false".to_string())
    );
    assert_eq!(
        told("d"),
        (
            Reason::DependencyNotAccepted,
            "step a failed, step c was skipped, which it does not accept".to_string()
        )
    );
    let job = house.job(job).job;
    assert_eq!(job.reason, Some(Reason::ExitCode));
    assert_eq!(job.message.unwrap(), "step a failed: exit code 1");
}

#[test]
fn a_failed_root_skips_ten_thousand_steps_in_one_transaction() {
    for chain in [true, false] {
        let house = TestHouse::new();
        let step = |at: usize| {
            let before = if chain { at - 1 } else { 0 };
            script(&format!("s{at}")).after(&[&format!("s{before}")])
        };
        let steps = std::iter::once(script("s0"))
            .chain((1..10_000).map(step))
            .collect();
        let job = house.submit(steps);
        house.run_all(&["s0"]);
        let view = house.job(job);
        assert_eq!(view.job.state.as_str(), "failed");
        let skipped = view
            .steps
            .iter()
            .filter(|(_, step)| step.state.as_str() == "skipped");
        assert_eq!(skipped.count(), 9_999);
    }
}
