//! A message as it goes out: an id that stays, a title, a sentence, and the event as a CloudEvent.

use serde::Serialize;

use super::header::one_line;
use crate::domain::event::EventKind;
use crate::domain::job::Job;
use crate::domain::limits::clip;
use crate::domain::{OutboxId, Timestamp};
use crate::engine::Outgoing;
use crate::store::hex_sha256;
use crate::wire::api::EventJson;
use crate::wire::{Raw, Time};

/// More than a phone or a chat shows.
const TEXT_BYTES_MAX: usize = 2_000;

/// The installation that messages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// A few letters that no other installation has. The key itself is not told.
    part: String,
    public_url: Option<String>,
}

impl Sender {
    pub fn new(installation_key: &str, public_url: Option<&str>) -> Sender {
        let mut part = hex_sha256(installation_key.as_bytes());
        part.truncate(10);
        Sender {
            part,
            public_url: public_url.map(|url| url.trim_end_matches('/').to_string()),
        }
    }

    fn source(&self) -> String {
        match &self.public_url {
            Some(url) => url.clone(),
            None => format!("urn:stepward:{}", self.part),
        }
    }
}

/// The same for each delivery of a message: whoever receives it can tell a repetition by it.
pub fn message_id(origin: &Sender, outbox_id: OutboxId) -> String {
    format!("msg_{}_{outbox_id}", origin.part)
}

pub struct Letter {
    pub id: String,
    pub target: String,
    /// One line.
    pub title: String,
    pub text: String,
    /// Somebody should look.
    pub is_bad: bool,
    pub link: Option<String>,
    pub kind: String,
    pub job: Option<JobSummary>,
    pub sent_at: Timestamp,
    pub source: String,
    /// When it happened.
    pub at: Timestamp,
    pub subject: Option<String>,
    pub event: Option<EventJson>,
}

/// What a message says of its job. Its input is left out: there may be secrets in it.
#[derive(Debug, Clone, Serialize)]
pub struct JobSummary {
    pub id: i64,
    pub task: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub source: String,
    pub labels: Raw,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
}

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: String,
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    datacontenttype: &'static str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    event: Option<&'a EventJson>,
    job: Option<&'a JobSummary>,
}

impl Letter {
    pub fn new(outgoing: &Outgoing, origin: &Sender, now: Timestamp) -> Letter {
        let Outgoing {
            message,
            event,
            job,
        } = outgoing;
        let fact = &event.event.fact;
        let job = job.as_ref().map(summary);
        let what = fact.kind.as_str().replace('_', " ");
        let title = match (&job, &event.worker) {
            (Some(job), _) => format!("{}: {what} (job {})", job.task, job.id),
            (None, Some(worker)) => format!("{worker}: {what}"),
            (None, None) => what,
        };
        let subject = match (fact.job_id, &event.step, fact.worker_id) {
            (Some(job_id), Some(step), _) => Some(format!("job/{job_id}/step/{step}")),
            (Some(job_id), None, _) => Some(format!("job/{job_id}")),
            (None, _, Some(worker_id)) => Some(format!("worker/{worker_id}")),
            (None, _, None) => None,
        };
        let link = match (&origin.public_url, fact.job_id) {
            (Some(url), Some(job_id)) => Some(format!("{url}/jobs/{job_id}")),
            (url, _) => url.clone(),
        };
        Letter {
            id: message_id(origin, message.outbox_id),
            target: message.target.clone(),
            title: one_line(&title),
            text: clip(&fact.message, TEXT_BYTES_MAX),
            is_bad: is_bad(fact.kind),
            link,
            kind: fact.kind.to_string(),
            job,
            sent_at: now,
            source: origin.source(),
            at: event.event.at,
            subject,
            event: Some(EventJson::new(
                event.event.clone(),
                event.step.clone(),
                event.worker.clone(),
            )),
        }
    }

    /// One that tells nothing but that it arrived.
    pub fn test(target: &str, origin: &Sender, now: Timestamp) -> Letter {
        Letter {
            id: format!("msg_{}_test_{}", origin.part, now.0),
            target: target.to_string(),
            title: "Stepward: a test".to_string(),
            text: format!("This is a test message to {target}. Nothing happened."),
            is_bad: false,
            link: origin.public_url.clone(),
            kind: "test".to_string(),
            job: None,
            sent_at: now,
            source: origin.source(),
            at: now,
            subject: None,
            event: None,
        }
    }

    /// In the structured mode: all of it in the body.
    pub fn cloud_event(&self) -> Vec<u8> {
        let event = CloudEvent {
            specversion: "1.0",
            id: &self.id,
            source: &self.source,
            kind: cloud_type(&self.kind),
            time: Time(self.at),
            subject: self.subject.as_deref(),
            datacontenttype: "application/json",
            data: Data {
                event: self.event.as_ref(),
                job: self.job.as_ref(),
            },
        };
        serde_json::to_vec(&event).expect("it has a JSON form")
    }
}

/// `job_failed` is told as `io.stepward.job.failed.v1`.
fn cloud_type(kind: &str) -> String {
    format!("io.stepward.{}.v1", kind.replacen('_', ".", 1))
}

fn is_bad(kind: EventKind) -> bool {
    use EventKind::*;
    !matches!(
        kind,
        JobSubmitted
            | JobReleased
            | JobCompleted
            | StepApproved
            | StepResumed
            | RecoverySwept
            | WorkerRegistered
            | WorkerActive
            | WorkerResumed
            | BackupMade
    )
}

fn summary(job: &Job) -> JobSummary {
    JobSummary {
        id: job.job_id.0,
        task: job.task.clone(),
        status: job.state.to_string(),
        reason: job.reason.map(|reason| reason.to_string()),
        message: job.message.clone(),
        source: job.source.to_string(),
        labels: Raw::from(&job.labels),
        created_at: job.created_at.into(),
        started_at: job.started_at.map(Time),
        ended_at: job.ended_at.map(Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_event_is_a_type_of_cloud_event() {
        assert_eq!(cloud_type("job_failed"), "io.stepward.job.failed.v1");
        assert_eq!(
            cloud_type("delivery_given_up"),
            "io.stepward.delivery.given_up.v1"
        );
        assert_eq!(cloud_type("test"), "io.stepward.test.v1");
    }

    #[test]
    fn an_id_tells_the_installation_but_not_its_key() {
        let origin = Sender::new("the key", Some("https://jobs.example.org/"));
        let id = message_id(&origin, OutboxId(7));
        assert!(id.starts_with("msg_") && id.ends_with("_7"), "{id}");
        assert!(!id.contains("key"), "{id}");
        assert_eq!(id, message_id(&Sender::new("the key", None), OutboxId(7)));
        assert_ne!(id, message_id(&Sender::new("another", None), OutboxId(7)));
        assert_eq!(origin.source(), "https://jobs.example.org");
    }
}
