//! What people and scripts are shown and may send. The fields are a promise; more may be added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Raw, Strict, Time, unique_texts};
use crate::domain::audit::{AuditHash, AuditRow, ChainLink};
use crate::domain::depends::{Accept, DependsOn};
use crate::domain::event::Event;
use crate::domain::task::{Action, StepDraft, Task};
use crate::domain::value::ValueSpec;
use crate::domain::{Json, Timestamp};
use crate::words::calendar_time;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubmitRequest {
    pub input: Option<Strict>,
    pub priority: Option<i32>,
    pub not_before: Option<Time>,
    #[serde(deserialize_with = "unique_texts")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryRequest {
    /// This step, and what did not complete.
    pub from: Option<String>,
    /// Everything once more.
    pub all: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApproveRequest {
    /// What the approval gives to the steps after it.
    pub output: Option<Strict>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CancelRequest {
    pub why: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RejectRequest {
    pub why: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    /// The sentence that the step fails with.
    pub why: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Ask for what comes after it; `None`: this was the last page.
    pub next: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TaskJson {
    pub name: String,
    pub description: Option<String>,
    pub inputs: Vec<ValueJson>,
    pub steps: Vec<TaskStepJson>,
    pub priority: i32,
    pub timeout_secs: Option<i64>,
    pub queue_timeout_secs: Option<i64>,
}

/// The workflow files of a server.
#[derive(Debug, Serialize)]
pub struct WorkflowsJson<'a, D: Serialize> {
    /// Where the files are. `None`: none are served.
    pub folder: Option<String>,
    pub tasks: usize,
    pub schedules: usize,
    pub webhooks: usize,
    pub loaded_at: Option<Time>,
    /// Files that are served as they were when they were last good.
    pub stale: Vec<String>,
    /// Files that are not served at all.
    pub left_out: Vec<String>,
    pub problems: &'a [D],
}

/// `WorkflowsJson` as others read it.
#[derive(Debug, Deserialize)]
pub struct ServedWorkflows {
    /// `None`: it serves none, or is too old to say.
    pub folder: Option<String>,
    pub loaded_at: Option<Time>,
    pub tasks: usize,
    pub stale: Vec<String>,
    pub left_out: Vec<String>,
    pub problems: Vec<ServedProblem>,
}

/// What of a diagnostic fits into a line.
#[derive(Debug, Deserialize)]
pub struct ServedProblem {
    pub code: String,
    pub severity: String,
    pub message: String,
    pub file: String,
    pub line: u32,
}

impl ServedWorkflows {
    pub fn errors(&self) -> impl Iterator<Item = &ServedProblem> {
        let problems = self.problems.iter();
        problems.filter(|problem| problem.severity == "error")
    }

    /// Warnings about what is an error anywhere else, in files that load because version 0.1 had accepted them.
    pub fn tolerated(&self) -> impl Iterator<Item = &ServedProblem> {
        let problems = self.problems.iter();
        problems.filter(|problem| problem.severity == "warning" && problem.code.starts_with('E'))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidateRequest {
    pub files: Vec<FileJson>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileJson {
    pub path: String,
    pub text: String,
}

#[derive(Debug, Serialize)]
pub struct ValidatedJson<'a, D: Serialize> {
    pub valid: bool,
    pub errors: usize,
    pub warnings: usize,
    pub diagnostics: &'a [D],
}

/// What somebody is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub struct ValueJson {
    pub name: String,
    #[serde(rename = "type")]
    pub value_type: String,
    pub required: bool,
    pub default: Option<Raw>,
    pub options: Vec<Raw>,
    pub pattern: Option<String>,
    pub min: Option<Raw>,
    pub max: Option<Raw>,
    pub multiple: bool,
    pub secret: bool,
    pub description: Option<String>,
}

impl From<&ValueSpec> for ValueJson {
    fn from(spec: &ValueSpec) -> ValueJson {
        ValueJson {
            name: spec.name.clone(),
            value_type: spec.value_type.to_string(),
            required: spec.required,
            default: spec.default.as_ref().map(Raw::from),
            options: spec.options.iter().map(Raw::from).collect(),
            pattern: spec.pattern.clone(),
            min: spec.min.as_ref().map(Raw::from),
            max: spec.max.as_ref().map(Raw::from),
            multiple: spec.multiple,
            secret: spec.secret,
            description: spec.description.clone(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TaskStepJson {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub depends_on: Vec<String>,
    pub required_tags: Vec<String>,
    #[serde(flatten)]
    pub edges: EdgesJson,
    /// It goes over a list.
    #[serde(default, skip_serializing_if = "is_false")]
    pub for_each: bool,
    /// As it was written, template and all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The task that it calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Its failure does not fail the job.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continue_on_failure: bool,
}

fn is_false(yes: &bool) -> bool {
    !yes
}

impl From<&Task> for TaskJson {
    fn from(task: &Task) -> TaskJson {
        let steps = task.draft.steps.iter().enumerate();
        let steps = steps.map(|(position, step)| {
            let dependencies = task.dependencies(position as u32).iter();
            let depends_on = dependencies.map(|&at| task.step(at).name.clone());
            TaskStepJson::new(step, depends_on.collect())
        });
        TaskJson {
            name: task.draft.name.clone(),
            description: task.draft.description.clone(),
            inputs: task.draft.inputs.iter().map(ValueJson::from).collect(),
            steps: steps.collect(),
            priority: task.draft.priority,
            timeout_secs: task.draft.timeout_ms.map(|ms| ms / 1_000),
            queue_timeout_secs: task.draft.queue_timeout_ms.map(|ms| ms / 1_000),
        }
    }
}

impl TaskStepJson {
    fn new(step: &StepDraft, depends_on: Vec<String>) -> TaskStepJson {
        TaskStepJson {
            name: step.name.clone(),
            kind: step.action.word().to_string(),
            depends_on,
            required_tags: step.required_tags(),
            edges: EdgesJson::from(&step.depends_on),
            for_each: step.for_each.is_some(),
            when: step.when.as_ref().map(|when| {
                // A text is shown without its quotes.
                serde_json::from_str(&when.0).unwrap_or_else(|_| when.0.clone())
            }),
            task: match &step.action {
                Action::Task { task, .. } => Some(task.clone()),
                _ => None,
            },
            continue_on_failure: step.continue_on_failure,
        }
    }
}

/// What a step asks of those that it depends on, besides that all of them complete.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EdgesJson {
    /// How they may end, where that is not `completed` alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accepts: BTreeMap<String, Vec<String>>,
    /// Those of which one is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<String>,
}

impl From<&DependsOn<String>> for EdgesJson {
    fn from(tree: &DependsOn<String>) -> EdgesJson {
        let mut edges = EdgesJson::default();
        edges.add(tree, false);
        edges
    }
}

impl EdgesJson {
    fn add(&mut self, tree: &DependsOn<String>, is_any: bool) {
        match tree {
            DependsOn::Step { step, accept } => {
                if *accept != Accept::COMPLETED {
                    let words = accept.outcomes().map(|outcome| outcome.to_string());
                    let known = self.accepts.entry(step.clone()).or_default();
                    known.extend(words);
                    known.dedup();
                }
                if is_any && !self.any_of.contains(step) {
                    self.any_of.push(step.clone());
                }
            }
            DependsOn::All(group) => group.iter().for_each(|one| self.add(one, is_any)),
            DependsOn::Any(group) => {
                let is_any = is_any || group.len() > 1;
                group.iter().for_each(|one| self.add(one, is_any));
            }
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct JobJson {
    pub id: i64,
    pub task: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub source: String,
    pub input: Raw,
    pub output: Option<Raw>,
    pub labels: Raw,
    pub priority: i32,
    pub parent: Option<ParentJson>,
    pub retry_of: Option<i64>,
    /// The job whose hook it is.
    pub hook_of: Option<i64>,
    pub schedule_id: Option<i64>,
    /// The time that its schedule meant.
    pub scheduled_for: Option<Time>,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// Since when what its steps printed is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs_removed_at: Option<Time>,
    /// By a person: it does not grow too old.
    #[serde(default, skip_serializing_if = "is_false")]
    pub kept: bool,
    /// Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepJson>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ParentJson {
    pub job_id: i64,
    pub step: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct StepJson {
    pub id: i64,
    pub name: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub depends_on: Vec<String>,
    #[serde(flatten)]
    pub edges: EdgesJson,
    /// It goes over a list; its instances are steps of their own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub for_each: bool,
    /// Its failure does not fail the job.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continue_on_failure: bool,
    pub required_tags: Vec<String>,
    pub attempt: u32,
    pub max_attempts: u32,
    pub worker: Option<String>,
    pub child_job_id: Option<i64>,
    pub exit_code: Option<i32>,
    pub output: Option<Raw>,
    /// What whoever approves is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<ValueJson>,
    pub ready_at: Option<Time>,
    pub assigned_at: Option<Time>,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub not_before: Option<Time>,
    pub attempts: Vec<AttemptHistory>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct AttemptHistory {
    pub attempt: u32,
    pub worker: Option<String>,
    pub session: Option<i64>,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// `running`, or as it ended.
    pub outcome: String,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub exit_code: Option<i32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerJson {
    pub id: i64,
    pub name: String,
    pub status: String,
    pub tags: Vec<String>,
    pub slots: u32,
    pub slots_used: u32,
    pub session: Option<i64>,
    pub version: String,
    pub platform: String,
    pub last_heartbeat_at: Time,
    pub heartbeat_age_secs: f64,
    /// `None`: it is inactive, or too many are silent at once.
    pub inactive_in_secs: Option<f64>,
    pub draining: bool,
    pub paused: bool,
    pub running: Vec<HeldStepJson>,
}

impl WorkerJson {
    /// Recovery counts on it to take what waits.
    pub fn takes_steps(&self) -> bool {
        self.status == "active" && !self.paused && !self.draining
    }

    /// In one word: `active`, `inactive`, `draining` or `paused`.
    pub fn standing(&self) -> &'static str {
        match self {
            it if it.status == "inactive" => "inactive",
            it if it.draining => "draining",
            it if it.paused => "paused",
            _ => "active",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct HeldStepJson {
    pub job_id: i64,
    pub step: String,
    pub attempt: u32,
    pub status: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventJson {
    pub seq: i64,
    pub at: Time,
    pub kind: String,
    pub phase: Option<u8>,
    pub job_id: Option<i64>,
    pub step_id: Option<i64>,
    pub step: Option<String>,
    pub worker_id: Option<i64>,
    pub worker: Option<String>,
    pub attempt: Option<u32>,
    pub reason: Option<String>,
    pub message: String,
    /// An object: what the message says, for programs.
    pub data: Raw,
    /// The person by whose call it happened, as the name of a token; `null`: nobody's.
    #[serde(default)]
    pub actor: Option<String>,
}

impl EventJson {
    /// With the names that people know its step and its worker by.
    pub fn new(event: Event, step: Option<String>, worker: Option<String>) -> EventJson {
        let fact = event.fact;
        EventJson {
            seq: event.seq.0,
            at: event.at.into(),
            kind: fact.kind.to_string(),
            phase: fact.phase,
            job_id: fact.job_id.map(|id| id.0),
            step_id: fact.step_id.map(|id| id.0),
            step,
            worker_id: fact.worker_id.map(|id| id.0),
            worker,
            attempt: fact.attempt,
            reason: fact.reason.map(|reason| reason.to_string()),
            message: fact.message,
            data: Raw::from(&fact.data.unwrap_or_else(Json::empty_object)),
            actor: event.actor,
        }
    }
}

/// A row of the audit log, with everything that its hash is computed from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditJson {
    pub seq: i64,
    pub at: Time,
    /// Time of the row in milliseconds since 1970, as it is hashed.
    pub at_ms: i64,
    pub actor: String,
    pub token_id: Option<i64>,
    pub address: Option<String>,
    pub action: String,
    pub object: Option<String>,
    pub outcome: String,
    /// A JSON object as text, as it is hashed.
    pub detail: Option<String>,
    /// SHA-256 in hex.
    pub hash: String,
}

impl From<AuditRow> for AuditJson {
    fn from(row: AuditRow) -> AuditJson {
        AuditJson {
            seq: row.seq,
            at: row.at.into(),
            at_ms: row.at.0,
            actor: row.actor,
            token_id: row.token_id,
            address: row.address,
            action: row.action,
            object: row.object,
            outcome: row.outcome,
            detail: row.detail,
            hash: row.hash.to_string(),
        }
    }
}

impl AuditJson {
    /// `None`: the hash is not one, or the readable time is not the time that is hashed.
    pub fn into_row(self) -> Option<AuditRow> {
        if calendar_time(self.at.0) != calendar_time(Timestamp(self.at_ms)) {
            return None;
        }
        Some(AuditRow {
            hash: AuditHash::parse(&self.hash)?,
            seq: self.seq,
            at: Timestamp(self.at_ms),
            actor: self.actor,
            token_id: self.token_id,
            address: self.address,
            action: self.action,
            object: self.object,
            outcome: self.outcome,
            detail: self.detail,
        })
    }
}

/// The number and the hash of a row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLinkJson {
    pub seq: i64,
    /// SHA-256 in hex.
    pub hash: String,
}

impl From<ChainLink> for AuditLinkJson {
    fn from(link: ChainLink) -> AuditLinkJson {
        AuditLinkJson {
            seq: link.seq,
            hash: link.hash.to_string(),
        }
    }
}

impl AuditLinkJson {
    /// `None`: the hash is not one.
    pub fn link(&self) -> Option<ChainLink> {
        let hash = AuditHash::parse(&self.hash)?;
        Some(ChainLink {
            seq: self.seq,
            hash,
        })
    }
}

/// Both ends of the audit log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditEndsJson {
    /// The last row that retention has removed; `seq` 0 and a hash of zeros if it has removed none.
    pub anchor: AuditLinkJson,
    /// `unreadable` or `additional` if the anchor was changed, so that no row can be verified from it; `null` otherwise.
    #[serde(default)]
    pub anchor_fault: Option<String>,
    /// The last row.
    pub head: AuditLinkJson,
    /// The highest number of a row that the database has noted outside of the audit log. If `head` has a lower number, rows were
    /// removed from the end of the audit log.
    pub noted_seq: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ScheduleJson {
    pub id: i64,
    pub task: String,
    pub name: String,
    pub cron: String,
    pub timezone: String,
    /// As it was written, templates and all.
    pub input: Raw,
    pub overlap: String,
    pub catch_up: CatchUpJson,
    /// By its file.
    pub enabled: bool,
    /// By a person.
    pub paused: bool,
    /// `false`: no file that loads has it. Unless it is removed, it goes on where it was once its file loads again.
    pub loaded: bool,
    pub next_at: Option<Time>,
    /// The next few times, `next_at` included.
    pub following: Vec<Time>,
    /// What became of the last time.
    pub last: Option<FireJson>,
    pub created_at: Time,
    /// Since when no file has it.
    pub removed_at: Option<Time>,
}

impl ScheduleJson {
    /// It will fire.
    pub fn is_due(&self) -> bool {
        let is_on = self.enabled && self.loaded && !self.paused;
        is_on && self.next_at.is_some()
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct CatchUpJson {
    pub policy: String,
    /// Of `latest`.
    pub within_secs: Option<i64>,
    /// Of `all`.
    pub max: Option<u32>,
}

/// What became of a time at which a schedule was due.
#[derive(Debug, Serialize, Deserialize)]
pub struct FireJson {
    /// The time that was meant.
    pub due_at: Time,
    /// It stands for every time from `due_at` to before this one.
    pub until_at: Option<Time>,
    pub outcome: String,
    /// A person did not want to wait.
    pub manual: bool,
    pub job_id: Option<i64>,
    pub at: Time,
    pub message: String,
}

/// A job has changed: whoever shows it looks again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobChange {
    pub job_id: i64,
    pub task: String,
    pub status: String,
    pub change: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WhyJson {
    pub code: String,
    pub sentence: String,
    pub facts: Vec<String>,
    /// The same, each with its kind: what `facts` says in words.
    #[serde(default)]
    pub details: Vec<WhyFactJson>,
    /// What a worker must offer to take it.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Those that matter here; who offers all that it needs comes first.
    #[serde(default)]
    pub workers: Vec<WhyWorkerJson>,
    /// Where it began, if that was somewhere else.
    #[serde(default)]
    pub root_cause: Option<RootCauseJson>,
    /// What recovery will do if nothing happens.
    pub outcome: Option<WhyOutcomeJson>,
    /// Steps that never run because of that, or because of how it ended; the first of them.
    #[serde(default)]
    pub skips: Vec<String>,
    pub fix: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WhyFactJson {
    /// `note`, `others`, `then`, `last`, `last_job`, `root_cause`, `child_job` or `returned`.
    pub kind: String,
    pub text: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WhyOutcomeJson {
    /// In a sentence.
    pub action: String,
    /// For programs: `fail`, `requeue`, `retry`, `hold`, `cancel_job` or `mark_inactive`.
    #[serde(default)]
    pub code: String,
    pub phase: u8,
    pub in_secs: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WhyWorkerJson {
    pub name: String,
    pub offers: Vec<String>,
    pub lacks: Vec<String>,
    /// What its program lacks for the step: a newer version has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks_features: Vec<String>,
    /// `active`, `silent`, `draining`, `paused` or `inactive`.
    pub state: String,
    pub seen_secs_ago: f64,
    pub slots_used: u32,
    pub slots: u32,
}

impl WhyWorkerJson {
    /// What keeps it from taking the step: tags that it does not offer, features that its program does not have.
    pub fn missing(&self) -> Vec<String> {
        let features = self.lacks_features.iter();
        let features = features.map(|name| format!("the feature {name} of a newer version"));
        self.lacks.iter().cloned().chain(features).collect()
    }
}

/// The step that did not do as it should by itself, perhaps of a child job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RootCauseJson {
    pub job_id: i64,
    pub step: String,
    pub status: String,
    /// `None`: it completed, and that was not wanted.
    pub code: Option<String>,
    pub sentence: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct JobWhyJson {
    pub job_id: i64,
    pub task: String,
    pub status: String,
    /// How long it is so.
    #[serde(default)]
    pub since_secs: f64,
    /// Of one that has started and ended.
    #[serde(default)]
    pub ran_secs: Option<f64>,
    #[serde(flatten)]
    pub why: WhyJson,
    /// What has not ended, or what did not complete; what matters most comes first.
    pub steps: Vec<StepWhyJson>,
    pub more: bool,
    /// How many more there are.
    #[serde(default)]
    pub more_steps: usize,
    /// How many steps are where, by their status.
    #[serde(default)]
    pub counts: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepWhyJson {
    pub step: String,
    pub status: String,
    /// How long it is so.
    #[serde(default)]
    pub since_secs: f64,
    #[serde(default)]
    pub attempt: u32,
    #[serde(default)]
    pub max_attempts: u32,
    #[serde(default)]
    pub worker: Option<String>,
    #[serde(flatten)]
    pub why: WhyJson,
}

/// A step that was asked for by itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct OneStepWhyJson {
    pub job_id: i64,
    pub task: String,
    pub job_status: String,
    #[serde(flatten)]
    pub step: StepWhyJson,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerWhyJson {
    pub worker: WorkerJson,
    #[serde(flatten)]
    pub why: WhyJson,
    /// Steps that wait and that it offers all for, the first of them.
    pub could_take: Vec<QueuedStepJson>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct QueuedStepJson {
    pub job_id: i64,
    pub step: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ScheduleWhyJson {
    pub schedule: ScheduleJson,
    #[serde(flatten)]
    pub why: WhyJson,
    /// Until it fires next; `None` if it will not.
    pub next_in_secs: Option<f64>,
}

/// A step that waits for somebody.
#[derive(Debug, Serialize, Deserialize)]
pub struct QueuedJson {
    pub job_id: i64,
    pub task: String,
    pub step_id: i64,
    pub step: String,
    pub status: String,
    pub priority: i32,
    pub ready_at: Option<Time>,
    pub age_secs: f64,
    pub required_tags: Vec<String>,
    pub why: WhyJson,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RecoveryJson {
    pub settings: RecoverySettingsJson,
    pub last_sweep: Option<LastSweepJson>,
    pub forecast: Vec<ForecastJson>,
    /// There is more of some kind than is told.
    pub forecast_more: bool,
    /// What recovery did last, newest first.
    pub history: Vec<EventJson>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RecoverySettingsJson {
    pub heartbeat_interval_secs: i64,
    pub heartbeat_timeout_secs: i64,
    pub sweep_interval_secs: i64,
    pub unmatched_step_timeout_secs: i64,
    pub ack_timeout_secs: i64,
    pub prepare_timeout_secs: i64,
    pub report_grace_secs: i64,
    pub cancel_grace_secs: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct LastSweepJson {
    pub at: Time,
    pub recoveries: usize,
    pub failures: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ForecastJson {
    pub phase: u8,
    pub action: String,
    pub reason: Option<String>,
    pub job_id: Option<i64>,
    pub task: Option<String>,
    pub step_id: Option<i64>,
    pub step: Option<String>,
    pub worker_id: Option<i64>,
    pub worker: Option<String>,
    pub in_secs: f64,
}

/// What one sweep of recovery did.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepJson {
    pub actions: Vec<SweepActionJson>,
    /// How many things could not be looked at or ended. The next sweep tries them again.
    pub failures: usize,
    /// There is more to do than one sweep does. The server goes on by itself.
    pub more: bool,
}

/// One thing that a sweep of recovery did.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepActionJson {
    pub phase: u8,
    pub action: String,
    pub reason: Option<String>,
    pub job_id: Option<i64>,
    pub task: Option<String>,
    pub step_id: Option<i64>,
    pub step: Option<String>,
    pub worker_id: Option<i64>,
    pub worker: Option<String>,
}

/// A message to a target of the settings.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeliveryJson {
    pub id: i64,
    /// What the receiver knows it by, the same in each delivery.
    pub message_id: String,
    pub target: String,
    pub state: String,
    pub event_seq: i64,
    pub job_id: Option<i64>,
    pub attempts: u32,
    pub next_at: Option<Time>,
    pub created_at: Time,
    pub delivered_at: Option<Time>,
    pub last_error: Option<String>,
    /// What it tells. In lists it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventJson>,
    /// How its deliveries went, oldest first, the last ones. In lists it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Vec<DeliveryTryJson>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DeliveryTryJson {
    pub attempt: u32,
    pub at: Time,
    pub ok: bool,
    /// Of HTTP, or a program's exit code.
    pub status: Option<i32>,
    pub message: String,
    pub duration_ms: i64,
}

/// What a request to a webhook came to.
#[derive(Debug, Serialize, Deserialize)]
pub struct HookedJson {
    pub job_id: i64,
    /// It had come before: this is the job that it made then.
    pub repeated: bool,
}

/// What a test message came to.
#[derive(Debug, Serialize, Deserialize)]
pub struct TestedJson {
    pub target: String,
    pub ok: bool,
    pub status: Option<i32>,
    pub message: String,
    pub duration_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct LogsJson {
    pub lines: Vec<LogLineJson>,
    pub total_lines: u64,
    /// Of a search: how many lines there are in all that hold what was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_matches: Option<u64>,
    /// There is more than one answer may hold: ask on from the line after the last.
    pub truncated: bool,
    /// The last of these lines is not all there yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Which attempt's log this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// It is not kept any more, since then: `retention.log_days`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Time>,
    /// The log is not what its worker wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<LogFaultJson>,
}

/// What is to go before its time.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PruneRequest {
    /// Jobs that ended so long ago; as `retention.job_days` says if left out.
    pub jobs_older_secs: Option<i64>,
    /// As the last answer says.
    pub after: Option<i64>,
    /// Says what would go, and removes nothing.
    pub dry_run: bool,
    /// Removes no jobs, but the events of jobs that are gone. `after` is then the number of an event. A server of version
    /// 0.1 does not know this field, so it is sent only if it is set.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub events: bool,
}

/// What went, or would go.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PrunedJson {
    pub dry_run: bool,
    /// With those below them.
    pub jobs: u64,
    pub log_bytes: u64,
    /// Number of removed events of jobs that no longer exist.
    #[serde(default)]
    pub events: u64,
    /// Ended early enough, and needed: kept, retried, hooked, or promised to a key.
    pub needed: u64,
    /// That was not all: ask again, after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// What was removed since the server started, and how long things are kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct RetentionJson {
    pub rounds: u64,
    pub last_round_at: Option<Time>,
    /// Why the last round could not do everything.
    pub last_error: Option<String>,
    pub removed: std::collections::BTreeMap<String, u64>,
    pub database_bytes: i64,
    /// Of these, used for nothing.
    pub database_free_bytes: i64,
    /// The file gives free bytes back by itself; if not, `stepward db compact` does.
    pub database_shrinks: bool,
}

/// The end of a step's log.
/// What is wrong with a log that its worker has finished.
#[derive(Debug, Serialize, Deserialize)]
pub struct LogFaultJson {
    /// `missing`: bytes at its end have not come. `differs`: it is not the text that the worker wrote.
    pub kind: String,
    /// What the worker wrote.
    pub written_bytes: u64,
    /// What the server has.
    pub kept_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct StepLogsJson {
    pub step: String,
    pub attempt: u32,
    #[serde(flatten)]
    pub logs: LogsJson,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct LogLineJson {
    pub n: u64,
    pub at: Option<Time>,
    pub stream: String,
    pub text: String,
}

/// Backups that the server makes by itself, and when anybody last took one.
#[derive(Debug, Serialize, Deserialize)]
pub struct BackupsJson {
    /// The program that they go through, such as `age`; `None`: they are kept as they are.
    pub pipe: Option<String>,
    /// `None`: the settings ask for none.
    pub dir: Option<String>,
    pub every_hours: u32,
    pub keep: u32,
    /// By whomever.
    pub last_taken_at: Option<Time>,
    /// The newest that is there.
    pub last: Option<BackupJson>,
    /// One that bears a time still to come: a clock was wrong then, or is now.
    #[serde(default)]
    pub ahead: Option<BackupJson>,
    pub next_at: Option<Time>,
    /// Why there is none since.
    pub failed: Option<BackupFailureJson>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct BackupJson {
    pub file: String,
    pub made_at: Time,
    pub bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct BackupFailureJson {
    pub since: Time,
    pub message: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Health {
    pub status: String,
    /// From here on told by `/readyz`, to whoever shows a token if tokens are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Nothing stops because of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Set if the database was rolled back: workers have worked for a later state of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackJson>,
    /// Notices about authentication and secrets of webhooks, for callers of role viewer and above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeJson>,
    /// Of the program that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the server takes for the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
}

/// Something that people should know, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeJson {
    pub code: String,
    pub severity: Severity,
    pub message: String,
    /// The remedy: a command or an instruction.
    pub fix: String,
    /// The page of the server that shows it.
    pub page: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Shown by `status`, on the pages and by `doctor`.
    Problem,
    /// Shown by `doctor` and at the start of the server. Also what a newer server may send that this program does not know.
    #[serde(other)]
    Warning,
}

/// Workers that the server refuses because they have worked for a later state of its database.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RollbackJson {
    /// When the first of these workers was refused.
    pub since: Time,
    /// The epoch of the server: how many times a server was started in this lineage.
    pub epoch: i64,
    /// The highest epoch that one of these workers has seen.
    pub seen_epoch: i64,
    /// `worker NAME`, or `a worker at ADDRESS` if the database does not know the worker.
    pub workers: Vec<String>,
}

/// Who asks.
#[derive(Debug, Serialize, Deserialize)]
pub struct MeJson {
    pub name: String,
    pub role: String,
    pub token_id: Option<i64>,
    /// Whether whoever comes must show a token.
    pub needs_token: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TokenJson {
    pub id: i64,
    pub name: String,
    pub role: String,
    /// `good`, `revoked`, `expired`; of an enrolment also `used`.
    pub status: String,
    /// What its worker may offer; `null`: anything.
    pub tags: Option<Vec<String>>,
    pub made_by: String,
    pub created_at: Time,
    pub expires_at: Option<Time>,
    /// The last time, give or take a minute.
    pub used_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// What an enrolment was exchanged for.
    pub made_token_id: Option<i64>,
    /// Whether it was made while the server asked nobody for a token. Servers of version 0.1 do not say.
    #[serde(default)]
    pub unasked: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTokenRequest {
    pub name: String,
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_secs: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct MadeTokenJson {
    pub token: TokenJson,
    /// The token itself: it is told here and never again.
    pub text: String,
}
