//! What somebody probably meant: the nearest word, and what the words of other tools are called here.

/// What it costs to compare two words in full, in names that are looked at and passed over.
pub const COMPARISON_COST: usize = 25;

/// The nearest of the known words, if one is near.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let mut left = usize::MAX;
    nearest_within(word, known, &mut left)
}

/// The nearest of the known words, as far as `left` allows to look: every word costs one, and every word that is compared in full
/// `COMPARISON_COST`. What was not used is left for the next search.
pub fn nearest_within<'w>(
    word: &str,
    known: impl IntoIterator<Item = &'w str>,
    left: &mut usize,
) -> Option<&'w str> {
    const WORD_BYTES_MAX: usize = 64;
    if word.is_empty() || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let plain = |word: &str| word.to_lowercase().replace(['-', ' '], "_");
    let meant = plain(word);
    let allowed = match meant.chars().count() {
        // Every other letter would be as near.
        1 => 0,
        letters => (letters / 3).clamp(1, 3),
    };
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let length_apart = candidate.len().abs_diff(word.len());
        if length_apart > allowed {
            continue;
        }
        *left = left.saturating_sub(COMPARISON_COST);
        let distance = strsim::damerau_levenshtein(&meant, &plain(candidate));
        if distance <= allowed && best.is_none_or(|(nearest, _)| distance < nearest) {
            best = Some((distance, candidate));
        }
        if best.is_some_and(|(nearest, _)| nearest == 0) {
            break;
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// What to add to a sentence about a word that nobody knows: nothing, or `; did you mean release?`.
pub fn did_you_mean<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> String {
    // Whoever sends rubbish is not worth more.
    const KNOWN_MAX: usize = 1_000;
    let known = known.into_iter().take(KNOWN_MAX);
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// `a step`, `an input`.
pub fn one(noun: &str) -> String {
    match noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        true => format!("an {noun}"),
        false => format!("a {noun}"),
    }
}

/// `a`, `b` or `c`
pub fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    const SHOWN_MAX: usize = 15;
    let mut all = words.into_iter();
    let words: Vec<String> = all
        .by_ref()
        .take(SHOWN_MAX)
        .map(|word| format!("`{word}`"))
        .collect();
    let more = all.count();
    if more > 0 {
        return format!("{} and {more} more", words.join(", "));
    }
    match words.split_last() {
        None => "nothing".to_string(),
        Some((only, [])) => only.clone(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
    }
}

/// Where a word of another tool was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    Document,
    Task,
    Step,
    Schedule,
    Other,
}

#[derive(Debug)]
pub struct Foreign {
    at: &'static [Where],
    word: &'static str,
    pub tool: &'static str,
    pub help: &'static str,
    /// What the key is called here, if renaming it is all.
    pub rename: Option<&'static str>,
}

pub fn foreign(at: Where, word: &str) -> Option<&'static Foreign> {
    let all = FOREIGN.iter();
    all.into_iter()
        .find(|foreign| foreign.word == word && foreign.at.contains(&at))
}

const fn word(
    at: &'static [Where],
    word: &'static str,
    tool: &'static str,
    help: &'static str,
) -> Foreign {
    Foreign {
        at,
        word,
        tool,
        help,
        rename: None,
    }
}

const fn renamed(
    at: &'static [Where],
    word: &'static str,
    tool: &'static str,
    rename: &'static str,
    help: &'static str,
) -> Foreign {
    Foreign {
        at,
        word,
        tool,
        help,
        rename: Some(rename),
    }
}

use Where::{Document, Schedule, Step, Task};

const ACTIONS: &str = "GitHub Actions";
const GITLAB: &str = "GitLab CI";
const DAGU: &str = "Dagu";
const STROEM: &str = "Strøm";

#[rustfmt::skip]
const FOREIGN: &[Foreign] = &[
    renamed(&[Document], "jobs", ACTIONS, "tasks", "tasks are under `tasks:`, the steps of each under its `flow:`"),
    word(&[Document, Task], "on", ACTIONS, "a task has `schedules:` and `webhooks:` of its own"),
    word(&[Document, Task, Step], "stages", GITLAB, "there are no stages: a step names what it waits for in `depends_on:`"),
    word(&[Document, Task], "variables", GITLAB, "variables are under `env:` of a task or step"),
    word(&[Document, Task], "default", GITLAB, "there are no defaults for all: make a named action of what is shared"),
    word(&[Document], "include", GITLAB, "every *.yaml file of the folder is read, nothing is included"),
    word(&[Document], "workflow", GITLAB, "whether a step runs is said by its `when:`"),
    word(&[Document], "steps", DAGU, "steps are a map in a task: `tasks: { NAME: { flow: { STEP: … } } }`"),
    word(&[Document], "flow", STROEM, "a flow belongs to a task: `tasks: { NAME: { flow: … } }`"),
    word(&[Document], "schedule", DAGU, "a task has `schedules:`, each with a name, a `cron:` and a `timezone:`"),
    word(&[Document], "params", DAGU, "what a task is given is under its `input:`"),
    word(&[Document], "handlerOn", DAGU, "a task has `on_error:`, `on_success:` and `on_cancel:`"),
    word(&[Document], "triggers", STROEM, "a task has `schedules:` and `webhooks:` of its own"),
    word(&[Document], "name", "other tools", "a task is named by its key under `tasks:`"),
    word(&[Document], "env", "other tools", "variables are under `env:` of a task or step"),
    renamed(&[Task], "steps", "other tools", "flow", "the steps are a map under `flow:`, each named by its key"),
    renamed(&[Task], "jobs", ACTIONS, "flow", "the steps are a map under `flow:`, each named by its key"),
    word(&[Task], "needs", ACTIONS, "steps wait for steps with `depends_on:`; a task calls another with a step of `type: task`"),
    word(&[Task], "runs-on", ACTIONS, "each step says what its worker must offer in `tags:`"),
    word(&[Task], "strategy", ACTIONS, "a step with `for_each:` runs once for each item"),
    word(&[Task], "if", ACTIONS, "whether a step runs is said by its `when:`"),
    word(&[Task], "uses", ACTIONS, "a step says `action:` and the name of an action under `actions:`"),
    word(&[Task], "with", ACTIONS, "a step of an action or task gives it values under `input:`"),
    word(&[Task], "image", GITLAB, "an image belongs to a step, with `runner: docker` or `type: docker`"),
    word(&[Task], "stage", GITLAB, "there are no stages: a step names what it waits for in `depends_on:`"),
    word(&[Task], "script", GITLAB, "a script belongs to a step: `flow: { STEP: { script: … } }`"),
    word(&[Task, Step], "before_script", GITLAB, "write those lines at the beginning of `script:`"),
    word(&[Task, Step], "after_script", GITLAB, "write a step that depends on this one with `accept: terminal`"),
    word(&[Task, Step], "rules", GITLAB, "whether a step runs is said by its `when:`"),
    word(&[Task, Step], "only", GITLAB, "whether a step runs is said by its `when:`"),
    word(&[Task, Step], "except", GITLAB, "whether a step runs is said by its `when:`"),
    word(&[Task], "schedule", DAGU, "schedules have names: `schedules: { nightly: { cron: \"0 2 * * *\" } }`"),
    word(&[Task], "cron", "other tools", "schedules have names: `schedules: { nightly: { cron: \"0 2 * * *\" } }`"),
    word(&[Task], "params", DAGU, "what a task is given is under `input:`, with a type each"),
    word(&[Task, Step], "handlerOn", DAGU, "a task has `on_error:`, `on_success:` and `on_cancel:`"),
    word(&[Task], "triggers", STROEM, "a task has `schedules:` and `webhooks:`"),
    word(&[Task, Step], "name", "other tools", "the key is the name; a sentence about a task is its `description:`"),
    renamed(&[Task, Step], "timeoutSec", DAGU, "timeout", "write `timeout:` with a duration, such as 90 or 5m"),
    word(&[Task, Step], "timeout-minutes", ACTIONS, "write `timeout:` with its unit, such as `timeout: 5m`"),
    renamed(&[Task], "maxActiveRuns", DAGU, "concurrency", "write `concurrency: { group: NAME, limit: 1 }`"),
    renamed(&[Step], "needs", ACTIONS, "depends_on", "what a step waits for is `depends_on:`"),
    renamed(&[Step], "depends", DAGU, "depends_on", "what a step waits for is `depends_on:`"),
    renamed(&[Step], "after", "other tools", "depends_on", "what a step waits for is `depends_on:`"),
    renamed(&[Step], "run", ACTIONS, "script", "the text of a step is `script:`"),
    renamed(&[Step], "cmd", STROEM, "script", "the text of a step is `script:`"),
    renamed(&[Step], "runs-on", ACTIONS, "tags", "what a worker must offer is `tags:`, a list"),
    renamed(&[Step], "if", ACTIONS, "when", "whether a step runs is `when:`, a template"),
    renamed(&[Step], "uses", ACTIONS, "action", "a step says `action:` and the name of an action under `actions:`"),
    renamed(&[Step], "with", ACTIONS, "input", "what an action or task is given is `input:`"),
    renamed(&[Step], "params", DAGU, "input", "what an action or task is given is `input:`"),
    word(&[Step], "strategy", ACTIONS, "a step with `for_each: […]` runs once for each item"),
    word(&[Step], "matrix", ACTIONS, "a step with `for_each: […]` runs once for each item"),
    word(&[Step], "parallel", "other tools", "a step with `for_each: […]` runs once for each item, `max_parallel:` at a time"),
    word(&[Step], "stage", GITLAB, "there are no stages: what a step waits for is `depends_on:`"),
    renamed(&[Step], "allow_failure", GITLAB, "continue_on_failure", "a failure that does not fail the job is `continue_on_failure: true`"),
    renamed(&[Step], "continue-on-error", ACTIONS, "continue_on_failure", "a failure that does not fail the job is `continue_on_failure: true`"),
    renamed(&[Step], "continue_on_error", "other tools", "continue_on_failure", "a failure that does not fail the job is `continue_on_failure: true`"),
    word(&[Step], "continueOn", DAGU, "a failure that does not fail the job is `continue_on_failure: true`"),
    word(&[Step], "retryPolicy", DAGU, "write `retry: { max_attempts: 3, delay: 10s }`"),
    word(&[Step], "preconditions", DAGU, "whether a step runs is `when:`, a template"),
    renamed(&[Step], "variables", GITLAB, "env", "variables are under `env:`"),
    renamed(&[Step], "working-directory", ACTIONS, "workdir", "where a step runs is `workdir:`"),
    renamed(&[Step], "dir", DAGU, "workdir", "where a step runs is `workdir:`"),
    renamed(&[Step], "shell", ACTIONS, "language", "who reads the script is `language:`"),
    renamed(&[Step], "executor", DAGU, "runner", "where a script runs is `runner: local`, `docker` or `pod`"),
    word(&[Step], "output", DAGU, "write `echo \"name=value\" >> \"$STEPWARD_OUTPUT\"` in the script; others read `steps.STEP.output.name`"),
    word(&[Step], "steps", "other tools", "a step holds no steps: name them beside it, or call a task with `type: task`"),
    word(&[Step], "services", GITLAB, "a step runs one container; start what it needs in a step before it"),
    word(&[Step], "artifacts", GITLAB, "what other steps need is given on as output"),
    word(&[Step], "cache", GITLAB, "there is no cache; a worker keeps what you put into folders of your own"),
    word(&[Step], "environment", GITLAB, "variables are under `env:`"),
    renamed(&[Schedule], "schedule", DAGU, "cron", "when it fires is `cron:`"),
    renamed(&[Schedule], "tz", "other tools", "timezone", "where its clock is read is `timezone:`"),
];

/// Values of other tools under keys that we have too.
#[rustfmt::skip]
pub fn foreign_value(key: &str, value: &str) -> Option<(&'static str, &'static str)> {
    Some(match (key, value) {
        ("when", "manual") => (GITLAB, "a person is asked by a step of `type: approval`; depend on it"),
        ("when", "on_failure") => (GITLAB, "write `depends_on: [{ step: NAME, accept: [failed] }]`"),
        ("when", "always") => (GITLAB, "write `depends_on: [{ step: NAME, accept: terminal }]`"),
        ("when", "on_success") => (GITLAB, "leave it out: a step runs when all that it depends on completed"),
        ("when", "never") => (GITLAB, "write `when: false`"),
        ("when", "delayed") => (GITLAB, "a step that sleeps, or a schedule, does that"),
        ("type", "shell" | "command" | "bash" | "sh" | "run" | "local") => (STROEM, "write `type: script`, and `language:` for another shell"),
        ("type", "kubernetes" | "k8s" | "kube") => (STROEM, "write `type: pod`"),
        ("type", "container" | "image" | "podman") => ("other tools", "write `type: docker`"),
        ("type", "workflow" | "dag" | "job" | "subworkflow" | "sub_dag") => (DAGU, "write `type: task` with `task: NAME`"),
        ("type", "manual" | "wait_for_approval" | "ask_user") => ("other tools", "write `type: approval`"),
        ("runner", "shell" | "host" | "none" | "ubuntu-latest") => (STROEM, "write `runner: local`, or leave it out"),
        ("runner", "kubernetes" | "k8s") => (STROEM, "write `runner: pod`"),
        ("runner", "container" | "podman") => ("other tools", "write `runner: docker`"),
        ("accept", "success" | "succeeded") => ("other tools", "write `accept: [completed]`"),
        ("accept", "failure") => (ACTIONS, "write `accept: [failed]`"),
        ("accept", "always" | "done" | "any" | "all") => ("other tools", "write `accept: terminal`"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_near() {
        let keys = ["depends_on", "timeout", "when", "n"];
        for (word, expected) in [
            ("depnds_on", Some("depends_on")),
            ("depends-on", Some("depends_on")),
            ("Timeout", Some("timeout")),
            ("wen", Some("when")),
            ("xyz", None),
            ("N", Some("n")),
            ("m", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), expected, "{word}");
        }
    }

    #[test]
    fn words_are_listed_as_people_do() {
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
