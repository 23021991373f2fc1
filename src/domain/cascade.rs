//! A step became terminal: what that means for a dependent, for a loop, for the job. Pure; `engine::cascade` applies it.

use super::depends::{DependsOn, Outcome};
use super::reason::Reason;
use super::step::{StepKind, StepMove};
use super::task::StepDraft;

/// What becomes of a pending step whose dependencies are all terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Its `when` must be asked first; `begin` says what follows if it agrees.
    Ask,
    /// A worker may take it.
    Release,
    /// A person must answer.
    Suspend,
    /// The server creates its child job.
    Dispatch,
    /// The server creates its instances.
    Expand,
    /// It never runs; for `DependencyNotAccepted`, these steps are why.
    Skip {
        reason: Reason,
        refused_by: Vec<(u32, Outcome)>,
    },
}

pub fn decide(
    step: &StepDraft,
    depends_on: &DependsOn<u32>,
    outcome_of: &impl Fn(u32) -> Outcome,
) -> Decision {
    if !depends_on.accepts(outcome_of) {
        let refused_by = depends_on.refusals(outcome_of);
        return Decision::Skip {
            reason: Reason::DependencyNotAccepted,
            refused_by,
        };
    }
    match step.when {
        Some(_) => Decision::Ask,
        None => begin(step),
    }
}

/// What a step does that is to run.
pub fn begin(step: &StepDraft) -> Decision {
    match step.kind() {
        StepKind::Loop => Decision::Expand,
        StepKind::Work => Decision::Release,
        StepKind::Task => Decision::Dispatch,
        StepKind::Approval => Decision::Suspend,
    }
}

/// How the instances of a loop ended, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instances {
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
}

impl Instances {
    /// A loop ends as its worst instance did.
    pub fn roll_up(self) -> StepMove {
        match self {
            Instances { failed: 1.., .. } => StepMove::Fail,
            Instances { cancelled: 1.., .. } => StepMove::Cancel,
            Instances { .. } => StepMove::Complete,
        }
    }

    pub fn total(self) -> u32 {
        self.completed + self.failed + self.cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::super::Json;
    use super::super::task::{ForEach, Items, StepDraft};
    use super::*;

    fn decided(step: &StepDraft, dependency: Outcome) -> Decision {
        decide(step, &DependsOn::on(0u32), &|_| dependency)
    }

    #[test]
    fn dependencies_are_asked_first_then_when() {
        let mut step = StepDraft::script("a", "true");
        step.when = Some(Json("false".into()));
        assert!(matches!(
            decided(&step, Outcome::Failed),
            Decision::Skip {
                reason: Reason::DependencyNotAccepted,
                ..
            }
        ));
        assert_eq!(decided(&step, Outcome::Completed), Decision::Ask);
        step.when = None;
        assert_eq!(decided(&step, Outcome::Completed), Decision::Release);
    }

    #[test]
    fn what_a_step_does_follows_from_its_kind() {
        let mut step = StepDraft::script("a", "true");
        assert_eq!(begin(&step), Decision::Release);
        step.for_each = Some(ForEach {
            items: Items::List(vec![Json("1".into())]),
            max_parallel: None,
        });
        assert_eq!(begin(&step), Decision::Expand);
        assert_eq!(begin(&StepDraft::approval("a", "go?")), Decision::Suspend);
        assert_eq!(begin(&StepDraft::task("a", "child")), Decision::Dispatch);
    }

    #[test]
    fn a_loop_ends_as_its_worst_instance() {
        let instances = |completed, failed, cancelled| Instances {
            completed,
            failed,
            cancelled,
        };
        assert_eq!(instances(2, 0, 0).roll_up(), StepMove::Complete);
        assert_eq!(instances(2, 0, 1).roll_up(), StepMove::Cancel);
        assert_eq!(instances(2, 1, 1).roll_up(), StepMove::Fail);
    }
}
