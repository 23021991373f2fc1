//! A worker reports about its attempts, as many as it has news of, and may ask for more work in the same call.
//!
//! Every item names its attempt. What is not, or no longer, in this session's hands is answered `Abort` and changes nothing;
//! one bad item does not touch the others.

use std::collections::HashMap;
use std::iter::once;

use super::cascade::Cascade;
use super::check::check_count;
use super::finish::Finished;
use super::heartbeat::sign_of_life;
use super::poll::{Poll, PollAnswer, answer_poll};
use super::start::Starting;
use super::{Engine, EngineError};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::step::{StepHead, StepState};
use crate::domain::{AttemptRef, Now, StepId};
use crate::store::SessionView;

/// What a worker has to say about one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Preparation is done; the step may run once this is answered.
    Started,
    /// Preparation goes on.
    KeepAlive,
    /// The assignment comes back unstarted.
    Declined {
        why: String,
    },
    Finished(Finished),
}

/// The answer to one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// The attempt is not, or no longer, this session's: kill what still runs of it and forget it.
    Abort {
        why: String,
    },
    /// The attempt is this session's, but this cannot be said of it now.
    Refused {
        why: String,
    },
}

impl Verdict {
    pub(super) fn abort(why: impl Into<String>) -> Verdict {
        Verdict::Abort { why: why.into() }
    }
}

#[derive(Debug, Clone)]
pub struct Reports {
    pub session_key: String,
    pub items: Vec<(AttemptRef, News)>,
    /// Asks for more work, with what is held besides the items: free slots and held attempts as in a poll.
    pub poll: Option<(u32, Vec<AttemptRef>)>,
}

impl Reports {
    /// What the worker still has of the attempts that it reports about.
    fn held(&self) -> impl Iterator<Item = AttemptRef> {
        let still = |news: &News| matches!(news, News::Started | News::KeepAlive);
        self.items
            .iter()
            .filter(move |(_, news)| still(news))
            .map(|(attempt, _)| *attempt)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportsAnswer {
    /// One per item, in order.
    pub verdicts: Vec<Verdict>,
    /// `None`: nothing was asked for, or the session may not have any.
    pub poll: Option<PollAnswer>,
}

impl Engine {
    pub fn report(&self, reports: Reports, now: Now) -> Result<ReportsAnswer, EngineError> {
        check_count("reports", reports.items.len())?;
        if let Some((_, held)) = &reports.poll {
            check_count("held attempts", held.len())?;
        }
        let settings = self.settings;
        self.store.write(move |tx| {
            let mut cascade = Cascade::new(tx, &settings, now);
            let verdicts = cascade.take_all_news(&reports.session_key, &reports.items)?;
            cascade.settle()?;
            let poll = match &reports.poll {
                None => None,
                Some((free_slots, held)) => {
                    let poll = Poll {
                        session_key: reports.session_key.clone(),
                        free_slots: *free_slots,
                        held: held.iter().copied().chain(reports.held()).collect(),
                    };
                    match answer_poll(tx, &settings, &poll, now) {
                        Ok(answer) => Some(answer),
                        // The verdicts say so already.
                        Err(EngineError::SessionUnknown | EngineError::SessionReplaced)
                            if !verdicts.is_empty() =>
                        {
                            None
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            Ok(ReportsAnswer { verdicts, poll })
        })
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
    /// One verdict per item, in order.
    fn take_all_news(
        &mut self,
        session_key: &str,
        items: &[(AttemptRef, News)],
    ) -> Result<Vec<Verdict>, EngineError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let Some(session) = self.tx.session(session_key)? else {
            let unknown = || Verdict::abort("the session is not known here");
            return Ok(items.iter().map(|_| unknown()).collect());
        };
        if session.current {
            sign_of_life(self.tx, &session, self.now)?;
        }
        let step_ids = items.iter().map(|(attempt, _)| attempt.step_id);
        let mut steps: HashMap<StepId, StepHead> = (self.tx.step_heads(step_ids)?)
            .into_iter()
            .map(|step| (step.step_id, step))
            .collect();
        let mut starting = Starting::new();
        let mut verdicts = Vec::with_capacity(items.len());
        // What follows from an item is settled after all of them, so no item moves another one's step.
        for (attempt, news) in items {
            // Gone once it was used: a second item about the same step must see what the first one did.
            let step = match steps.remove(&attempt.step_id) {
                Some(step) => Some(step),
                None => {
                    self.start_steps(&session, &mut starting)?;
                    self.tx.step_heads(once(attempt.step_id))?.pop()
                }
            };
            verdicts.push(match step {
                Some(step) => self.take_news(&session, &step, *attempt, news, &mut starting)?,
                None => Verdict::abort(format!("step {} does not exist", attempt.step_id)),
            });
        }
        self.start_steps(&session, &mut starting)?;
        Ok(verdicts)
    }

    fn take_news(
        &mut self,
        session: &SessionView,
        step: &StepHead,
        attempt: AttemptRef,
        news: &News,
        starting: &mut Starting,
    ) -> Result<Verdict, EngineError> {
        if let Some(verdict) = self.fence(session, step, attempt)? {
            return Ok(verdict);
        }
        match news {
            News::Started => self.start_attempt(step, starting),
            News::KeepAlive => self.keep_attempt_alive(session, step),
            News::Declined { why } => self.decline_attempt(session, step, why),
            News::Finished(finished) => self.finish_attempt(step, finished),
        }
    }

    /// `None`: this attempt of the step is in this session's hands. Else the answer.
    pub(super) fn fence(
        &mut self,
        session: &SessionView,
        step: &StepHead,
        attempt: AttemptRef,
    ) -> Result<Option<Verdict>, EngineError> {
        let same = step.attempt == attempt.attempt && step.session_id == Some(session.session_id);
        let why = match (same, step.state) {
            (true, StepState::Assigned | StepState::Running) => return Ok(None),
            // The answer to its own report was lost, or the job was cancelled meanwhile: nothing to tell.
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
            self.tx.record_once(&event, self.now)?;
        }
        Ok(Some(Verdict::Abort { why }))
    }
}
