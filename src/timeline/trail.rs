//! What became of one step, piece by piece: each begins where the one before it ended.

use super::words::{QUEUED, REQUEUED, Ran, earlier, known, ran, waited};
use super::{By, Part, Segment};
use crate::domain::Timestamp;
use crate::domain::reason::{Reason, Waiting};
use crate::domain::step::StepState;
use crate::wire::Time;
use crate::wire::api::{AttemptHistory, StepJson};

/// More of them are told together.
const ATTEMPTS_SHOWN_MAX: usize = 20;

/// What is around a step.
pub struct Around {
    pub begin: Timestamp,
    /// Of the whole timeline.
    pub length_ms: i64,
    /// When the last of those that it waits for ended; `None`: there are none.
    pub dependencies_ended: Option<Time>,
    /// Of an instance: when its loop began. It did not exist before.
    pub loop_began: Option<Option<Time>>,
    /// What it waits for now: a code and a sentence.
    pub why: Option<(String, String)>,
}

/// Empty where there is nothing to draw: it never was to run, or ran before its job.
pub fn segments(step: &StepJson, around: &Around) -> Vec<Segment> {
    if step.status == StepState::Skipped.as_str() {
        return Vec::new();
    }
    let mut trail = Trail {
        step,
        around,
        at_ms: 0,
        segments: Vec::new(),
    };
    if let Some(began) = around.loop_began {
        trail.at_ms = trail.ms(began).unwrap_or(0);
    }
    trail.follow();
    trail.segments
}

/// Whether the worker that ran the step's last attempt was lost and the step then waited for a person's decision: the
/// attempt ended before the step did.
pub fn was_held(step: &StepJson) -> bool {
    let last = step
        .attempts
        .iter()
        .find(|attempt| attempt.attempt == step.attempt);
    step.started_at.is_some()
        && last.is_some_and(|last| last.ended_at.is_some() && last.ended_at != step.ended_at)
}

/// A wait whose end is not known yet.
struct Gap<'t> {
    code: &'t str,
    detail: Option<&'t str>,
}

struct Trail<'t> {
    step: &'t StepJson,
    around: &'t Around,
    /// As far as it is told.
    at_ms: i64,
    segments: Vec<Segment>,
}

impl<'t> Trail<'t> {
    fn follow(&mut self) {
        let step = self.step;
        let former: Vec<&AttemptHistory> = step
            .attempts
            .iter()
            // The attempt that the step itself tells of is not over, or settled it.
            .filter(|attempt| attempt.attempt < step.attempt || self.waits_for_next())
            .collect();
        let is_held = was_held(step);
        // When it became ready first is known as long as it did so only once.
        let released = match former.is_empty() && !is_held {
            true => step.ready_at.or(step.assigned_at).or(step.started_at),
            false => self.around.dependencies_ended,
        };
        let before_release = match self.around.loop_began {
            // An instance waits until its loop lets it.
            Some(_) => Waiting::Concurrency,
            None => Waiting::Dependencies,
        };
        if released.is_none() && former.is_empty() && !is_held {
            return self.wait_to_the_end(before_release.as_str(), None);
        }
        self.wait(before_release.as_str(), None, self.ms(released));
        if step.kind == "approval" {
            return self.wait_to_the_end(Waiting::Approval.as_str(), None);
        }
        let gap = self.attempts(&former);
        if self.waits_for_next() {
            return self.wait_for_next(gap);
        }
        let assigned = self.ms(step.assigned_at.or(step.started_at));
        self.wait(gap.code, gap.detail, assigned);
        let Some(started_at) = step.started_at else {
            return self.wait_to_the_end(Waiting::Preparing.as_str(), None);
        };
        self.wait(Waiting::Preparing.as_str(), None, self.ms(Some(started_at)));
        let attempt = (step.attempt > 1).then_some(step.attempt);
        let run = Ran {
            by: self.by(),
            attempt,
            child_job_id: step.child_job_id,
            worker: step.worker.as_deref(),
            outcome: &step.status,
            reason: step.reason.as_deref(),
        };
        if is_held {
            let failed = StepState::Failed.as_str();
            let lost = Ran {
                outcome: failed,
                ..run
            };
            self.run(&lost, self.ms(step.ready_at));
            return self.wait_to_the_end(Waiting::Held.as_str(), None);
        }
        self.run(&run, None);
    }

    /// Former attempts and what was between them; what follows the last of them is left to tell.
    fn attempts(&mut self, former: &[&'t AttemptHistory]) -> Gap<'t> {
        let mut gap = Gap {
            code: QUEUED,
            detail: None,
        };
        let hidden = former.len().saturating_sub(ATTEMPTS_SHOWN_MAX);
        if let Some(last_hidden) = former[..hidden].last() {
            let (from_ms, to_ms) = self.go(self.ms(last_hidden.ended_at));
            let title = earlier(hidden, to_ms - from_ms);
            let part = Part::Earlier { attempts: hidden };
            self.push(part, from_ms, to_ms, false, title);
        }
        for attempt in &former[hidden..] {
            let detail = attempt.reason.as_deref();
            if attempt.started_at.is_none() {
                self.wait(gap.code, gap.detail, self.ms(attempt.ended_at));
                gap = Gap {
                    code: REQUEUED,
                    detail: attempt.message.as_deref().or(detail),
                };
                continue;
            }
            self.wait(gap.code, gap.detail, self.ms(attempt.started_at));
            let run = Ran {
                by: self.by(),
                attempt: Some(attempt.attempt),
                child_job_id: None,
                worker: attempt.worker.as_deref(),
                outcome: &attempt.outcome,
                reason: detail,
            };
            self.run(&run, self.ms(attempt.ended_at).or(Some(self.at_ms)));
            gap = Gap {
                code: Waiting::RetryBackoff.as_str(),
                detail,
            };
        }
        gap
    }

    fn wait_for_next(&mut self, gap: Gap) {
        // Nobody could take it, and that is why it ended: then the past has its exact reason.
        let is_unmatched = self.step.reason.as_deref() == Some(Reason::Unmatched.as_str());
        match self.is_open() {
            true if self.step.not_before.is_some() => {
                self.wait_to_the_end(Waiting::RetryBackoff.as_str(), gap.detail);
            }
            false if is_unmatched => {
                let detail = self.step.message.as_deref();
                self.wait_to_the_end(Waiting::NoMatchingWorker.as_str(), detail);
            }
            _ => self.wait_to_the_end(gap.code, gap.detail),
        }
    }

    fn is_open(&self) -> bool {
        let state = StepState::from_word(&self.step.status);
        self.step.ended_at.is_none() && !state.is_some_and(StepState::is_terminal)
    }

    /// Neither given to somebody nor begun, or so again.
    fn waits_for_next(&self) -> bool {
        self.step.assigned_at.is_none() && self.step.started_at.is_none()
    }

    fn by(&self) -> By {
        match self.step.kind.as_str() {
            _ if self.step.for_each => By::Instances,
            "task" => By::ChildJob,
            _ => By::Worker,
        }
    }

    /// Since the begin, and within the job whatever the clock said.
    fn ms(&self, at: Option<Time>) -> Option<i64> {
        let since = at?.0.0.saturating_sub(self.around.begin.0);
        Some(since.clamp(0, self.around.length_ms))
    }

    /// On to there, but never back.
    fn go(&mut self, to_ms: Option<i64>) -> (i64, i64) {
        let from_ms = self.at_ms;
        self.at_ms = to_ms.unwrap_or(from_ms).max(from_ms);
        (from_ms, self.at_ms)
    }

    fn end_ms(&self) -> i64 {
        let ended = self.ms(self.step.ended_at);
        ended.unwrap_or(self.around.length_ms)
    }

    /// A wait of no time is none. `None`: nobody knows until when.
    fn wait(&mut self, code: &str, detail: Option<&str>, to_ms: Option<i64>) {
        let (from_ms, to_ms) = self.go(to_ms);
        self.push_wait(code, detail, from_ms, to_ms, false);
    }

    /// Until it ended, or until now; then whoever knows says why.
    fn wait_to_the_end(&mut self, code: &str, detail: Option<&str>) {
        let is_open = self.is_open();
        let (from_ms, to_ms) = self.go(Some(self.end_ms()));
        match self.around.why.as_ref().filter(|_| is_open) {
            Some((code, sentence)) => {
                self.push_wait(code, Some(sentence), from_ms, to_ms, true);
            }
            None => self.push_wait(code, detail, from_ms, to_ms, is_open),
        }
    }

    fn push_wait(
        &mut self,
        code: &str,
        detail: Option<&str>,
        from_ms: i64,
        to_ms: i64,
        is_open: bool,
    ) {
        if from_ms == to_ms && !is_open {
            return;
        }
        let code = known(code);
        let title = waited(code, to_ms - from_ms, is_open, detail);
        let part = Part::Wait {
            code: code.to_string(),
        };
        self.push(part, from_ms, to_ms, is_open, title);
    }

    /// A run of no time was one. `None`: until it ended, or until now.
    fn run(&mut self, run: &Ran, to_ms: Option<i64>) {
        let is_open = to_ms.is_none() && self.is_open();
        let (from_ms, to_ms) = self.go(to_ms.or(Some(self.end_ms())));
        let part = Part::Run {
            outcome: crate::graph::clean(run.outcome),
            by: run.by,
        };
        let title = ran(run, to_ms - from_ms, is_open);
        self.push(part, from_ms, to_ms, is_open, title);
    }

    fn push(&mut self, part: Part, from_ms: i64, to_ms: i64, is_open: bool, title: String) {
        self.segments.push(Segment {
            part,
            from_ms,
            to_ms,
            is_open,
            title,
        });
    }
}
