//! Schedules fire: each due instant becomes a row of the ledger, and a job unless the schedule's policies say otherwise.
//!
//! The row and the job are one transaction, and the ledger has an instant once: whatever is killed when, and whoever tries twice,
//! no instant makes two jobs and none is forgotten. One transaction makes at most one job, so that a long absence does not hold up
//! everybody else; what was due before one that made a job is in it too.
//!
//! `overlap: queue` makes no job that is held: a held job would need a second group beside its task's own. Its row says `queued`,
//! and the job is made when the scheduler sees that the earlier ones have ended.
//!
//! What `catch_up: all` wants is made up for one after another unless jobs may be beside each other: the first that finds a job
//! stays due, without a row, until that job has ended. What comes on time meanwhile has its turn by `overlap`, beyond those that wait.

use super::cascade::Cascade;
use super::create::JobPlan;
use super::facts::Facts;
use super::inputs::JobInput;
use super::once::Once;
use super::retry::Carried;
use super::schedule::{about, about_schedule, cron_of, there};
use super::scope::rfc3339;
use super::submit::{Submission, Submitted};
use super::{Engine, EngineError, Settings};
use crate::cron::Due;
use crate::domain::audit::AuditAction;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::Source;
use crate::domain::reason::Reason;
use crate::domain::schedule::{Fire, FireOutcome, Overlap, Schedule, Turn};
use crate::domain::{JobId, Json, Now, ScheduleId, Timestamp};
use crate::essential::catch_and_count;
use crate::language::template::{Context, render_value};
use crate::metrics::PanicPlace;
use crate::store::{Frozen, StoreError, StoreFailure, Tx};

/// One look takes this many schedules; the rest comes with the next one, which is at once.
const BATCH_MAX: u32 = 256;

/// After a longer absence, what was due before the last so many instants is one row.
const ROWS_MAX: usize = 1_000;

/// What a look at the schedules came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FireRound {
    /// Jobs made.
    pub fired: usize,
    /// When the next schedule is due. It may be already: there was more than one look takes.
    pub next_at: Option<Timestamp>,
}

impl Engine {
    /// Everything that is due. One schedule that cannot be dealt with does not hold up the others; its error is returned
    /// once they are done, and it is tried again with the next call.
    pub fn fire_due(
        &self,
        now: Now,
        task: &dyn Fn(&str) -> Option<Frozen>,
    ) -> Result<FireRound, EngineError> {
        let (backlog, late, queued, due) = self.store.read(|tx| {
            let backlog = tx.backlog_schedules(BATCH_MAX)?;
            let late = tx.released_schedules(BATCH_MAX)?;
            let queued = tx.released_fires(BATCH_MAX)?;
            let due = tx.due_schedules(now, BATCH_MAX)?;
            Ok::<_, EngineError>((backlog, late, queued, due))
        })?;
        let catch_up = |schedule_id| {
            self.catch_panic_of(schedule_id, || self.catch_up_with(schedule_id, now, task))
        };
        let fire_queued = |schedule_id| {
            self.catch_panic_of(schedule_id, || self.fire_queued(schedule_id, now, task))
        };
        // What is made up for is older than what is queued, and that older than what is due now.
        let outcomes = backlog.into_iter().chain(late).map(catch_up);
        let outcomes = outcomes.chain(queued.into_iter().map(fire_queued));
        let outcomes = outcomes.chain(due.into_iter().map(catch_up));
        let (mut fired, mut failed) = (0, None);
        for outcome in outcomes {
            match outcome {
                Ok(made) => fired += made,
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let next_at = self
            .store
            .read(|tx| Ok::<_, EngineError>(tx.earliest_look()?))?;
        Ok(FireRound { fired, next_at })
    }

    /// A schedule that makes the scheduler panic must not hold up the others.
    fn catch_panic_of(
        &self,
        schedule_id: ScheduleId,
        work: impl FnOnce() -> Result<usize, EngineError>,
    ) -> Result<usize, EngineError> {
        let metrics = self.store.metrics();
        let item = format_args!("schedule {schedule_id}");
        let outcome = catch_and_count(metrics, PanicPlace::Scheduler, item, work);
        outcome.unwrap_or_else(|| {
            let message = format!("the scheduler, over schedule {schedule_id}");
            Err(StoreError::Panicked { message }.into())
        })
    }

    /// A person does not want to wait: a job at once, whatever else of this schedule is running.
    pub fn fire_schedule(
        &self,
        schedule_id: ScheduleId,
        idempotency_key: Option<String>,
        now: Now,
        task: &dyn Fn(&str) -> Option<Frozen>,
    ) -> Result<Submitted, EngineError> {
        let request = serde_json::json!(["fire", schedule_id.0]);
        let once = Once::new(self.key_owner, idempotency_key, &request)?;
        let schedule = self.store.read(|tx| there(tx, schedule_id))?;
        let frozen = task(&schedule.draft.task);
        let settings = self.settings;
        let result = self.write_as(now, move |tx| {
            if let Some(job_id) = once.made_before(tx)? {
                return Ok(Submitted {
                    job_id,
                    repeated: true,
                });
            }
            let schedule = there(tx, schedule_id)?;
            let mut due_at = now.wall;
            while tx.has_fire(schedule_id, due_at, true)? {
                due_at = Timestamp(due_at.0 + 1);
            }
            let making = Making {
                tx,
                settings: &settings,
                schedule: &schedule,
                frozen: frozen.as_ref(),
                now,
            };
            let job_id = making.job(due_at, &[])?;
            once.remember(tx, job_id, now)?;
            let fired = about_schedule(AuditAction::ScheduleFired, &schedule);
            let detail = Facts::none().and("job_id", job_id.0).detail();
            tx.audit(&fired.detail(detail), now)?;
            tx.insert_fire(&Fire {
                schedule_id,
                due_at,
                manual: true,
                outcome: FireOutcome::Fired,
                job_id: Some(job_id),
                until_at: None,
                at: now.wall,
                message: "fired by hand".to_string(),
            })?;
            Ok(Submitted {
                job_id,
                repeated: false,
            })
        });
        result.map_err(|halt: Halt| match halt {
            Halt::Broken(error) => error,
            Halt::Refused { refusal, .. } => refusal,
        })
    }

    /// Goes through all that is due of one schedule, a transaction at a time. Returns how many jobs that made.
    pub(super) fn catch_up_with(
        &self,
        schedule_id: ScheduleId,
        now: Now,
        task: &dyn Fn(&str) -> Option<Frozen>,
    ) -> Result<usize, EngineError> {
        let mut made = 0;
        let mut refused = None;
        loop {
            let ready = self.store.read(|tx| ready(tx, schedule_id, now))?;
            let Some(Ready {
                schedule,
                due,
                is_backlog,
            }) = ready
            else {
                return Ok(made);
            };
            let turns = match is_backlog {
                true => schedule.turns_of_backlog(&due.instants, now.wall),
                false => schedule.turns(&due.instants, now.wall),
            };
            let batch = Batch {
                turns,
                frozen: task(&schedule.draft.task),
                refused: refused.take(),
                schedule,
                due,
                is_backlog,
            };
            let settings = self.settings;
            let result = self.store.write(move |tx| {
                tx.happens_at(now.up);
                batch.carry_out(tx, &settings, now)
            });
            match result {
                Ok(fired) => made += usize::from(fired),
                Err(Halt::Refused { due_at, refusal }) => {
                    refused = Some((due_at, refusal.to_string()));
                }
                Err(Halt::Broken(error)) => return Err(error),
            }
        }
    }

    /// The jobs that a fire waited for have ended.
    fn fire_queued(
        &self,
        schedule_id: ScheduleId,
        now: Now,
        task: &dyn Fn(&str) -> Option<Frozen>,
    ) -> Result<usize, EngineError> {
        let schedule = self.store.read(|tx| there(tx, schedule_id))?;
        let frozen = task(&schedule.draft.task);
        let settings = self.settings;
        let result = self.store.write(move |tx| {
            tx.happens_at(now.up);
            let schedule = there(tx, schedule_id)?;
            let Some(queued) = tx.queued_fire(schedule_id)? else {
                return Ok(false);
            };
            if !schedule.loaded || !tx.live_jobs_of_schedule(schedule_id)?.is_empty() {
                return Ok(false);
            }
            let making = Making {
                tx,
                settings: &settings,
                schedule: &schedule,
                frozen: frozen.as_ref(),
                now,
            };
            let job_id = making.job(queued.due_at, &[])?;
            let outcome = FireOutcome::Fired;
            Ok(tx.settle_queued(&queued, outcome, Some(job_id), &queued.message, now)?)
        });
        match result {
            Ok(fired) => Ok(usize::from(fired)),
            Err(Halt::Broken(error)) => Err(error),
            Err(Halt::Refused { refusal, .. }) => self.write(now, move |tx| {
                if let Some(queued) = tx.queued_fire(schedule_id)? {
                    let message = refusal.to_string();
                    tx.settle_queued(&queued, FireOutcome::Refused, None, &message, now)?;
                    let mut ledger = Ledger::open(tx, &schedule, now)?;
                    ledger.last = None;
                    ledger.tell(queued.due_at, FireOutcome::Refused, &message)?;
                }
                Ok(0)
            }),
        }
    }
}

/// A schedule with something to do, and the instants to do it for.
struct Ready {
    schedule: Schedule,
    due: Due,
    /// The instants are the backlog of an absence, not instants that are due now.
    is_backlog: bool,
}

fn ready(tx: &Tx, schedule_id: ScheduleId, now: Now) -> Result<Option<Ready>, EngineError> {
    let Some(schedule) = tx.schedule(schedule_id)? else {
        return Ok(None);
    };
    if let Some((from, until)) = schedule.backlog()
        && (schedule.loaded || schedule.pause().is_some())
        && (!schedule.makes_up_one_by_one()
            || schedule.pause().is_some()
            || tx.live_jobs_of_schedule(schedule_id)?.is_empty())
    {
        let mut due = cron_of(&schedule.draft)?.due(from, until, ROWS_MAX);
        due.next = None;
        leave_out_rows(tx, &schedule, &mut due)?;
        return Ok(Some(Ready {
            schedule,
            due,
            is_backlog: true,
        }));
    }
    let is_released =
        schedule.waits() && schedule.loaded && tx.live_jobs_of_schedule(schedule_id)?.is_empty();
    if !is_released && !schedule.is_due(now.wall) {
        return Ok(None);
    }
    let next_at = schedule.next_at.expect("there is something to do");
    let mut due = cron_of(&schedule.draft)?.due(next_at, now.wall, ROWS_MAX);
    leave_out_rows(tx, &schedule, &mut due)?;
    Ok(Some(Ready {
        schedule,
        due,
        is_backlog: false,
    }))
}

/// Instants that fired while others waited are not made up for again.
fn leave_out_rows(tx: &Tx, schedule: &Schedule, due: &mut Due) -> Result<(), EngineError> {
    if !schedule.makes_up_one_by_one() {
        return Ok(());
    }
    let mut without_row = Vec::with_capacity(due.instants.len());
    for &due_at in &due.instants {
        if !tx.has_fire(schedule.schedule_id, due_at, false)? {
            without_row.push(due_at);
        }
    }
    due.instants = without_row;
    Ok(())
}

/// Why nothing of a transaction is kept.
enum Halt {
    Broken(EngineError),
    /// The task does not take this fire. Written down by the next transaction.
    Refused {
        due_at: Timestamp,
        refusal: EngineError,
    },
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Halt {
        Halt::Broken(error.into())
    }
}

impl StoreFailure for Halt {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Halt::Broken(error) => error.store_error(),
            Halt::Refused { .. } => None,
        }
    }
}

impl From<EngineError> for Halt {
    fn from(error: EngineError) -> Halt {
        Halt::Broken(error)
    }
}

/// What one schedule has to do, worked out before the transaction.
struct Batch {
    schedule: Schedule,
    due: Due,
    turns: Vec<Turn>,
    frozen: Option<Frozen>,
    /// An instant that was tried, and why it cannot be.
    refused: Option<(Timestamp, String)>,
    /// The instants are the backlog of an absence: the next time of the schedule stays as it is.
    is_backlog: bool,
}

impl Batch {
    /// Up to the first job that it makes. `true`: there was one.
    fn carry_out(&self, tx: &Tx, settings: &Settings, now: Now) -> Result<bool, Halt> {
        let schedule_id = self.schedule.schedule_id;
        if tx.schedule(schedule_id)?.as_ref() != Some(&self.schedule) {
            // Somebody was faster; whoever asked looks again.
            return Ok(false);
        }
        let mut ledger = Ledger::open(tx, &self.schedule, now)?;
        if let Some((first, until)) = self.due.passed_over {
            ledger.pass_over(first, until)?;
        }
        let making = Making {
            tx,
            settings,
            schedule: &self.schedule,
            frozen: self.frozen.as_ref(),
            now,
        };
        let mut look_at = self.due.next;
        let mut waiting = None;
        let mut made = false;
        let instants = &self.due.instants;
        for (index, (&due_at, turn)) in instants.iter().zip(&self.turns).enumerate() {
            // The clock was set back, and this time came before.
            if tx.has_fire(schedule_id, due_at, false)? {
                continue;
            }
            let fires = match (turn, &self.refused) {
                (Turn::Fire(_), Some((at, why))) if *at == due_at => {
                    ledger.pass(due_at, FireOutcome::Refused, why)?;
                    continue;
                }
                (Turn::Pass(outcome, why), _) => {
                    ledger.pass(due_at, *outcome, why)?;
                    continue;
                }
                (Turn::Fire(FireOutcome::CaughtUp), _) if waiting.is_some() => continue,
                (Turn::Fire(outcome), _) => *outcome,
            };
            let superseded = match making.room(fires)? {
                Room::Free { superseded } => superseded,
                Room::Later => {
                    waiting = Some(due_at);
                    continue;
                }
                Room::None { outcome, why } => {
                    ledger.pass(due_at, outcome, &why)?;
                    continue;
                }
            };
            let job_id = making.job(due_at, &superseded)?;
            ledger.fired(due_at, fires, job_id)?;
            made = true;
            look_at = instants.get(index + 1).copied().or(self.due.next);
            break;
        }
        ledger.close()?;
        let moved = if self.is_backlog {
            let was = self.schedule.away_from.expect("it has a backlog");
            tx.move_backlog(schedule_id, was, waiting.or(look_at))?
        } else {
            let was = self.schedule.next_at.expect("it is due");
            tx.move_next(schedule_id, was, waiting.or(look_at), look_at)?
        };
        assert!(moved, "nobody moves it within our transaction");
        Ok(made)
    }
}

/// Whether the jobs of earlier fires let another one be made.
enum Room {
    Free {
        superseded: Vec<JobId>,
    },
    /// Once they have ended.
    Later,
    None {
        outcome: FireOutcome,
        why: String,
    },
}

/// Makes the job of a fire.
struct Making<'a> {
    tx: &'a Tx<'a>,
    settings: &'a Settings,
    schedule: &'a Schedule,
    frozen: Option<&'a Frozen>,
    now: Now,
}

impl Making<'_> {
    fn room(&self, fires: FireOutcome) -> Result<Room, StoreError> {
        let schedule_id = self.schedule.schedule_id;
        let overlap = self.schedule.draft.overlap;
        let free = Room::Free {
            superseded: Vec::new(),
        };
        if overlap == Overlap::Allow {
            return Ok(free);
        }
        if fires == FireOutcome::CaughtUp && self.schedule.makes_up_one_by_one() {
            let live = self.tx.live_jobs_of_schedule(schedule_id)?;
            return Ok(if live.is_empty() { free } else { Room::Later });
        }
        if let Some(queued) = self.tx.queued_fire(schedule_id)? {
            let due_at = rfc3339(queued.due_at);
            return Ok(Room::None {
                outcome: FireOutcome::Skipped,
                why: format!("the fire of {due_at} waits already; overlap is {overlap}"),
            });
        }
        let live = self.tx.live_jobs_of_schedule(schedule_id)?;
        let Some(first) = live.first() else {
            return Ok(free);
        };
        Ok(match overlap {
            Overlap::CancelPrevious => Room::Free { superseded: live },
            Overlap::Queue => Room::None {
                outcome: FireOutcome::Queued,
                why: format!("waited for job {first} of an earlier fire"),
            },
            Overlap::Skip | Overlap::Allow => Room::None {
                outcome: FireOutcome::Skipped,
                why: format!("job {first} of an earlier fire had not ended; overlap is {overlap}"),
            },
        })
    }

    fn job(&self, due_at: Timestamp, superseded: &[JobId]) -> Result<JobId, Halt> {
        self.try_job(due_at, superseded)
            .map_err(|error| match error {
                EngineError::Store(_) => Halt::Broken(error),
                refusal => Halt::Refused { due_at, refusal },
            })
    }

    fn try_job(&self, due_at: Timestamp, superseded: &[JobId]) -> Result<JobId, EngineError> {
        let draft = &self.schedule.draft;
        let frozen = self.frozen.ok_or_else(|| EngineError::Invalid {
            place: "schedule",
            fault: format!(
                "{} names task {}, which is not there",
                draft.name, draft.task
            ),
        })?;
        let submission = Submission {
            source: Source::Schedule,
            input: self.input(due_at)?,
            ..Submission::of(frozen)
        };
        submission.check()?;
        let mut cascade = Cascade::new(self.tx, self.settings, self.now);
        for &job_id in superseded {
            let at = rfc3339(due_at);
            let message = format!("superseded by the fire of {at} of schedule {}", draft.name);
            let facts = about(self.schedule).and("scheduled_for", at);
            cascade.cancel_job(job_id, Reason::Superseded, &message, facts)?;
        }
        let definition = frozen.definition.clone();
        let created = cascade.create_job(JobPlan {
            definition_id: self.tx.intern_definition(frozen)?,
            task_index: 0,
            source: submission.source,
            input: JobInput::Given(submission.input),
            labels: Json::empty_object(),
            priority: definition.root().draft.priority,
            definition,
            parent: None,
            depth: 0,
            hook_of: None,
            schedule_id: Some(self.schedule.schedule_id),
            scheduled_for: Some(due_at),
            not_before: None,
            carried: Carried::default(),
        })?;
        cascade.settle()?;
        Ok(created.job_id)
    }

    /// What the job is given: the schedule's input, which may speak of the time that was meant.
    fn input(&self, due_at: Timestamp) -> Result<Json, EngineError> {
        let draft = &self.schedule.draft;
        let schedule = serde_json::json!({"name": draft.name, "at": rfc3339(due_at)});
        let context = Context::new().with("schedule", schedule);
        let rendered = render_value(&draft.input, &context);
        let rendered = rendered.map_err(|fault| EngineError::Invalid {
            place: "input",
            fault: format!(
                "of schedule {} cannot be rendered: {}",
                draft.name, fault.message
            ),
        })?;
        Ok(Json(rendered.to_string()))
    }
}

/// Writes the rows of one transaction, and tells people what they must know of them: not each row, but each change.
struct Ledger<'a> {
    tx: &'a Tx<'a>,
    schedule: &'a Schedule,
    now: Now,
    /// How the row before went.
    last: Option<FireOutcome>,
    /// The first and the last, and how many, if they were counted.
    missed: Option<(Timestamp, Timestamp, Option<usize>)>,
}

impl<'a> Ledger<'a> {
    fn open(tx: &'a Tx<'a>, schedule: &'a Schedule, now: Now) -> Result<Ledger<'a>, StoreError> {
        let last = tx.last_fire(schedule.schedule_id)?;
        Ok(Ledger {
            tx,
            schedule,
            now,
            last: last.map(|last| last.outcome),
            missed: None,
        })
    }

    fn row(&self, due_at: Timestamp, outcome: FireOutcome, message: &str) -> Fire {
        Fire {
            schedule_id: self.schedule.schedule_id,
            due_at,
            manual: false,
            outcome,
            job_id: None,
            until_at: None,
            at: self.now.wall,
            message: message.to_string(),
        }
    }

    fn fired(
        &mut self,
        due_at: Timestamp,
        outcome: FireOutcome,
        job_id: JobId,
    ) -> Result<(), StoreError> {
        let late_secs = (self.now.wall.0 - due_at.0).max(0) / 1_000;
        let message = match outcome {
            FireOutcome::CaughtUp => format!("caught up {late_secs} s late"),
            _ => String::new(),
        };
        let row = self.row(due_at, outcome, &message);
        self.last = Some(outcome);
        self.tx.insert_fire(&Fire {
            job_id: Some(job_id),
            ..row
        })
    }

    /// No job is made.
    fn pass(
        &mut self,
        due_at: Timestamp,
        outcome: FireOutcome,
        why: &str,
    ) -> Result<(), EngineError> {
        self.tx.insert_fire(&self.row(due_at, outcome, why))?;
        if outcome == FireOutcome::Missed {
            let (first, _, count) = self.missed.unwrap_or((due_at, due_at, Some(0)));
            self.missed = Some((first, due_at, count.map(|count| count + 1)));
        }
        self.tell(due_at, outcome, why)?;
        self.last = Some(outcome);
        Ok(())
    }

    /// One row for everything that is too long ago to be kept one by one.
    fn pass_over(&mut self, first: Timestamp, until: Timestamp) -> Result<(), EngineError> {
        if self.tx.has_fire(self.schedule.schedule_id, first, false)? {
            return Ok(());
        }
        let (outcome, why) = match self.schedule.pause() {
            Some(pause) => (FireOutcome::Paused, pause.to_string()),
            None => {
                let until = rfc3339(until);
                let why =
                    format!("the server was not running; this row covers all times before {until}");
                self.missed = Some((first, first, None));
                (FireOutcome::Missed, why)
            }
        };
        Ok(self.tx.insert_fire(&Fire {
            until_at: Some(until),
            ..self.row(first, outcome, &why)
        })?)
    }

    /// The first of several in a row is told. Their reasons may differ by no more than the time that they speak of.
    fn tell(&self, due_at: Timestamp, outcome: FireOutcome, why: &str) -> Result<(), EngineError> {
        let kind = match outcome {
            FireOutcome::Skipped => EventKind::ScheduleSkipped,
            FireOutcome::Refused => EventKind::ScheduleRefused,
            _ => return Ok(()),
        };
        if self.last == Some(outcome) {
            return Ok(());
        }
        let draft = &self.schedule.draft;
        let at = rfc3339(due_at);
        let text = format!(
            "schedule {} of task {} was {outcome} at {at}: {why}",
            draft.name, draft.task
        );
        let facts = about(self.schedule).and("scheduled_for", at);
        let event = NewEvent::new(kind, text).data(facts.data());
        Ok(self.tx.record(&event, self.now)?)
    }

    fn close(self) -> Result<(), EngineError> {
        let Some((first, last, count)) = self.missed else {
            return Ok(());
        };
        let draft = &self.schedule.draft;
        let (first, last) = (rfc3339(first), rfc3339(last));
        let missed = match count {
            Some(1) => first.clone(),
            Some(count) => format!("{count} times, from {first} to {last}"),
            None => format!("all from {first} to {last}"),
        };
        let (name, task) = (&draft.name, &draft.task);
        let text = format!("schedule {name} of task {task} missed {missed}");
        let facts = about(self.schedule)
            .and("count", count)
            .and("first", first)
            .and("last", last)
            .and("catch_up", draft.catch_up.in_words());
        let event = NewEvent::new(EventKind::ScheduleMissed, text).data(facts.data());
        Ok(self.tx.record(&event, self.now)?)
    }
}
