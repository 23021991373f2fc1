//! Whole parts become drafts: actions are put into the steps that use them, hooks become tasks.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::decode::{
    ActionParts, Document, Does, HookTarget, Policies, StepParts, TaskParts, Text,
};
use super::super::template;
use super::Checker;
use crate::domain::Json;
use crate::domain::retry::{OnWorkerLoss, RetryPolicy};
use crate::domain::task::{
    Action, HOOK_TASK_PREFIX, Hook, HookDoes, Items, NamedAction, StepDraft, TaskDraft, TaskSecret,
    Unmatched,
};
use crate::domain::value::ValueSpec;

/// Every step has a copy of the action that it uses. All copies together may have this many bytes.
const COPIES_BYTES_MAX: usize = 256 << 20;

impl<'t> Checker<'_, 't> {
    /// Whether the steps with copies of their actions fit into memory; if they do not, that is told.
    pub fn copies_fit(&mut self, documents: &[Document<'t>]) -> bool {
        let errors_before = self.problems.errors();
        let actions = documents.iter().flat_map(|document| &document.actions);
        let weights: HashMap<&str, usize> = actions
            .map(|action| (action.key.text.as_str(), parts_bytes(action)))
            .collect();
        let mut bytes = 0;
        for task in documents.iter().flat_map(|document| &document.tasks) {
            for step in &task.steps {
                if let Does::Uses { action, .. } = step.does {
                    bytes += weights.get(action).copied().unwrap_or_default();
                }
            }
            if bytes > COPIES_BYTES_MAX {
                let message = format!(
                    "all steps with the actions that they use are more than {} MiB of text",
                    COPIES_BYTES_MAX >> 20
                );
                let problem = self.problems.new_rule("E062", task.key.span, message);
                problem
                    .label("counted up to here")
                    .help("a large action that many steps use counts once for each of these");
                break;
            }
        }
        self.problems.errors() == errors_before
    }

    /// Nothing was wrong: every name is known.
    pub fn assemble(&self, documents: &[Document<'t>]) -> HashMap<String, TaskDraft> {
        let actions = documents.iter().flat_map(|document| &document.actions);
        let actions: HashMap<&str, &ActionParts<'_>> = actions
            .map(|action| (action.key.text.as_str(), action))
            .collect();
        let of_actions = documents.iter().flat_map(|document| &document.actions);
        let action_secrets: HashMap<&str, BTreeMap<String, TaskSecret>> = of_actions
            .map(|action| {
                let mut secrets = BTreeMap::new();
                self.secrets_of(&action.texts, &mut secrets);
                (action.key.text.as_str(), secrets)
            })
            .collect();
        let mut drafts = HashMap::new();
        for task in documents.iter().flat_map(|document| &document.tasks) {
            let draft = self.task_draft(task, &actions, &action_secrets);
            drafts.insert(draft.name.clone(), draft);
            for hook in &task.hooks {
                if let HookTarget::Action { name, .. } = hook.does
                    && let Some(action) = actions.get(name)
                {
                    let draft = self.hook_task(action);
                    drafts.entry(draft.name.clone()).or_insert(draft);
                }
            }
        }
        drafts
    }

    fn task_draft(
        &self,
        task: &TaskParts<'t>,
        actions: &HashMap<&str, &ActionParts<'t>>,
        action_secrets: &HashMap<&str, BTreeMap<String, TaskSecret>>,
    ) -> TaskDraft {
        let mut secrets = BTreeMap::new();
        self.secrets_of(&task.texts, &mut secrets);
        let mut steps = Vec::with_capacity(task.steps.len());
        let mut seen: HashSet<&str> = HashSet::new();
        for step in &task.steps {
            self.secrets_of(&step.texts, &mut secrets);
            let used = match step.does {
                Does::Uses { action, .. } => actions.get(action).copied(),
                _ => None,
            };
            if let Some(action) = used {
                let name = action.key.text.as_str();
                if let Some(of_action) = action_secrets.get(name)
                    && seen.insert(name)
                {
                    for (name, secret) in of_action {
                        add_secret(&mut secrets, name, secret.clone());
                    }
                }
            }
            let written_at = used.map_or(step.span, |action| action.span);
            steps.push(StepDraft {
                rules: self.problems.action_rules(written_at),
                ..step_draft(step, used)
            });
        }
        let hooks = task.hooks.iter().map(|hook| Hook {
            on: hook.on,
            does: match hook.does {
                HookTarget::Action { name, .. } => HookDoes::Job {
                    task: format!("{HOOK_TASK_PREFIX}{name}"),
                    input: hook.input.clone(),
                },
                HookTarget::Task { name, .. } => HookDoes::Job {
                    task: name.to_string(),
                    input: hook.input.clone(),
                },
                HookTarget::Notify { name } => HookDoes::Notify {
                    target: name.to_string(),
                },
            },
        });
        TaskDraft {
            inputs: task.inputs.iter().map(|input| input.spec.clone()).collect(),
            steps,
            hooks: hooks.collect(),
            secrets,
            ..task.draft.clone()
        }
    }

    /// A task of one step: its inputs are the action's.
    fn hook_task(&self, action: &ActionParts<'t>) -> TaskDraft {
        let mut secrets = BTreeMap::new();
        self.secrets_of(&action.texts, &mut secrets);
        let body = action.action.clone().expect("it is whole");
        let step = with_policies(
            StepDraft {
                rules: self.problems.action_rules(action.span),
                ..StepDraft::new(&action.key.text, body)
            },
            &action.policies,
            None,
        );
        TaskDraft {
            inputs: action
                .inputs
                .iter()
                .map(|input| input.spec.clone())
                .collect(),
            secrets,
            ..TaskDraft::new(
                &format!("{HOOK_TASK_PREFIX}{}", action.key.text),
                vec![step],
            )
        }
    }

    /// Adds the secrets that these texts use.
    fn secrets_of(&self, texts: &[Text<'t>], secrets: &mut BTreeMap<String, TaskSecret>) {
        for text in texts.iter().filter(|text| text.text.contains("secret")) {
            for mention in template::mentions(&text.text).unwrap_or_default() {
                if let [root, name, ..] = mention.path.as_slice()
                    && root == "secret"
                    && let Some(declared) = self.names.secrets.get(name.as_str())
                    && let Some(reference) = &declared.reference
                {
                    let of_use = self.problems.rules_of(text.node.span.file);
                    let secret = TaskSecret {
                        reference: reference.clone(),
                        rules: of_use.max(self.problems.rules_of(declared.span.file)),
                    };
                    add_secret(secrets, name, secret);
                }
            }
        }
    }
}

/// Adds a secret to those of a task. If several texts use it, the oldest rules hold: 0.1 had accepted one of these texts.
fn add_secret(secrets: &mut BTreeMap<String, TaskSecret>, name: &str, secret: TaskSecret) {
    let known = secrets
        .entry(name.to_string())
        .or_insert_with(|| secret.clone());
    known.rules = known.rules.min(secret.rules);
}

/// About what a copy of this action takes.
fn parts_bytes(action: &ActionParts<'_>) -> usize {
    let specs = action.inputs.iter().chain(&action.policies.outputs);
    let specs = specs.map(|input| spec_bytes(&input.spec));
    let body = action.action.as_ref().map_or(0, action_bytes);
    body + specs.sum::<usize>() + env_bytes(&action.policies.env)
}

/// About what a copy of this task takes.
pub fn draft_bytes(draft: &TaskDraft) -> usize {
    let steps = draft.steps.iter().map(|step| {
        let of_action = step.named_action.as_ref();
        let given = of_action.map_or(0, |action| specs_bytes(&action.inputs));
        let items = match step.for_each.as_ref().map(|for_each| &for_each.items) {
            Some(Items::List(items)) => items.iter().map(|item| item.0.len()).sum(),
            _ => 0,
        };
        let parts = [
            size_of::<StepDraft>(),
            action_bytes(&step.action),
            step.input.0.len(),
            given,
            items,
            specs_bytes(&step.outputs),
            env_bytes(&step.env),
        ];
        parts.into_iter().sum::<usize>()
    });
    specs_bytes(&draft.inputs) + env_bytes(&draft.env) + steps.sum::<usize>()
}

fn action_bytes(action: &Action) -> usize {
    let texts = action.texts().into_iter().map(|(_, text)| text.len());
    let asks = match action {
        Action::Approval { inputs, .. } => specs_bytes(inputs),
        _ => 0,
    };
    texts.sum::<usize>() + asks
}

fn specs_bytes(specs: &[ValueSpec]) -> usize {
    specs.iter().map(spec_bytes).sum()
}

fn spec_bytes(spec: &ValueSpec) -> usize {
    let json = spec.options.iter().chain(&spec.default);
    let texts = spec.pattern.iter().chain(&spec.description);
    size_of::<ValueSpec>()
        + spec.name.len()
        + json.map(|json| json.0.len()).sum::<usize>()
        + texts.map(String::len).sum::<usize>()
}

fn env_bytes(env: &BTreeMap<String, String>) -> usize {
    env.iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

fn step_draft(step: &StepParts<'_>, used: Option<&ActionParts<'_>>) -> StepDraft {
    let mut input = step.input.clone();
    let action = match &step.does {
        Does::Own { action, asks } => match action {
            Action::Approval { message, .. } => Action::Approval {
                message: message.clone(),
                inputs: asks.iter().map(|ask| ask.spec.clone()).collect(),
            },
            action => action.clone(),
        },
        Does::Calls { task, .. } => Action::Task {
            task: task.clone(),
            input: std::mem::replace(&mut input, Json::empty_object()),
        },
        Does::Uses { .. } => {
            let used = used.and_then(|action| action.action.clone());
            used.expect("it is known and whole")
        }
        Does::Unknown => unreachable!("a step without errors does something"),
    };
    let draft = StepDraft {
        depends_on: step.depends_on.clone(),
        when: step.when.as_ref().map(|(when, _)| when.clone()),
        for_each: step.for_each.clone(),
        input,
        named_action: used.map(|action| {
            let inputs = action.inputs.iter();
            NamedAction {
                name: action.key.text.clone(),
                inputs: inputs.map(|input| input.spec.clone()).collect(),
                env: action.policies.env.clone(),
            }
        }),
        continue_on_failure: step.continue_on_failure,
        ..StepDraft::new(&step.key.text, action)
    };
    with_policies(draft, &step.policies, used.map(|action| &action.policies))
}

/// What the step says goes before what its action says.
fn with_policies(draft: StepDraft, own: &Policies, of_action: Option<&Policies>) -> StepDraft {
    let tags = of_action
        .into_iter()
        .flat_map(|policies| &policies.tags)
        .chain(&own.tags);
    let outputs = match (own.outputs.as_slice(), of_action) {
        ([], Some(policies)) => &policies.outputs,
        _ => &own.outputs,
    };
    let first =
        |pick: &dyn Fn(&Policies) -> Option<i64>| pick(own).or_else(|| of_action.and_then(pick));
    StepDraft {
        env: own.env.clone(),
        tags: tags.map(|(tag, _)| tag.clone()).collect(),
        outputs: outputs.iter().map(|output| output.spec.clone()).collect(),
        workdir: own.workdir.clone().or_else(|| of_action?.workdir.clone()),
        timeout_ms: first(&|policies| policies.timeout.map(|timeout| timeout.0)),
        retry: own
            .retry
            .clone()
            .or_else(|| of_action?.retry.clone())
            .unwrap_or_else(RetryPolicy::never),
        on_worker_loss: own
            .on_worker_loss
            .or_else(|| of_action?.on_worker_loss)
            .unwrap_or(OnWorkerLoss::Fail),
        unmatched: own
            .unmatched
            .or_else(|| of_action?.unmatched)
            .unwrap_or(Unmatched::Fail),
        ..draft
    }
}
