//! Rows of what a server tells of a job: which steps are shown, and what is around each.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::trail::{Around, segments, was_held};
use super::{Row, Timeline};
use crate::domain::Timestamp;
use crate::domain::step::StepState;
use crate::graph::{clean, counted, loop_of, weight};
use crate::wire::Time;
use crate::wire::api::{JobJson, StepJson};

const ROWS_MAX: usize = 200;
/// Of a loop with more, only what somebody has to look at.
const INSTANCES_MAX: usize = 20;

/// `href`: where a step leads, by its name. `why`: what a step that has not ended waits for, as a code and a sentence; asked only for
/// steps that are shown.
pub fn of_job(
    job: &JobJson,
    now: Timestamp,
    href: &dyn Fn(&str) -> String,
    why: &dyn Fn(&str) -> Option<(String, String)>,
) -> Timeline {
    let steps = Steps::new(job.steps.as_deref().unwrap_or_default());
    let begin = begin(job, &steps);
    let ended_at = job.ended_at.map(|at| at.0);
    let length_ms = ended_at.unwrap_or(now).0.saturating_sub(begin.0).max(0);
    let (shown, more) = steps.shown();
    let rows = shown.into_iter().map(|step| {
        let waits = matches!(
            StepState::from_word(&step.status),
            Some(
                StepState::Pending | StepState::Ready | StepState::Assigned | StepState::Suspended
            )
        );
        let own_loop = steps.loop_of(step);
        let around = Around {
            begin,
            length_ms,
            dependencies_ended: steps.dependencies_ended(step),
            loop_began: own_loop.map(|own_loop| own_loop.started_at),
            why: waits.then(|| why(&step.name)).flatten(),
        };
        let is_former = is_carried_over(step, job.created_at);
        Row {
            name: clean(&step.name),
            href: href(&step.name),
            state: clean(&step.status),
            segments: match is_former {
                true => Vec::new(),
                false => segments(step, &around),
            },
            why: around.why.map(|(_, sentence)| clean(&sentence)),
            note: match is_former {
                true => Some("by an earlier job".to_string()),
                false => steps.note(step),
            },
            is_instance: own_loop.is_some(),
        }
    });
    Timeline {
        rows: rows.collect(),
        begin,
        length_ms,
        is_over: job.ended_at.is_some(),
        held_ms: begin.0.saturating_sub(job.created_at.0.0),
        more,
    }
}

/// When the job was let go: its first steps became ready then. A step that became ready again does not tell.
fn begin(job: &JobJson, steps: &Steps) -> Timestamp {
    let created_at = job.created_at.0;
    let is_first = |step: &&StepJson| {
        step.depends_on.is_empty() && step.attempts.len() <= 1 && steps.loop_of(step).is_none()
    };
    let let_go = |step: &StepJson| match step.attempts.first() {
        Some(attempt) if attempt.attempt < step.attempt => None,
        // `ready_at` is when the step was held, or when it became ready again.
        Some(_) if was_held(step) => None,
        Some(_) if step.assigned_at.is_none() && step.started_at.is_none() => None,
        _ => step.ready_at.or(step.started_at),
    };
    let firsts = steps.all.iter().filter(is_first);
    let times = firsts.filter_map(let_go).map(|at| at.0.0);
    Timestamp(times.min().unwrap_or(created_at.0).max(created_at.0))
}

/// A retried job takes over what the one before it did.
fn is_carried_over(step: &StepJson, created_at: Time) -> bool {
    let never_began = step.ready_at.is_none() && step.started_at.is_none();
    let ended_before = step.ended_at.is_some_and(|at| at.0.0 < created_at.0.0);
    never_began && ended_before && step.status != StepState::Skipped.as_str()
}

struct Steps<'j> {
    all: &'j [StepJson],
    by_name: HashMap<&'j str, &'j StepJson>,
    /// By the name of their loop.
    instances: HashMap<&'j str, Vec<usize>>,
}

impl<'j> Steps<'j> {
    fn new(all: &'j [StepJson]) -> Steps<'j> {
        let by_name = all.iter().map(|step| (step.name.as_str(), step)).collect();
        let mut steps = Steps {
            all,
            by_name,
            instances: HashMap::new(),
        };
        for (at, step) in all.iter().enumerate() {
            if let Some(own_loop) = steps.loop_of(step) {
                let instances = steps.instances.entry(own_loop.name.as_str());
                instances.or_default().push(at);
            }
        }
        steps
    }

    /// Whose instance it is.
    fn loop_of(&self, step: &StepJson) -> Option<&'j StepJson> {
        let found = self.by_name.get(loop_of(&step.name)?)?;
        found.for_each.then_some(*found)
    }

    fn dependencies_ended(&self, step: &StepJson) -> Option<Time> {
        let names = step.depends_on.iter();
        let found = names.filter_map(|name| self.by_name.get(name.as_str())?.ended_at);
        found.max_by_key(|at| at.0.0)
    }

    /// In the order of the job, and how many more there are.
    fn shown(&self) -> (Vec<&'j StepJson>, usize) {
        let weight_of = |at: usize| Reverse(weight(&self.all[at].status));
        let mut folded: HashSet<usize> = HashSet::new();
        let large = self.instances.values();
        for instances in large.filter(|instances| instances.len() > INSTANCES_MAX) {
            let is_worth_a_look = |at: &usize| {
                let state = StepState::from_word(&self.all[*at].status);
                let ended = state.is_none_or(StepState::is_terminal);
                let waits = matches!(state, Some(StepState::Pending | StepState::Ready));
                state == Some(StepState::Failed) || !ended && !waits
            };
            let mut kept: Vec<usize> = instances.iter().copied().filter(is_worth_a_look).collect();
            kept.sort_by_key(|&at| weight_of(at));
            kept.truncate(INSTANCES_MAX);
            let kept: HashSet<usize> = kept.into_iter().collect();
            folded.extend(instances.iter().filter(|at| !kept.contains(at)));
        }
        let mut shown: Vec<usize> = (0..self.all.len())
            .filter(|at| !folded.contains(at))
            .collect();
        let more = shown.len().saturating_sub(ROWS_MAX);
        if more > 0 {
            shown.sort_by_key(|&at| weight_of(at));
            shown.truncate(ROWS_MAX);
            shown.sort_unstable();
        }
        (shown.into_iter().map(|at| &self.all[at]).collect(), more)
    }

    /// Of a loop that is not shown as a whole.
    fn note(&self, step: &StepJson) -> Option<String> {
        let instances = self.instances.get(step.name.as_str())?;
        let states = instances.iter().map(|&at| self.all[at].status.as_str());
        let counts = clean(&counted(states));
        let count = instances.len();
        (count > INSTANCES_MAX).then(|| format!("{count} instances: {counts}"))
    }
}
