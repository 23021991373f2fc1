//! What workers and the server say to each other. A field that one of them does not know is ignored: the other may be newer.

use std::collections::{BTreeMap, HashMap};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Raw, Time};
use crate::domain::peer::Features;
use crate::domain::protocol::{
    Assignment, Beat, BeatAnswer, Finished, HeldAttempt, HeldPhase, LogDigest, News, OpenedSession,
    Poll, PollAnswer, Registration, Reports, ReportsAnswer, Spooled, StartDetails, Verdict,
};
use crate::domain::reason::Reason;
use crate::domain::settings::Settings;
use crate::domain::task::{Action, Runner};
use crate::domain::{AttemptRef, JobId, SessionId, StepId, WorkerId};

/// A log that is not taken now, and will be later.
pub const LOG_NOT_WRITTEN: &str = "log_not_written";

/// The code of a refusal: the worker has worked for a later state of the server's database. The worker keeps what it has to
/// report and tries again.
pub const SERVER_ROLLED_BACK: &str = "server_rolled_back";

/// The code of a 426: the worker speaks a protocol that the server does not understand any more.
pub const WORKER_TOO_OLD: &str = "worker_too_old";

/// Why a message is not understood, in one sentence.
pub type Fault = String;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptJson {
    pub step_id: i64,
    pub attempt: u32,
}

impl From<AttemptRef> for AttemptJson {
    fn from(attempt: AttemptRef) -> AttemptJson {
        AttemptJson {
            step_id: attempt.step_id.0,
            attempt: attempt.attempt,
        }
    }
}

impl From<AttemptJson> for AttemptRef {
    fn from(json: AttemptJson) -> AttemptRef {
        AttemptRef {
            step_id: StepId(json.step_id),
            attempt: json.attempt,
        }
    }
}

fn attempts_json(attempts: impl IntoIterator<Item = AttemptRef>) -> Vec<AttemptJson> {
    attempts.into_iter().map(AttemptJson::from).collect()
}

fn attempt_refs(attempts: Vec<AttemptJson>) -> Vec<AttemptRef> {
    attempts.into_iter().map(AttemptRef::from).collect()
}

#[derive(Debug, Serialize, Deserialize)]
pub struct SessionRequest {
    pub name: String,
    pub instance: String,
    pub session: String,
    pub tags: Vec<String>,
    pub slots: u32,
    pub version: String,
    pub platform: String,
    /// Of `SpooledJson` each. Read one by one: a result that nobody understands must not keep its worker out.
    pub spooled: Vec<Raw>,
}

/// Also the file in which a worker keeps a result until the server has answered for it.
#[derive(Debug, Serialize, Deserialize)]
pub struct SpooledJson {
    pub step_id: i64,
    pub attempt: u32,
    pub session: String,
    pub finished: FinishedJson,
    /// For a server with feature `log_checksum`. Never in the file: a worker of version 0.1 does not read a file with it.
    #[serde(
        default,
        deserialize_with = "digest_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub log: Option<LogDigestJson>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishedOutcome {
    Completed,
    Failed,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct FinishedJson {
    pub outcome: FinishedOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl From<&Finished> for FinishedJson {
    fn from(finished: &Finished) -> FinishedJson {
        match finished {
            Finished::Completed { output, exit_code } => FinishedJson {
                outcome: FinishedOutcome::Completed,
                exit_code: *exit_code,
                output: output.as_ref().map(Raw::from),
                reason: None,
                message: None,
            },
            Finished::Failed {
                reason,
                message,
                exit_code,
            } => FinishedJson {
                outcome: FinishedOutcome::Failed,
                exit_code: *exit_code,
                output: None,
                reason: Some(reason.to_string()),
                message: Some(message.clone()),
            },
        }
    }
}

impl TryFrom<FinishedJson> for Finished {
    type Error = Fault;

    fn try_from(json: FinishedJson) -> Result<Finished, Fault> {
        match json.outcome {
            FinishedOutcome::Completed => Ok(Finished::Completed {
                output: json.output.map(Into::into),
                exit_code: json.exit_code,
            }),
            FinishedOutcome::Failed => {
                let word = json.reason.ok_or("a failed attempt needs a reason")?;
                let reason = Reason::from_word(&word);
                Ok(Finished::Failed {
                    reason: reason.ok_or_else(|| format!("reason {word:?} is not known"))?,
                    message: json.message.unwrap_or_default(),
                    exit_code: json.exit_code,
                })
            }
        }
    }
}

impl From<&Spooled> for SpooledJson {
    fn from(spooled: &Spooled) -> SpooledJson {
        SpooledJson {
            step_id: spooled.attempt.step_id.0,
            attempt: spooled.attempt.attempt,
            session: spooled.session_key.clone(),
            finished: FinishedJson::from(&spooled.finished),
            log: None,
        }
    }
}

impl TryFrom<SpooledJson> for Spooled {
    type Error = Fault;

    fn try_from(json: SpooledJson) -> Result<Spooled, Fault> {
        Ok(Spooled {
            attempt: AttemptRef {
                step_id: StepId(json.step_id),
                attempt: json.attempt,
            },
            session_key: json.session,
            finished: json.finished.try_into()?,
        })
    }
}

impl SessionRequest {
    /// `logs`: of spooled results. Empty for a server without feature `log_checksum`.
    pub fn new(
        registration: &Registration,
        spooled: &[Spooled],
        logs: &HashMap<AttemptRef, LogDigest>,
    ) -> SessionRequest {
        let spooled = spooled.iter().map(|result| SpooledJson {
            log: logs.get(&result.attempt).copied().map(Into::into),
            ..SpooledJson::from(result)
        });
        SessionRequest {
            name: registration.name.clone(),
            instance: registration.instance_key.clone(),
            session: registration.session_key.clone(),
            tags: registration.tags.clone(),
            slots: registration.slots,
            version: registration.version.clone(),
            platform: registration.platform.clone(),
            spooled: Raw::each(spooled),
        }
    }

    /// `features`: what the worker announced with the request. Each result comes with the log that its worker wrote, if the worker
    /// says.
    pub fn into_parts(
        self,
        features: Features,
    ) -> (Registration, Readable<(Spooled, Option<LogDigest>)>) {
        let registration = Registration {
            instance_key: self.instance,
            session_key: self.session,
            name: self.name,
            tags: self.tags,
            slots: self.slots,
            version: self.version,
            platform: self.platform,
            features,
        };
        let spooled = Readable::of(&self.spooled, |json: SpooledJson| {
            let log = json.log.map(LogDigest::from);
            Ok((json.try_into()?, log))
        });
        (registration, spooled)
    }
}

/// What could be read of a list, and what is wrong with the items that could not, each at its place.
#[derive(Debug)]
pub struct Readable<T> {
    pub items: Vec<T>,
    pub faults: BTreeMap<usize, Fault>,
}

impl<T> Readable<T> {
    fn of<J: DeserializeOwned>(
        list: &[Raw],
        understand: impl Fn(J) -> Result<T, Fault>,
    ) -> Readable<T> {
        let (mut items, mut faults) = (Vec::with_capacity(list.len()), BTreeMap::new());
        for (index, raw) in list.iter().enumerate() {
            match raw.read().and_then(&understand) {
                Ok(item) => items.push(item),
                Err(fault) => {
                    faults.insert(index, fault);
                }
            }
        }
        Readable { items, faults }
    }
}

/// One result per item, in their order; those that could not be read are refused.
fn results(mut results: Vec<VerdictJson>, faults: &BTreeMap<usize, Fault>) -> Vec<VerdictJson> {
    for (&index, fault) in faults {
        let why = fault.clone();
        results.insert(index.min(results.len()), VerdictJson::Refused { why });
    }
    results
}

/// What a worker learns of a server before it opens a session.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerAnswer {
    pub installation: String,
    pub version: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct SessionAnswer {
    pub worker_id: i64,
    pub session_id: i64,
    /// A worker refuses a server of another installation.
    pub installation: String,
    pub settings: SettingsJson,
    pub spooled: Vec<VerdictJson>,
    /// Tags that it named and its token does not let it offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct SettingsJson {
    pub heartbeat_interval_ms: i64,
    pub heartbeat_timeout_ms: i64,
    pub sweep_interval_ms: i64,
    pub unmatched_step_timeout_ms: i64,
    pub ack_timeout_ms: i64,
    pub prepare_timeout_ms: i64,
    pub report_grace_ms: i64,
    pub cancel_grace_ms: i64,
    pub step_timeout_ms: i64,
    pub job_timeout_ms: i64,
}

impl From<Settings> for SettingsJson {
    fn from(settings: Settings) -> SettingsJson {
        SettingsJson {
            heartbeat_interval_ms: settings.heartbeat_interval_ms,
            heartbeat_timeout_ms: settings.heartbeat_timeout_ms,
            sweep_interval_ms: settings.sweep_interval_ms,
            unmatched_step_timeout_ms: settings.unmatched_step_timeout_ms,
            ack_timeout_ms: settings.ack_timeout_ms,
            prepare_timeout_ms: settings.prepare_timeout_ms,
            report_grace_ms: settings.report_grace_ms,
            cancel_grace_ms: settings.cancel_grace_ms,
            step_timeout_ms: settings.step_timeout_ms,
            job_timeout_ms: settings.job_timeout_ms,
        }
    }
}

impl From<SettingsJson> for Settings {
    fn from(json: SettingsJson) -> Settings {
        Settings {
            heartbeat_interval_ms: json.heartbeat_interval_ms,
            heartbeat_timeout_ms: json.heartbeat_timeout_ms,
            sweep_interval_ms: json.sweep_interval_ms,
            unmatched_step_timeout_ms: json.unmatched_step_timeout_ms,
            ack_timeout_ms: json.ack_timeout_ms,
            prepare_timeout_ms: json.prepare_timeout_ms,
            report_grace_ms: json.report_grace_ms,
            cancel_grace_ms: json.cancel_grace_ms,
            step_timeout_ms: json.step_timeout_ms,
            job_timeout_ms: json.job_timeout_ms,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum VerdictJson {
    Accepted {
        /// Of `started`, for a session with feature `start_details`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<StartJson>,
        /// Of `finished`, for a session with feature `log_checksum`: the server's log ends here, and it asks for the rest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_from: Option<u64>,
    },
    Abort {
        why: String,
    },
    Refused {
        why: String,
    },
    /// A word of a newer server. It is no yes.
    #[serde(other)]
    Unknown,
}

/// What is known of an attempt only when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartJson {
    pub started_at: Time,
    pub timeout_ms: i64,
    /// Variables that are added to the environment of the step.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl From<&StartDetails> for StartJson {
    fn from(details: &StartDetails) -> StartJson {
        StartJson {
            started_at: Time(details.started_at),
            timeout_ms: details.timeout_ms,
            env: details.env.clone(),
        }
    }
}

impl From<StartJson> for StartDetails {
    fn from(json: StartJson) -> StartDetails {
        StartDetails {
            started_at: json.started_at.0,
            timeout_ms: json.timeout_ms,
            env: json.env,
        }
    }
}

/// The log of an attempt as its worker wrote it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LogDigestJson {
    pub length: u64,
    pub crc32: u32,
}

/// Reads a digest, or `None` if it is not understood: then the log is not compared, and the result that comes with it still counts.
fn digest_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<Option<LogDigestJson>, D::Error> {
    let json = serde_json::Value::deserialize(input)?;
    Ok(serde_json::from_value(json).ok())
}

impl From<LogDigest> for LogDigestJson {
    fn from(log: LogDigest) -> LogDigestJson {
        LogDigestJson {
            length: log.length,
            crc32: log.crc32,
        }
    }
}

impl From<LogDigestJson> for LogDigest {
    fn from(json: LogDigestJson) -> LogDigest {
        LogDigest {
            length: json.length,
            crc32: json.crc32,
        }
    }
}

impl From<Verdict> for VerdictJson {
    fn from(verdict: Verdict) -> VerdictJson {
        match verdict {
            Verdict::Accepted => VerdictJson::Accepted {
                start: None,
                log_from: None,
            },
            Verdict::Abort { why } => VerdictJson::Abort { why },
            Verdict::Refused { why } => VerdictJson::Refused { why },
        }
    }
}

impl From<VerdictJson> for Verdict {
    fn from(json: VerdictJson) -> Verdict {
        match json {
            VerdictJson::Accepted { .. } => Verdict::Accepted,
            VerdictJson::Abort { why } => Verdict::Abort { why },
            VerdictJson::Refused { why } => Verdict::Refused { why },
            VerdictJson::Unknown => Verdict::Refused {
                why: "the server's answer is not known to this version".to_string(),
            },
        }
    }
}

fn verdicts_json(verdicts: Vec<Verdict>) -> Vec<VerdictJson> {
    verdicts.into_iter().map(VerdictJson::from).collect()
}

/// Asks for the rest of these logs, by the index of the item.
fn ask_for_logs(verdicts: &mut [VerdictJson], log_gaps: &[(usize, u64)]) {
    for (index, offset) in log_gaps {
        if let Some(VerdictJson::Accepted { log_from, .. }) = verdicts.get_mut(*index) {
            *log_from = Some(*offset);
        }
    }
}

fn verdicts(json: Vec<VerdictJson>) -> Vec<Verdict> {
    json.into_iter().map(Verdict::from).collect()
}

impl SessionAnswer {
    /// `log_gaps`: by the index of the spooled result, where the server's log of that attempt ends.
    pub fn new(
        opened: OpenedSession,
        log_gaps: &[(usize, u64)],
        faults: &BTreeMap<usize, Fault>,
        installation: &str,
    ) -> SessionAnswer {
        let mut spooled = verdicts_json(opened.spooled);
        ask_for_logs(&mut spooled, log_gaps);
        SessionAnswer {
            worker_id: opened.worker_id.0,
            session_id: opened.session_id.0,
            installation: installation.to_string(),
            settings: opened.settings.into(),
            spooled: results(spooled, faults),
            withheld: opened.withheld,
        }
    }
}

impl SessionAnswer {
    /// `server_features`: what the server announced with its answer.
    pub fn into_session(self, server_features: Features) -> OpenedSession {
        OpenedSession {
            worker_id: WorkerId(self.worker_id),
            session_id: SessionId(self.session_id),
            settings: self.settings.into(),
            spooled: verdicts(self.spooled),
            withheld: self.withheld,
            server_features,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct HeartbeatRequest {
    pub session: String,
    pub seq: i64,
    /// Required: an empty list means none.
    pub held: Vec<HeldJson>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct HeldJson {
    pub step_id: i64,
    pub attempt: u32,
    pub phase: PhaseJson,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseJson {
    Preparing,
    Running,
}

impl From<&Beat> for HeartbeatRequest {
    fn from(beat: &Beat) -> HeartbeatRequest {
        let held = beat.held.iter().map(|held| HeldJson {
            step_id: held.attempt.step_id.0,
            attempt: held.attempt.attempt,
            phase: match held.phase {
                HeldPhase::Preparing => PhaseJson::Preparing,
                HeldPhase::Running => PhaseJson::Running,
            },
        });
        HeartbeatRequest {
            session: beat.session_key.clone(),
            seq: beat.seq,
            held: held.collect(),
        }
    }
}

impl From<HeartbeatRequest> for Beat {
    fn from(json: HeartbeatRequest) -> Beat {
        let held = json.held.into_iter().map(|held| HeldAttempt {
            attempt: AttemptRef {
                step_id: StepId(held.step_id),
                attempt: held.attempt,
            },
            phase: match held.phase {
                PhaseJson::Preparing => HeldPhase::Preparing,
                PhaseJson::Running => HeldPhase::Running,
            },
        });
        Beat {
            session_key: json.session,
            seq: json.seq,
            held: held.collect(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    pub abort: Vec<AttemptJson>,
    pub draining: bool,
}

impl From<BeatAnswer> for HeartbeatAnswer {
    fn from(answer: BeatAnswer) -> HeartbeatAnswer {
        HeartbeatAnswer {
            abort: attempts_json(answer.abort),
            draining: answer.draining,
        }
    }
}

impl From<HeartbeatAnswer> for BeatAnswer {
    fn from(json: HeartbeatAnswer) -> BeatAnswer {
        BeatAnswer {
            abort: attempt_refs(json.abort),
            draining: json.draining,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PollRequest {
    pub session: String,
    pub free_slots: u32,
    pub held: Vec<AttemptJson>,
    /// How long the server may keep the answer back while there is nothing to say.
    pub wait_ms: u64,
}

impl PollRequest {
    pub fn new(poll: &Poll, wait_ms: u64) -> PollRequest {
        PollRequest {
            session: poll.session_key.clone(),
            free_slots: poll.free_slots,
            held: attempts_json(poll.held.iter().copied()),
            wait_ms,
        }
    }
}

impl From<PollRequest> for Poll {
    fn from(json: PollRequest) -> Poll {
        Poll {
            session_key: json.session,
            free_slots: json.free_slots,
            held: attempt_refs(json.held),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PollAnswerJson {
    pub assignments: Vec<AssignmentJson>,
    pub abort: Vec<AttemptJson>,
    pub draining: bool,
}

impl From<&PollAnswer> for PollAnswerJson {
    fn from(answer: &PollAnswer) -> PollAnswerJson {
        PollAnswerJson {
            assignments: answer.assignments.iter().map(Into::into).collect(),
            abort: attempts_json(answer.abort.iter().copied()),
            draining: answer.draining,
        }
    }
}

impl From<PollAnswerJson> for PollAnswer {
    fn from(json: PollAnswerJson) -> PollAnswer {
        let mut answer = PollAnswer {
            abort: attempt_refs(json.abort),
            draining: json.draining,
            ..PollAnswer::default()
        };
        for assignment in json.assignments {
            let attempt = AttemptRef {
                step_id: StepId(assignment.step_id),
                attempt: assignment.attempt,
            };
            match Assignment::try_from(assignment) {
                Ok(assignment) => answer.assignments.push(assignment),
                Err(fault) => answer.unreadable.push((attempt, fault)),
            }
        }
        answer
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct AssignmentJson {
    pub step_id: i64,
    pub attempt: u32,
    pub job_id: i64,
    pub task: String,
    pub step: String,
    pub action: ActionJson,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<String>,
    pub input: Raw,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_value: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<Time>,
    pub ack_timeout_ms: i64,
    pub prepare_timeout_ms: i64,
    pub timeout_ms: i64,
    pub fenced: bool,
    /// For a session with the features `one_phase` and `start_details`: it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartJson>,
}

/// What a worker can be asked to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ActionJson {
    Script {
        runner: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        script: String,
    },
    Docker {
        image: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        entrypoint: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        command: Vec<String>,
    },
    Pod {
        manifest: String,
    },
    /// The server carries out all others itself, or is newer: a worker that gets one declines it.
    #[serde(other)]
    Other,
}

impl From<&Action> for ActionJson {
    fn from(action: &Action) -> ActionJson {
        match action.clone() {
            Action::Script {
                runner,
                image,
                language,
                script,
            } => ActionJson::Script {
                runner: runner.to_string(),
                image,
                language,
                script,
            },
            Action::Docker {
                image,
                entrypoint,
                command,
            } => ActionJson::Docker {
                image,
                entrypoint,
                command,
            },
            Action::Pod { manifest } => ActionJson::Pod { manifest },
            Action::Task { .. } | Action::Approval { .. } => ActionJson::Other,
        }
    }
}

impl TryFrom<ActionJson> for Action {
    type Error = Fault;

    fn try_from(json: ActionJson) -> Result<Action, Fault> {
        Ok(match json {
            ActionJson::Script {
                runner,
                image,
                language,
                script,
            } => Action::Script {
                runner: Runner::from_word(&runner)
                    .ok_or_else(|| format!("runner {runner:?} is not known here"))?,
                image,
                language,
                script,
            },
            ActionJson::Docker {
                image,
                entrypoint,
                command,
            } => Action::Docker {
                image,
                entrypoint,
                command,
            },
            ActionJson::Pod { manifest } => Action::Pod { manifest },
            ActionJson::Other => {
                return Err("this worker does not know the action of the step".to_string());
            }
        })
    }
}

impl From<&Assignment> for AssignmentJson {
    fn from(assignment: &Assignment) -> AssignmentJson {
        AssignmentJson {
            step_id: assignment.attempt.step_id.0,
            attempt: assignment.attempt.attempt,
            job_id: assignment.job_id.0,
            task: assignment.task.clone(),
            step: assignment.step.clone(),
            action: ActionJson::from(&assignment.action),
            env: assignment.env.clone(),
            workdir: assignment.workdir.clone(),
            masks: assignment.masks.clone(),
            input: Raw::from(&assignment.input),
            item: assignment.item,
            item_value: assignment.item_value.as_ref().map(Raw::from),
            scheduled_at: assignment.scheduled_at.map(Time),
            ack_timeout_ms: assignment.ack_timeout_ms,
            prepare_timeout_ms: assignment.prepare_timeout_ms,
            timeout_ms: assignment.timeout_ms,
            fenced: assignment.fenced,
            start: assignment.start.as_ref().map(StartJson::from),
        }
    }
}

impl TryFrom<AssignmentJson> for Assignment {
    type Error = Fault;

    fn try_from(json: AssignmentJson) -> Result<Assignment, Fault> {
        Ok(Assignment {
            attempt: AttemptRef {
                step_id: StepId(json.step_id),
                attempt: json.attempt,
            },
            job_id: JobId(json.job_id),
            task: json.task,
            step: json.step,
            action: json.action.try_into()?,
            env: json.env,
            workdir: json.workdir,
            masks: json.masks,
            input: json.input.into(),
            item: json.item,
            item_value: json.item_value.map(Into::into),
            unrendered: None,
            scheduled_at: json.scheduled_at.map(|time| time.0),
            ack_timeout_ms: json.ack_timeout_ms,
            prepare_timeout_ms: json.prepare_timeout_ms,
            timeout_ms: json.timeout_ms,
            fenced: json.fenced,
            start: json.start.map(StartDetails::from),
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ReportsRequest {
    pub session: String,
    /// Of `ItemJson` each. Read one by one: a bad one must not take the others with it.
    pub items: Vec<Raw>,
    /// With it, more work is asked for in the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<ReportsPoll>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ReportsPoll {
    pub free_slots: u32,
    pub held: Vec<AttemptJson>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ItemJson {
    pub step_id: i64,
    pub attempt: u32,
    pub news: NewsWord,
    /// Of `declined`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Of `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<FinishedJson>,
    /// Of `finished`, for a server with feature `log_checksum`.
    #[serde(
        default,
        deserialize_with = "digest_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub log: Option<LogDigestJson>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewsWord {
    Started,
    Keepalive,
    Declined,
    Finished,
}

impl ItemJson {
    fn new(attempt: AttemptRef, news: &News) -> ItemJson {
        let (word, why, finished) = match news {
            News::Started => (NewsWord::Started, None, None),
            News::KeepAlive => (NewsWord::Keepalive, None, None),
            News::Declined { why } => (NewsWord::Declined, Some(why.clone()), None),
            News::Finished(finished) => (NewsWord::Finished, None, Some(finished.into())),
        };
        ItemJson {
            step_id: attempt.step_id.0,
            attempt: attempt.attempt,
            news: word,
            why,
            finished,
            log: None,
        }
    }

    fn into_parts(self) -> Result<ReportedItem, Fault> {
        let attempt = AttemptRef {
            step_id: StepId(self.step_id),
            attempt: self.attempt,
        };
        let news = match self.news {
            NewsWord::Started => News::Started,
            NewsWord::Keepalive => News::KeepAlive,
            NewsWord::Declined => News::Declined {
                why: self.why.unwrap_or_default(),
            },
            NewsWord::Finished => {
                let finished = self.finished.ok_or("finished says nothing about how")?;
                News::Finished(finished.try_into()?)
            }
        };
        let log = self.log.map(LogDigest::from);
        Ok(ReportedItem {
            item: (attempt, news),
            log,
        })
    }
}

/// An item of a report, and the log that its worker wrote, if it says.
struct ReportedItem {
    item: (AttemptRef, News),
    log: Option<LogDigest>,
}

impl ReportsRequest {
    /// `logs`: of attempts that have ended. Empty for a server without feature `log_checksum`.
    pub fn new(reports: &Reports, logs: &HashMap<AttemptRef, LogDigest>) -> ReportsRequest {
        let items = reports.items.iter().map(|(attempt, news)| {
            let log = match news {
                News::Finished(_) => logs.get(attempt),
                _ => None,
            };
            ItemJson {
                log: log.copied().map(Into::into),
                ..ItemJson::new(*attempt, news)
            }
        });
        let poll = reports.poll.as_ref();
        ReportsRequest {
            session: reports.session_key.clone(),
            items: Raw::each(items),
            poll: poll.map(|(free_slots, held)| ReportsPoll {
                free_slots: *free_slots,
                held: attempts_json(held.iter().copied()),
            }),
        }
    }
}

impl ReportsRequest {
    /// The reports, what is wrong with items that could not be read, and the log of each item that tells of one, by its index.
    pub fn into_parts(self) -> (Reports, BTreeMap<usize, Fault>, BTreeMap<usize, LogDigest>) {
        let Readable { items, faults } = Readable::of(&self.items, ItemJson::into_parts);
        let logs = items.iter().enumerate();
        let logs = logs.filter_map(|(index, item)| Some((index, item.log?)));
        let logs = logs.collect();
        let reports = Reports {
            session_key: self.session,
            items: items.into_iter().map(|reported| reported.item).collect(),
            poll: (self.poll).map(|poll| (poll.free_slots, attempt_refs(poll.held))),
        };
        (reports, faults, logs)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ReportsAnswerJson {
    pub results: Vec<VerdictJson>,
    pub poll: Option<PollAnswerJson>,
}

impl ReportsAnswerJson {
    pub fn new(answer: &ReportsAnswer, faults: &BTreeMap<usize, Fault>) -> ReportsAnswerJson {
        let mut verdicts = verdicts_json(answer.verdicts.clone());
        for (index, details) in &answer.starts {
            if let Some(VerdictJson::Accepted { start, .. }) = verdicts.get_mut(*index) {
                *start = Some(details.into());
            }
        }
        ask_for_logs(&mut verdicts, &answer.log_gaps);
        ReportsAnswerJson {
            results: results(verdicts, faults),
            poll: answer.poll.as_ref().map(PollAnswerJson::from),
        }
    }
}

impl From<ReportsAnswerJson> for ReportsAnswer {
    fn from(json: ReportsAnswerJson) -> ReportsAnswer {
        let mut answer = ReportsAnswer {
            poll: json.poll.map(PollAnswer::from),
            ..ReportsAnswer::default()
        };
        for (index, result) in json.results.into_iter().enumerate() {
            if let VerdictJson::Accepted { start, log_from } = &result {
                let start = start.clone().map(|start| (index, start.into()));
                answer.starts.extend(start);
                answer
                    .log_gaps
                    .extend(log_from.map(|offset| (index, offset)));
            }
            answer.verdicts.push(result.into());
        }
        answer
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DrainRequest {
    pub session: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LogAnswer {
    /// Where the next piece belongs.
    pub length: u64,
    /// The attempt is nobody's any more: stop it.
    pub abort: bool,
    /// No more of this log is kept.
    pub full: bool,
}

/// A worker that has no token yet names the hash of the secret that it drew: the secret itself never leaves it but as a token.
#[derive(Debug, Serialize, Deserialize)]
pub struct EnrolRequest {
    pub name: String,
    /// SHA-256, in hex.
    pub secret_hash: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct EnrolAnswer {
    pub token_id: i64,
}
