//! One workflow file: the keys that it may have, and what they become.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use super::duration;
use crate::domain::Json;
use crate::domain::depends::{Accept, DependsOn, Outcome};
use crate::domain::reason::Reason;
use crate::domain::retry::{Backoff, OnWorkerLoss, RetryPolicy};
use crate::domain::task::{
    Action, Concurrency, ForEach, Items, Runner, StepDraft, TaskDraft, Unmatched, WhenFull,
};
use crate::domain::value::{ValueSpec, ValueType};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// In the order in which they stand there.
    #[serde(default)]
    tasks: Mapping,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskDocument {
    flow: Mapping,
    #[serde(default)]
    timeout: Option<Duration>,
    #[serde(default)]
    queue_timeout: Option<Duration>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    concurrency: Option<ConcurrencyDocument>,
    #[serde(default)]
    env: BTreeMap<String, Scalar>,
    #[serde(default)]
    input: BTreeMap<String, InputDocument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputDocument {
    #[serde(default)]
    secret: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConcurrencyDocument {
    group: String,
    #[serde(default = "one")]
    limit: u32,
    #[serde(default)]
    when_full: Option<String>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct StepDocument {
    r#type: Option<String>,
    runner: Option<String>,
    script: Option<String>,
    language: Option<String>,
    image: Option<String>,
    entrypoint: Option<Words>,
    command: Option<Words>,
    manifest: Option<Manifest>,
    task: Option<String>,
    input: Option<Value>,
    message: Option<String>,
    depends_on: Option<Depends>,
    when: Option<bool>,
    for_each: Option<Vec<Value>>,
    max_parallel: Option<u32>,
    env: BTreeMap<String, Scalar>,
    workdir: Option<String>,
    tags: Vec<String>,
    timeout: Option<Duration>,
    retry: Option<RetryDocument>,
    on_worker_loss: Option<String>,
    unmatched: Option<String>,
    continue_on_failure: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryDocument {
    max_attempts: u32,
    #[serde(default)]
    delay: Option<Duration>,
    #[serde(default)]
    backoff: Option<String>,
    #[serde(default)]
    max_delay: Option<Duration>,
    #[serde(default)]
    jitter: bool,
    #[serde(default)]
    on: Option<Vec<String>>,
}

/// One word, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Many(Vec<String>),
}

/// A manifest as text, or as the YAML that it is.
#[derive(Deserialize)]
#[serde(untagged)]
enum Manifest {
    Text(String),
    Tree(Mapping),
}

/// What can stand in an environment.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Duration {
    Secs(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Depends {
    Name(String),
    List(Vec<Depends>),
    Edge(Edge),
    All(All),
    Any(Any),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edge {
    step: String,
    accept: Option<Words>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct All {
    all: Vec<Depends>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Any {
    any: Vec<Depends>,
}

pub fn decode(text: &str) -> Result<Vec<TaskDraft>, String> {
    let document: Option<Document> =
        serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    let tasks = document.map(|document| document.tasks).unwrap_or_default();
    tasks.into_iter().map(task).collect()
}

fn name(value: &Value, what: &str) -> Result<String, String> {
    let name = value.as_str().map(str::to_string);
    name.ok_or_else(|| format!("the name of a {what} is not text, put it in quotes"))
}

fn task((key, value): (Value, Value)) -> Result<TaskDraft, String> {
    let name = name(&key, "task")?;
    let task: TaskDocument =
        serde_yaml::from_value(value).map_err(|error| format!("task {name:?}: {error}"))?;
    let place = |fault: String| format!("task {name:?}: {fault}");
    let secret = task.input.into_iter().filter(|(_, input)| input.secret);
    let inputs = secret.map(|(name, _)| ValueSpec {
        secret: true,
        ..ValueSpec::new(&name, ValueType::String)
    });
    let inputs = inputs.collect();
    let concurrency = task.concurrency.map(|concurrency| {
        let when_full = word(concurrency.when_full, WhenFull::from_word, WhenFull::Queue)?;
        Ok::<_, String>(Concurrency {
            group: concurrency.group,
            limit: concurrency.limit,
            when_full,
        })
    });
    let env = environment(task.env);
    let steps = task.flow.into_iter().map(|entry| step(entry, &env));
    Ok(TaskDraft {
        steps: steps.collect::<Result<_, _>>().map_err(place)?,
        timeout_ms: task.timeout.map(ms).transpose().map_err(place)?,
        queue_timeout_ms: task.queue_timeout.map(ms).transpose().map_err(place)?,
        priority: task.priority,
        concurrency: concurrency.transpose().map_err(place)?,
        inputs,
        ..TaskDraft::new(&name, Vec::new())
    })
}

fn step(
    (key, value): (Value, Value),
    task_env: &BTreeMap<String, String>,
) -> Result<StepDraft, String> {
    let name = name(&key, "step")?;
    let step: StepDocument =
        serde_yaml::from_value(value).map_err(|error| format!("step {name:?}: {error}"))?;
    draft(&name, step, task_env).map_err(|fault| format!("step {name:?}: {fault}"))
}

fn draft(
    name: &str,
    mut step: StepDocument,
    task_env: &BTreeMap<String, String>,
) -> Result<StepDraft, String> {
    let action = action(&mut step)?;
    let mut env = task_env.clone();
    env.extend(environment(step.env));
    let for_each = match (step.for_each, step.max_parallel) {
        (Some(items), max_parallel) => Some(ForEach {
            items: Items::List(items.iter().map(json).collect::<Result<_, _>>()?),
            max_parallel,
        }),
        (None, Some(_)) => return Err("max_parallel needs for_each".to_string()),
        (None, None) => None,
    };
    let loss = step.on_worker_loss;
    Ok(StepDraft {
        depends_on: match step.depends_on {
            Some(depends) => depends_on(depends)?,
            None => DependsOn::nothing(),
        },
        when: step.when.map(|when| Json(when.to_string())),
        for_each,
        env,
        workdir: step.workdir,
        tags: step.tags,
        timeout_ms: step.timeout.map(ms).transpose()?,
        retry: step.retry.map_or(Ok(RetryPolicy::never()), retry)?,
        on_worker_loss: word(loss, OnWorkerLoss::from_word, OnWorkerLoss::Fail)?,
        unmatched: word(step.unmatched, Unmatched::from_word, Unmatched::Fail)?,
        continue_on_failure: step.continue_on_failure,
        ..StepDraft::new(name, action)
    })
}

/// Takes the keys of the step's type; those of other types must not be there.
fn action(step: &mut StepDocument) -> Result<Action, String> {
    let kind = match (&step.r#type, &step.script) {
        (Some(kind), _) => kind.clone(),
        (None, Some(_)) => "script".to_string(),
        (None, None) => return Err("type is missing".to_string()),
    };
    let missing = |key: &str| format!("{key} is missing, a step of type {kind} needs it");
    let action = match kind.as_str() {
        "script" => Action::Script {
            runner: word(step.runner.take(), Runner::from_word, Runner::Local)?,
            image: step.image.take(),
            language: step.language.take(),
            script: step.script.take().ok_or_else(|| missing("script"))?,
        },
        "docker" => Action::Docker {
            image: step.image.take().ok_or_else(|| missing("image"))?,
            entrypoint: step.entrypoint.take().map(words).unwrap_or_default(),
            command: step.command.take().map(words).unwrap_or_default(),
        },
        "pod" => Action::Pod {
            manifest: match step.manifest.take().ok_or_else(|| missing("manifest"))? {
                Manifest::Text(text) => text,
                Manifest::Tree(tree) => json(&Value::Mapping(tree))?.0,
            },
        },
        "task" => Action::Task {
            task: step.task.take().ok_or_else(|| missing("task"))?,
            input: match step.input.take() {
                Some(input) => json(&input)?,
                None => Json::empty_object(),
            },
        },
        "approval" => Action::Approval {
            message: step.message.take().unwrap_or_default(),
            inputs: Vec::new(),
        },
        other => {
            let known = "script, docker, pod, task or approval";
            return Err(format!("type {other:?} is not known, write {known}"));
        }
    };
    let left = [
        ("runner", step.runner.is_some()),
        ("script", step.script.is_some()),
        ("language", step.language.is_some()),
        ("image", step.image.is_some()),
        ("entrypoint", step.entrypoint.is_some()),
        ("command", step.command.is_some()),
        ("manifest", step.manifest.is_some()),
        ("task", step.task.is_some()),
        ("input", step.input.is_some()),
        ("message", step.message.is_some()),
    ];
    match left.iter().find(|(_, is_there)| *is_there) {
        Some((key, _)) => Err(format!("{key} is not a key of a step of type {kind}")),
        None => Ok(action),
    }
}

fn retry(retry: RetryDocument) -> Result<RetryPolicy, String> {
    let default = RetryPolicy::times(retry.max_attempts);
    let on = match retry.on {
        None => default.on.clone(),
        Some(reasons) => {
            let reasons = reasons.into_iter();
            let known = reasons.map(|reason| word(Some(reason), Reason::from_word, Reason::Signal));
            known.collect::<Result<_, _>>()?
        }
    };
    Ok(RetryPolicy {
        delay_ms: retry.delay.map_or(Ok(default.delay_ms), ms)?,
        backoff: word(retry.backoff, Backoff::from_word, default.backoff)?,
        max_delay_ms: retry.max_delay.map_or(Ok(default.max_delay_ms), ms)?,
        jitter: retry.jitter,
        on,
        ..default
    })
}

fn depends_on(depends: Depends) -> Result<DependsOn<String>, String> {
    let group = |list: Vec<Depends>| {
        let group = list.into_iter().map(depends_on);
        group.collect::<Result<Vec<_>, String>>()
    };
    Ok(match depends {
        Depends::Name(step) => DependsOn::on(step),
        Depends::List(list) | Depends::All(All { all: list }) => DependsOn::All(group(list)?),
        Depends::Any(Any { any }) => DependsOn::Any(group(any)?),
        Depends::Edge(Edge { step, accept: None }) => DependsOn::on(step),
        Depends::Edge(Edge {
            step,
            accept: Some(accept),
        }) => {
            let accept = words(accept);
            if accept == ["terminal"] {
                return Ok(DependsOn::accepting(step, Accept::of(Outcome::ALL)));
            }
            let outcomes = accept.into_iter();
            let outcomes =
                outcomes.map(|outcome| word(Some(outcome), Outcome::from_word, Outcome::Failed));
            let outcomes: Vec<Outcome> = outcomes.collect::<Result<_, _>>()?;
            DependsOn::accepting(step, Accept::of(&outcomes))
        }
    })
}

fn words(words: Words) -> Vec<String> {
    match words {
        Words::One(word) => vec![word],
        Words::Many(words) => words,
    }
}

fn environment(env: BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
    let text = |value| match value {
        Scalar::Text(text) => text,
        Scalar::Whole(number) => number.to_string(),
        Scalar::Number(number) => number.to_string(),
        Scalar::Flag(flag) => flag.to_string(),
    };
    env.into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

fn ms(duration: Duration) -> Result<i64, String> {
    match duration {
        Duration::Secs(secs) => Ok(i64::from(secs) * 1_000),
        Duration::Text(text) => duration::parse(&text),
    }
}

fn word<T>(
    text: Option<String>,
    from_word: fn(&str) -> Option<T>,
    default: T,
) -> Result<T, String> {
    match text {
        None => Ok(default),
        Some(text) => from_word(&text).ok_or_else(|| format!("{text:?} is not known here")),
    }
}

fn json(value: &Value) -> Result<Json, String> {
    let json = serde_json::to_string(value);
    json.map(Json)
        .map_err(|error| format!("this has no form in JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Result<Vec<StepDraft>, String> {
        let tasks = decode(&format!("tasks:\n  t:\n    flow:\n{text}"))?;
        Ok(tasks.into_iter().next().unwrap().steps)
    }

    #[test]
    fn steps_keep_their_order_and_their_policies() {
        let steps = steps(
            "
      zeta: { script: make, env: { A: 1, B: yes please }, timeout: 5m, language: bash }
      alpha:
        type: docker
        image: busybox
        command: [echo, hi]
        depends_on: [zeta, { step: zeta, accept: terminal }]
        retry: { max_attempts: 3, delay: 10s, backoff: exponential, on: [worker_lost] }
      pod: { type: pod, manifest: { kind: Pod } }
",
        )
        .unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["zeta", "alpha", "pod"]);
        assert_eq!(steps[0].env["A"], "1");
        assert_eq!(steps[0].timeout_ms, Some(300_000));
        assert_eq!(steps[1].retry.max_attempts, 3);
        assert_eq!(steps[1].retry.on, [Reason::WorkerLost]);
        let manifest = r#"{"kind":"Pod"}"#.to_string();
        assert_eq!(steps[2].action, Action::Pod { manifest });
    }

    #[test]
    fn what_does_not_belong_is_refused_with_its_place() {
        for (text, expected) in [
            (
                "      s: { script: x, image: y, type: docker }\n",
                "script is not a key",
            ),
            ("      s: { type: docker }\n", "image is missing"),
            ("      s: { type: dokcer }\n", "\"dokcer\" is not known"),
            (
                "      s: { script: x, timeout: soon }\n",
                "\"soon\" is not a duration",
            ),
            (
                "      s: { script: x, max_parallel: 2 }\n",
                "needs for_each",
            ),
            (
                "      s: { script: x, retry: { max_attempts: 2, on: [bad_luck] } }\n",
                "bad_luck",
            ),
            ("      s: { script: x, timout: 5 }\n", "timout"),
        ] {
            let fault = steps(text).unwrap_err();
            assert!(
                fault.contains(expected) && fault.contains("step \"s\""),
                "{fault}"
            );
        }
    }
}
