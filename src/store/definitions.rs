//! Frozen definitions: what a job was made from, as JSON, each distinct one once.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{OptionalExtension, named_params};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{StoreError, Tx};
use crate::domain::depends::{Accept, DependsOn, Outcome};
use crate::domain::reason::Reason;
use crate::domain::retry::{Backoff, OnWorkerLoss, RetryPolicy};
use crate::domain::secret::SecretRef;
use crate::domain::task::{
    Action, Concurrency, Definition, ForEach, Hook, HookDoes, HookOn, Items, NamedAction, Rules,
    Runner, StepDraft, TaskDraft, TaskSecret, Unmatched, WhenFull,
};
use crate::domain::value::{ValueSpec, ValueType};
use crate::domain::{DefinitionId, Json};

pub const STATEMENTS: &[&str] = &[DEFINITION_BY_HASH, INSERT_DEFINITION, DEFINITION];

/// A definition ready to be stored: encoded and hashed once, however often it is submitted.
#[derive(Debug, Clone)]
pub struct Frozen {
    pub definition: Arc<Definition>,
    body: Arc<str>,
    hash: Arc<str>,
}

impl Frozen {
    pub fn new(definition: Arc<Definition>) -> Frozen {
        let tasks: Vec<TaskJson> = definition
            .tasks()
            .iter()
            .map(|task| TaskJson::from(&*task.draft))
            .collect();
        let body = serde_json::to_string(&tasks).expect("plain data has a JSON form");
        let hash = hex_sha256(body.as_bytes());
        Frozen {
            definition,
            body: body.into(),
            hash: hash.into(),
        }
    }

    /// SHA-256 of the definition, in hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub fn bytes(&self) -> usize {
        self.body.len()
    }
}

pub fn hex_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

const DEFINITION_BY_HASH: &str = "
    SELECT definition_id FROM definition WHERE hash = :hash
";

const INSERT_DEFINITION: &str = "
    INSERT INTO definition (hash, body) VALUES (:hash, :body)
";

const DEFINITION: &str = "
    SELECT body FROM definition WHERE definition_id = :definition_id
";

impl Tx<'_> {
    /// The id of this very definition, new or not.
    pub fn intern_definition(&self, frozen: &Frozen) -> Result<DefinitionId, StoreError> {
        let known: Option<i64> = self
            .sql(DEFINITION_BY_HASH)?
            .query_row(named_params! {":hash": frozen.hash}, |row| row.get(0))
            .optional()?;
        let definition_id = match known {
            Some(definition_id) => DefinitionId(definition_id),
            None => {
                self.sql(INSERT_DEFINITION)?
                    .execute(named_params! {":hash": frozen.hash, ":body": frozen.body})?;
                DefinitionId(self.connection.last_insert_rowid())
            }
        };
        self.changes
            .borrow_mut()
            .definitions
            .insert(definition_id, frozen.definition.clone());
        Ok(definition_id)
    }

    pub fn definition(&self, definition_id: DefinitionId) -> Result<Arc<Definition>, StoreError> {
        if let Some(definition) = self.changes.borrow().definitions.get(&definition_id) {
            return Ok(definition.clone());
        }
        if let Some(definition) = self.shared.definition(definition_id) {
            return Ok(definition);
        }
        let body: String = self
            .sql(DEFINITION)?
            .query_row(named_params! {":definition_id": definition_id.0}, |row| {
                row.get(0)
            })?;
        let definition = Arc::new(decode(&body)?);
        // Not shared before the commit: an id that is rolled back is given to another definition.
        self.changes
            .borrow_mut()
            .definitions
            .insert(definition_id, definition.clone());
        Ok(definition)
    }
}

fn decode(body: &str) -> Result<Definition, StoreError> {
    let unreadable = |cause: String| StoreError::Unreadable {
        expected: "a definition",
        found: cause,
    };
    let tasks: Vec<TaskJson> =
        serde_json::from_str(body).map_err(|error| unreadable(error.to_string()))?;
    let drafts = tasks
        .into_iter()
        .map(TaskDraft::try_from)
        .collect::<Result<Vec<_>, String>>()
        .map_err(unreadable)?;
    let root = drafts
        .first()
        .map(|draft| draft.name.clone())
        .unwrap_or_default();
    Definition::check(&root, drafts).map_err(|problems| unreadable(problems.to_string()))
}

// The JSON form. The domain knows no serde; words and fields are its own, and what is at its default is left out.

#[derive(Serialize, Deserialize)]
struct TaskJson {
    name: String,
    steps: Vec<StepJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue_timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<ConcurrencyJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<HookJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<ValueJson>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<String, SecretJson>,
    /// The version of the rules for every secret and every step that does not say another. Absent: 1. Version 0.1 wrote no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct StepJson {
    name: String,
    action: ActionJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    depends_on: Option<DependsJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_each: Option<ForEachJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named_action: Option<NamedActionJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<ValueJson>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryJson>,
    on_worker_loss: String,
    unmatched: String,
    #[serde(default, skip_serializing_if = "is_default")]
    continue_on_failure: bool,
    /// Absent: the version of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ActionJson {
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
        command: Vec<String>,
    },
    Pod {
        manifest: String,
    },
    Task {
        task: String,
        input: String,
    },
    Approval {
        message: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inputs: Vec<ValueJson>,
    },
}

#[derive(Serialize, Deserialize)]
struct NamedActionJson {
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<ValueJson>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct ValueJson {
    name: String,
    r#type: String,
    #[serde(default, skip_serializing_if = "is_default")]
    required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    multiple: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    secret: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SecretPlaceJson {
    Env(String),
    File(String),
}

#[derive(Serialize, Deserialize)]
struct SecretJson {
    #[serde(flatten)]
    place: SecretPlaceJson,
    /// The version of the rules for this secret. Absent: the version in the `rules` of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DependsJson {
    Step { step: String, accept: Vec<String> },
    All(Vec<DependsJson>),
    Any(Vec<DependsJson>),
}

#[derive(Serialize, Deserialize)]
struct ForEachJson {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    items: Vec<String>,
    /// Instead of the items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    template: Option<String>,
    max_parallel: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct RetryJson {
    max_attempts: u32,
    delay_ms: i64,
    backoff: String,
    max_delay_ms: i64,
    jitter: bool,
    on: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct ConcurrencyJson {
    group: String,
    limit: u32,
    when_full: String,
}

#[derive(Serialize, Deserialize)]
struct HookJson {
    on: String,
    #[serde(flatten)]
    does: HookDoesJson,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HookDoesJson {
    Job { task: String, input: String },
    Notify { target: String },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn known<T>(text: &str, from_word: fn(&str) -> Option<T>) -> Result<T, String> {
    from_word(text).ok_or_else(|| format!("unknown word {text:?}"))
}

fn all_known<T>(texts: &[String], from_word: fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    texts.iter().map(|text| known(text, from_word)).collect()
}

fn known_rules(number: u32) -> Result<Rules, String> {
    Rules::from_number(number).ok_or_else(|| format!("unknown version {number} of rules"))
}

impl From<&TaskDraft> for TaskJson {
    fn from(draft: &TaskDraft) -> TaskJson {
        let of_secrets = draft.secrets.values().map(|secret| secret.rules);
        let of_steps = draft.steps.iter().map(|step| step.rules);
        let rules = of_secrets.chain(of_steps).max().unwrap_or(Rules::V2);
        let unless_same = |other: Rules| (other != rules).then(|| other.number());
        let step = |step: &StepDraft| StepJson {
            rules: unless_same(step.rules),
            ..StepJson::from(step)
        };
        let secret = |secret: &TaskSecret| SecretJson {
            place: SecretPlaceJson::from(&secret.reference),
            rules: unless_same(secret.rules),
        };
        TaskJson {
            name: draft.name.clone(),
            steps: draft.steps.iter().map(step).collect(),
            timeout_ms: draft.timeout_ms,
            queue_timeout_ms: draft.queue_timeout_ms,
            priority: draft.priority,
            concurrency: draft
                .concurrency
                .as_ref()
                .map(|concurrency| ConcurrencyJson {
                    group: concurrency.group.clone(),
                    limit: concurrency.limit,
                    when_full: concurrency.when_full.to_string(),
                }),
            hooks: draft
                .hooks
                .iter()
                .map(|hook| HookJson {
                    on: hook.on.to_string(),
                    does: match hook.does.clone() {
                        HookDoes::Job { task, input } => HookDoesJson::Job {
                            task,
                            input: input.0,
                        },
                        HookDoes::Notify { target } => HookDoesJson::Notify { target },
                    },
                })
                .collect(),
            description: draft.description.clone(),
            inputs: draft.inputs.iter().map(ValueJson::from).collect(),
            env: draft.env.clone(),
            secrets: (draft.secrets.iter())
                .map(|(name, used)| (name.clone(), secret(used)))
                .collect(),
            rules: (rules != Rules::V1).then(|| rules.number()),
        }
    }
}

impl TryFrom<TaskJson> for TaskDraft {
    type Error = String;

    fn try_from(json: TaskJson) -> Result<TaskDraft, String> {
        let concurrency = json.concurrency.map(|concurrency| {
            Ok::<_, String>(Concurrency {
                group: concurrency.group,
                limit: concurrency.limit,
                when_full: known(&concurrency.when_full, WhenFull::from_word)?,
            })
        });
        let hooks = json.hooks.into_iter().map(|hook| {
            let on = known(&hook.on, HookOn::from_word)?;
            let does = match hook.does {
                HookDoesJson::Job { task, input } => HookDoes::Job {
                    task,
                    input: Json(input),
                },
                HookDoesJson::Notify { target } => HookDoes::Notify { target },
            };
            Ok::<_, String>(Hook { on, does })
        });
        let rules = json.rules.map_or(Ok(Rules::V1), known_rules)?;
        let steps = json.steps.into_iter().map(|step| {
            let rules = step.rules.map_or(Ok(rules), known_rules)?;
            let step = StepDraft::try_from(step)?;
            Ok::<_, String>(StepDraft { rules, ..step })
        });
        let secrets = json.secrets.into_iter().map(|(name, secret)| {
            let secret = TaskSecret {
                reference: SecretRef::from(secret.place),
                rules: secret.rules.map_or(Ok(rules), known_rules)?,
            };
            Ok::<_, String>((name, secret))
        });
        Ok(TaskDraft {
            name: json.name,
            steps: steps.collect::<Result<_, _>>()?,
            timeout_ms: json.timeout_ms,
            queue_timeout_ms: json.queue_timeout_ms,
            priority: json.priority,
            concurrency: concurrency.transpose()?,
            hooks: hooks.collect::<Result<_, _>>()?,
            description: json.description,
            inputs: values(json.inputs)?,
            env: json.env,
            secrets: secrets.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&StepDraft> for StepJson {
    fn from(draft: &StepDraft) -> StepJson {
        let retry = (draft.retry != RetryPolicy::never()).then(|| RetryJson {
            max_attempts: draft.retry.max_attempts,
            delay_ms: draft.retry.delay_ms,
            backoff: draft.retry.backoff.to_string(),
            max_delay_ms: draft.retry.max_delay_ms,
            jitter: draft.retry.jitter,
            on: draft.retry.on.iter().map(Reason::to_string).collect(),
        });
        StepJson {
            name: draft.name.clone(),
            action: ActionJson::from(&draft.action),
            depends_on: (draft.depends_on != DependsOn::nothing())
                .then(|| DependsJson::from(&draft.depends_on)),
            when: draft.when.as_ref().map(|when| when.0.clone()),
            for_each: draft.for_each.as_ref().map(ForEachJson::from),
            input: (draft.input != Json::empty_object()).then(|| draft.input.0.clone()),
            named_action: draft.named_action.as_ref().map(|named| NamedActionJson {
                name: named.name.clone(),
                inputs: named.inputs.iter().map(ValueJson::from).collect(),
                env: named.env.clone(),
            }),
            outputs: draft.outputs.iter().map(ValueJson::from).collect(),
            env: draft.env.clone(),
            workdir: draft.workdir.clone(),
            tags: draft.tags.clone(),
            timeout_ms: draft.timeout_ms,
            retry,
            on_worker_loss: draft.on_worker_loss.to_string(),
            unmatched: draft.unmatched.to_string(),
            continue_on_failure: draft.continue_on_failure,
            rules: Some(draft.rules.number()),
        }
    }
}

impl TryFrom<StepJson> for StepDraft {
    type Error = String;

    fn try_from(json: StepJson) -> Result<StepDraft, String> {
        let retry = json.retry.map(|retry| {
            Ok::<_, String>(RetryPolicy {
                max_attempts: retry.max_attempts,
                delay_ms: retry.delay_ms,
                backoff: known(&retry.backoff, Backoff::from_word)?,
                max_delay_ms: retry.max_delay_ms,
                jitter: retry.jitter,
                on: all_known(&retry.on, Reason::from_word)?,
            })
        });
        Ok(StepDraft {
            name: json.name,
            action: json.action.try_into()?,
            depends_on: match json.depends_on {
                None => DependsOn::nothing(),
                Some(tree) => tree.try_into()?,
            },
            when: json.when.map(Json),
            for_each: json.for_each.map(ForEach::from),
            input: json.input.map_or_else(Json::empty_object, Json),
            named_action: (json.named_action)
                .map(|named| {
                    Ok::<_, String>(NamedAction {
                        name: named.name,
                        inputs: values(named.inputs)?,
                        env: named.env,
                    })
                })
                .transpose()?,
            outputs: values(json.outputs)?,
            env: json.env,
            workdir: json.workdir,
            tags: json.tags,
            timeout_ms: json.timeout_ms,
            retry: retry.transpose()?.unwrap_or_else(RetryPolicy::never),
            on_worker_loss: known(&json.on_worker_loss, OnWorkerLoss::from_word)?,
            unmatched: known(&json.unmatched, Unmatched::from_word)?,
            continue_on_failure: json.continue_on_failure,
            rules: json.rules.map_or(Ok(Rules::V1), known_rules)?,
        })
    }
}

fn values(values: Vec<ValueJson>) -> Result<Vec<ValueSpec>, String> {
    values.into_iter().map(ValueSpec::try_from).collect()
}

impl From<&ValueSpec> for ValueJson {
    fn from(spec: &ValueSpec) -> ValueJson {
        let text = |json: &Json| json.0.clone();
        ValueJson {
            name: spec.name.clone(),
            r#type: spec.value_type.to_string(),
            required: spec.required,
            default: spec.default.as_ref().map(text),
            options: spec.options.iter().map(text).collect(),
            pattern: spec.pattern.clone(),
            min: spec.min.as_ref().map(text),
            max: spec.max.as_ref().map(text),
            multiple: spec.multiple,
            secret: spec.secret,
            description: spec.description.clone(),
        }
    }
}

impl TryFrom<ValueJson> for ValueSpec {
    type Error = String;

    fn try_from(json: ValueJson) -> Result<ValueSpec, String> {
        Ok(ValueSpec {
            name: json.name,
            value_type: known(&json.r#type, ValueType::from_word)?,
            required: json.required,
            default: json.default.map(Json),
            options: json.options.into_iter().map(Json).collect(),
            pattern: json.pattern,
            min: json.min.map(Json),
            max: json.max.map(Json),
            multiple: json.multiple,
            secret: json.secret,
            description: json.description,
        })
    }
}

impl From<&SecretRef> for SecretPlaceJson {
    fn from(secret: &SecretRef) -> SecretPlaceJson {
        match secret.clone() {
            SecretRef::Env(name) => SecretPlaceJson::Env(name),
            SecretRef::File(path) => SecretPlaceJson::File(path),
        }
    }
}

impl From<SecretPlaceJson> for SecretRef {
    fn from(json: SecretPlaceJson) -> SecretRef {
        match json {
            SecretPlaceJson::Env(name) => SecretRef::Env(name),
            SecretPlaceJson::File(path) => SecretRef::File(path),
        }
    }
}

impl From<&ForEach> for ForEachJson {
    fn from(for_each: &ForEach) -> ForEachJson {
        let max_parallel = for_each.max_parallel;
        match for_each.items.clone() {
            Items::List(items) => ForEachJson {
                items: items.into_iter().map(|item| item.0).collect(),
                template: None,
                max_parallel,
            },
            Items::Template(template) => ForEachJson {
                items: Vec::new(),
                template: Some(template),
                max_parallel,
            },
        }
    }
}

impl From<ForEachJson> for ForEach {
    fn from(json: ForEachJson) -> ForEach {
        ForEach {
            items: match json.template {
                Some(template) => Items::Template(template),
                None => Items::List(json.items.into_iter().map(Json).collect()),
            },
            max_parallel: json.max_parallel,
        }
    }
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
            Action::Task { task, input } => ActionJson::Task {
                task,
                input: input.0,
            },
            Action::Approval { message, inputs } => ActionJson::Approval {
                message,
                inputs: inputs.iter().map(ValueJson::from).collect(),
            },
        }
    }
}

impl TryFrom<ActionJson> for Action {
    type Error = String;

    fn try_from(json: ActionJson) -> Result<Action, String> {
        Ok(match json {
            ActionJson::Script {
                runner,
                image,
                language,
                script,
            } => Action::Script {
                runner: known(&runner, Runner::from_word)?,
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
            ActionJson::Task { task, input } => Action::Task {
                task,
                input: Json(input),
            },
            ActionJson::Approval { message, inputs } => Action::Approval {
                message,
                inputs: values(inputs)?,
            },
        })
    }
}

impl From<&DependsOn<String>> for DependsJson {
    fn from(tree: &DependsOn<String>) -> DependsJson {
        match tree {
            DependsOn::Step { step, accept } => DependsJson::Step {
                step: step.clone(),
                accept: accept
                    .outcomes()
                    .map(|outcome| outcome.to_string())
                    .collect(),
            },
            DependsOn::All(group) => {
                DependsJson::All(group.iter().map(DependsJson::from).collect())
            }
            DependsOn::Any(group) => {
                DependsJson::Any(group.iter().map(DependsJson::from).collect())
            }
        }
    }
}

impl TryFrom<DependsJson> for DependsOn<String> {
    type Error = String;

    fn try_from(json: DependsJson) -> Result<DependsOn<String>, String> {
        let members = |group: Vec<DependsJson>| {
            group
                .into_iter()
                .map(DependsOn::try_from)
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(match json {
            DependsJson::Step { step, accept } => {
                let accept = Accept::of(&all_known(&accept, Outcome::from_word)?);
                DependsOn::Step { step, accept }
            }
            DependsJson::All(group) => DependsOn::All(members(group)?),
            DependsJson::Any(group) => DependsOn::Any(members(group)?),
        })
    }
}
