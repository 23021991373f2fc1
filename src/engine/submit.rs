//! Somebody submits a task: a job is made, with all its steps, or nothing is.

use std::collections::BTreeMap;

use super::cascade::Cascade;
use super::check::{check_json, check_text};
use super::create::JobPlan;
use super::facts::Facts;
use super::inputs::JobInput;
use super::once::Once;
use super::retry::Carried;
use super::{Engine, EngineError};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::idempotency::KeyOwner;
use crate::domain::job::Source;
use crate::domain::limits;
use crate::domain::{JobId, Json, Now, Timestamp};
use crate::store::{Frozen, Tx};

#[derive(Debug, Clone)]
pub struct Submission {
    pub frozen: Frozen,
    pub source: Source,
    /// A JSON object.
    pub input: Json,
    /// `None`: what the task says.
    pub priority: Option<i32>,
    pub not_before: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub idempotency_key: Option<String>,
    /// A second key of the same request: a webhook delivery is known by its id and by what was signed.
    pub delivery_key: Option<String>,
}

impl Submission {
    pub fn of(frozen: &Frozen) -> Submission {
        Submission {
            frozen: frozen.clone(),
            source: Source::Submit,
            input: Json::empty_object(),
            priority: None,
            not_before: None,
            labels: BTreeMap::new(),
            idempotency_key: None,
            delivery_key: None,
        }
    }

    /// Not the definition: it may have been edited before the request is repeated.
    fn once(&self, owner: KeyOwner) -> Result<Once, EngineError> {
        if self.source == Source::Webhook {
            // A delivery with a known id is a repetition whatever it says: senders do not repeat every byte.
            let keys = self.idempotency_key.iter().chain(&self.delivery_key);
            return Once::new(KeyOwner::Webhook, keys.cloned(), &"webhook".into());
        }
        let request = serde_json::json!([
            "submit",
            self.frozen.definition.root().draft.name,
            self.input.0,
            self.priority,
            self.not_before.map(|at| at.0),
            self.labels
        ]);
        Once::new(owner, self.idempotency_key.clone(), &request)
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        let invalid = |place, fault| Err(EngineError::Invalid { place, fault });
        let bytes = self.frozen.bytes();
        if bytes > limits::DEFINITION_BYTES_MAX {
            let max = limits::DEFINITION_BYTES_MAX;
            return invalid(
                "definition",
                format!("is {bytes} bytes long, at most {max} are allowed"),
            );
        }
        check_json("input", &self.input, limits::INPUT_BYTES_MAX)?;
        if !self.input.0.trim_start().starts_with('{') {
            return invalid("input", "is not a JSON object".to_string());
        }
        if self.labels.len() > limits::LABELS_MAX {
            let (count, max) = (self.labels.len(), limits::LABELS_MAX);
            return invalid("labels", format!("are {count}, at most {max} are allowed"));
        }
        for (label, value) in &self.labels {
            check_text("label", label, limits::LABEL_BYTES_MAX)?;
            if !value.is_empty() {
                check_text("label", value, limits::LABEL_BYTES_MAX)?;
            }
        }
        Ok(())
    }
}

/// The answer to a submission or a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    pub job_id: JobId,
    /// The key had been used for this very request: this is the job it made.
    pub repeated: bool,
}

impl Engine {
    /// The job that a webhook delivery with one of these keys made.
    pub fn job_of_delivery<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k String>,
    ) -> Result<Option<JobId>, EngineError> {
        for key in keys {
            let find = |tx: &Tx| Ok::<_, EngineError>(tx.idempotent_job(KeyOwner::Webhook, key)?);
            if let Some((job_id, _)) = self.store.read(find)? {
                return Ok(Some(job_id));
            }
        }
        Ok(None)
    }

    pub fn submit(&self, submission: Submission, now: Now) -> Result<Submitted, EngineError> {
        submission.check()?;
        let once = submission.once(self.key_owner)?;
        let settings = self.settings;
        self.write(now, move |tx| {
            if let Some(job_id) = once.made_before(tx)? {
                return Ok(Submitted {
                    job_id,
                    repeated: true,
                });
            }
            let definition_id = tx.intern_definition(&submission.frozen)?;
            let definition = submission.frozen.definition.clone();
            let draft = &submission.frozen.definition.root().draft;
            let priority = draft.priority;
            let labels = serde_json::to_string(&submission.labels).expect("a map has a JSON form");
            let mut cascade = Cascade::new(tx, &settings, now);
            let created = cascade.create_job(JobPlan {
                definition_id,
                definition,
                task_index: 0,
                source: submission.source,
                input: JobInput::Given(submission.input.clone()),
                labels: Json(labels),
                priority: submission.priority.unwrap_or(priority),
                parent: None,
                depth: 0,
                hook_of: None,
                schedule_id: None,
                scheduled_for: None,
                not_before: submission.not_before,
                carried: Carried::default(),
            })?;
            let job_id = created.job_id;
            once.remember(tx, job_id, now)?;
            let detail = Facts::none().and("task", draft.name.as_str()).detail();
            let submitted = AuditEntry::of(AuditAction::JobSubmitted).job(job_id);
            tx.audit(&submitted.detail(detail), now)?;
            cascade.settle()?;
            Ok(Submitted {
                job_id,
                repeated: false,
            })
        })
    }
}
