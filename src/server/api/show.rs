//! What things look like: from the engine's views to the JSON that is shown.

use crate::domain::job::Job;
use crate::domain::outbox::Message;
use crate::domain::schedule::{CatchUp, Fire};
use crate::domain::step::{Step, StepKind};
use crate::domain::token::Token;
use crate::domain::{Json, Now, Timestamp};
use crate::engine::{
    JobDetail, JobWhy, MessageDetail, NamedEvent, Parent, ScheduleView, ScheduleWhy, StepDetail,
    StepWhy, WaitingStep, Why, WorkerDetail, WorkerWhy,
};
use crate::outbox::{Origin, message_id};
use crate::sealer::Sealer;
use crate::store::FormerOutcome;
use crate::wire::api::{
    AttemptHistory, CatchUpJson, DeliveryJson, DeliveryTryJson, EdgesJson, EventJson, FireJson,
    HeldStepJson, JobJson, JobWhyJson, OneStepWhyJson, ParentJson, QueuedJson, QueuedStepJson,
    RootCauseJson, ScheduleJson, ScheduleWhyJson, StepJson, StepWhyJson, TokenJson, ValueJson,
    WhyFactJson, WhyJson, WhyOutcomeJson, WhyWorkerJson, WorkerJson, WorkerWhyJson,
};
use crate::wire::{Raw, Time};

pub fn secs(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

fn time(at: Option<Timestamp>) -> Option<Time> {
    at.map(Time)
}

/// A value as it may be shown: `***` for what is sealed in it.
pub fn masked(json: &Json) -> Raw {
    match Sealer::masked_text(&json.0) {
        Some(masked) => Raw::from(&Json(masked)),
        None => Raw::from(json),
    }
}

/// Without its steps, as in lists.
pub fn job(job: &Job, parent: Option<&Parent>) -> JobJson {
    JobJson {
        id: job.job_id.0,
        task: job.task.clone(),
        status: job.state.to_string(),
        reason: job.reason.map(|reason| reason.to_string()),
        message: job.message.clone(),
        source: job.source.to_string(),
        input: masked(&job.input),
        output: None,
        labels: Raw::from(&job.labels),
        priority: job.priority,
        parent: parent.map(|(job_id, step)| ParentJson {
            job_id: job_id.0,
            step: step.clone(),
        }),
        retry_of: job.retry_of.map(|job_id| job_id.0),
        hook_of: job.hook_of.map(|job_id| job_id.0),
        schedule_id: job.schedule_id.map(|schedule_id| schedule_id.0),
        scheduled_for: time(job.scheduled_for),
        created_at: job.created_at.into(),
        started_at: time(job.started_at),
        ended_at: time(job.ended_at),
        logs_removed_at: time(job.logs_removed_at),
        kept: job.kept,
        steps: None,
    }
}

pub fn job_detail(detail: &JobDetail, now: Now) -> JobJson {
    let steps = detail.steps.iter().map(|step| step_detail(step, now));
    JobJson {
        output: detail.output.as_ref().map(masked),
        steps: Some(steps.collect()),
        ..job(&detail.job, detail.parent.as_ref())
    }
}

fn step_detail(detail: &StepDetail, now: Now) -> StepJson {
    let step = &detail.step;
    // The service clock has no dates; how far away the moment is says when it will be.
    let not_before = step.not_before_up.map(|up| {
        let in_ms = (up.0 - now.up.0).max(0);
        Time(Timestamp(now.wall.0 + in_ms))
    });
    StepJson {
        id: step.step_id.0,
        name: detail.name.clone(),
        status: step.state.to_string(),
        reason: step.reason.map(|reason| reason.to_string()),
        message: step.message.clone(),
        kind: detail.kind.to_string(),
        depends_on: detail.depends_on.clone(),
        edges: EdgesJson::from(&detail.asked_of_them),
        for_each: step.kind == StepKind::Loop,
        continue_on_failure: detail.continue_on_failure,
        required_tags: detail.required_tags.clone(),
        attempt: step.attempt,
        max_attempts: detail.max_attempts,
        worker: detail.worker.clone(),
        child_job_id: step.child_job_id.map(|job_id| job_id.0),
        exit_code: step.exit_code,
        output: detail.output.as_ref().map(masked),
        asks: detail.asks.iter().map(ValueJson::from).collect(),
        ready_at: time(step.ready_at),
        assigned_at: time(step.assigned_at),
        started_at: time(step.started_at),
        ended_at: time(step.ended_at),
        not_before,
        attempts: attempts(detail),
    }
}

/// Every attempt of a step, oldest first. Former attempts have rows of their own. The step's row holds the last attempt,
/// unless the step waits for its next attempt or its worker was lost and the step was held.
fn attempts(detail: &StepDetail) -> Vec<AttemptHistory> {
    let former = detail.former.iter().map(|(former, worker)| AttemptHistory {
        attempt: former.attempt,
        worker: worker.clone(),
        session: former.session_id.map(|session_id| session_id.0),
        started_at: time(former.started_at),
        ended_at: Some(former.ended_at.into()),
        outcome: match former.outcome {
            FormerOutcome::Returned => "returned".to_string(),
            FormerOutcome::Failed => "failed".to_string(),
        },
        reason: Some(former.reason.clone()),
        message: Some(former.message.clone()),
        exit_code: former.exit_code,
    });
    let step: &Step = &detail.step;
    let is_last = step.attempt > 0 && (step.session_id.is_some() || step.child_job_id.is_some());
    let last = is_last.then(|| AttemptHistory {
        attempt: step.attempt,
        worker: detail.worker.clone(),
        session: step.session_id.map(|session_id| session_id.0),
        started_at: time(step.started_at),
        ended_at: time(step.ended_at),
        outcome: step.state.to_string(),
        reason: step.reason.map(|reason| reason.to_string()),
        message: step.message.clone(),
        exit_code: step.exit_code,
    });
    former.chain(last).collect()
}

pub fn worker(detail: &WorkerDetail) -> WorkerJson {
    let worker = &detail.worker;
    let held = detail.held.iter().map(|held| HeldStepJson {
        job_id: held.job_id.0,
        step: held.step.clone(),
        attempt: held.attempt,
        status: held.state.to_string(),
    });
    WorkerJson {
        id: worker.worker_id.0,
        name: worker.name.clone(),
        status: worker.state.to_string(),
        tags: worker.tags.clone(),
        slots: worker.slots,
        slots_used: detail.held.len() as u32,
        session: worker.session_id.map(|session_id| session_id.0),
        version: worker.version.clone(),
        platform: worker.platform.clone(),
        last_heartbeat_at: worker.seen_at.into(),
        heartbeat_age_secs: secs(detail.silent_ms),
        inactive_in_secs: detail.inactive_in_ms.map(secs),
        draining: worker.draining,
        paused: worker.paused,
        running: held.collect(),
    }
}

pub fn schedule(view: &ScheduleView) -> ScheduleJson {
    let schedule = &view.schedule;
    let draft = &schedule.draft;
    let (within_ms, max) = match draft.catch_up {
        CatchUp::None => (None, None),
        CatchUp::Latest { within_ms } => (Some(within_ms), None),
        CatchUp::All { max } => (None, Some(max)),
    };
    ScheduleJson {
        id: schedule.schedule_id.0,
        task: draft.task.clone(),
        name: draft.name.clone(),
        cron: draft.cron.clone(),
        timezone: draft.timezone.clone(),
        input: Raw::from(&draft.input),
        overlap: draft.overlap.to_string(),
        catch_up: CatchUpJson {
            policy: draft.catch_up.as_str().to_string(),
            within_secs: within_ms.map(|ms| ms / 1_000),
            max,
        },
        enabled: draft.enabled,
        paused: schedule.paused,
        loaded: schedule.loaded,
        next_at: time(schedule.next_at),
        following: view.following.iter().copied().map(Time).collect(),
        last: view.last.as_ref().map(fire),
        created_at: schedule.created_at.into(),
        removed_at: time(schedule.removed_at),
    }
}

pub fn fire(fire: &Fire) -> FireJson {
    FireJson {
        due_at: fire.due_at.into(),
        until_at: time(fire.until_at),
        outcome: fire.outcome.to_string(),
        manual: fire.manual,
        job_id: fire.job_id.map(|job_id| job_id.0),
        at: fire.at.into(),
        message: fire.message.clone(),
    }
}

pub fn event(named: NamedEvent) -> EventJson {
    EventJson::new(named.event, named.step, named.worker)
}

/// Without its log, as in lists.
pub fn delivery(message: &Message, origin: &Origin, now: Now) -> DeliveryJson {
    // The service clock has no dates; how far away the moment is says when it will be.
    let next_at = message.next_up.map(|up| {
        let in_ms = (up.0 - now.up.0).max(0);
        Time(Timestamp(now.wall.0 + in_ms))
    });
    DeliveryJson {
        id: message.outbox_id.0,
        message_id: message_id(origin, message.outbox_id),
        target: message.target.clone(),
        state: message.state.to_string(),
        event_seq: message.event_seq.0,
        job_id: message.job_id.map(|id| id.0),
        attempts: message.attempts,
        next_at,
        created_at: message.created_at.into(),
        delivered_at: time(message.delivered_at),
        last_error: message.last_error.clone(),
        event: None,
        log: None,
    }
}

pub fn delivery_detail(detail: MessageDetail, origin: &Origin, now: Now) -> DeliveryJson {
    let log = detail.deliveries.into_iter().map(|tried| DeliveryTryJson {
        attempt: tried.attempt,
        at: tried.at.into(),
        ok: tried.is_ok,
        status: tried.status,
        message: tried.message,
        duration_ms: tried.duration_ms,
    });
    DeliveryJson {
        log: Some(log.collect()),
        event: detail.event.map(event),
        ..delivery(&detail.message, origin, now)
    }
}

pub fn why(why: &Why) -> WhyJson {
    let workers = why.workers.iter().map(|worker| WhyWorkerJson {
        name: worker.name.clone(),
        offers: worker.offers.clone(),
        lacks: worker.lacks.clone(),
        lacks_features: worker
            .lacks_features
            .iter()
            .map(|it| it.to_string())
            .collect(),
        state: worker.standing.to_string(),
        seen_secs_ago: secs(worker.seen_ms_ago),
        slots_used: worker.slots_used,
        slots: worker.slots,
    });
    WhyJson {
        code: why.code.to_string(),
        sentence: why.sentence.clone(),
        facts: why.facts.iter().map(ToString::to_string).collect(),
        details: (why.facts.iter())
            .map(|fact| WhyFactJson {
                kind: fact.kind.to_string(),
                text: fact.text.clone(),
            })
            .collect(),
        needs: why.needs.clone(),
        workers: workers.collect(),
        root_cause: why.root_cause.as_ref().map(|root| RootCauseJson {
            job_id: root.job_id.0,
            step: root.step.clone(),
            status: root.state.to_string(),
            code: root.reason.map(|reason| reason.to_string()),
            sentence: root.sentence.clone(),
        }),
        outcome: why.outcome.map(|outcome| WhyOutcomeJson {
            action: outcome.deed.sentence().to_string(),
            code: outcome.deed.to_string(),
            phase: outcome.phase,
            in_secs: secs(outcome.in_ms),
        }),
        skips: why.skips.clone(),
        fix: why.fix.clone(),
    }
}

pub fn job_why(explained: &JobWhy, now: Now) -> JobWhyJson {
    let job = &explained.job;
    let since = (job.ended_at).or(job.started_at).unwrap_or(job.created_at);
    let ran = job.started_at.zip(job.ended_at);
    let counts = explained.counts.iter();
    JobWhyJson {
        job_id: job.job_id.0,
        task: job.task.clone(),
        status: job.state.to_string(),
        since_secs: secs((now.wall.0 - since.0).max(0)),
        ran_secs: ran.map(|(from, to)| secs((to.0 - from.0).max(0))),
        why: why(&explained.why),
        steps: (explained.steps.iter())
            .map(|step| step_why(step, now))
            .collect(),
        more: explained.more > 0,
        more_steps: explained.more,
        counts: counts
            .map(|(state, count)| (state.to_string(), *count))
            .collect(),
    }
}

fn step_why(explained: &StepWhy, now: Now) -> StepWhyJson {
    let step = &explained.step;
    StepWhyJson {
        step: explained.name.clone(),
        status: step.state.to_string(),
        since_secs: secs(step.since_ms(explained.job.created_at, now)),
        attempt: step.attempt,
        max_attempts: explained.max_attempts,
        worker: explained.worker.clone(),
        why: why(&explained.why),
    }
}

pub fn one_step_why(explained: &StepWhy, now: Now) -> OneStepWhyJson {
    OneStepWhyJson {
        job_id: explained.job.job_id.0,
        task: explained.job.task.clone(),
        job_status: explained.job.state.to_string(),
        step: step_why(explained, now),
    }
}

pub fn worker_why(explained: &WorkerWhy) -> WorkerWhyJson {
    let could_take = explained.could_take.iter();
    WorkerWhyJson {
        worker: worker(&explained.detail),
        why: why(&explained.why),
        could_take: could_take
            .map(|(job_id, step)| QueuedStepJson {
                job_id: job_id.0,
                step: step.clone(),
            })
            .collect(),
    }
}

pub fn schedule_why(explained: &ScheduleWhy) -> ScheduleWhyJson {
    ScheduleWhyJson {
        schedule: schedule(&explained.view),
        why: why(&explained.why),
        next_in_secs: explained.next_in_ms.map(secs),
    }
}

pub fn waiting(waiting: &WaitingStep) -> QueuedJson {
    QueuedJson {
        job_id: waiting.job_id.0,
        task: waiting.task.clone(),
        step_id: waiting.step.step_id.0,
        step: waiting.name.clone(),
        status: waiting.step.state.to_string(),
        priority: waiting.step.priority,
        ready_at: time(waiting.step.ready_at),
        age_secs: secs(waiting.age_ms),
        required_tags: waiting.required_tags.clone(),
        why: why(&waiting.why),
    }
}

pub fn token(token: &Token, now: Now) -> TokenJson {
    TokenJson {
        id: token.token_id.0,
        name: token.name.clone(),
        role: token.role.to_string(),
        status: token.standing(now.wall).to_string(),
        tags: token.tags.clone(),
        made_by: token.made_by.clone(),
        created_at: token.created_at.into(),
        expires_at: token.expires_at.map(Into::into),
        used_at: token.used_at.map(Into::into),
        ended_at: token.ended_at.map(Into::into),
        made_token_id: token.made_token_id.map(|token_id| token_id.0),
        unasked: token.is_unasked,
    }
}
