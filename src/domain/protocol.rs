//! What workers and the server say to each other. Values only: `engine` gives the answers, `worker` draws its conclusions.

use std::collections::BTreeMap;

use super::peer::Features;
use super::reason::Reason;
use super::settings::Settings;
use super::task::{Action, NamedAction, Rules, TaskSecret};
use super::{AttemptRef, JobId, Json, SealId, SessionId, Timestamp, WorkerId};

/// What a worker says of itself when it opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub instance_key: String,
    pub session_key: String,
    pub name: String,
    /// Sorted, once each.
    pub tags: Vec<String>,
    pub slots: u32,
    pub version: String,
    pub platform: String,
    /// What it announced beyond protocol 1.
    pub features: Features,
}

/// The first session of a process has a random key; the next ones append `-2`, `-3` and so on to it.
pub fn process_key(session_key: &str) -> &str {
    match session_key.rsplit_once('-') {
        Some((process, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => process,
        _ => session_key,
    }
}

/// A result that a former life of the worker could not deliver any more.
#[derive(Debug, Clone)]
pub struct Spooled {
    pub attempt: AttemptRef,
    /// The session that ran it.
    pub session_key: String,
    pub finished: Finished,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    pub worker_id: WorkerId,
    pub session_id: SessionId,
    /// All timings that the server wants kept.
    pub settings: Settings,
    /// What became of each spooled result, in order.
    pub spooled: Vec<Verdict>,
    /// Tags that it named and its token does not let it offer.
    pub withheld: Vec<String>,
    /// What the server announced. Only a worker looks at it: nothing new is sent to a server that did not announce it.
    pub server_features: Features,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldPhase {
    Preparing,
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldAttempt {
    pub attempt: AttemptRef,
    pub phase: HeldPhase,
}

#[derive(Debug, Clone)]
pub struct Beat {
    pub session_key: String,
    /// Grows with every heartbeat of the session: one that was overtaken says nothing about what is held now.
    pub seq: i64,
    /// Everything that the worker holds. Empty means none.
    pub held: Vec<HeldAttempt>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatAnswer {
    pub abort: Vec<AttemptRef>,
    pub draining: bool,
}

#[derive(Debug, Clone)]
pub struct Poll {
    pub session_key: String,
    /// May be 0: then only aborts and redeliveries are answered.
    pub free_slots: u32,
    pub held: Vec<AttemptRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PollAnswer {
    pub assignments: Vec<Assignment>,
    pub abort: Vec<AttemptRef>,
    pub draining: bool,
    /// Assignments that this worker cannot read, and why: it declines them. The server leaves this empty.
    pub unreadable: Vec<(AttemptRef, String)>,
}

/// A promise, not a start: nothing of the user's runs before `start` was answered. A session with feature `one_phase` is the
/// exception: what it is given has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub attempt: AttemptRef,
    pub job_id: JobId,
    pub task: String,
    pub step: String,
    pub action: Action,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// What must not be seen in its log.
    pub masks: Vec<String>,
    pub input: Json,
    pub item: Option<u32>,
    pub item_value: Option<Json>,
    /// What has to be made of it before a worker may see it. Never said to one.
    pub unrendered: Option<Box<Unrendered>>,
    /// The time that the job's schedule meant.
    pub scheduled_at: Option<Timestamp>,
    pub ack_timeout_ms: i64,
    pub prepare_timeout_ms: i64,
    pub timeout_ms: i64,
    /// It may be tried elsewhere once this worker is lost: the worker ends it itself before that.
    pub fenced: bool,
    /// Known once the step has started: for a session with feature `one_phase` on delivery, else with the answer to `started`.
    pub start: Option<StartDetails>,
}

/// What is known of an attempt only when it starts. Sent to sessions with feature `start_details`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartDetails {
    pub started_at: Timestamp,
    /// Counted from the start.
    pub timeout_ms: i64,
    /// Variables that are added to the environment of the step.
    pub env: BTreeMap<String, String>,
}

/// The log of an attempt as its worker wrote it, to compare with what the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogDigest {
    /// Bytes.
    pub length: u64,
    pub crc32: u32,
}

/// The templates of an assignment beside those in the assignment itself, and what they may speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrendered {
    /// The rules that the action of the step was accepted under.
    pub rules: Rules,
    pub task_env: BTreeMap<String, String>,
    pub named_action: Option<NamedAction>,
    /// What the action is given, or what is added to the job's inputs.
    pub input: Json,
    /// The secrets that the templates name.
    pub secrets: BTreeMap<String, TaskSecret>,
    /// A JSON object: the job, the steps that the templates name, the item of a loop.
    pub scope: Json,
    /// The job's inputs that are kept sealed, by name.
    pub secret_inputs: Vec<String>,
    /// Seal id of the job that these inputs belong to.
    pub seal_id: Option<SealId>,
    /// Values in `scope` that must not appear in logs.
    pub masks: Vec<String>,
    /// Why all of that cannot be known.
    pub fault: Option<String>,
}

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
    pub fn abort(why: impl Into<String>) -> Verdict {
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
    pub fn held(&self) -> impl Iterator<Item = AttemptRef> {
        let still = |news: &News| matches!(news, News::Started | News::KeepAlive);
        self.items
            .iter()
            .filter(move |(_, news)| still(news))
            .map(|(attempt, _)| *attempt)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportsAnswer {
    /// One per item, in order.
    pub verdicts: Vec<Verdict>,
    /// For accepted starts of a session with feature `start_details`, by the index of the item.
    pub starts: Vec<(usize, StartDetails)>,
    /// For accepted ends of a session with feature `log_checksum`, by the index of the item: whose log it is. Never sent.
    pub ended: Vec<(usize, JobId)>,
    /// By the index of the item: the server has the log of this attempt only up to this offset, and asks for the rest.
    pub log_gaps: Vec<(usize, u64)>,
    /// `None`: nothing was asked for, or the session may not have any.
    pub poll: Option<PollAnswer>,
}

/// How an attempt ended, in the worker's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    Completed {
        output: Option<Json>,
        exit_code: Option<i32>,
    },
    Failed {
        reason: Reason,
        message: String,
        exit_code: Option<i32>,
    },
}

impl Finished {
    pub fn completed() -> Finished {
        Finished::Completed {
            output: None,
            exit_code: Some(0),
        }
    }

    pub fn exited(exit_code: i32) -> Finished {
        Finished::Failed {
            reason: Reason::ExitCode,
            message: format!("exit code {exit_code}"),
            exit_code: Some(exit_code),
        }
    }
}
