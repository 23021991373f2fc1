//! The dependency tree of a step and what it accepts.
//!
//! Three separate questions: is everything named in the tree terminal (only then is it decided at all); does the tree
//! accept how it ended (run or not); does the job fail (that one is not asked here, but by `continue_on_failure`).

use std::collections::BTreeSet;

use super::words;

words! {
    /// How a step ended, as its dependents see it.
    pub enum Outcome {
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        /// Its own choice: `when` was false, or the loop was empty.
        Skipped = "skipped",
        /// Blocked: its own dependencies were not accepted.
        Omitted = "omitted",
    }
}

/// The set of outcomes that an edge accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept(u8);

impl Accept {
    /// What a bare name means.
    pub const COMPLETED: Accept = Accept(1 << Outcome::Completed as u8);
    pub const TERMINAL: Accept = Accept((1 << Outcome::ALL.len()) - 1);

    pub fn of(outcomes: &[Outcome]) -> Accept {
        Accept(
            outcomes
                .iter()
                .fold(0, |set, &outcome| set | 1 << outcome as u8),
        )
    }

    pub fn contains(self, outcome: Outcome) -> bool {
        self.0 & (1 << outcome as u8) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn outcomes(self) -> impl Iterator<Item = Outcome> {
        Outcome::ALL
            .iter()
            .copied()
            .filter(move |&outcome| self.contains(outcome))
    }
}

/// `S` is a step's name in a draft, and its position once the draft is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DependsOn<S> {
    Step { step: S, accept: Accept },
    All(Vec<DependsOn<S>>),
    Any(Vec<DependsOn<S>>),
}

impl<S> DependsOn<S> {
    /// Depends on nothing: decided at once.
    pub fn nothing() -> DependsOn<S> {
        DependsOn::All(Vec::new())
    }

    /// The name must complete.
    pub fn on(step: impl Into<S>) -> DependsOn<S> {
        DependsOn::Step {
            step: step.into(),
            accept: Accept::COMPLETED,
        }
    }

    pub fn accepting(step: impl Into<S>, accept: Accept) -> DependsOn<S> {
        DependsOn::Step {
            step: step.into(),
            accept,
        }
    }

    /// How deep groups nest, looking no deeper than `max`.
    pub fn depth_up_to(&self, max: usize) -> usize {
        match self {
            DependsOn::All(group) | DependsOn::Any(group) if max > 0 => {
                1 + group
                    .iter()
                    .map(|member| member.depth_up_to(max - 1))
                    .max()
                    .unwrap_or(0)
            }
            _ => 0,
        }
    }
}

impl DependsOn<u32> {
    /// Every step named anywhere in the tree, once each.
    pub fn named(&self) -> BTreeSet<u32> {
        fn collect(tree: &DependsOn<u32>, named: &mut BTreeSet<u32>) {
            match tree {
                DependsOn::Step { step, .. } => {
                    named.insert(*step);
                }
                DependsOn::All(group) | DependsOn::Any(group) => {
                    group.iter().for_each(|member| collect(member, named));
                }
            }
        }
        let mut named = BTreeSet::new();
        collect(self, &mut named);
        named
    }

    /// Whether the tree lets its step run, given how every named step ended.
    pub fn accepts(&self, outcome_of: &impl Fn(u32) -> Outcome) -> bool {
        match self {
            DependsOn::Step { step, accept } => accept.contains(outcome_of(*step)),
            DependsOn::All(group) => group.iter().all(|member| member.accepts(outcome_of)),
            DependsOn::Any(group) => group.iter().any(|member| member.accepts(outcome_of)),
        }
    }

    /// The edges that speak against running, for the sentence that says why a step was skipped.
    pub fn refusals(&self, outcome_of: &impl Fn(u32) -> Outcome) -> Vec<(u32, Outcome)> {
        match self {
            DependsOn::Step { step, accept } => {
                let outcome = outcome_of(*step);
                if accept.contains(outcome) {
                    Vec::new()
                } else {
                    vec![(*step, outcome)]
                }
            }
            DependsOn::All(group) => group
                .iter()
                .flat_map(|member| member.refusals(outcome_of))
                .collect(),
            DependsOn::Any(_) if self.accepts(outcome_of) => Vec::new(),
            DependsOn::Any(group) => group
                .iter()
                .flat_map(|member| member.refusals(outcome_of))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_accepts_completion_only() {
        let tree = DependsOn::<u32>::on(0u32);
        for (outcome, accepted) in [
            (Outcome::Completed, true),
            (Outcome::Failed, false),
            (Outcome::Cancelled, false),
            (Outcome::Skipped, false),
            (Outcome::Omitted, false),
        ] {
            assert_eq!(tree.accepts(&|_| outcome), accepted, "{outcome}");
        }
    }

    #[test]
    fn terminal_accepts_every_outcome() {
        assert!(
            Outcome::ALL
                .iter()
                .all(|&outcome| Accept::TERMINAL.contains(outcome))
        );
        assert_eq!(Accept::TERMINAL.outcomes().count(), 5);
    }

    #[test]
    fn groups_nest_and_name_each_step_once() {
        // all: [0, any: [1, 2 (failed), 0]]
        let tree = DependsOn::All(vec![
            DependsOn::on(0u32),
            DependsOn::Any(vec![
                DependsOn::on(1u32),
                DependsOn::accepting(2u32, Accept::of(&[Outcome::Failed])),
                DependsOn::on(0u32),
            ]),
        ]);
        assert_eq!(tree.named().into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(tree.depth_up_to(10), 2);
        assert_eq!(tree.depth_up_to(1), 1);
        assert!(tree.accepts(&|_| Outcome::Completed));
        assert!(!tree.accepts(&|step| if step == 0 {
            Outcome::Failed
        } else {
            Outcome::Completed
        }));
    }

    #[test]
    fn refusals_name_the_edges_that_block() {
        let tree = DependsOn::All(vec![
            DependsOn::on(0u32),
            DependsOn::Any(vec![DependsOn::on(1u32), DependsOn::on(2u32)]),
        ]);
        let outcome_of = |step| {
            if step == 0 {
                Outcome::Completed
            } else {
                Outcome::Failed
            }
        };
        assert_eq!(
            tree.refusals(&outcome_of),
            [(1, Outcome::Failed), (2, Outcome::Failed)]
        );
        assert_eq!(DependsOn::<u32>::nothing().refusals(&outcome_of), []);
    }
}
