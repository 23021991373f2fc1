//! The keys that steps and actions share: environment, tags, timeout, retry and the rest.

use std::collections::BTreeMap;

use super::{Decoder, Owner, Place, SpecParts, Text, collect_as, find};
use crate::domain::check::tag_fault;
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::retry::{Backoff, OnWorkerLoss, RetryPolicy};
use crate::domain::task::Unmatched;
use crate::language::arguments::{Choice, Role};
use crate::language::source::Span;
use crate::language::tree::{Entry, Kind};

/// `None`: not said.
#[derive(Debug, Default)]
pub struct Policies {
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub tags: Vec<(String, Span)>,
    pub timeout: Option<(i64, Span)>,
    pub retry: Option<RetryPolicy>,
    pub on_worker_loss: Option<OnWorkerLoss>,
    pub unmatched: Option<Unmatched>,
    pub outputs: Vec<SpecParts>,
}

pub const KEYS: &[&str] = &[
    "env",
    "workdir",
    "tags",
    "timeout",
    "retry",
    "on_worker_loss",
    "unmatched",
    "outputs",
];

impl Decoder<'_> {
    pub fn policies<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        texts: &mut Vec<Text<'t>>,
    ) -> Policies {
        let mut policies = Policies::default();
        for entry in entries {
            match entry.key.text.as_str() {
                "env" => policies.env = self.env(entry, owner, Place::StepEnv, texts),
                "workdir" => {
                    if let Some(text) = self.some_text(entry, owner) {
                        let role = Role::Choice(Choice::WorkingFolder);
                        collect_as(role, &entry.value, text, Place::Worker, texts);
                        policies.workdir = Some(text.to_string());
                    }
                }
                "tags" => policies.tags = self.tags(entry, owner),
                "timeout" => {
                    let ms = self.duration(entry, owner, 1);
                    policies.timeout = ms.map(|ms| (ms, entry.value.span));
                }
                "retry" => policies.retry = self.retry(entry, owner),
                "on_worker_loss" => {
                    let all = ["fail", "retry", "hold"];
                    let from_word = OnWorkerLoss::from_word;
                    policies.on_worker_loss =
                        self.word(&entry.value, "on_worker_loss", owner, from_word, &all);
                }
                "unmatched" => {
                    let all = ["fail", "wait"];
                    policies.unmatched =
                        self.word(&entry.value, "unmatched", owner, Unmatched::from_word, &all);
                }
                "outputs" => policies.outputs = self.specs(entry, owner, "output"),
                _ => {}
            }
        }
        policies
    }

    fn tags(&mut self, entry: &Entry, owner: &Owner) -> Vec<(String, Span)> {
        let found = self.texts(entry, owner);
        if found.len() > limits::STEP_TAGS_MAX {
            let (count, max) = (found.len(), limits::STEP_TAGS_MAX);
            let message = format!("{} has {count} tags, at most {max} are allowed", owner.what);
            let problem = self.problems.error("E062", entry.key.span, message);
            problem.label("too many tags");
            return Vec::new();
        }
        let mut tags = Vec::new();
        for (tag, node) in found {
            if tag_fault(tag).is_some() {
                let message = format!("`{tag}` cannot be a tag");
                self.problems
                    .error("E024", node.span, message)
                    .label("letters, digits and `. _ : / - =`, at most 64")
                    .also(owner.span, format!("in this {}", owner.kind));
            } else {
                tags.push((tag.to_string(), node.span));
            }
        }
        tags
    }

    fn retry(&mut self, entry: &Entry, owner: &Owner) -> Option<RetryPolicy> {
        let key = &entry.key;
        if let Kind::Scalar(scalar) = &entry.value.kind
            && scalar.text.parse::<u32>().is_ok()
        {
            let message = format!("`retry` of {} is a number, expected a map", owner.what);
            let fix = format!("{{ max_attempts: {} }}", scalar.text);
            self.problems
                .error("E011", entry.value.span, message)
                .label("expected a map")
                .help(format!(
                    "write `{fix}`; it counts all tries, the first one too"
                ))
                .fix(entry.value.span, fix);
            return None;
        }
        let owner = owner.below("retry", key);
        let entries = self.map(&entry.value, &owner)?;
        let keys = [
            "max_attempts",
            "delay",
            "backoff",
            "max_delay",
            "jitter",
            "on",
        ];
        self.known_keys(entries, &owner, &keys);
        let Some(attempts) = find(entries, "max_attempts") else {
            let help = "it counts all tries, the first one too: `max_attempts: 3`";
            self.missing(&owner, "max_attempts", help);
            return None;
        };
        let max = limits::ATTEMPTS_MAX.into();
        let errors_before = self.problems.errors();
        let has_errors = |decoder: &Self| decoder.problems.errors() > errors_before;
        let said = self.number(attempts, &owner, 1, max);
        let max_attempts = said.unwrap_or(1);
        let mut policy = RetryPolicy::times(max_attempts as u32);
        for entry in entries {
            match entry.key.text.as_str() {
                "delay" => policy.delay_ms = self.duration(entry, &owner, 0).unwrap_or(0),
                "max_delay" => {
                    let ms = self.duration(entry, &owner, 0);
                    policy.max_delay_ms = ms.unwrap_or(policy.max_delay_ms);
                }
                "backoff" => {
                    let all = ["fixed", "exponential"];
                    let found =
                        self.word(&entry.value, "backoff", &owner, Backoff::from_word, &all);
                    policy.backoff = found.unwrap_or(policy.backoff);
                }
                "jitter" => policy.jitter = self.flag(entry, &owner).unwrap_or(false),
                "on" => policy.on = self.reasons(entry, &owner),
                _ => {}
            }
        }
        if max_attempts > 1 && policy.on.is_empty() && !has_errors(self) {
            let on = find(entries, "on").map_or(key.span, |entry| entry.value.span);
            self.problems
                .error("W109", on, "`on: []` names no reason to try again")
                .label("nothing is tried again")
                .help("name reasons, such as `on: [exit_code]`, or leave `on` out");
        }
        if said == Some(1) && entries.len() > 1 {
            self.problems
                .error(
                    "W109",
                    attempts.value.span,
                    "`max_attempts: 1` is the first try alone",
                )
                .label("nothing is tried again")
                .help("it counts all tries: write 2 to try once more");
        }
        Some(policy)
    }

    fn reasons(&mut self, entry: &Entry, owner: &Owner) -> Vec<Reason> {
        let all: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let members: Vec<_> = match &entry.value.kind {
            Kind::List(members) => members.iter().collect(),
            _ => vec![&entry.value],
        };
        let members = members.into_iter();
        members
            .filter_map(|node| self.word(node, "on", owner, Reason::from_word, &all))
            .collect()
    }
}
