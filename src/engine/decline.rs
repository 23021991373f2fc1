//! An assignment comes back unstarted: the step keeps its place in the queue, and others are preferred for it.

use super::EngineError;
use super::cascade::{Cascade, JobContext};
use super::check::workers_sentence;
use super::facts::Facts;
use super::poll::AVOID_MS;
use crate::domain::WorkerId;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits;
use crate::domain::peer::Feature;
use crate::domain::protocol::Verdict;
use crate::domain::reason::Reason;
use crate::domain::step::{StepHead, StepMove, StepState};
use crate::store::{Ending, FormerOutcome, SessionView};

/// How an assignment came back.
pub(super) struct Returned {
    /// A word for the attempt's record.
    pub what: &'static str,
    pub text: String,
    /// The worker to pass over.
    pub avoid: Option<WorkerId>,
    pub facts: Facts,
}

impl Cascade<'_> {
    /// A worker cannot or will not start what it was assigned. After `start` it is too late for that.
    pub(super) fn decline_attempt(
        &mut self,
        session: &SessionView,
        step: &StepHead,
        why: &str,
    ) -> Result<Verdict, EngineError> {
        if step.state.after(StepMove::Requeue).is_err() {
            let why = match session.features.contains(Feature::OnePhase) {
                true => {
                    "a step that has started on delivery (feature one_phase) cannot be declined: report it as finished, with how it failed"
                }
                false => {
                    "a step that has started cannot be declined: report it as finished, with how it failed"
                }
            };
            return Ok(Verdict::Refused {
                why: why.to_string(),
            });
        }
        let context = self.context(step.job_id)?;
        let why = workers_sentence(why, "it did not say why");
        let text = format!("worker {} declined: {why}", session.worker_name);
        let returned = Returned {
            what: "declined",
            text,
            avoid: Some(session.worker_id),
            facts: Facts::none().and("why", why),
        };
        self.return_step(&context, step, returned)?;
        Ok(Verdict::Accepted)
    }

    /// Puts an assigned step back in the queue, or gives it up when that has happened too often.
    pub(super) fn return_step(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        returned: Returned,
    ) -> Result<bool, EngineError> {
        let Returned {
            what,
            text,
            avoid,
            facts,
        } = returned;
        let facts = facts
            .and("what", what)
            .and("returns", step.returns + 1)
            .and("returns_max", limits::RETURNS_MAX);
        assert_eq!(
            step.state,
            StepState::Assigned,
            "only an assignment can come back"
        );
        if step.returns + 1 >= limits::RETURNS_MAX {
            return self.give_up_assigning(step, &text, &facts);
        }
        let given = self.tx.step(step.step_id)?.expect("it was just read");
        if !self.tx.requeue_step(step, self.now)? {
            return Ok(false);
        }
        self.tx.record_former_attempt(
            &given,
            FormerOutcome::Returned,
            what,
            &text,
            None,
            self.now,
        )?;
        if let Some(worker_id) = avoid {
            self.tx
                .avoid(step.step_id, worker_id, self.now.up.plus_ms(AVOID_MS))?;
        }
        let name = context.name(step);
        let event = NewEvent::new(
            EventKind::StepRequeued,
            format!("step {name} is ready again: {text}"),
        );
        self.tell(event.step(step).data(facts.data()))?;
        Ok(true)
    }

    fn give_up_assigning(
        &mut self,
        step: &StepHead,
        text: &str,
        facts: &Facts,
    ) -> Result<bool, EngineError> {
        let former = self.tx.former_attempts(step.step_id)?;
        let returned = former.iter().rev().take(step.returns as usize);
        let mut story: Vec<String> = returned
            .map(|former| format!("attempt {}: {}", former.attempt, former.message))
            .collect();
        story.reverse();
        story.push(format!("attempt {}: {text}", step.attempt));
        let message = format!(
            "it was assigned {} times and never started: {}",
            step.returns + 1,
            story.join("; ")
        );
        let message = limits::clip(&message, limits::MESSAGE_BYTES_MAX);
        let ending = Ending {
            data: facts.data(),
            ..Ending::failed(Reason::AssignmentExhausted, message)
        };
        self.finish_step(step, ending)
    }
}
