//! Schedules and webhooks of a task.

use super::{Decoder, Owner, Place, Text, find};
use crate::cron::Cron;
use crate::domain::Json;
use crate::domain::schedule::{CatchUp, Overlap, ScheduleDraft};
use crate::domain::webhook::{WebhookDraft, WebhookScheme};
use crate::language::source::Span;
use crate::language::tree::{Entry, Key, Kind, Node};
use crate::language::words::Where;

#[derive(Debug)]
pub struct ScheduleParts<'t> {
    pub key: &'t Key,
    pub owner: Owner,
    pub draft: ScheduleDraft,
    pub input_entry: Option<&'t Entry>,
    pub texts: Vec<Text<'t>>,
}

#[derive(Debug)]
pub struct WebhookParts<'t> {
    pub key: &'t Key,
    pub owner: Owner,
    /// `None`: it is broken, and that has been said.
    pub draft: Option<WebhookDraft>,
    pub input_entry: Option<&'t Entry>,
    pub texts: Vec<Text<'t>>,
}

impl Decoder<'_> {
    pub fn schedule<'t>(&mut self, key: &'t Key, node: &'t Node, task: &str) -> ScheduleParts<'t> {
        let owner = Owner::new("schedule", key, Where::Schedule);
        let mut parts = ScheduleParts {
            key,
            draft: ScheduleDraft {
                task: task.to_string(),
                name: key.text.clone(),
                cron: String::new(),
                timezone: "UTC".to_string(),
                input: Json::empty_object(),
                overlap: Overlap::Skip,
                catch_up: CatchUp::Latest {
                    within_ms: CatchUp::LATEST_WITHIN_MS,
                },
                enabled: true,
            },
            owner: owner.clone(),
            input_entry: None,
            texts: Vec::new(),
        };
        if let Kind::Scalar(scalar) = &node.kind
            && !scalar.is_null()
        {
            let fix = format!("{{ cron: \"{}\" }}", scalar.text);
            self.problems
                .error(
                    "E011",
                    node.span,
                    format!("{} is text, expected a map", owner.what),
                )
                .label("expected a map")
                .help(format!("write `{fix}`"))
                .fix(node.span, fix);
            return parts;
        }
        let Some(entries) = self.map(node, &owner) else {
            return parts;
        };
        let keys = [
            "cron", "timezone", "input", "overlap", "catch_up", "enabled",
        ];
        self.known_keys(entries, &owner, &keys);
        for entry in entries {
            match entry.key.text.as_str() {
                "cron" => self.cron(entry, &owner, &mut parts.draft),
                "timezone" => self.timezone(entry, &owner, &mut parts.draft),
                "input" => {
                    parts.draft.input =
                        self.input_object(entry, &owner, Place::ScheduleInput, &mut parts.texts);
                    parts.input_entry = Some(entry);
                }
                "overlap" => {
                    let all = ["skip", "queue", "allow", "cancel_previous"];
                    let found =
                        self.word(&entry.value, "overlap", &owner, Overlap::from_word, &all);
                    parts.draft.overlap = found.unwrap_or(Overlap::Skip);
                }
                "catch_up" => {
                    if let Some(catch_up) = self.catch_up(entry, &owner) {
                        parts.draft.catch_up = catch_up;
                    }
                }
                "enabled" => parts.draft.enabled = self.flag(entry, &owner).unwrap_or(true),
                _ => {}
            }
        }
        let renamed = find(entries, "schedule").is_some();
        if find(entries, "cron").is_none() && !renamed {
            self.missing(&owner, "cron", "say when it fires: `cron: \"0 2 * * *\"`");
        }
        parts
    }

    fn cron(&mut self, entry: &Entry, owner: &Owner, draft: &mut ScheduleDraft) {
        let Some(text) = self.some_text(entry, owner) else {
            return;
        };
        match Cron::parse(text, "UTC") {
            Ok(_) => draft.cron = text.to_string(),
            Err(fault) => {
                let message = format!("`cron` of {}: {fault}", owner.what);
                let value = entry.value.span;
                let span = match self.is_verbatim(&entry.value, text) {
                    // The text is in the file as it is, behind its quote.
                    true => {
                        let quote = u32::from((value.end - value.start) as usize > text.len());
                        let start = value.start + quote;
                        Span {
                            start: start + fault.span.start as u32,
                            end: start + fault.span.end as u32,
                            ..value
                        }
                    }
                    false => value,
                };
                self.problems
                    .error("E022", span, message)
                    .label(format!("in the {} field", fault.field.as_str()))
                    .also(owner.span, "in this schedule")
                    .help("minute hour day month weekday, with the seconds first if there are six: `0 2 * * *`");
            }
        }
        if text.split_whitespace().eq(["*"; 6]) {
            self.problems
                .error(
                    "W108",
                    entry.value.span,
                    format!("{} fires every second", owner.what),
                )
                .label("six fields begin with the seconds")
                .help("for every minute write five fields: `* * * * *`");
        }
    }

    fn is_verbatim(&self, node: &Node, text: &str) -> bool {
        let shown = (node.span.end - node.span.start) as usize;
        shown == text.len() || shown == text.len() + 2
    }

    fn timezone(&mut self, entry: &Entry, owner: &Owner, draft: &mut ScheduleDraft) {
        let Some(text) = self.some_text(entry, owner) else {
            return;
        };
        if let Ok(zone) = jiff::tz::TimeZone::get(text) {
            // As it is spelt, not as it was typed.
            draft.timezone = zone.iana_name().unwrap_or(text).to_string();
            return;
        }
        let message = format!("`{text}` is not a time zone");
        let problem = self.problems.error("E023", entry.value.span, message);
        problem.label("expected an IANA name such as Europe/Oslo or UTC");
        problem.also(owner.span, "in this schedule");
        if self.suggestions.are_exhausted() {
            return;
        }
        let known = self.zones.get_or_init(|| {
            let names = jiff::tz::db().available();
            names.map(|name| name.to_string()).collect()
        });
        let in_a_city = known.iter().find(|name| {
            name.rsplit('/')
                .next()
                .is_some_and(|city| city.eq_ignore_ascii_case(text))
        });
        let near = in_a_city.map(String::as_str);
        let near = near.or_else(|| {
            let known = known.iter().map(String::as_str);
            self.suggestions.nearest(text, known)
        });
        if let Some(near) = near {
            problem
                .help(format!("did you mean `{near}`?"))
                .fix(entry.value.span, near);
        }
    }

    /// `none`, `latest`, `all`, `{ latest: 2h }`, `{ all: 50 }`
    fn catch_up(&mut self, entry: &Entry, owner: &Owner) -> Option<CatchUp> {
        let latest = CatchUp::Latest {
            within_ms: CatchUp::LATEST_WITHIN_MS,
        };
        let all = CatchUp::All {
            max: CatchUp::ALL_MAX,
        };
        if let Kind::Map(entries) = &entry.value.kind {
            let below = owner.below("catch_up", &entry.key);
            self.known_keys(entries, &below, &["latest", "all"]);
            return match entries.as_slice() {
                [one] if one.key.text == "latest" => {
                    let within_ms = self.duration(one, &below, 1)?;
                    Some(CatchUp::Latest { within_ms })
                }
                [one] if one.key.text == "all" => {
                    let max = self.number(one, &below, 1, 10_000)?;
                    Some(CatchUp::All { max: max as u32 })
                }
                [first, second, ..] => {
                    self.exclusive(&below, &first.key.text, second);
                    None
                }
                _ => None,
            };
        }
        let found = self.word(
            &entry.value,
            "catch_up",
            owner,
            |word| match word {
                "none" => Some(0),
                "latest" => Some(1),
                "all" => Some(2),
                _ => None,
            },
            &["none", "latest", "all"],
        )?;
        Some([CatchUp::None, latest, all][found])
    }

    pub fn webhook<'t>(&mut self, key: &'t Key, node: &'t Node, task: &str) -> WebhookParts<'t> {
        let owner = Owner::new("webhook", key, Where::Other);
        let mut parts = WebhookParts {
            key,
            owner: owner.clone(),
            draft: None,
            input_entry: None,
            texts: Vec::new(),
        };
        let Some(entries) = self.map(node, &owner) else {
            return parts;
        };
        self.known_keys(entries, &owner, &["secret", "scheme", "input"]);
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !key.text.chars().all(good) {
            self.problems
                .error(
                    "E020",
                    key.span,
                    format!("`{}` cannot be the name of a webhook", key.text),
                )
                .label("stands in an address")
                .help("use letters, digits, `-`, `_` and `.`");
        }
        let secret = match find(entries, "secret") {
            Some(entry) => self.secret_reference(&entry.value, &owner.below("secret", &entry.key)),
            None => {
                let help = "who calls must show that it knows it: `secret: { env: NAME }`";
                self.missing(&owner, "secret", help);
                None
            }
        };
        let scheme = find(entries, "scheme").and_then(|entry| {
            let all = ["standard", "github", "bearer"];
            self.word(
                &entry.value,
                "scheme",
                &owner,
                WebhookScheme::from_word,
                &all,
            )
        });
        let input = find(entries, "input").map(|entry| {
            parts.input_entry = Some(entry);
            self.input_object(entry, &owner, Place::WebhookInput, &mut parts.texts)
        });
        let rules = self.problems.rules_of(key.span.file);
        parts.draft = secret.map(|secret| WebhookDraft {
            task: task.to_string(),
            name: key.text.clone(),
            secret,
            rules,
            scheme,
            input: input.unwrap_or_else(Json::empty_object),
        });
        parts
    }
}
