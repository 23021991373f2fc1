//! What things look like: the shapes of `wire`, which are written in two texts in the words of `notation.rs`, field by field.

use serde_json::{Map, Value, json};

use super::notation::{add_shapes, schema};
use crate::domain::audit::AuditAction;
use crate::domain::depends::Outcome;
use crate::domain::event::EventKind;
use crate::domain::job::{JobState, Source};
use crate::domain::outbox::MessageState;
use crate::domain::reason::Reason;
use crate::domain::recovery::Deed;
use crate::domain::schedule::{FireOutcome, Overlap};
use crate::domain::step::StepState;
use crate::domain::task::Runner;
use crate::domain::token::Role;
use crate::domain::value::ValueType;
use crate::domain::worker::{WorkerStanding, WorkerState};
use crate::engine::{FactKind, Outlook};

/// What comes in pages.
const LISTED: &[&str] = &[
    "Task",
    "JobSummary",
    "Event",
    "StepLogs",
    "Schedule",
    "Fire",
    "QueuedStep",
    "Worker",
    "DeliverySummary",
    "Token",
    "Audit",
];

/// What the server says. More may be added.
const ANSWERS: &str = include_str!("answers.txt");
/// What it is told. Anything else is refused.
const REQUESTS: &str = include_str!("requests.txt");
const WORKER_REQUESTS: &str = include_str!("worker_requests.txt");

pub fn all() -> Map<String, Value> {
    let mut schemas = Map::new();
    for (name, words) in [
        ("JobStatus", closed(JobState::ALL)),
        ("StepStatus", closed(StepState::ALL)),
        ("WorkerStatus", closed(WorkerState::ALL)),
        ("Role", closed(Role::ALL)),
        ("DeliveryState", closed(MessageState::ALL)),
        ("Source", open(Source::ALL)),
        ("Reason", open(Reason::ALL)),
        ("EventKind", open(EventKind::ALL)),
        ("AuditAction", open(AuditAction::ALL)),
        ("Outcome", open(Outcome::ALL)),
        ("ValueType", open(ValueType::ALL)),
        ("Overlap", open(Overlap::ALL)),
        ("FireOutcome", open(FireOutcome::ALL)),
        ("WorkerStanding", open(WorkerStanding::ALL)),
        ("RecoveryAction", open(Deed::ALL)),
        ("Outlook", open(Outlook::ALL)),
        ("FactKind", open(FactKind::ALL)),
        ("Runner", open(Runner::ALL)),
    ] {
        schemas.insert(name.to_string(), words);
    }
    add_shapes(&mut schemas, ANSWERS, false);
    add_shapes(&mut schemas, REQUESTS, true);
    // A worker may be newer than the server: fields that the server does not know are ignored.
    add_shapes(&mut schemas, WORKER_REQUESTS, false);
    for name in LISTED {
        let items = schema(&format!("[{name}]"));
        let next = "Ask for what comes after it; null: this was the last page.";
        let list = json!({
            "type": "object",
            "required": ["items", "next"],
            "properties": {
                "items": items,
                "next": { "type": ["string", "null"], "description": next },
            },
        });
        schemas.insert(format!("{name}List"), list);
    }
    let actions = ["ScriptAction", "DockerAction", "PodAction"].map(schema);
    schemas.insert("Action".to_string(), json!({ "oneOf": actions }));
    schemas
}

/// There will be no others.
fn closed<T: ToString>(all: &[T]) -> Value {
    json!({ "type": "string", "enum": words(all) })
}

/// There may be others one day: whoever does not know one goes on.
fn open<T: ToString>(all: &[T]) -> Value {
    json!({ "type": "string", "x-extensible-enum": words(all) })
}

fn words<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
