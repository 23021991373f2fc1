//! A worker reports about its attempts, as many as it has news of, and may ask for more work in the same call.
//!
//! Every item names its attempt. What is not, or no longer, in this session's hands is answered `Abort` and changes nothing;
//! one bad item does not touch the others.

use std::iter::once;

use super::cascade::Cascade;
use super::check::check_count;
use super::facts::Facts;
use super::heartbeat::sign_of_life;
use super::poll::answer_poll;
use super::{Engine, EngineError};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::log::LogFault;
use crate::domain::peer::Feature;
use crate::domain::protocol::{Finished, News, Reports, ReportsAnswer, Verdict};
use crate::domain::step::{StepHead, StepState};
use crate::domain::{AttemptRef, Now, Uptime};
use crate::planted::{Bug, planted};
use crate::store::{Ending, SessionView};

/// Whatever this session ran is nothing to the server.
fn of_an_unknown_session(reports: &Reports) -> ReportsAnswer {
    let verdict = |_: &_| Verdict::abort("the session is not known here");
    ReportsAnswer {
        verdicts: reports.items.iter().map(verdict).collect(),
        ..ReportsAnswer::default()
    }
}

/// Moves that are made once all items of a report are judged: a statement that is repeated costs less.
#[derive(Default)]
pub(super) struct Together {
    /// With when their time is up.
    pub starting: Vec<(StepHead, Uptime)>,
    pub ending: Vec<(StepHead, Ending)>,
}

impl Engine {
    pub fn report(&self, reports: Reports, now: Now) -> Result<ReportsAnswer, EngineError> {
        check_count("reports", reports.items.len())?;
        if let Some((_, held)) = &reports.poll {
            check_count("held attempts", held.len())?;
        }
        let settings = self.settings;
        let answer = self.write_contact(reports.session_key.clone(), now, move |tx| {
            // Whoever reports something is told by the verdicts.
            let speaks = !reports.items.is_empty();
            let session = match tx.session(&reports.session_key)? {
                Some(session) if session.current || speaks => session,
                Some(_) => return Err(EngineError::SessionReplaced),
                None if speaks => return Ok(of_an_unknown_session(&reports)),
                None => return Err(EngineError::SessionUnknown),
            };
            if session.current {
                tx.called_by(session.worker_id);
                sign_of_life(tx, &session, now)?;
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            let mut answer = cascade.take_all_news(&session, &reports.items)?;
            cascade.settle()?;
            answer.poll = match &reports.poll {
                Some((free_slots, held)) if session.current => {
                    let held: Vec<AttemptRef> =
                        held.iter().copied().chain(reports.held()).collect();
                    Some(answer_poll(
                        tx,
                        &settings,
                        &session,
                        *free_slots,
                        &held,
                        now,
                    )?)
                }
                _ => None,
            };
            Ok(answer)
        })?;
        let poll = answer.poll.map(|poll| self.render(poll, now)).transpose()?;
        Ok(ReportsAnswer { poll, ..answer })
    }

    /// Repeating it while the step runs changes nothing and answers the same.
    pub fn start(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        self.report_one(session_key, attempt, News::Started, now)
    }

    pub fn keep_alive(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        self.report_one(session_key, attempt, News::KeepAlive, now)
    }

    pub fn decline(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        why: &str,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        self.report_one(
            session_key,
            attempt,
            News::Declined {
                why: why.to_string(),
            },
            now,
        )
    }

    pub fn finish(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        finished: Finished,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        self.report_one(session_key, attempt, News::Finished(finished), now)
    }

    fn report_one(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        news: News,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        let session_key = session_key.to_string();
        let reports = Reports {
            session_key,
            items: vec![(attempt, news)],
            poll: None,
        };
        let mut answer = self.report(reports, now)?;
        Ok(answer.verdicts.remove(0))
    }
}

impl Cascade<'_> {
    /// One verdict per item, in order, and what the session asked to be told besides.
    fn take_all_news(
        &mut self,
        session: &SessionView,
        items: &[(AttemptRef, News)],
    ) -> Result<ReportsAnswer, EngineError> {
        let tells_start = session.features.contains(Feature::StartDetails);
        let checks_log = session.features.contains(Feature::LogChecksum);
        let mut answer = ReportsAnswer::default();
        let step_ids = items.iter().map(|(attempt, _)| attempt.step_id);
        let mut steps = self.tx.step_heads(step_ids)?;
        let mut together = Together::default();
        answer.verdicts.reserve(items.len());
        // What follows from an item is settled after all of them, so no item moves another one's step.
        for (index, (attempt, news)) in items.iter().enumerate() {
            // Gone once it was used: a second item about the same step must see what the first one did.
            let step = match steps.remove(&attempt.step_id) {
                Some(step) => Some(step),
                None => {
                    self.carry_out(&mut together)?;
                    self.tx
                        .step_heads(once(attempt.step_id))?
                        .remove(&attempt.step_id)
                }
            };
            let Some(step) = step else {
                let why = format!("step {} does not exist", attempt.step_id);
                answer.verdicts.push(Verdict::abort(why));
                continue;
            };
            let is_repeated = checks_log
                && matches!(news, News::Finished(_))
                && self.still_lacks_log(session, &step, *attempt)?;
            let verdict = match is_repeated {
                true => Verdict::Accepted,
                false => self.take_news(session, &step, *attempt, news, &mut together)?,
            };
            match (news, &verdict) {
                (News::Started, Verdict::Accepted) if tells_start => {
                    let details = self.details_of_start(&step)?;
                    answer.starts.push((index, details));
                }
                (News::Finished(_), Verdict::Accepted) if checks_log => {
                    answer.ended.push((index, step.job_id));
                }
                _ => {}
            }
            answer.verdicts.push(verdict);
        }
        self.carry_out(&mut together)?;
        Ok(answer)
    }

    /// Whether the result of this attempt was accepted before and its log lacks bytes: the answer that asked for them was lost, and
    /// is given again.
    pub(super) fn still_lacks_log(
        &self,
        session: &SessionView,
        step: &StepHead,
        attempt: AttemptRef,
    ) -> Result<bool, EngineError> {
        let is_its_own =
            step.attempt == attempt.attempt && step.session_id == Some(session.session_id);
        if !is_its_own || !step.state.is_terminal() {
            return Ok(false);
        }
        let noted = self.tx.log_fault(attempt)?;
        Ok(noted.is_some_and(|log| log.fault == LogFault::Missing))
    }

    /// Makes the moves that were put off to be made together.
    pub(super) fn carry_out(&mut self, together: &mut Together) -> Result<(), EngineError> {
        let Together { starting, ending } = std::mem::take(together);
        let moved = (starting.is_empty() || self.tx.start_steps(&starting, false, self.now)?)
            && (ending.is_empty() || self.finish_steps(&ending)?);
        assert!(moved, "nobody moves a step within our transaction");
        Ok(())
    }

    fn take_news(
        &mut self,
        session: &SessionView,
        step: &StepHead,
        attempt: AttemptRef,
        news: &News,
        together: &mut Together,
    ) -> Result<Verdict, EngineError> {
        if let Some(verdict) = self.fence(session, step, attempt)? {
            return Ok(verdict);
        }
        match news {
            News::Started => self.start_attempt(step, together),
            News::KeepAlive => self.keep_attempt_alive(session, step),
            News::Declined { why } => self.decline_attempt(session, step, why),
            News::Finished(finished) => self.finish_attempt(step, finished, together),
        }
    }

    /// `None`: this attempt of the step is in this session's hands. Else the answer.
    pub(super) fn fence(
        &mut self,
        session: &SessionView,
        step: &StepHead,
        attempt: AttemptRef,
    ) -> Result<Option<Verdict>, EngineError> {
        let same_attempt = step.attempt == attempt.attempt || planted(Bug::NoFenceOnAttempt);
        let same_session =
            step.session_id == Some(session.session_id) || planted(Bug::NoFenceOnSession);
        let same = same_attempt && same_session;
        let why = match (same, step.state) {
            (true, StepState::Assigned | StepState::Running) => return Ok(None),
            // The answer to its own report was lost, or the job was cancelled meanwhile: nothing to tell.
            (true, _) if planted(Bug::AcceptAfterEnd) => return Ok(Some(Verdict::Accepted)),
            (true, state) => {
                return Ok(Some(Verdict::abort(format!("the step is {state} already"))));
            }
            (false, _) if step.attempt != attempt.attempt => {
                format!(
                    "the step is at attempt {}, the report is for attempt {}",
                    step.attempt, attempt.attempt
                )
            }
            (false, _) => "the attempt belongs to another session".to_string(),
        };
        // An attempt that never was is not worth telling: there are four billion of them.
        if attempt.attempt <= step.attempt {
            let text = format!(
                "a report of worker {} was turned away: {why}",
                session.worker_name
            );
            let mut event = NewEvent::new(EventKind::ReportFenced, text).step(step);
            event.attempt = Some(attempt.attempt);
            event.worker_id = Some(session.worker_id);
            let facts = Facts::none().and("current_attempt", step.attempt);
            self.tx.record_once(&event.data(facts.data()), self.now)?;
        }
        Ok(Some(Verdict::Abort { why }))
    }
}
